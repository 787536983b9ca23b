"""What a lesson does with old records: new segments, retention, compaction, and a look at what is left.

Every replica cleans its own log, so these commands go to all brokers that run; who does nothing says why.
Not here: cleaning by the clock, which brokers do by themselves while a lesson advances it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from minibroker.lessons.commands import Command
    from minibroker.lessons.stage import Stage
    from minibroker.log.batches import Batch


class CleaningStage:
    """The cleaning of a lesson's brokers."""

    def __init__(self, stage: Stage):
        self.stage = stage

    async def roll(self, command: Command) -> list[str]:
        rows = await self.stage.on.cleaning.roll_now(*command["PARTITION"])
        return [_refusal(row) for row in rows if not row.is_rolled]

    async def retention(self, command: Command) -> list[str]:
        rows = await self.stage.on.cleaning.retention_now(*command["PARTITION"])
        return [_refusal(row) for row in rows if not row.segments]

    async def compact(self, command: Command) -> list[str]:
        rows = await self.stage.on.cleaning.compact_now(*command["PARTITION"])
        return [_refusal(row) for row in rows if not row.passes]

    async def batches(self, command: Command) -> list[str]:
        """Tell what is in the leader's log."""
        stage = self.stage
        topic, partition = command["PARTITION"]
        leader = stage.on.partition(topic, partition).leader
        replica = stage.on.replica(topic, partition, leader)
        told = []
        for segment in replica.log.segments if replica is not None else ():
            told.append(f"segment {segment.base_offset}, {segment.size_bytes} bytes")
            told += [_batch_text(batch, stage.clock.now_ms()) for batch in segment.batches()]
        return told


def _refusal(row: Any) -> str:
    return f"broker {row.broker} did nothing: {row.reason}"


def _batch_text(batch: Batch, now_ms: int) -> str:
    count = f"{batch.count or 'no'} record{'' if batch.count == 1 else 's'}"
    horizon = batch.delete_horizon
    if horizon is None:
        return f"batch {batch.base_offset}..{batch.last_offset}: {count}"
    minutes = (horizon - now_ms) // 60_000
    when = f"in {minutes} minute{'' if minutes == 1 else 's'}" if horizon > now_ms else "any time now"
    return f"batch {batch.base_offset}..{batch.last_offset}: {count}; tombstones may go {when}"


CLEANING_ACTS: dict[str, Callable[[CleaningStage, Command], Awaitable[list[str] | None]]] = {
    "roll": CleaningStage.roll,
    "retention": CleaningStage.retention,
    "compact": CleaningStage.compact,
    "batches": CleaningStage.batches,
}
