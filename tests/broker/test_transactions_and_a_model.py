"""Transactions of one broker, step by step beside a model of what counts, through what else happens to its logs.

A step is one of a producer (classic or v2; data in a compacted topic, offsets of groups), a plain commit, a deletion of
offsets or of a group, a pass of the cleaner over all three logs, a change of transaction.version, hours or days that
pass, or an end of the broker: in order, or as kill -9 leaves its store. Behind each step everything is looked at.
Not here: several brokers, faults of links and disks (tests/simulation).
"""

from __future__ import annotations

import copy
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from minibroker.cleaner.transactions import Transactions
from minibroker.errors import Error
from minibroker.groups import OFFSETS_TOPIC
from minibroker.groups.offsets import Offsets
from minibroker.log.memory_storage import MemoryStorage
from minibroker.protocol.messages.delete_groups import DeleteGroupsRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.offset_commit import OffsetCommitRequest
from minibroker.protocol.messages.offset_delete import OffsetDeleteRequest
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest
from minibroker.protocol.messages.update_features import UpdateFeaturesRequest
from minibroker.simulation.loop import START_MS
from minibroker.transactions import TRANSACTION_STATE_TOPIC
from tests.broker.handlers.transactional import Transactional, read_records
from tests.broker.virtual_broker import VirtualBroker, virtual_broker

HOUR_MS = 3_600_000
SETTINGS: dict[str, object] = {
    "transaction.state.log.num.partitions": 2,
    "offsets.topic.num.partitions": 2,
    "transactional.id.expiration.ms": 2_000_000_000,
    "transaction.max.timeout.ms": 480 * HOUR_MS,
}
GROUPS = ("g0", "g1", "g2")
WEIGHTS = {
    "offset": 6, "data": 7, "end": 6, "commit": 2, "init": 2, "delete_offsets": 2, "delete_group": 2, "compact": 5,
    "feature": 2, "hour": 2, "days": 1, "stop": 1, "kill": 2,
}  # fmt: skip
STEPS = 100


class Model:
    """What counts, and what will if its transaction is committed. Each has its place in the order of writing."""

    def __init__(self) -> None:
        self.counts: dict[Any, tuple[int, Any]] = {}  # a group, or a key of the topic -> order, offset or value
        self.open: dict[str, dict[Any, tuple[int, Any]]] = {}
        self._order = 0

    def write(self, what: Any, value: Any, name: str | None = None) -> None:
        self._order += 1
        into = self.counts if name is None else self.open.setdefault(name, {})
        into[what] = (self._order, value)

    def end(self, name: str, *, commit: bool) -> None:
        for what, written in self.open.pop(name, {}).items():
            if commit and self.counts.get(what, (0,)) < written:
                self.counts[what] = written

    def delete(self, group: str) -> None:
        """Let no transaction commit what it had for the group; it may be open without anything then."""
        self.write(group, None)
        for written in self.open.values():
            written.pop(group, None)

    def pending(self) -> set[Any]:
        return {what for written in self.open.values() for what in written}


