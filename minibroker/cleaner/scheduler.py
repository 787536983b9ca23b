"""Cleaning on one broker: retention and compaction by the clock, and all that can be asked for at once.

    file_delete.py      files that have gone from their logs are removed later
    retention.py    segments that are too old or too much
    compaction.py   older values of keys; dirty_logs.py says which log is next

Here are the verbs: retention, compaction, and a new segment, for one partition, a topic, or all there are. They return
a row for each partition, with what was done or why nothing was.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from minibroker.cleaner.compaction import Compaction
from minibroker.cleaner.file_delete import Purging
from minibroker.cleaner.results import COMPACT, RETENTION, ROLL, CompactionRow, RetentionRow, RollRow
from minibroker.cleaner.retention_task import Retention, is_open, nothing
from minibroker.errors import Error, KafkaError, StorageError
from minibroker.event_kinds import Roll
from minibroker.metadata.image import MetadataImage
from minibroker.parts import Parts
from minibroker.replication.replica import Replica

Verb = Callable[..., Coroutine[Any, Any, list[Any]]]  # of Cleaning, topic and partition
ASKED = "somebody asked for it"


class Cleaning:
    """One for the life of a broker."""

    def __init__(self, parts: Parts, replicas: Mapping[tuple[str, int], Replica], asked_count: Callable[[], int]):
        """asked_count: how much clients have asked for up to now."""
        self.parts = parts
        self.replicas = replicas
        self.purging = Purging(parts)
        self.retention = Retention(parts, replicas, self.purging)
        self.compaction = Compaction(parts, replicas, self.retention, self.purging, asked_count)

    def stop(self) -> None:
        self.retention.stop()
        self.compaction.stop()
        self.purging.stop()

    def left(self, key: tuple[str, int]) -> None:
        """A partition is about to go from here."""
        self.compaction.left(key)

    # On demand

    async def retention_now(self, topic: str | None = None, partition: int | None = None) -> list[RetentionRow]:
        """Remove what retention does not keep, without waiting for its time."""
        rows = []
        for replica in self._wanted(topic, partition):
            await self.compaction.finished(replica)
            if is_open(self.replicas, replica):
                rows.append(await self._retain(replica) or nothing(replica))
            await self._let_others()
        return rows

    async def _retain(self, replica: Replica) -> RetentionRow | None:
        work = self.retention.retain(replica)
        while True:
            try:
                next(work)
            except StopIteration as done:
                row: RetentionRow | None = done.value
                return row
            await self._let_others()

    async def compact_now(self, topic: str | None = None, partition: int | None = None) -> list[CompactionRow]:
        """Compact what may be compacted, be it dirty enough or not; return when it is done."""
        return [await self.compaction.compact(replica) for replica in self._wanted(topic, partition)]

    async def roll_now(self, topic: str | None = None, partition: int | None = None) -> list[RollRow]:
        """Begin new segments, so that what is in the active ones can be removed or compacted."""
        rows = []
        for replica in self._wanted(topic, partition):
            if is_open(self.replicas, replica):
                rows.append(self._roll(replica))
            await self._let_others()
        return rows

    def _roll(self, replica: Replica) -> RollRow:
        log, reason = replica.log, ""
        base_offset = log.active.base_offset
        try:
            log.roll(now_ms=self.parts.clock.now_ms())
        except StorageError as failure:
            self.parts.disk_failed(failure)
            reason = str(failure)
        is_rolled = log.active.base_offset != base_offset
        if is_rolled and self.parts.events.observed:
            self.parts.events.emit(Roll(**replica.place, base_offset=log.active.base_offset, why=ASKED))
        if not is_rolled and not reason:
            reason = "the active segment is empty"
        return RollRow(**replica.place, is_rolled=is_rolled, base_offset=log.active.base_offset, reason=reason)

    def _wanted(self, topic: str | None, partition: int | None) -> Iterable[Replica]:
        """Return the replicas here that are meant; an error if there is no such partition anywhere."""
        check_place(self.parts.image, topic, partition)
        return [
            replica
            for (name, number), replica in sorted(self.replicas.items())
            if topic in (None, name) and partition in (None, number)
        ]

    async def _let_others(self) -> None:
        await self.parts.clock.sleep(0)


VERBS: dict[str, Verb] = {RETENTION: Cleaning.retention_now, COMPACT: Cleaning.compact_now, ROLL: Cleaning.roll_now}


def check_place(image: MetadataImage, topic: str | None, partition: int | None) -> None:
    """Raise an error that says what is wrong with what somebody wants to be cleaned."""
    if topic is None:
        if partition is not None:
            raise KafkaError(Error.INVALID_REQUEST, f"partition {partition} of which topic?")
        return
    found = image.topics.get(topic)
    if found is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
    if partition is not None and not 0 <= partition < len(found.partitions):
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"{topic!r} has no partition {partition}")
