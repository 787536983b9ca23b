"""Planning of a query that reads log directories: its offsets and segments, as tasks of about the same size.

    options, filters -> partitions -> a range of offsets for each -> stretches of segments -> tasks

A task is a range of offsets in one partition and the segments that hold them. Where it begins and ends is a matter of
offsets alone; indexes only choose them well, at the ends of batches, so one that lies makes tasks uneven, never wrong.
What must hold: the tasks of a partition follow each other without a gap, but for segments that hold nothing that the
filters let through. What is not looked at costs nothing: of a segment in the middle of a range only name and size.
Spark: an offset that is not there is noticed when somebody reads it; here when the query is planned.
Not here: which ranges (minibroker/spark/ranges.py), files (directories.py), records (rows.py).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping

from minibroker.errors import ProtocolError
from minibroker.schema.types import NO_ID
from minibroker.spark.files.directories import Part, PartitionFiles, find_partitions, topics_in
from minibroker.spark.filters import Filters
from minibroker.spark.option_values import Numbers, TopicPartition
from minibroker.spark.options import LOG_END, Options
from minibroker.spark.ranges import Range, Report, Task, check_all_there
from minibroker.stored.producers import AbortedTxn


class FileTask(Task):
    """One that reads segments."""

    __slots__ = ("aborted", "directory", "next_base", "parts", "root", "size_bytes", "was_never_cleaned")

    def __init__(self, found: Range, stretches: list[Stretch], aborted: AbortedOfRange):
        files = found.log
        first, end = stretches[0].first_offset, stretches[-1].end_offset
        super().__init__(files.topic, files.partition, first, end, files.topic_id)
        self.root = files.root.path
        self.directory = files.directory
        self.size_bytes = sum(each.size_bytes for each in stretches)  # about
        # Base offset, suffix and length of each segment.
        parts = dict.fromkeys(each.part for each in stretches)
        self.parts = [(part.base_offset, part.suffix, part.size_bytes) for part in parts]
        # Where the segment behind the last one begins; None: there is none.
        self.next_base = files.next_base(files.index_of(self.parts[-1][0]))
        self.aborted = aborted.between(first, end)
        self.was_never_cleaned = files.was_never_cleaned


class Stretch:
    """Offsets within one segment."""

    __slots__ = ("end_offset", "first_offset", "part", "size_bytes")

    def __init__(self, part: Part, first_offset: int, end_offset: int, size_bytes: int):
        self.part = part
        self.first_offset = first_offset
        self.end_offset = end_offset
        self.size_bytes = size_bytes


class AbortedOfRange:
    """Aborted transactions of a range, in the order of their markers."""

    def __init__(self, entries: list[AbortedTxn]):
        self._entries = entries
        self._markers = [entry.last_offset for entry in entries]

    def between(self, first_offset: int, end_offset: int) -> list[tuple[int, int, int]]:
        """Return producer, first offset and marker of those that may have records in a range."""
        found = []
        for index in range(bisect_left(self._markers, first_offset), len(self._markers)):
            entry = self._entries[index]
            if entry.first_offset < end_offset:
                found.append((entry.producer_id, entry.first_offset, entry.last_offset))
            if entry.last_stable_offset >= end_offset:
                break  # whatever was aborted later began behind the end
        return found


class FileLogs:
    """The logs of a query."""

    def __init__(self, options: Options, report: Report):
        """report: is told of logs that end before what their directory promises."""
        self._options = options
        self._report = report

    def find(self, filters: Filters, *, must_be_there: bool) -> dict[TopicPartition, PartitionFiles]:
        paths = self._options.paths
        found = find_partitions(paths, self._options)
        if must_be_there:
            check_all_there(self._options, found, lambda: topics_in(paths), f"in {', '.join(paths)}")
        return found

    def end_of(self, log: PartitionFiles) -> int:
        end = self._end_of(log)
        return log.transactions(end, end)[0] if self._options.read_committed else end

    def _end_of(self, log: PartitionFiles) -> int:
        promised = log.high_watermark
        if promised is None or self._options.end_of_log == LOG_END:
            return log.end_offset
        if lost := log.missing_end():
            self._report(lost)
        return max(min(promised, log.end_offset), log.start_offset)

    def again(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], ids: Mapping[str, bytes], report: Report
    ) -> list[Range]:
        found = self.find(Filters(), must_be_there=False)
        wanted = []
        for key, (first, end) in ranges.items():
            files = found.get(key)
            if files is None:
                report(f"{key[0]}-{key[1]} has gone")
                continue
            if NO_ID not in (files.topic_id, ids.get(key[0], NO_ID)) and files.topic_id != ids[key[0]]:
                report(f"{files}: the topic was deleted and made anew since these offsets were noted")
                continue
            limit = max(self.end_of(files), files.start_offset)
            if first < files.start_offset or end > limit:
                report(f"{files} holds {files.start_offset} to {limit}, and {first} to {end} were to be read")
            wanted.append(Range(files, max(first, files.start_offset), min(end, limit)))
        return wanted

    def tasks(self, ranges: list[Range], filters: Filters) -> list[FileTask]:
        """Cut ranges into tasks."""
        # Stretches are made twice rather than kept: there may be very many.
        options, ranges = self._options, [each for each in ranges if each.first_offset < each.end_offset]
        most = options.bytes_max
        if options.partitions_min is not None:
            total = sum(each.size_bytes for found in ranges for each in _stretches(found, filters))
            most = max(min(most, -(-total // options.partitions_min)), 1)
        tasks: list[FileTask] = []
        for found in ranges:
            for lost in found.log.missing_segments(found.first_offset, found.end_offset):
                self._report(lost)
            aborted = AbortedOfRange(self._aborted_in(found) if options.read_committed else [])
            pieces = (piece for stretch in _stretches(found, filters) for piece in _split(found.log, stretch, most))
            if options.records_max is not None:
                pieces = (part for piece in pieces for part in _split_evenly(piece, options.records_max))
            tasks += (FileTask(found, group, aborted) for group in _grouped(pieces, most, options.records_max))
        return tasks

    def _aborted_in(self, found: Range) -> list[AbortedTxn]:
        # A marker may lie behind the end of the range: what is open keeps that back, not what has been aborted.
        files: PartitionFiles = found.log
        return files.transactions(found.first_offset, max(self._end_of(files), found.end_offset))[1]

    def commit(self, offsets: Numbers) -> None:
        """Nobody keeps offsets here."""

    def close(self) -> None: ...


# Stretches


def _stretches(found: Range, filters: Filters) -> Iterator[Stretch]:
    """Yield what is to be read of each segment."""
    files = found.log
    for index in range(files.index_of(found.first_offset), len(files.parts)):
        part, behind = files.parts[index], files.next_base(index)
        if part.base_offset >= found.end_offset:
            return
        first = max(part.base_offset, found.first_offset)
        end = found.end_offset if behind is None else min(behind, found.end_offset)
        if first >= end or not part.size_bytes:
            continue
        if filters.first_timestamp is not None and files.is_older(index, filters.first_timestamp):
            continue
        size_bytes = part.size_bytes
        if first > part.base_offset or end != behind:
            size_bytes = _size_between(files, index, first, end)
        yield Stretch(part, first, end, size_bytes)


def _size_between(files: PartitionFiles, index: int, first_offset: int, end_offset: int) -> int:
    """Return about how many bytes of a segment lie between two offsets."""
    segment = files.segment(index)
    try:
        _, begin = segment.offset_index.entry_before(first_offset)
        end = segment.size_bytes
        if end_offset != files.next_base(index) and index < len(files.parts) - 1:
            _, end = segment.offset_index.entry_before(end_offset)
        return max(min(end, segment.size_bytes) - begin, 1)
    except ProtocolError:
        return segment.size_bytes
    finally:
        segment.close()


def _split(files: PartitionFiles, stretch: Stretch, size_bytes_max: int) -> Iterator[Stretch]:
    """Cut a stretch where its index knows that batches end."""
    count = -(-stretch.size_bytes // size_bytes_max)
    borders = _borders(files, stretch, count) if count > 1 else []
    first = stretch.first_offset
    size_bytes = stretch.size_bytes // (len(borders) + 1)
    for border in [*borders, stretch.end_offset]:
        yield Stretch(stretch.part, first, border, size_bytes)
        first = border


def _borders(files: PartitionFiles, stretch: Stretch, count: int) -> list[int]:
    """Return rising offsets within a stretch that cut it into about so many pieces of the same size."""
    segment = files.segment(files.index_of(stretch.first_offset))
    try:
        index = segment.offset_index
        _, begin = index.entry_before(stretch.first_offset)
        found: list[int] = []
        low = stretch.first_offset
        for number in range(1, count):
            last_offset = index.offset_at(begin + stretch.size_bytes * number // count)
            if last_offset is None or last_offset + 1 >= stretch.end_offset:
                break
            if last_offset + 1 > low:
                low = last_offset + 1
                found.append(low)
        return found
    except ProtocolError:
        return []
    finally:
        segment.close()


def _split_evenly(stretch: Stretch, offsets_max: int) -> Iterator[Stretch]:
    """Cut a stretch so that none holds more offsets than that."""
    length = stretch.end_offset - stretch.first_offset
    count = -(-length // offsets_max)
    for number in range(count):
        first = stretch.first_offset + length * number // count
        end = stretch.first_offset + length * (number + 1) // count
        yield Stretch(stretch.part, first, end, max(stretch.size_bytes // count, 1))


def _grouped(stretches: Iterator[Stretch], size_bytes_max: int, offsets_max: int | None) -> Iterator[list[Stretch]]:
    """Put small neighbours into one group."""
    group: list[Stretch] = []
    size_bytes = 0
    for stretch in stretches:
        too_many = group and offsets_max is not None and stretch.end_offset - group[0].first_offset > offsets_max
        if group and (too_many or size_bytes + stretch.size_bytes > size_bytes_max):
            yield group
            group, size_bytes = [], 0
        group.append(stretch)
        size_bytes += stretch.size_bytes
    if group:
        yield group
