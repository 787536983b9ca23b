"""Reading __consumer_offsets when a broker begins to lead it: others come in between, whatever is in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from sys import gettrace, settrace
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from minibroker.broker.broker import Node
from minibroker.coordinator.log import LOAD_BYTES
from minibroker.errors import Error, KafkaError
from minibroker.groups import OFFSETS_TOPIC
from minibroker.groups.offsets import commit_record
from minibroker.groups.records import encode
from minibroker.log.build import build_batch
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.records import Record
from minibroker.log.segment import Segment
from minibroker.stored.group_offsets import GroupMetadataKey, GroupMetadataValue
from tests.groups.test_offsets_partition import serving
from tests.server.running import turns

pytestmark = pytest.mark.outside

if TYPE_CHECKING:
    from minibroker.groups.records import CoordinatorRecord

NOW_MS = 1_700_000_000_000
# Of Python in one turn of the loop: some 5 ms, of which a share is to be 2.
STEPS_MAX = 500_000


def offset_row(group: str, partition: int, offset: int, topic_id: bytes = bytes(16)) -> CoordinatorRecord:
    return commit_record(
        group, "t", partition, offset, leader_epoch=0, metadata="", commit_timestamp=NOW_MS, topic_id=topic_id
    )


def group_row(group: str, members: int) -> CoordinatorRecord:
    Member = GroupMetadataValue.MemberMetadata
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="",
        current_state_timestamp=NOW_MS,
        members=[
            Member(
                member_id=f"consumer-{number}-" + "x" * 36,
                client_id=f"consumer-{number}",
                client_host="/127.0.0.1",
                rebalance_timeout=60_000,
                session_timeout=60_000,
                subscription=b"t" * 40,
                assignment=b"t" * 40,
            )
            for number in range(members)
        ],
    )
    return GroupMetadataKey(group=group), value


def write(node: Node, partition: int, rows: list[CoordinatorRecord], rows_a_batch: int) -> None:
    replica = node.replicas[OFFSETS_TOPIC, partition]
    for start in range(0, len(rows), rows_a_batch):
        encoded = [encode(row, is_before_4=False) for row in rows[start : start + rows_a_batch]]
        records = [Record(key, value, (), NOW_MS, index) for index, (key, value) in enumerate(encoded)]
        replica.append(bytearray(build_batch(2, records)), now_ms=NOW_MS, steady_ms=0, origin="coordinator")


class Rows(NamedTuple):
    """What is in the log."""

    make: Callable[[int], list[CoordinatorRecord]]
    rows_a_batch: int
    partitions: int = 1
    is_topic_gone: bool = False  # of which the offsets are


ROWS = {
    "offsets, in small batches": Rows(lambda count: [offset_row("g", n % 100, n) for n in range(count)], 10),
    "offsets, in one batch": Rows(lambda count: [offset_row("g", n % 100, n) for n in range(count)], 10_000),
    "offsets of one group": Rows(lambda count: [offset_row("g", n, n) for n in range(count)], 1000),
    "each of another group": Rows(lambda count: [offset_row(f"g{n}", 0, n) for n in range(count)], 1000),
    "of a topic that is gone": Rows(lambda count: [offset_row(f"g{n}", 0, n) for n in range(count)], 1000, 1, True),
    "groups with members": Rows(lambda count: [group_row(f"g{n}", 30) for n in range(count // 10)], 100),
    "in all partitions": Rows(lambda count: [offset_row("g", 0, n) for n in range(count // 20)], 10, 20),
}


class Steps:
    """Counts the instructions of Python."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        before = gettrace()
        settrace(self._trace)
        try:
            yield
        finally:
            settrace(before)

    def _trace(self, frame: FrameType, event: str, arg: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.count += event == "opcode"
        return self._trace


def begin(node: Node) -> Callable[[], bool]:
    """Begin to coordinate what there is by now; return how to ask whether something is still being read."""
    coordinator = node.groups.coordinator
    for led in list(coordinator.led.values()):
        led.resign()
        coordinator.lead(led.replica)
    return lambda: any(each.is_loading for each in coordinator.led.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
async def test_no_turn_of_the_loop_takes_long_however_much_is_loaded(name: str) -> None:
    case = ROWS[name]
    async with serving(MemoryStorage(int), offsets_topic_num_partitions=case.partitions) as (node, _):
        node.create_topic(OFFSETS_TOPIC, case.partitions)
        if not case.is_topic_gone:
            node.create_topic("t")
        for number in range(case.partitions):
            write(node, number, case.make(1500), case.rows_a_batch)
        steps, counts = Steps(), [0]
        with steps.counted():
            is_loading = begin(node)
            while is_loading():
                counts.append(steps.count)
                await turns(1)
            for _ in range(50):  # what comes of it
                counts.append(steps.count)
                await turns(1)
        counts.append(steps.count)
    assert counts[-1] > 2 * STEPS_MAX, "too little to say anything"
    assert max(after - before for before, after in pairwise(counts)) < STEPS_MAX


@pytest.mark.pure
async def test_each_byte_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    view = Segment.view

    def counting(segment: Segment, position: int, size_bytes: int) -> memoryview:
        found = view(segment, position, size_bytes)
        read.append(len(found))
        return found

    async with serving(MemoryStorage(int), offsets_topic_num_partitions=1) as (node, _):
        node.create_topic(OFFSETS_TOPIC, 1)
        write(node, 0, [offset_row("g", n % 100, n) for n in range(12_000)], 100)
        size_bytes = node.replicas[OFFSETS_TOPIC, 0].log.size_bytes
        assert size_bytes > 2 * LOAD_BYTES
        monkeypatch.setattr(Segment, "view", counting)
        is_loading = begin(node)
        while is_loading():
            await turns(1)
    assert size_bytes <= sum(read) < 1.1 * size_bytes


async def test_who_asks_meanwhile_is_told_to_wait_and_then_told_all() -> None:
    async with serving(MemoryStorage(int), "t", offsets_topic_num_partitions=1) as (node, caller):
        await caller.find()
        write(node, 0, [offset_row(f"g{n % 500}", n % 2, n) for n in range(2000)], 100)
        is_loading = begin(node)
        with pytest.raises(KafkaError) as refused:
            node.groups.coordinator.find("g1")
        assert refused.value.code == Error.COORDINATOR_LOAD_IN_PROGRESS
        while is_loading():
            await turns(1)
        assert await caller.committed("g1") == {("t", 1): 1501}
        assert len(await caller.groups()) == 500


async def test_who_leads_no_more_reads_no_more() -> None:
    async with serving(MemoryStorage(int), offsets_topic_num_partitions=1) as (node, caller):
        await caller.find()
        write(node, 0, [offset_row(f"g{n}", 0, n) for n in range(2000)], 100)
        begin(node)
        (led,) = node.groups.led()
        await turns(3)
        led.resign()
        await turns(1)
        count = len(led.shard.offsets.committed)
        await turns(50)
        assert led.is_loading
        assert len(led.shard.offsets.committed) == count < 2000


@pytest.mark.parametrize("turn", range(0, 10, 3))
async def test_offsets_of_a_topic_that_goes_meanwhile_go_with_it(turn: int) -> None:
    async with serving(MemoryStorage(int), "t", offsets_topic_num_partitions=1) as (node, caller):
        await caller.find()
        topic_id = node.image.topics["t"].id
        write(node, 0, [offset_row(f"g{n}", 0, n, topic_id) for n in range(1000)], 100)
        is_loading = begin(node)
        await turns(turn)
        assert is_loading()
        node.change(node.controller.delete_topic(name="t"))
        while is_loading():
            await turns(1)
        await turns()
        (led,) = node.groups.led()
        assert led.shard.offsets.committed == {}


async def test_rows_count_in_their_order_though_the_high_watermark_rises_between_them() -> None:
    async with serving(MemoryStorage(int), "t", offsets_topic_num_partitions=1) as (node, caller):
        await caller.find()
        replica = node.replicas[OFFSETS_TOPIC, 0]
        write(node, 0, [group_row("g", 1), *[offset_row("g", 0, n) for n in range(600)], group_row("g", 2)], 10)
        end_offset, replica.high_watermark = replica.high_watermark, 0
        is_loading = begin(node)
        assert is_loading()
        replica.high_watermark = end_offset
        while is_loading():
            await turns(1)
        assert len((await caller.described()).members) == 2
        assert await caller.committed() == {("t", 0): 599}


async def test_a_group_is_answered_for_when_the_last_of_its_rows_is_safe_and_not_the_first() -> None:
    async with serving(MemoryStorage(int), "t", offsets_topic_num_partitions=1) as (node, caller):
        await caller.find()
        replica = node.replicas[OFFSETS_TOPIC, 0]
        write(node, 0, [offset_row("g", 0, 1), offset_row("other", 0, 2), offset_row("g", 0, 3)], 1)
        end_offset, replica.high_watermark = replica.high_watermark, replica.high_watermark - 3
        is_loading = begin(node)
        while is_loading():
            await turns(1)
        (led,) = node.groups.led()
        for safe in range(1, 3):
            replica.take_high_watermark(end_offset - 3 + safe, 0)
            with pytest.raises(KafkaError) as refused:
                led.check("g")
            assert refused.value.code == Error.COORDINATOR_LOAD_IN_PROGRESS
        assert await caller.committed("other") == {("t", 0): 2}
        replica.take_high_watermark(end_offset, 0)
        assert await caller.committed() == {("t", 0): 3}
