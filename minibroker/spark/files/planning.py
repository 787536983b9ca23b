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
from collections.abc import Iterator

from minibroker.errors import ProtocolError
from minibroker.spark.files.directories import Part, PartitionFiles, find_partitions, topics_in
from minibroker.spark.filters import Filters
from minibroker.spark.option_values import TopicPartition
from minibroker.spark.options import LOG_END, Options
from minibroker.spark.ranges import DataLoss as DataLoss
from minibroker.spark.ranges import check_all_there, range_of
from minibroker.stored.producers import AbortedTxn


class Task:
    """What one task of Spark reads. It goes to another process, so it holds names and numbers only."""

    __slots__ = (
        "aborted",
        "directory",
        "end_offset",
        "first_offset",
        "next_base",
        "partition",
        "parts",
        "root",
        "size_bytes",
        "topic",
    )

    def __init__(self, found: Range, stretches: list[Stretch]):
        files = found.files
        self.root = files.root.path
        self.directory = files.directory
        self.topic = files.topic
        self.partition = files.partition
        self.first_offset = stretches[0].first_offset
        self.end_offset = stretches[-1].end_offset
        self.size_bytes = sum(each.size_bytes for each in stretches)  # about
        # Base offset, suffix and length of each segment.
        parts = dict.fromkeys(each.part for each in stretches)
        self.parts = [(part.base_offset, part.suffix, part.size_bytes) for part in parts]
        # Where the segment behind the last one begins; None: there is none.
        self.next_base = files.next_base(files.index_of(self.parts[-1][0]))
        # Producer, first offset and offset of the marker of each aborted transaction that may have records here.
        self.aborted = found.aborted_between(self.first_offset, self.end_offset)

    def __repr__(self) -> str:
        return f"Task({self.topic}-{self.partition} {self.first_offset}..{self.end_offset}, {self.size_bytes} bytes)"


class Stretch:
    """Offsets within one segment."""

    __slots__ = ("end_offset", "first_offset", "part", "size_bytes")

    def __init__(self, part: Part, first_offset: int, end_offset: int, size_bytes: int):
        self.part = part
        self.first_offset = first_offset
        self.end_offset = end_offset
        self.size_bytes = size_bytes


class Range:
    """Which offsets of a partition are read."""

    __slots__ = ("_markers", "aborted", "end_offset", "files", "first_offset")

    def __init__(self, files: PartitionFiles, first_offset: int, end_offset: int, aborted: list[AbortedTxn]):
        self.files = files
        self.first_offset = first_offset
        self.end_offset = end_offset
        self.aborted = aborted  # in the order of their markers
        self._markers = [entry.last_offset for entry in aborted]

    def aborted_between(self, first_offset: int, end_offset: int) -> list[tuple[int, int, int]]:
        """Return producer, first offset and marker of the aborted transactions that may have records in a range."""
        found = []
        for index in range(bisect_left(self._markers, first_offset), len(self._markers)):
            entry = self.aborted[index]
            if entry.first_offset < end_offset:
                found.append((entry.producer_id, entry.first_offset, entry.last_offset))
            if entry.last_stable_offset >= end_offset:
                break  # whatever was aborted later began behind the end
        return found


def plan(options: Options, filters: Filters | None = None) -> list[Task]:
    """Return the tasks of a query, by topic, partition and offset."""
    filters = filters or Filters()
    return tasks_of(options, filters, find_ranges(options, filters))


def tasks_of(options: Options, filters: Filters, ranges: list[Range]) -> list[Task]:
    """Cut ranges, none of which is empty, into tasks."""
    # Stretches are made twice rather than kept: there may be very many.
    most = options.bytes_max
    if options.partitions_min is not None:
        total = sum(each.size_bytes for found in ranges for each in _stretches(found, filters))
        most = max(min(most, -(-total // options.partitions_min)), 1)
    tasks: list[Task] = []
    for found in ranges:
        pieces = (piece for stretch in _stretches(found, filters) for piece in _split(found.files, stretch, most))
        if options.records_max is not None:
            pieces = (part for piece in pieces for part in _split_evenly(piece, options.records_max))
        for group in _grouped(pieces, most, options.records_max):
            tasks.append(Task(found, group))
    return tasks


# Ranges


def find_ranges(options: Options, filters: Filters) -> list[Range]:
    """Return what there is of what was asked for; raise OptionError or DataLoss for what there is not."""
    return [each for each in resolved_ranges(options, filters) if each.first_offset < each.end_offset]


def resolved_ranges(options: Options, filters: Filters) -> list[Range]:
    """Return the range of each partition, also of those that hold nothing."""
    found = find_partitions(options.paths, options)
    check_all_there(options, found, lambda: topics_in(options.paths), f"in {', '.join(options.paths)}")
    for limit in (options.starting, options.ending):
        limit.check_names_all(found)
    return [_range(options, filters, key, files) for key, files in found.items() if filters.lets_through(*key)]


def _range(options: Options, filters: Filters, key: TopicPartition, files: PartitionFiles) -> Range:
    limit = limit_of(options, files)
    aborted: list[AbortedTxn] = []
    if options.read_committed:
        limit, aborted = files.transactions(files.start_offset, limit)
    first, end = range_of(options, filters, key, files, limit)
    return Range(files, first, end, aborted)


def limit_of(options: Options, files: PartitionFiles) -> int:
    """Return where the log ends for readers."""
    promised = files.high_watermark
    if promised is None or options.end_of_log == LOG_END:
        return files.end_offset
    if promised > files.end_offset and options.fail_on_data_loss:
        raise DataLoss(
            f"{files} in {files.root.path} should reach to {promised}, its high watermark, and ends at "
            f"{files.end_offset}: the directory was copied while it changed, or has been cut"
        )
    return max(min(promised, files.end_offset), files.start_offset)


# Stretches


def _stretches(found: Range, filters: Filters) -> Iterator[Stretch]:
    """Yield what is to be read of each segment."""
    files = found.files
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
