"""A broker's compaction of one log: what is on the disk before it takes anything, and what it notes."""

from __future__ import annotations

import pytest

from minibroker.log.checkpoints import CLEANER_OFFSETS, RECOVERY_POINTS, read_offsets
from tests.cleaner.test_scheduler import COMPACTED, held

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
