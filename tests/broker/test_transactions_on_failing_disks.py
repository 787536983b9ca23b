"""Transactions on a disk that fails at each of their steps: what was answered stands, and all of one counts or nothing.

A record and an offset go into one transaction while the disk fails, once or from then on. After a restart on a disk
that works both are there or neither; both, if the producer was told so; and the next producer of the id goes on.
"""

from __future__ import annotations

import errno
from typing import Any

import pytest

from minibroker.errors import Error
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest
from minibroker.simulation.disk import FOREVER, SimulatedStorage
from tests.broker.handlers.transactional import SETTINGS, TRANSACTION, Transactional, read
from tests.broker.virtual_broker import VirtualBroker, virtual_broker

pytestmark = pytest.mark.outside

ONE_PARTITION: dict[str, object] = {
    **SETTINGS,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
PATIENCE_S = 70  # longer than any write is waited for
STEPS_MAX = 32
PLACE = ("orders", 0)


class Patient:
    """Asks a broker, and gives up when no answer comes."""

    def __init__(self, broker: VirtualBroker):
        self.broker = broker

    def __getattr__(self, name: str) -> Any:
        return getattr(self.broker, name)

    def ask(self, request: Any, version: int) -> Any:
        task = self.broker.begin(request, version)
        for _ in range(PATIENCE_S):
            if task.done():
                return task.result()
            self.broker.pass_ms(1000)
        raise AssertionError(f"no answer to {type(request).__name__}")


def transaction(broker: VirtualBroker, *, is_v2: bool) -> bool:
    """Write a record and an offset; say whether all of it was answered as done."""
    producer = Transactional(Patient(broker), is_v2=is_v2)  # type: ignore[arg-type]
    if producer.init() != Error.NONE:
        return False
    codes = [] if is_v2 else [*producer.add(PLACE).values(), producer.add_offsets("g")]
    codes.append(producer.produce("orders", b"one"))
    codes.append(producer.commit_offset("orders", 7, version=5 if is_v2 else 4))
    return producer.end(commit=not any(codes)) == Error.NONE and not any(codes)


def committed(broker: VirtualBroker) -> int:
    Group = OffsetFetchRequest.OffsetFetchRequestGroup
    topics = [Group.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[Group(group_id="g", topics=topics)], require_stable=True)
    (group,) = broker.ask(request, 8).groups
    assert group.error_code == Error.NONE
    (row,) = group.topics[0].partitions
    assert row.error_code == Error.NONE
    return int(row.committed_offset)


def fail_at(step: int, times: int, *, is_v2: bool) -> int:
    """Let one step fail, or all from then on; return how many there were."""
    storage = SimulatedStorage()
    with virtual_broker(ONE_PARTITION, storage=storage) as broker:
        broker.node.create_topic("orders", 1)
        for key, kind in (("g", 0), ("t", TRANSACTION)):
            broker.ask(FindCoordinatorRequest(coordinator_keys=[key], key_type=kind), 4)
        Transactional(broker, "another", is_v2=is_v2).begin()
        begun = storage.steps
        storage.fail(errno.EIO, at=begun + step, times=times, written_bytes=30)
        is_done = transaction(broker, is_v2=is_v2)
        broker.pass_ms(5_000)
        steps = storage.steps - begun
    storage.heal()
    with virtual_broker(ONE_PARTITION, storage=storage) as broker:
        broker.pass_ms(20_000)
        producer = Transactional(Patient(broker), is_v2=is_v2)  # type: ignore[arg-type]
        for _ in range(3):
            code = producer.init()
            if code == Error.NONE:
                break
            assert code == Error.CONCURRENT_TRANSACTIONS  # what was left open is aborted
            broker.pass_ms(1_000)
        there = (read(broker, "orders"), committed(broker))
        assert there in ([([b"one"], 7)] if is_done else [([b"one"], 7), ([], -1)])
        if not is_v2:
            assert producer.add(PLACE) == {PLACE: Error.NONE}
        assert producer.produce("orders", b"two") == Error.NONE
        assert producer.end() == Error.NONE
        broker.pass_ms(1_000)
        assert read(broker, "orders") == [*there[0], b"two"]
    return steps


@pytest.mark.parametrize("times", [1, FOREVER])
@pytest.mark.parametrize("is_v2", [False, True])
@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in (1, 2, 3))])
def test_a_transaction_counts_as_a_whole_whatever_step_of_it_fails(is_v2: bool, times: int, first: int) -> None:
    for step in range(first, STEPS_MAX, 4):
        fail_at(step, times, is_v2=is_v2)
    assert fail_at(100 * STEPS_MAX, times, is_v2=is_v2) <= STEPS_MAX  # so each of them has failed


@pytest.mark.parametrize("doing", ["append", "create"])
@pytest.mark.parametrize("times", [1, 3, FOREVER])
def test_a_full_disk_at_an_abort_takes_no_partition_out_of_service(doing: str, times: int) -> None:
    storage = SimulatedStorage()
    with virtual_broker(ONE_PARTITION, storage=storage) as broker:
        broker.node.create_topic("orders", 1)
        for key, kind in (("g", 0), ("t", TRANSACTION)):
            broker.ask(FindCoordinatorRequest(coordinator_keys=[key], key_type=kind), 4)
        path = broker.node.replicas[PLACE].log.active.path_of(".txnindex")
        storage.fail(errno.ENOSPC, times=times, doing=doing, path=path, written_bytes=5)
        values = []
        for number in range(6):
            producer = Transactional(Patient(broker), is_v2=False)  # type: ignore[arg-type]
            assert producer.init() == Error.NONE
            assert producer.add(PLACE) == {PLACE: Error.NONE}
            value = b"%d" % number
            assert producer.produce("orders", value) == Error.NONE
            assert producer.end(commit=number % 3 == 0) == Error.NONE
            broker.pass_ms(1_000)
            values += [value] if number % 3 == 0 else []
            assert read(broker, "orders") == values
        storage.heal()
        log = broker.node.replicas[PLACE].log
        assert log.offline is None
        log.flush()
        index = log.active.transaction_index
        assert len(index.entries()) == 4
        file = storage.open(index.path)
        assert file.read_at(0, 1000) == b"".join(b"\0\0" + entry.encode(0) for entry in index.entries())
        log.roll()
        assert read(broker, "orders") == values
