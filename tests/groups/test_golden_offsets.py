"""Offsets, transactional ones too, beside Kafka's group coordinator: walks of requests by chance, step by step.

golden/OffsetSteps.java made them with Kafka's GroupCoordinatorShard. What is compared after each step: what was
answered, what was written, all groups, and all offsets, as they are shown to who wants stable ones and to others.
"""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.errors import Error
from minibroker.groups import OFFSETS_TOPIC
from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.formats import COMMIT
from minibroker.log.reading import read
from minibroker.log.records import Record, control_type
from minibroker.log.validate import COORDINATOR
from minibroker.protocol.messages.delete_groups import DeleteGroupsRequest
from minibroker.protocol.messages.delete_topics import DeleteTopicsRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.list_groups import ListGroupsRequest
from minibroker.protocol.messages.offset_commit import OffsetCommitRequest
from minibroker.protocol.messages.offset_delete import OffsetDeleteRequest
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest
from minibroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from minibroker.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from minibroker.stored.group_offsets import OffsetCommitValue
from tests.broker.handlers.transactional import Transactional
from tests.broker.virtual_broker import VirtualBroker, virtual_broker
from tests.groups.goldens import golden_lines

pytestmark = pytest.mark.outside

Step = dict[str, Any]
Place = list[Any]  # topic, partition, offset, length of the metadata
START_MS = 1_000_000_000_000
JAVA_ID = bytes.fromhex("4d4d4d4d4d4d4d4d00000000000000")  # and a number
LARGE = 5000  # metadata that are refused
NEVER_MS = 2_000_000_000
SETTINGS: dict[str, object] = {
    "offsets.topic.num.partitions": 1,
    "offsets.retention.minutes": 1,
    "offsets.retention.check.interval.ms": NEVER_MS,
    "group.consumer.max.session.timeout.ms": NEVER_MS,
    "group.consumer.session.timeout.ms": NEVER_MS,
    "group.max.session.timeout.ms": NEVER_MS,
    "transaction.max.timeout.ms": NEVER_MS,
    "transaction.state.log.num.partitions": 1,
    "transaction.partition.verification.enable": False,
}
GROUPS, TOPICS = ("g", "h", "m", "c"), ("t", "u")


