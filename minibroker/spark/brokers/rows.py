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
from struct import Struct as Layout

import pyarrow as pa

from minibroker.errors import InvalidLength, ProtocolError
from minibroker.log.formats import HEADER_BYTES, MAGIC_POSITION, MESSAGE_BYTES_MIN, PREFIX_BYTES
from minibroker.log.segment import Place
from minibroker.spark.brokers.fetching import FetchAnswer, Fetcher
from minibroker.spark.columns.batch_rows import BatchReader
from minibroker.spark.columns.reader import GROUP_BYTES, ColumnReader
from minibroker.spark.columns.rows_of_query import BROKEN_BYTES_MAX, Manner
from minibroker.spark.filters import Filters
from minibroker.spark.options import Options
from minibroker.spark.ranges import Task

# Offset, size, leader epoch or CRC, magic; what a batch v2 has behind them.
_START = Layout(">qiib")
_LAST_OFFSET_DELTA = Layout(">i")
_LAST_OFFSET_DELTA_POSITION = 23
_COUNT = Layout(">i")
_COUNT_POSITION = 57


class WireTaskReader:
    """Reads one task. `left_out` tells what was passed over, `noticed` what looks odd, in words for people."""

    def __init__(self, task: Task, options: Options, filters: Filters | None = None, *, group_bytes: int = GROUP_BYTES):
        self.task = task
        self.manner = Manner(options, filters)
        self.left_out: list[str] = []
        self.noticed: list[str] = []
        self._fetcher = Fetcher(task, options)
        self._group_bytes = group_bytes

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        with asyncio.Runner() as runner:
            try:
                yield from self._read(runner)
            finally:
                self.left_out += self._fetcher.lost
                runner.run(self._fetcher.close())

    def _read(self, runner: asyncio.Runner) -> Iterator[pa.RecordBatch]:
        fetcher, offset, end_offset = self._fetcher, self.task.first_offset, self.task.end_offset
        sent, missing = None, 0
        while offset < end_offset:
            answer = runner.run(fetcher.fetch(offset, sent))
            if answer is None:
                missing += end_offset - offset
                break
            sent = None
            offset = answer.first_offset
            behind, without_record = covered(answer.records, offset, end_offset)
            missing += without_record
            if offset < behind < end_offset:
                sent = runner.run(fetcher.send(behind))
            if len(answer.records):
                offset = yield from self._decode(answer, offset)
        if missing and (told := runner.run(fetcher.unexplained(missing))):
            self.noticed.append(told)

    def _decode(self, answer: FetchAnswer, first_offset: int) -> Generator[pa.RecordBatch, None, int]:
        """Yield the rows of an answer, and return the offset behind it."""
        task, manner = self.task, self.manner
        reader = self._reader(answer, first_offset)
        reader.lies_between(0, None)  # whatever holds the first offset may begin before it
        while True:
            try:
                for columns in reader:
                    yield from manner.rows(columns, task.topic, task.partition, answer.address, None)
                break
            except ProtocolError as error:
                place = reader.failed
                if place is not None:
                    yield from self._broken(error, answer, place)
                    continue
                # The broker knows anew, at the next offset, what this would have said of what comes behind it.
                place = place_at(answer.records, reader.position)
                yield from self._broken(error, answer, place, reader.position)
                return task.end_offset if place is None else max(first_offset + 1, place.last_offset + 1)
        if reader.next_offset <= first_offset:
            problem = InvalidLength(f"no batch is whole, or it ends before {first_offset}", reader.position, "batch")
            yield from self._broken(problem, answer, None, reader.position)
            return task.end_offset
        return reader.next_offset

    def _reader(self, answer: FetchAnswer, first_offset: int) -> ColumnReader | BatchReader:
        return self.manner.reader(
            answer.records, first_offset, self.task.end_offset, answer.aborted, group_bytes=self._group_bytes
        )

    def _broken(
        self, error: ProtocolError, answer: FetchAnswer, place: Place | None, position: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """Fail, count, or show what cannot be read: a batch, or the rest of the task if None."""
        task = self.task
        shown, offsets = answer.records[position:], f"an unknown offset to {task.end_offset - 1}"
        if place is not None:
            shown = answer.records[place.position : place.end_position]
            offsets = f"offsets {place.base_offset} to {place.last_offset}"
        where = f"{task.topic}-{task.partition}, {offsets}, from {answer.address}"
        told = self.manner.broken(where, error, len(shown))
        if not self.manner.shows_broken:
            self.left_out.append(told)
        else:
            first, last = (place.base_offset, place.last_offset) if place is not None else (None, None)
            data = bytes(shown[:BROKEN_BYTES_MAX])
            yield self.manner.broken_row(
                task.topic, task.partition, first, last, answer.address, None, error.reason, data
            )


def place_at(view: memoryview, position: int) -> Place | None:
    """Return the batch at a position by its header; None if it is not whole, or no batch."""
    if len(view) - position < MESSAGE_BYTES_MIN[0]:
        return None
    offset, size, _, magic = _START.unpack_from(view, position)
    size_bytes = size + PREFIX_BYTES
    least = MESSAGE_BYTES_MIN[magic] if magic in (0, 1) else HEADER_BYTES
    if not 0 <= magic <= 2 or not least <= size_bytes <= len(view) - position:
        return None
    last = offset
    if magic == 2:
        last += _LAST_OFFSET_DELTA.unpack_from(view, position + _LAST_OFFSET_DELTA_POSITION)[0]
    return Place(position, size_bytes, offset, last)


def covered(view: memoryview, first_offset: int, end_offset: int) -> tuple[int, int]:
    """Return the offset behind the last whole batch, -1 if there is none, and how many offsets have no record.

    Those are counted from the first offset on, by the headers of batches v2 that begin before the end.
    """
    position, behind, missing = 0, -1, 0
    while (place := place_at(view, position)) is not None:
        if view[position + MAGIC_POSITION] == 2 and place.base_offset < end_offset:
            (count,) = _COUNT.unpack_from(view, position + _COUNT_POSITION)
            missing += place.last_offset + 1 - count - min(place.base_offset, first_offset if behind < 0 else behind)
        position, behind = place.end_position, place.last_offset + 1
    return behind, missing