class Run:
    """One seed: a store, brokers on it one after the other, and producers that outlive them."""

    def __init__(self, seed: int):
        self.random = Random(seed)
        self.model = Model()
        self.store = MemoryStorage(lambda: START_MS)
        self.producers: dict[str, Transactional] = {}
        self.broker: VirtualBroker
        self.said: list[str] = []

    def run(self, steps: int) -> None:
        start_ms = START_MS
        while steps > 0:
            with virtual_broker(SETTINGS, storage=self.store, start_ms=start_ms) as self.broker:
                if "t" not in self.broker.node.image.topics:
                    self.broker.node.create_topic("o", 1)
                    self.broker.node.create_topic("t", 1, {"cleanup.policy": "compact"})
                for group in GROUPS:
                    self.broker.ask(FindCoordinatorRequest(coordinator_keys=[group], key_type=0), 4)
                for producer in self.producers.values():
                    producer.broker = self.broker
                self.broker.pass_ms(50)
                self.check()
                kept, step = self.store, ""
                while steps > 0 and step not in ("stop", "kill"):
                    steps -= 1
                    (step,) = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))
                    self.said.append(step)
                    if step == "kill":
                        kept = copy.deepcopy(self.store)
                    elif step != "stop":
                        getattr(self, step)()
                        self.check()
                start_ms = self.broker.now_ms() + 1000
            self.store = kept

    # Steps

    def producer(self) -> Transactional:
        name = f"p{self.random.randrange(4)}"
        if name not in self.producers:
            made = Transactional(self.broker, name, is_v2=self.random.random() < 0.5)
            self.producers[name] = made.begin(480 * HOUR_MS)
        return self.producers[name]

    def offset(self) -> None:
        producer, group, offset = self.producer(), self.random.choice(GROUPS), self.random.randrange(1000)
        if not producer.is_v2:
            assert producer.add_offsets(group) == Error.NONE
        assert producer.commit_offset("o", offset, group=group, version=5 if producer.is_v2 else 4) == Error.NONE
        self.model.write(group, offset, producer.name)

    def data(self) -> None:
        producer, key = self.producer(), b"k%d" % self.random.randrange(5)
        value = b"%d" % self.random.randrange(1000) if self.random.random() < 0.8 else None
        if not producer.is_v2:
            assert producer.add(("t", 0)) == {("t", 0): Error.NONE}
        assert producer.produce("t", value, key=key) == Error.NONE
        self.model.write(key, value, producer.name)

    def end(self) -> None:
        commit = self.random.random() < 0.6
        if self.model.open:
            name = self.random.choice(sorted(self.model.open))
            assert self.producers[name].end(commit=commit) == Error.NONE
            self.broker.pass_ms(5)
            self.model.end(name, commit=commit)

    def init(self) -> None:
        producer = self.producer()
        if (code := producer.init(480 * HOUR_MS)) == Error.CONCURRENT_TRANSACTIONS:
            self.broker.pass_ms(50)
            code = producer.init(480 * HOUR_MS)
        assert code == Error.NONE
        self.model.end(producer.name, commit=False)

    def commit(self) -> None:
        group, offset, Topic = self.random.choice(GROUPS), self.random.randrange(1000), _Committed
        row = Topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=None)
        answer = self.broker.ask(OffsetCommitRequest(group_id=group, topics=[Topic(name="o", partitions=[row])]), 8)
        assert answer.topics[0].partitions[0].error_code == Error.NONE
        self.model.write(group, offset)

    def delete_offsets(self) -> None:
        group, Topic = self.random.choice(GROUPS), OffsetDeleteRequest.OffsetDeleteRequestTopic
        rows = [Topic.OffsetDeleteRequestPartition(partition_index=0)]
        answer = self.broker.ask(OffsetDeleteRequest(group_id=group, topics=[Topic(name="o", partitions=rows)]), 0)
        if answer.error_code == Error.NONE:
            self.model.delete(group)

    def delete_group(self) -> None:
        group = self.random.choice(GROUPS)
        code = self.broker.ask(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code
        assert code in (Error.NONE, Error.GROUP_ID_NOT_FOUND)
        if code == Error.NONE:
            self.model.delete(group)

    def compact(self) -> None:
        cleaning = self.broker.node.cleaning
        for topic in ("t", OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC):
            if topic in self.broker.node.image.topics:
                self.broker.wait(self.broker.loop.create_task(cleaning.roll_now(topic)))
                self.broker.wait(self.broker.loop.create_task(cleaning.compact_now(topic)))

    def feature(self) -> None:
        level = self.random.randrange(3)
        Update = UpdateFeaturesRequest.FeatureUpdateKey
        update = Update(feature="transaction.version", max_version_level=level, upgrade_type=2)
        self.broker.ask(UpdateFeaturesRequest(timeout_ms=1000, feature_updates=[update], validate_only=False), 1)

    def hour(self) -> None:
        self.broker.pass_ms(HOUR_MS)

    def days(self) -> None:
        self.broker.pass_ms(26 * HOUR_MS)  # more than delete.retention.ms and producer.id.expiration.ms

    # What everybody sees

    def check(self) -> None:
        model, said, pending = self.model, self.said[-12:], self.model.pending()
        for group in GROUPS:
            _, offset = model.counts.get(group, (0, None))
            assert self.fetched(group, is_stable=False) == (-1 if offset is None else offset, Error.NONE), (group, said)
            code = Error.UNSTABLE_OFFSET_COMMIT if group in pending else Error.NONE
            assert self.fetched(group, is_stable=True)[1] == code, (group, said)
        for name, producer in self.producers.items():
            assert (producer.state == "Ongoing") == (name in model.open), (name, producer.state, said)
        replica, has_data = self.broker.node.replicas["t", 0], not pending <= {*GROUPS}
        hw = replica.high_watermark
        assert (replica.log.last_stable_offset(hw) < hw) == has_data, said
        if not has_data:  # otherwise readers see the part before it only
            found = {bytes(each.key or b""): each.value for each in read_records(self.broker, "t")}
            counts = {key: value for key, (_, value) in model.counts.items() if key not in GROUPS}
            assert {key: bytes(value) for key, value in found.items() if value is not None} == {
                key: value for key, value in counts.items() if value is not None
            }, said

    def fetched(self, group: str, *, is_stable: bool) -> tuple[int, int]:
        Group = OffsetFetchRequest.OffsetFetchRequestGroup
        topics = [Group.OffsetFetchRequestTopics(name="o", partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[Group(group_id=group, topics=topics)], require_stable=is_stable)
        (row,) = self.broker.ask(request, 9).groups[0].topics[0].partitions
        return row.committed_offset, row.error_code


_Committed = OffsetCommitRequest.OffsetCommitRequestTopic


QUICK, SEEDS = 2, 10


@pytest.mark.parametrize("seed", range(QUICK))
def test_what_counts_is_what_was_committed_whatever_is_cleaned_deleted_or_started_again(seed: int) -> None:
    Run(seed).run(STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(QUICK, SEEDS))
def test_what_counts_is_what_was_committed_in_more_seeds(seed: int) -> None:
    Run(seed).run(STEPS)


forget_pending = Offsets._forget_pending


def spare_the_open(offsets: Offsets, *given: Any, are_open: bool) -> None:
    """Let a deletion leave alone what open transactions would commit."""
    if not are_open:
        forget_pending(offsets, *given, are_open=are_open)


# Bugs that runs of the profile `transactions` do not come to: they delete no group, and clean nothing.
BUGS = {
    "deleted-offsets-come-back": (Offsets, "_forget_pending", spare_the_open),
    "cleaner-knows-no-aborted": (Transactions, "add_aborted", lambda transactions, entries: None),
    "markers-are-cleaned-first": (Transactions, "_see_marker", lambda transactions, batch: True),
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    with patch.object(*BUGS[bug]), pytest.raises(AssertionError):
        for seed in range(1, 6):
            Run(seed).run(STEPS)