class Player:
    """Asks a broker what a walk says."""

    def __init__(self, broker: VirtualBroker):
        self.broker = broker
        self.numbers = {"t": 1, "u": 11}  # what a walk calls the topics of these names
        for topic in TOPICS:
            broker.node.create_topic(topic, 2)
        broker.ask(FindCoordinatorRequest(key="g", key_type=0), 3)
        self.producers = [Transactional(broker, f"p{number}").begin(NEVER_MS) for number in range(3)]
        self.answers: list[list[Any]] = []
        self.end_offset = 0
        self.now_ms = START_MS

    @property
    def led(self) -> Any:
        return self.broker.node.groups.coordinator.led[0]

    def topic_id(self, topic: str) -> bytes:
        return self.broker.node.image.topics[topic].id

    def play(self, step: Step) -> None:
        self.broker.pass_ms(START_MS + step["now"] - self.broker.node.clock.now_ms())
        self.answers, self.now_ms = [], START_MS + step["now"]
        getattr(self, step["op"])(step)
        self.answers.sort()

    def answer(self, topic: str, partition: int, code: int) -> None:
        self.answers.append([topic, partition, Error(code).name])

    def answer_each(self, topics: Any) -> None:
        names = {self.topic_id(topic): topic for topic in TOPICS}
        for topic in topics:
            for each in topic.partitions:
                self.answer(topic.name or names[bytes(topic.topic_id)], each.partition_index, each.error_code)

    def walk(self, step: Step) -> None:
        """All is as it is in the beginning."""

    def commit(self, step: Step) -> None:
        Topic = OffsetCommitRequest.OffsetCommitRequestTopic
        request = OffsetCommitRequest(
            group_id=step["group"],
            member_id=step["member"],
            group_instance_id=step["instance"],
            generation_id_or_member_epoch=step["generation"],
            topics=self.topics(step, Topic, Topic.OffsetCommitRequestPartition),
        )
        self.answer_each(self.broker.ask(request, step["version"]).topics)

    def txn(self, step: Step) -> None:
        Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        producer = self.producers[step["producer"]]
        request = TxnOffsetCommitRequest(
            transactional_id=producer.name,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            group_id=step["group"],
            member_id=step["member"],
            group_instance_id=step["instance"],
            generation_id_or_member_epoch=step["generation"],
            topics=self.topics(step, Topic, Topic.TxnOffsetCommitRequestPartition, by_id=step["version"] >= 6),
        )
        self.answer_each(self.broker.ask(request, step["version"]).topics)

    def topics(self, step: Step, Topic: Any, Partition: Any, *, by_id: bool = False) -> list[Any]:
        found: dict[str, list[Any]] = {}
        for topic, index, offset, length in step["places"]:
            metadata = "x" * length if length == LARGE else "m" * length
            row = Partition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
            found.setdefault(topic, []).append(row)
        return [
            Topic(topic_id=self.topic_id(topic), partitions=rows) if by_id else Topic(name=topic, partitions=rows)
            for topic, rows in found.items()
        ]

    def end(self, step: Step) -> None:
        Marker = WriteTxnMarkersRequest.WritableTxnMarker
        producer = self.producers[step["producer"]]
        marker = Marker(
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            transaction_result=step["commit"],
            topics=[Marker.WritableTxnMarkerTopic(name=OFFSETS_TOPIC, partition_indexes=[0])],
            coordinator_epoch=0,
        )
        answer = self.broker.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
        assert answer.markers[0].topics[0].partitions[0].error_code == Error.NONE

    def delete(self, step: Step) -> None:
        for result in self.broker.ask(DeleteGroupsRequest(groups_names=step["deleted"]), 2).results:
            self.answer(result.group_id, 0, result.error_code)

    def offset_delete(self, step: Step) -> None:
        Topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
        topics: dict[str, Any] = {}
        for name, index, _, _ in step["places"]:
            topic = topics.setdefault(name, Topic(name=name, partitions=[]))
            topic.partitions.append(Topic.OffsetDeleteRequestPartition(partition_index=index))
        request = OffsetDeleteRequest(group_id=step["group"], topics=list(topics.values()))
        answer = self.broker.ask(request, 0)
        if answer.error_code:
            self.answer("", -1, answer.error_code)
        self.answer_each(answer.topics)

    def expire(self, step: Step) -> None:
        self.broker.run(self.led.delete_expired)
        self.broker.pass_ms(0)

    def anew(self, step: Step) -> None:
        name = step["topic"]
        self.broker.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 5)
        self.numbers[name] += 1
        self.broker.run(self.broker.node.create_topic, name, 2)
        self.broker.pass_ms(0)

    def load(self, step: Step) -> None:
        """Another coordinator begins, and finds these records behind the others."""
        records = []
        for index, (key, value) in enumerate(step["records"]):
            records.append(Record(bytes.fromhex(key), value and self.ours(bytes.fromhex(value)), (), 0, index))
        clock = self.broker.node.clock
        if records:
            self.led.replica.append(
                bytearray(build_batch(2, records)),
                now_ms=clock.now_ms(),
                steady_ms=clock.steady_ms(),
                acks=-1,
                origin=COORDINATOR,
            )
            self.end_offset += len(records)
        self.broker.run(self.led._begin_again)
        self.broker.pass_ms(0)
        assert not self.led.is_loading, self.led.failure

    def ours(self, value: bytes) -> bytes:
        """Return a value with the ids that the topics have here."""
        for topic, number in self.numbers.items():
            value = value.replace(JAVA_ID + bytes([number]), self.topic_id(topic))
        return value

    # What has come of it

    def written(self) -> list[Any]:
        """Return what was written since this was called last; nobody minds the order."""
        log, found = self.led.replica.log, []
        while data := read(log, self.end_offset, 1 << 20, limit_offset=log.log_end_offset):
            for batch in batches(data.view()):
                ids = [producer.id for producer in self.producers]
                producer = ids.index(batch.producer_id) if batch.producer_id in ids else -1
                for record in batch.records():
                    if batch.is_control:
                        found.append([producer, "COMMIT" if control_type(record) == COMMIT else "ABORT", None])
                    else:
                        value = None if record.value is None else bytes(record.value)
                        found.append([producer, bytes(record.key or b"").hex(), self.parsed(value)])
                self.end_offset = batch.last_offset + 1
        return unordered(found)

    def parsed(self, value: bytes | None) -> Any:
        if value is None:
            return None
        found = OffsetCommitValue.decode_stored(value)
        numbers = {self.topic_id(topic): number for topic, number in self.numbers.items()}
        number = numbers.get(bytes(found.topic_id), found.topic_id[-1])
        late_ms = found.commit_timestamp - self.now_ms
        return [found.offset, found.metadata, 0 if abs(late_ms) <= 1 else late_ms, found.expire_timestamp, number]

    def kafkas(self, written: list[Any]) -> list[Any]:
        found = []
        for producer, key, value in written:
            data = None if value is None else bytes.fromhex(value)
            found.append([producer, key, self.parsed(data)])
        return unordered(found)

    def groups(self) -> list[list[str]]:
        answer = self.broker.ask(ListGroupsRequest(states_filter=[], types_filter=[]), 5)
        return sorted([each.group_id, each.group_state, each.group_type.lower()] for each in answer.groups)

    def offsets(self, *, stable: bool) -> list[list[Any]]:
        Group = OffsetFetchRequest.OffsetFetchRequestGroup
        topics = [Group.OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1]) for topic in TOPICS]
        wanted = [Group(group_id=group, topics=topics) for group in GROUPS]
        answer = self.broker.ask(OffsetFetchRequest(groups=wanted, require_stable=stable), 8)
        return [
            [group.group_id, topic.name, row.partition_index, row.committed_offset, row.metadata, row.error_code]
            for group in answer.groups
            for topic in group.topics
            for row in topic.partitions
            if row.error_code or row.committed_offset != -1
        ]


def unordered(written: list[Any]) -> list[Any]:
    """Return records by their keys; who deletes an offset twice has deleted it."""
    return [list(row) for row in sorted({(row[0], row[1], str(row[2])) for row in written})]


def check(player: Player, step: Step) -> None:
    player.play(step)
    assert player.answers == step["answers"]
    assert player.written() == player.kafkas(step["written"])
    assert player.groups() == step["groups"]
    assert player.offsets(stable=False) == step["offsets"]
    assert player.offsets(stable=True) == step["stable"]


def walks() -> list[list[Step]]:
    found: list[list[Step]] = []
    for step in golden_lines("offset-steps"):
        if step["op"] == "walk":
            found.append([])
        found[-1].append(step)
    return found


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_offsets_become_what_they_become_in_kafka(first: int) -> None:
    for walk, steps in enumerate(walks()[first : first + 10], first):
        with virtual_broker(SETTINGS, start_ms=START_MS) as broker:
            player = Player(broker)
            for number, step in enumerate(steps):
                try:
                    check(player, step)
                except AssertionError as error:
                    error.add_note(f"walk {walk}, step {number}: {step}")
                    raise
