"""Decisions of the coordinator beside those of Kafka's own: walks of requests by chance, step by step.

tests/golden/TransactionSteps.java made them with Kafka's TransactionCoordinator. What is compared after each step: what
was answered, what was written, which markers are wanted, and all that is known of each id.
"""

from __future__ import annotations

from typing import Any

from minibroker.errors import Error, KafkaError
from minibroker.stored.transactions import TransactionLogValue
from minibroker.transactions.metadata import ProducerIdAndEpoch, TopicPartition
from minibroker.transactions.records import decode, encode
from minibroker.transactions.shard import NoProducerId, TransactionLimits, TransactionShard, Transition
from minibroker.transactions.states import PREPARE_COMMIT
from tests.goldens import transaction_steps

Step = dict[str, Any]
WAITS, OK = "hold", "ok"
NOBODY = -1  # waits for an answer


class Player:
    """Plays the part of the log and of the partitions, as a step says."""

    def __init__(self) -> None:
        self.level = 0
        self.shard = self._shard()
        self.held: dict[str, tuple[Transition, int]] = {}
        self.completions: dict[str, Transition] = {}
        self.step: Step = {}
        self.number = NOBODY
        self._next_id: int | None = None
        self.answers: list[list[Any]] = []
        self.appended: list[list[str]] = []
        self.wanted: list[list[Any]] = []

    def _shard(self) -> TransactionShard:
        return TransactionShard(TransactionLimits(900_000, 604_800_000, allows_two_phase=False), lambda: self.level)

    def new_producer_id(self) -> int:
        if self._next_id is None:
            raise NoProducerId
        self._next_id += 1
        return self._next_id - 1

    def play(self, step: Step) -> None:
        self.step, self._next_id = step, step["next_id"]
        self.answers, self.appended, self.wanted = [], [], []
        self.number += 1
        try:
            getattr(self, step["op"])()
        except KafkaError as error:
            self.answer(error.code)
        except NoProducerId:
            self.answer(Error.COORDINATOR_LOAD_IN_PROGRESS)

    def answer(self, answer: Error | ProducerIdAndEpoch, number: int | None = None) -> None:
        number = self.number if number is None else number
        told = [answer.name, -1, -1] if isinstance(answer, Error) else ["NONE", *answer]
        self.answers.append([number, *told])

    def carry_out(self, transition: Transition, *, how: str | None = None) -> None:
        name, how = transition.of.name, how or self.step["append"]
        assert transition.to is not None
        value = encode(name, transition.to, self.level)[1]
        assert value is not None
        self.appended.append([name, value.hex()])
        if how == WAITS:
            self.held[name] = (transition, self.number)
        else:
            self.settle(transition, self.number, how)

    def settle(self, transition: Transition, number: int, how: str) -> None:
        is_asked = not self.is_completion(transition) and number != NOBODY
        if how != OK:
            self.shard.refused(transition)
            if is_asked:
                self.answer(getattr(Error, how), number)
            return
        completion = self.shard.committed(transition, self.step["now"])
        if is_asked:
            self.answer(transition.answer, number)
        if completion is not None:
            self.want(completion)

    @staticmethod
    def is_completion(transition: Transition) -> bool:
        return transition.to is not None and transition.to.state.name.startswith("Complete")

    def want(self, completion: Transition) -> None:
        name, metadata = completion.of.name, completion.of.metadata
        self.completions[name] = completion
        places = sorted(list(place) for place in metadata.partitions)
        is_commit = metadata.state is PREPARE_COMMIT
        self.wanted.append([name, *metadata.producer, is_commit, metadata.client_version, places])

    # Steps

    def walk(self) -> None:
        self.number = NOBODY
        self.load()

    def load(self) -> None:
        self.level = self.step["level"]
        self.shard, self.held, self.completions = self._shard(), {}, {}
        for name, value in self.step["records"]:
            found = decode(b"\0\0" + len(name).to_bytes(2, "big") + name.encode(), bytes.fromhex(value))
            assert found is not None
            self.shard.replay(*found)
        for found in self.shard.ids.values():
            completion = self.shard.resume(found, self.step["now"])
            if completion is not None:
                self.want(completion)

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(*self.step["producer"])

    @property
    def partitions(self) -> list[TopicPartition]:
        return [(topic, partition) for topic, partition in self.step["partitions"]]

    def init(self) -> None:
        step = self.step
        transition = self.shard.init_producer_id(
            step["id"],
            step["timeout"],
            None if step["expected"] is None else ProducerIdAndEpoch(*step["expected"]),
            now_ms=step["now"],
            new_producer_id=self.new_producer_id,
            is_two_phase=step["two_phase"],
            keeps_prepared=step["keep"],
        )
        self.carry_out(transition)

    def add(self) -> None:
        step = self.step
        transition = self.shard.add_partitions(
            step["id"], self.producer, self.partitions, version=step["version"], now_ms=step["now"]
        )
        if transition is None:
            self.answer(Error.NONE)
        else:
            self.carry_out(transition)

    def verify(self) -> None:
        try:
            found = self.shard.verify_partitions(self.step["id"], self.producer, self.partitions)
        except KafkaError as error:
            found = dict.fromkeys(self.partitions, error.code)
        self.answers = sorted([*place, error.name] for place, error in found.items())

    def end(self) -> None:
        step = self.step
        found = self.shard.end_transaction(
            step["id"],
            self.producer,
            commit=step["commit"],
            version=step["version"],
            now_ms=step["now"],
            new_producer_id=self.new_producer_id,
        )
        if isinstance(found, Transition):
            self.carry_out(found)
        else:
            self.answer(found)

    def markers(self) -> None:
        name = self.step["id"]
        if name is None:
            return
        found = self.shard.ids[name]
        assert self.shard.markers_written(found, list(found.metadata.partitions))
        if self.step["append"] in (OK, WAITS):
            self.carry_out(self.completions.pop(name))

    def release(self) -> None:
        if self.step["id"] is not None:
            transition, number = self.held.pop(self.step["id"])
            self.settle(transition, number, self.step["how"])

    def timeouts(self) -> None:
        number, self.number = self.number, NOBODY
        late = [found for found in self.shard.ongoing() if found.is_timed_out(self.step["now"])]
        for found in sorted(late, key=lambda found: found.name):  # Kafka: by hash
            try:
                transition = self.shard.abort(found, now_ms=self.step["now"], new_producer_id=self.new_producer_id)
            except NoProducerId:
                continue
            self.carry_out(transition)
        self.number = number

    def describe(self) -> None:
        try:
            metadata = self.shard.describe(self.step["id"])
        except KafkaError as error:
            self.answers.append([error.code.name, "", 0, 0, 0, 0])
            return
        told = metadata.state.name, *metadata.producer, metadata.timeout_ms, metadata.start_ms
        self.answers.append(["NONE", *told])

    # What has come of it

    def states(self) -> list[list[Any]]:
        found = []
        for name in sorted(self.shard.ids):
            known = self.shard.ids[name]
            metadata = known.metadata
            places = sorted(list(place) for place in metadata.partitions)
            about = name, *metadata.producer, metadata.last_producer_epoch, metadata.state.name, metadata.timeout_ms
            found.append([*about, metadata.start_ms, metadata.last_update_ms, places, known.pending is not None])
        return found


def parsed(appended: list[list[str]]) -> list[tuple[str, str, TransactionLogValue]]:
    """Return what records say: Kafka writes the partitions of one in no order of its own."""
    found = []
    for name, value in appended:
        metadata = TransactionLogValue.decode_stored(bytes.fromhex(value))
        for topic in metadata.transaction_partitions or ():
            topic.partition_ids = sorted(topic.partition_ids)
        if metadata.transaction_partitions is not None:
            metadata.transaction_partitions.sort(key=lambda topic: topic.topic)
        found.append((name, value[:4], metadata))
    return found


def check(player: Player, step: Step) -> None:
    player.play(step)
    assert player.answers == step["answers"]
    assert parsed(player.appended) == parsed(step["appended"])
    assert sorted(player.wanted) == sorted(step["markers"])
    assert player.states() == step["after"]


def test_every_step_is_decided_as_kafka_decides_it() -> None:
    player = Player()
    for number, step in enumerate(transaction_steps()):
        try:
            check(player, step)
        except AssertionError as error:
            error.add_note(f"step {number}: {step}")
            raise
