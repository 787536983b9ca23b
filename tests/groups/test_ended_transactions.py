"""Offsets of a transaction that has ended: however many, they count in shares, and before anybody hears of its end."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from minibroker.broker.handlers.group_offsets import WRITTEN_TOGETHER
from minibroker.errors import Error, KafkaError
from minibroker.groups import OFFSETS_TOPIC
from minibroker.groups.offsets import OpenOffsets
from minibroker.groups.offsets_partition import OffsetsPartition
from minibroker.log.memory_storage import MemoryStorage
from minibroker.protocol.messages.end_txn import EndTxnRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest
from minibroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from minibroker.simulation.loop import START_MS
from minibroker.turns import FIRST_US
from tests.broker.handlers.transactional import Transactional
from tests.broker.virtual_broker import VirtualBroker, virtual_broker
from tests.coordinator.counts import batches_of, hold

pytestmark = pytest.mark.outside

SETTINGS: dict[str, object] = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
COUNT = 4 * WRITTEN_TOGETHER
Settle = Callable[[OffsetsPartition, OpenOffsets], Generator[int, None, None]]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return what each share of the work is said to take."""
    found: list[int] = []
    settle: Settle = OffsetsPartition._settle

    def noted(self: OffsetsPartition, ended: OpenOffsets) -> Generator[int, None, None]:
        for step_us in settle(self, ended):
            found.append(step_us)
            yield step_us

    monkeypatch.setattr(OffsetsPartition, "_settle", noted)
    return found


def committing(broker: VirtualBroker, groups: list[str]) -> Transactional:
    """Return a producer whose transaction is to commit an offset of each partition of a topic for each group."""
    if "t" not in broker.node.image.topics:
        broker.node.create_topic("t", COUNT)
    broker.ask(FindCoordinatorRequest(coordinator_keys=groups, key_type=0), 4)
    producer = Transactional(broker, is_v2=True).begin()
    Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    rows = [
        Topic.TxnOffsetCommitRequestPartition(partition_index=number, committed_offset=number, committed_metadata=None)
        for number in range(COUNT)
    ]
    for group in groups:
        request = TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=group,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            topics=[Topic(name="t", partitions=rows)],
        )
        (topic,) = broker.ask(request, 5).topics
        assert {each.error_code for each in topic.partitions} == {Error.NONE}
    return producer


def end_of(producer: Transactional, *, commit: bool = True) -> EndTxnRequest:
    return EndTxnRequest(transactional_id="t", producer_id=producer.id, producer_epoch=producer.epoch, committed=commit)


def shown(broker: VirtualBroker, *, stable: bool = True) -> dict[int, int]:
    """Return all offsets of a group."""
    wanted = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
    (group,) = broker.ask(OffsetFetchRequest(groups=[wanted], require_stable=stable), 8).groups
    assert group.error_code == Error.NONE
    return {each.partition_index: each.committed_offset for topic in group.topics for each in topic.partitions}


@pytest.mark.pure
@pytest.mark.parametrize("commit", [True, False])
def test_offsets_count_in_shares_when_a_transaction_ends_and_when_its_end_is_read(
    commit: bool, steps: list[int]
) -> None:
    expected = {number: number for number in range(COUNT)} if commit else {}
    storage = MemoryStorage(lambda: START_MS)
    with virtual_broker(SETTINGS, storage=storage) as broker:
        producer = committing(broker, ["g"])
        written = batches_of(broker.node.replicas[OFFSETS_TOPIC, 0])
        assert [len(list(batch.records())) for batch in written] == [WRITTEN_TOGETHER] * 4
        ended = broker.begin(end_of(producer, commit=commit), 5)
        while producer.state not in {"CompleteCommit", "CompleteAbort"}:
            broker.pass_ms(0)
        assert broker.wait(ended).error_code == Error.NONE
        assert max(steps) <= FIRST_US
        assert sum(steps) >= COUNT
        assert shown(broker) == shown(broker, stable=False) == expected
    steps.clear()
    with virtual_broker(SETTINGS, storage=storage) as broker:
        broker.pass_ms(10)
        assert max(steps) <= FIRST_US
        assert sum(steps) >= COUNT
        assert shown(broker) == expected


def test_who_asks_for_all_stable_offsets_is_not_shown_half_of_a_transaction() -> None:
    with virtual_broker(SETTINGS) as broker:
        producer = committing(broker, ["g", "h"])
        before = broker.node.groups.coordinator.led[0].shard.offsets
        broker.begin(end_of(producer), 5)
        while not before.ending("g"):
            broker.pass_ms(0)
        assert len(shown(broker)) == COUNT
        assert before.ending("g") == []


def test_groups_wait_for_a_marker_that_is_read_and_not_safe() -> None:
    with virtual_broker(SETTINGS) as broker:
        producer = committing(broker, ["g", "h"])
        coordinator = broker.node.groups.coordinator
        release = broker.run(hold, broker.node.replicas[OFFSETS_TOPIC, 0])
        broker.begin(end_of(producer), 5)
        broker.pass_ms(100)
        assert shown(broker, stable=False) == {}
        broker.run(coordinator.led[0]._begin_again)
        broker.pass_ms(100)
        for group in ("g", "h"):
            with pytest.raises(KafkaError) as refused:
                coordinator.find(group)
            assert refused.value.code == Error.COORDINATOR_LOAD_IN_PROGRESS
        broker.run(release)
        broker.pass_ms(100)
        for group in ("g", "h"):
            assert len(coordinator.find(group).shard.offsets.places(group)) == COUNT
        broker.pass_ms(1000)
        assert producer.state == "CompleteCommit"


def test_offsets_that_have_expired_are_deleted_group_by_group() -> None:
    with virtual_broker({**SETTINGS, "offsets.retention.minutes": 1}) as broker:
        producer = committing(broker, ["g", "h"])
        broker.wait(broker.begin(end_of(producer), 5))
        led = broker.node.groups.coordinator.led[0]
        broker.pass_ms(120_000)
        work = led._delete_expired_in_shares()
        broker.run(next, work)
        broker.run(next, work)
        assert len([*led.shard.offsets.latest("g"), *led.shard.offsets.latest("h")]) == COUNT
        work.close()
        broker.run(led.delete_expired)
        broker.pass_ms(10)
        assert led.shard.groups == {}
