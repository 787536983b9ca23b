"""Tasks of a profile: they read, count, and hand back counts instead of records.

Log directories and brokers are read by the readers of the data source, with what they have of plan, patience and care
for what is broken; only what they would make rows of is counted here, and the headers of batches with it.
What must hold: each record is counted in one task, each batch in the task in which it ends.
Not here: what is counted (profile_counts.py), how tasks are run (tasks.py).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from typing import Any

from minibroker.spark.brokers.rows import WireTaskReader
from minibroker.spark.columns.batches import AbortedUnits, Units, find_units
from minibroker.spark.columns.reader import ColumnReader, Columns
from minibroker.spark.files.planning import FileTask
from minibroker.spark.files.rows import CHUNK_BYTES, TaskReader
from minibroker.spark.filters import Filters
from minibroker.spark.jobs.profile_counts import Counts, add_rows, add_units, add_wrapped
from minibroker.spark.jobs.profile_stretch import Stretch
from minibroker.spark.options import Options
from minibroker.spark.ranges import Task, ranges_of
from minibroker.spark.reading import logs_of


class CountingColumns(ColumnReader):
    """Reads a chunk, gives every column to `count`, and yields none."""

    def __init__(self, count: Callable[[Columns], None], chunk: bytes | memoryview, **options: Any):
        super().__init__(chunk, headers=True, origins=True, **options)
        self._count = count

    def __next__(self) -> Columns:
        while True:
            self._count(super().__next__())


class Counter:
    """Counts one task."""

    def __init__(self, counts: Counts, task: Task):
        self._counts = counts
        self._topic = counts.topic(task.topic)
        self._partition = task.partition
        self._order = Stretch(task.first_offset, task.end_offset)
        self._topic.partition(task.partition).stretches.append(self._order)

    def columns(
        self,
        chunk: bytes | memoryview,
        first_offset: int,
        end_offset: int,
        aborted: Iterable[tuple[int, int]],
        *,
        begin_offset: int,
        is_strict: bool = False,
    ) -> CountingColumns:
        """Count the batches of a chunk, and return what will count its records.

        begin_offset: batches that end before it have been counted.
        """
        view = memoryview(chunk)
        units, _, _ = find_units(view, 0, len(view), len(view), False)  # what is wrong the reader will say
        which = (units.last_offsets >= begin_offset) & (units.last_offsets < end_offset)
        add_units(self._topic, self._partition, self._order, view, units[which])
        hidden, _, _ = AbortedUnits(aborted, check_crc=True).of(view, units)
        self._topic.partition(self._partition).hidden += int(units.counts[hidden & which].sum())
        return CountingColumns(
            partial(self._add, units),
            chunk,
            first_offset=first_offset,
            end_offset=end_offset,
            aborted=aborted,
            strict=is_strict,
        )

    def _add(self, units: Units, columns: Columns) -> None:
        assert columns.positions is not None
        assert columns.keys is not None
        assert columns.values is not None
        assert columns.headers is not None
        add_wrapped(self._topic, units, columns.positions)
        add_rows(
            self._counts,
            self._topic,
            self._partition,
            self._order,
            columns.offsets,
            columns.timestamps,
            columns.timestamp_types,
            columns.keys,
            columns.values,
            columns.headers,
        )


class SegmentCounter(TaskReader):
    """Reads a task of log directories and counts instead of giving rows."""

    def __init__(self, task: FileTask, options: Options, counts: Counts, *, chunk_bytes: int = CHUNK_BYTES):
        super().__init__(task, options, chunk_bytes=chunk_bytes)
        self._counter = Counter(counts, task)

    def _reader(self, *given: Any, next_offset: int, is_strict: bool = False) -> ColumnReader:
        return self._counter.columns(*given, begin_offset=next_offset, is_strict=is_strict)


class WireCounter(WireTaskReader):
    """Reads a task of brokers and counts instead of giving rows."""

    def __init__(self, task: Task, options: Options, counts: Counts):
        super().__init__(task, options)
        self._counter = Counter(counts, task)

    def _reader(self, *given: Any, next_offset: int, is_strict: bool = False) -> ColumnReader:
        return self._counter.columns(*given, begin_offset=next_offset, is_strict=is_strict)


class Work:
    """Tasks that are counted together, one after the other."""

    __slots__ = ("now_ms", "options", "tasks")

    def __init__(self, tasks: list[Any], options: Options, now_ms: int):
        self.tasks = tasks
        self.options = options
        self.now_ms = now_ms


def planned(options: Options, now_ms: int) -> tuple[list[Any], Counts]:
    """Return the tasks of the data source, and counts that hold nothing but the ranges they are to cover.

    Tasks leave out segments that hold nothing, at the ends as well: what cleaning has emptied belongs to the range.
    """
    counts = Counts(now_ms)
    with closing(logs_of(options)) as logs:
        ranges = ranges_of(options, Filters(), logs)
        for each in ranges if options.is_path else ():
            if each.first_offset < each.end_offset:
                partition = counts.topic(each.log.topic).partition(each.log.partition)
                partition.stretches.append(Stretch(each.first_offset, each.end_offset))
        return logs.tasks(ranges, Filters()), counts


def count_tasks(work: Work) -> bytes:
    """Return what was counted, packed: there may be much of it, and the driver takes one after the other."""
    counts = Counts(work.now_ms)
    for task in work.tasks:
        reader = (SegmentCounter if work.options.is_path else WireCounter)(task, work.options, counts)
        for _ in reader.batches():
            pass
        counts.left_out += reader.left_out
    return pickle.dumps(counts)


def merge(counts: Counts, packed: Iterable[bytes]) -> Counts:
    """Add what tasks have counted."""
    for each in packed:
        counts.merge(pickle.loads(each))
    return counts
