"""Rows of a task that reads from brokers: fetched bytes, decoded while the next fetch is under way.

What must hold: the rows are exactly those of the task's offsets that the filters let through, in their order. Memory is
bounded by two answers, what ColumnReader holds at once, and one batch.
What `mode` does with a broken batch is as in spark/files/rows.py, but that there is no index: where even the length of
a batch is wrong, the rest of the task is left out, and told.
Not here: asking (fetching.py), which offsets (planning.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator

import pyarrow as pa

from minibroker.errors import InvalidLength
from minibroker.log.segment import Place
from minibroker.spark.brokers.fetching import FetchAnswer, Fetcher
from minibroker.spark.columns.batches import find_units, unit_at
from minibroker.spark.columns.reader import GROUP_BYTES
from minibroker.spark.columns.rows_of_query import RowReader
from minibroker.spark.filters import Filters
from minibroker.spark.options import Options
from minibroker.spark.ranges import Task


class WireTaskReader(RowReader):
    """Reads one task."""

    def __init__(self, task: Task, options: Options, filters: Filters | None = None, *, group_bytes: int = GROUP_BYTES):
        super().__init__(task, options, filters, group_bytes=group_bytes)
        self._fetcher = Fetcher(task, options)

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        with asyncio.Runner() as runner:
            try:
                yield from self._read(runner)
            finally:
                self.left_out += self._fetcher.lost
                runner.run(self._fetcher.close())

    def _read(self, runner: asyncio.Runner) -> Iterator[pa.RecordBatch]:
        fetcher, offset, end_offset = self._fetcher, self.task.first_offset, self.task.end_offset
        sent = None
        while offset < end_offset:
            answer = runner.run(fetcher.fetch(offset, sent))
            if answer is None:
                self._missing += end_offset - offset
                break
            sent = None
            offset = answer.first_offset
            units, _, _ = find_units(answer.records, 0, len(answer.records), len(answer.records), False)
            behind = int(units.last_offsets[-1]) + 1 if len(units) else offset
            if offset < behind < end_offset:
                sent = runner.run(fetcher.send(behind))
            if len(answer.records):
                offset = yield from self._decode(answer, offset)
        is_told = self.left_out or fetcher.lost
        if self._missing > 0 and not is_told and runner.run(fetcher.is_never_compacted()):
            self._notice_missing("although the topic is not compacted")

    def _decode(self, answer: FetchAnswer, first_offset: int) -> Generator[pa.RecordBatch, None, int]:
        """Yield the rows of an answer, and return the offset behind it."""
        data, end_offset, address = answer.records, self.task.end_offset, answer.address
        reader = self._reader(data, first_offset, end_offset, answer.aborted, next_offset=first_offset)
        reader.lies_between(0, None)  # whatever holds the first offset may begin before it
        error = yield from self._decoded(reader, data, address, None)
        if error is None:
            if reader.next_offset > first_offset:
                return reader.next_offset
            error = InvalidLength(f"no batch is whole, or it ends before {first_offset}", reader.position, "batch")
        elif len(units := find_units(data, reader.position, len(data), 1, False)[0]):
            # The broker knows anew, at the next offset, what this would have said of what comes behind it.
            batch = unit_at(data, units, 0)
            place = Place(batch.position, batch.size_bytes, int(units.base_offsets[0]), batch.last_offset)
            yield from self._broken_batch(error, place, data, address, None)
            return max(first_offset, place.last_offset) + 1
        rest = data[reader.position :]
        yield from self._broken(error, f"an unknown offset to {end_offset - 1}", rest, len(rest), address, None)
        return end_offset
