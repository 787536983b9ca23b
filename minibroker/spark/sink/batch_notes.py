"""Notes of tasks on the brokers about what they write, by which a task finds its own records again.

Notes are committed offsets of groups that nobody reads with. Each task writes them into a slot, which is a group: as a
rule that of its own number. When a query has begun anew, its first batch may be one that was written in part; then a
task cannot know by its number what it has written, as a source may hand its partitions to other tasks than before
(Spark's Kafka source does). So a note says which record was the first, and a task looks for the slot with its records:

1. its own slot, if the notes there are of this run and either of a batch before, or of this task (Spark repeats it)
2. the slot, of all the query has, whose first records are those of the task; for rows that come in another order, its
   own slot, if some of them are there
3. else its own slot, or if somebody else's notes of this batch are there, a new one

What must hold: a slot has one owner in a run. A slot with records of the batch that no task takes is an error of the
batch as a whole (`unclaimed`), not silence.
Not here: what notes are good for (exactly_once.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from minibroker.client.cluster import Cluster, TopicPartition
from minibroker.client.groups import CommittedOffset, Groups
from minibroker.spark.sink.rows import Rows, by_partition
from minibroker.spark.sink.written_records import digests_of

FIRST_DIGITS = 16  # of a digest, in a note


class NotRepeatable(Exception):
    """What was written of the batch is not what the task has now."""


class Note(NamedTuple):
    """What a slot says of one partition."""

    offset: int  # nothing of the batch lies below it
    batch: int
    producer: int
    epoch: int
    attempt: int  # a producer id that nobody else has
    task: int
    run: str  # of the query, from its start to its end
    first: str  # digest of the first record that the task has for this partition

    @classmethod
    def read(cls, group: str, committed: CommittedOffset) -> Note:
        try:
            told = json.loads(committed.metadata)
            batch, producer, epoch, attempt, task = (int(told[name]) for name in cls._fields[1:6])
            return cls(committed.offset, batch, producer, epoch, attempt, task, str(told["run"]), str(told["first"]))
        except (ValueError, TypeError, KeyError):
            raise NotRepeatable(
                f"group {group} is not ours: it holds {committed.metadata[:60]!r}; set groupIdPrefix to another name"
            ) from None

    def committed(self) -> CommittedOffset:
        told = self._asdict()
        del told["offset"]
        return CommittedOffset(self.offset, json.dumps(told, separators=(",", ":")))


def first_of(placed: Iterable[Rows]) -> dict[TopicPartition, str]:
    """Return a digest of the first row for each partition."""
    found: dict[TopicPartition, str] = {}
    for rows in placed:
        for part in by_partition(rows) if len(rows) else ():
            row = part.take(slice(0, 1))
            (digest,) = digests_of(row.topic, row.keys, row.values, row.headers)
            found.setdefault((row.topic, int(row.partitions[0])), digest.hex()[:FIRST_DIGITS])
    return found


BatchNotes = dict[TopicPartition, Note]


class Slots:
    """The groups of one query."""

    def __init__(self, cluster: Cluster, name: str):
        self.name = name  # how the groups' names begin
        self._groups = Groups(cluster)

    def of(self, task: int, attempt: int | None = None) -> str:
        return f"{self.name}.{task}" if attempt is None else f"{self.name}.{task}.{attempt}"

    async def read(self, groups: list[str]) -> dict[str, BatchNotes]:
        found = await self._groups.fetch_offsets(groups)
        return {group: {key: Note.read(group, each) for key, each in found.get(group, {}).items()} for group in groups}

    async def write(self, group: str, notes: Mapping[TopicPartition, Note]) -> None:
        await self._groups.alter_offsets(group, {key: note.committed() for key, note in notes.items()})

    async def read_all(self) -> dict[str, BatchNotes]:
        name = re.compile(re.escape(self.name) + r"\.\d+(\.\d+)?")
        listed = [group.id for group in await self._groups.list_groups()]
        return await self.read([group for group in listed if name.fullmatch(group)])


def in_doubt(slots: Mapping[str, BatchNotes], batch: int, run: str) -> list[str]:
    """Return the slots with notes of a batch that another run of the query has left."""
    return [
        group
        for group, notes in slots.items()
        if (runs := {note.run for note in notes.values() if note.batch == batch}) and run not in runs
    ]


def matches(notes: BatchNotes, batch: int, first: Mapping[TopicPartition, str]) -> bool:
    """Return whether the first records of a slot are those of a task."""
    of_batch = {key: note.first for key, note in notes.items() if note.batch == batch}
    common = [key for key in of_batch if key in first]
    return bool(common) and all(of_batch[key] == first[key] for key in common)


def newest(notes: BatchNotes) -> Note | None:
    return max(notes.values(), key=lambda note: (note.batch, note.epoch), default=None)
