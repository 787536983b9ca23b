"""A broker's compaction of one log: what is on the disk before it takes anything, and what it notes."""

from __future__ import annotations

import pytest

from minibroker.cleaner.dirty_logs import DirtyLogs
from minibroker.cleaner.scheduler import Cleaning
from minibroker.log.checkpoints import CLEANER_OFFSETS, RECOVERY_POINTS, read_offsets
from minibroker.simulation.disk import SimulatedStorage
from tests.cleaner.test_scheduler import BEGIN_MS, COMPACTED, HOUR_MS, SMALL, _deletion, held, under_way
from tests.server.running import batch

pytestmark = pytest.mark.outside


async def test_what_supersedes_a_record_is_on_the_disk_before_that_is_taken() -> None:
    async with held() as broker:
        broker.node.create_topic("users", 1, COMPACTED)
        await broker.fill("users", 40)
        log = broker.log("users")
        assert log.recovery_point < log.log_end_offset, "or there is nothing to flush"
        await broker.clock.advance("15s")
        assert broker.events[-1].kind == "compaction"
        assert log.recovery_point == log.log_end_offset
        cleaned_end = read_offsets(broker.storage, CLEANER_OFFSETS)["users", 0]
        assert read_offsets(broker.storage, RECOVERY_POINTS)["users", 0] >= cleaned_end > 0


async def test_a_first_dirty_offset_that_lies_outside_its_log_is_noted_anew() -> None:
    async with held() as broker:
        broker.node.create_topic("users", 1, COMPACTED)
        broker.node.directory.cleaner_offsets["users", 0] = 1000
        await broker.clock.advance("15s")
        assert read_offsets(broker.storage, CLEANER_OFFSETS) == {("users", 0): 0}


@pytest.mark.parametrize("count", [5, 60])
async def test_many_logs_that_are_due_are_not_all_looked_at_before_each_pass_nor_all_noted_behind_it(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = SimulatedStorage(lambda: BEGIN_MS)
    looks: list[object] = []
    monkeypatch.setattr(
        DirtyLogs, "look", lambda self, replica, look=DirtyLogs.look: (looks.append(replica), look(self, replica))[1]
    )
    async with held(storage) as broker:
        broker.node.create_topic("users", count, {**COMPACTED, "min.cleanable.dirty.ratio": "0.1"})
        for partition in range(count):
            for _ in range(8):
                replica = broker.node.replicas["users", partition]
                replica.append(bytearray(batch(b"v" * 400, key=b"k")), now_ms=BEGIN_MS, steady_ms=0)
        written: list[str] = []
        storage.before_step = lambda step: written.append(str(step).rpartition(".tmp to ")[2])
        await broker.clock.advance("15s")
        storage.before_step = None
        assert [event.kind for event in broker.events].count("compaction") == count
        assert len(looks) <= 3 * count, "all of them first, each again when its turn comes, and all in the end"
        assert written.count(CLEANER_OFFSETS) <= 5 + count // 2
        assert written.count(RECOVERY_POINTS) <= 1 + count // 20
        await broker.clock.advance("60s")
        assert len(read_offsets(storage, CLEANER_OFFSETS)) == count


async def test_how_far_logs_were_cleaned_is_noted_when_a_broker_stops() -> None:
    async with held() as broker:
        directory = broker.node.directory
        directory.cleaner_offsets = {("other", number): 1 for number in range(100)}
        directory.write_cleaner_offsets()
        directory.note_cleaned("users", 0, 7)
        assert ("users", 0) not in read_offsets(broker.storage, CLEANER_OFFSETS)
        await broker.node.stop()
        assert read_offsets(broker.storage, CLEANER_OFFSETS)["users", 0] == 7


async def test_that_a_log_is_cleaned_less_far_than_was_noted_is_noted_at_once() -> None:
    async with held() as broker:
        directory = broker.node.directory
        directory.cleaner_offsets = {("other", number): 1 for number in range(100)} | {("users", 0): 9}
        directory.write_cleaner_offsets()
        directory.note_cleaned("users", 0, 7)
        assert read_offsets(broker.storage, CLEANER_OFFSETS)["users", 0] == 7


async def test_what_is_read_and_written_is_waited_for_to_the_millisecond() -> None:
    async with held(log_cleaner_io_max_bytes_per_second=10_000) as broker:
        compaction = broker.node.cleaning.compaction
        assert compaction._pause_ms(1_000_000) == 100_000
        assert compaction._pause_ms(1_000_000) == 200_000, "the clock stands, and the first is owed still"
        await broker.clock.advance("150s")
        assert compaction._pause_ms(0) == 50_000


async def test_a_cleaner_that_nobody_has_started_takes_no_turns() -> None:
    async with held() as broker:
        broker.node.create_topic("users", 1, COMPACTED)
        await broker.fill("users", 40)
        compaction = Cleaning(broker.node, broker.node.replicas, int).compaction
        row = await compaction.compact(broker.node.replicas["users", 0])
        assert row.records_before > row.records_after
        assert compaction._timer is None


async def test_a_cleaner_that_is_stopped_removes_no_more_of_what_is_too_old() -> None:
    async with held() as broker:
        broker.node.create_topic("orders", 1, {"retention.ms": "1000", **SMALL})
        await broker.fill("orders", 300, timestamp=broker.clock.now_ms() - HOUR_MS)
        count = len(broker.bases("orders"))
        cleaning = Cleaning(broker.node, broker.node.replicas, int)
        cleaning.retention.tick()
        left = broker.bases("orders")
        assert 1 < len(left) < count
        cleaning.stop()
        await broker.clock.advance("1s")
        assert broker.bases("orders") == left


async def test_a_cleaner_that_is_stopped_within_a_pass_begins_no_other() -> None:
    async with under_way() as broker:
        broker.node.cleaning.compaction.stop()
        await broker.clock.advance("10m")
        assert [event.kind for event in broker.events].count("compaction_begin") == 1
        assert broker.events[-1].kind == "compaction_begin"


async def test_a_pass_that_is_given_up_with_its_broker_asks_no_clock() -> None:
    async with under_way() as broker:
        compaction = broker.node.cleaning.compaction
        timer, pieces = compaction._timer, compaction._pieces
        assert pieces is not None
        pieces.stop()
        assert (compaction._timer, compaction._pieces) == (timer, None)


async def test_a_pass_goes_on_when_another_partition_goes() -> None:
    async with under_way() as broker:
        broker.node.create_topic("others", 1, SMALL)
        broker.node.change(_deletion(broker, "others"))
        await broker.clock.advance("10m")
        assert [event.kind for event in broker.events].count("compaction_begin") == 1
        assert broker.events[-1].kind == "compaction"
