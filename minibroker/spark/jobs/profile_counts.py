"""Counts of a profile: of topics, partitions and hours, of batches and producers. Plain objects, no Spark.

    counts = Counts(now_ms); counts.read(task ...); counts.merge(those of another task)

What must hold: however the records are spread over tasks, merged counts are those of all together. The memory of one
is bounded by EXACT_MAX of keys, HOURS_MAX and PRODUCERS_MAX; what is above is told, never left out in silence.
Records are counted as they come; batches, and what only they know, by their headers, if there are any. A batch belongs
to the range in which it ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minibroker.errors import ProtocolError
from minibroker.log.compression import GZIP, LZ4, SNAPPY, ZSTD, compress
from minibroker.log.formats import ABORT, COMMIT, BatchHeader
from minibroker.log.records import control_type
from minibroker.spark.columns.batches import Units, unit_at
from minibroker.spark.columns.rows import fixed_fields
from minibroker.spark.columns.varints import BufferView
from minibroker.spark.jobs.profile_keys import Keys
from minibroker.spark.jobs.profile_sizes import Sizes, sizes_of
from minibroker.spark.jobs.profile_stretch import Stretch

Int64s = NDArray[np.int64]


HOUR_MS = 3_600_000
HOURS_MAX = 10_000  # of a partition; more than a year of them have lost their meaning
PRODUCERS_MAX = 10_000  # of a partition
MANY = (-2, -1)  # stands for the producers above that
SAMPLE_BYTES = 64 * 1024  # of values, from each group of records that is read: compressed by way of trial
SAMPLE_CODECS = (GZIP, SNAPPY, LZ4, ZSTD)


class ProducerCounts:
    """What one incarnation of a producer has left in a partition."""

    __slots__ = ("batches", "newest", "oldest", "records", "transactional")

    def __init__(self) -> None:
        self.batches = 0
        self.records = 0
        self.transactional = 0  # records
        self.oldest = -1  # of the newest timestamps of its batches; -1 is none
        self.newest = -1

    def add(self, batches: int, records: int, transactional: int, oldest: int, newest: int) -> None:
        self.batches += batches
        self.records += records
        self.transactional += transactional
        self.oldest = min(self.oldest, oldest) if self.oldest >= 0 else oldest
        self.newest = max(self.newest, newest)

    def merge(self, other: ProducerCounts) -> None:
        self.add(other.batches, other.records, other.transactional, other.oldest, other.newest)


class PartitionCounts:
    """One partition."""

    def __init__(self) -> None:
        self.records = 0
        self.batches = 0  # without control batches
        self.batch_bytes = 0  # with them
        self.control_batches = 0
        self.control_records = 0
        self.hidden = 0  # records that the isolation level does not show
        self.key_bytes = 0
        self.value_bytes = 0
        self.header_bytes = 0
        self.keys = Keys()
        self.hours: dict[int, tuple[int, int]] = {}  # hours since 1970 -> records, bytes of keys and values
        self.hourless = 0  # records of hours above HOURS_MAX
        self.producers: dict[tuple[int, int], ProducerCounts] = {}  # by id and epoch
        self.stretches: list[Stretch] = []

    def stretch(self) -> Stretch:
        """Return all that was read, in its order."""
        whole: Stretch | None = None
        for part in sorted(self.stretches, key=lambda each: each.span()):
            if whole is None:
                whole = Stretch(part.first_offset, part.end_offset)
            whole.then(part)
        return whole or Stretch()

    def add_hours(self, hours: dict[int, tuple[int, int]], hourless: int = 0) -> None:
        self.hourless += hourless
        for hour, (records, size_bytes) in hours.items():
            known = self.hours.get(hour)
            if known is not None:
                self.hours[hour] = known[0] + records, known[1] + size_bytes
            elif len(self.hours) < HOURS_MAX:
                self.hours[hour] = records, size_bytes
            else:
                self.hourless += records

    def producer(self, producer_id: int, epoch: int) -> ProducerCounts:
        key = producer_id, epoch
        if key not in self.producers and len(self.producers) >= PRODUCERS_MAX:
            key = MANY
        return self.producers.get(key) or self.producers.setdefault(key, ProducerCounts())

    def merge(self, other: PartitionCounts) -> None:
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.keys.merge(other.keys)
        self.add_hours(other.hours, other.hourless)
        for (producer_id, epoch), found in other.producers.items():
            self.producer(producer_id, epoch).merge(found)
        self.stretches += other.stretches


_SUMS = (
    *("records", "batches", "batch_bytes", "control_batches", "control_records", "hidden"),
    *("key_bytes", "value_bytes", "header_bytes"),
)


class TopicCounts:
    """One topic: distributions that are not kept for each partition."""

    def __init__(self) -> None:
        self.partitions: dict[int, PartitionCounts] = {}
        self.key_sizes = Sizes()
        self.value_sizes = Sizes()
        self.batch_sizes = Sizes()
        self.batch_records = Sizes()
        self.null_values = 0
        self.headers = 0
        self.codecs: dict[tuple[int, int], tuple[int, int, int]] = {}  # format, codec -> batches, bytes, records
        self.timestamp_types: dict[int, int] = {}
        self.timeless = 0  # records without a timestamp
        self.future = 0
        self.sampled_bytes = 0
        self.sample: dict[int, int] = dict.fromkeys(SAMPLE_CODECS, 0)  # codec -> bytes that the sample takes

    def partition(self, number: int) -> PartitionCounts:
        return self.partitions.get(number) or self.partitions.setdefault(number, PartitionCounts())

    def merge(self, other: TopicCounts) -> None:
        for number, found in other.partitions.items():
            self.partition(number).merge(found)
        for name in ("key_sizes", "value_sizes", "batch_sizes", "batch_records"):
            getattr(self, name).merge(getattr(other, name))
        for name in ("null_values", "headers", "timeless", "future", "sampled_bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for key, counted in other.codecs.items():
            self.add_codec(key, *counted)
        for kind, count in other.timestamp_types.items():
            self.timestamp_types[kind] = self.timestamp_types.get(kind, 0) + count
        for codec, size_bytes in other.sample.items():
            self.sample[codec] += size_bytes

    def add_codec(self, key: tuple[int, int], batches: int, size_bytes: int, records: int) -> None:
        known = self.codecs.get(key, (0, 0, 0))
        self.codecs[key] = known[0] + batches, known[1] + size_bytes, known[2] + records

    def keys(self) -> Keys:
        whole = Keys()
        for partition in self.partitions.values():
            whole.merge(partition.keys)
        return whole


class Counts:
    """All that was read. `now_ms` says what is in the future."""

    def __init__(self, now_ms: int):
        self.now_ms = now_ms
        self.topics: dict[str, TopicCounts] = {}
        self.left_out: list[str] = []  # broken batches, in words

    def topic(self, name: str) -> TopicCounts:
        return self.topics.get(name) or self.topics.setdefault(name, TopicCounts())

    def merge(self, other: Counts) -> None:
        for name, found in other.topics.items():
            self.topic(name).merge(found)
        self.left_out += other.left_out


def add_rows(
    counts: Counts,
    topic: TopicCounts,
    number: int,
    stretch: Stretch,
    offsets: Int64s,
    timestamps: Int64s,
    timestamp_types: NDArray[np.int32],
    keys: pa.BinaryArray,
    values: pa.BinaryArray,
    headers: pa.ListArray,
) -> None:
    """Count records of one partition that follow each other."""
    partition = topic.partition(number)
    partition.records += len(offsets)
    partition.keys.add(keys)
    key_sizes, value_sizes = sizes_of(keys), sizes_of(values)
    topic.key_sizes.add(key_sizes[key_sizes >= 0])
    topic.value_sizes.add(value_sizes[value_sizes >= 0])
    topic.null_values += values.null_count
    sizes = np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0)
    partition.key_bytes += int(np.maximum(key_sizes, 0).sum())
    partition.value_bytes += int(np.maximum(value_sizes, 0).sum())
    _add_headers(topic, partition, headers)
    for kind, count in zip(*(each.tolist() for each in np.unique(timestamp_types, return_counts=True))):
        topic.timestamp_types[kind] = topic.timestamp_types.get(kind, 0) + count
    has_time = timestamps >= 0
    topic.timeless += int((~has_time).sum())
    topic.future += int((timestamps > counts.now_ms).sum())
    hours, which = np.unique(timestamps[has_time] // HOUR_MS, return_inverse=True)
    records = np.bincount(which, minlength=len(hours)).tolist()
    size_bytes = np.bincount(which, sizes[has_time], minlength=len(hours)).astype(np.int64).tolist()
    partition.add_hours(dict(zip(hours.tolist(), zip(records, size_bytes))))
    stretch.add_rows(offsets, timestamps)
    _try_codecs(topic, values)


def _add_headers(topic: TopicCounts, partition: PartitionCounts, headers: pa.ListArray) -> None:
    flat = headers.flatten()
    if len(flat):
        topic.headers += len(flat)
        partition.header_bytes += sum(int(np.maximum(sizes_of(flat.field(index)), 0).sum()) for index in range(2))


def _try_codecs(topic: TopicCounts, values: pa.BinaryArray) -> None:
    ends = np.cumsum(np.maximum(sizes_of(values[: SAMPLE_BYTES // 8]), 0))
    count = max(int(np.searchsorted(ends, SAMPLE_BYTES, "right")), 1)
    sample = b"".join(value for value in values[:count].to_pylist() if value)[:SAMPLE_BYTES]
    if sample:
        topic.sampled_bytes += len(sample)
        for codec in SAMPLE_CODECS:
            topic.sample[codec] += len(compress(codec, sample))


def add_units(topic: TopicCounts, number: int, stretch: Stretch, view: memoryview, units: Units) -> None:
    """Count batches of one partition that follow each other, by their headers."""
    partition = topic.partition(number)
    control = units.are_control
    partition.batches += int((~control).sum())
    partition.control_batches += int(control.sum())
    partition.control_records += int(units.counts[control].sum())
    partition.batch_bytes += int(units.sizes.sum())
    topic.batch_sizes.add(units.sizes[~control])
    # How many records a wrapper of v0 or v1 holds, only its records say.
    topic.batch_records.add(units.counts[~control & ~units.are_wrappers])
    codes = units.magics * 8 + units.codecs
    for code in np.unique(codes[~control]).tolist():
        which = (codes == code) & ~control
        topic.add_codec(divmod(code, 8), int(which.sum()), int(units.sizes[which].sum()), 0)
    _add_producers(partition, view, units)
    _add_transactions(stretch, view, units)


def add_wrapped(topic: TopicCounts, units: Units, positions: Int64s) -> None:
    """Count records by the batches they came from; `positions` are those of their batches."""
    which = np.searchsorted(units.positions, positions)
    codes = units.magics[which] * 8 + units.codecs[which]
    for code, records in zip(*(each.tolist() for each in np.unique(codes, return_counts=True))):
        topic.add_codec(divmod(code, 8), 0, 0, records)
    in_wrapper = which[units.are_wrappers[which]]
    if len(in_wrapper):
        topic.batch_records.add(np.unique(in_wrapper, return_counts=True)[1])


def _add_producers(partition: PartitionCounts, view: memoryview, units: Units) -> None:
    which = np.flatnonzero((units.magics == 2) & ~units.are_control)
    if not which.size:
        return
    epochs = _headers_of(view, units, which)["producer_epoch"].astype(np.int64)
    pairs, of_pair = np.unique(np.stack([units.producer_ids[which], epochs]), axis=1, return_inverse=True)
    of_pair = of_pair.reshape(-1)  # some releases of numpy give it a second dimension
    for index, (producer_id, epoch) in enumerate(pairs.T.tolist()):
        mine = which[of_pair == index]
        times = units.max_timestamps[mine]
        times = times[times >= 0]
        partition.producer(producer_id, epoch).add(
            len(mine),
            int(units.counts[mine].sum()),
            int(units.counts[mine[units.are_transactional[mine]]].sum()),
            int(times.min(initial=1 << 62)) if len(times) else -1,
            int(times.max(initial=-1)),
        )


def _headers_of(view: memoryview, units: Units, which: Int64s) -> NDArray[Any]:
    return BufferView(view).at(fixed_fields(BatchHeader), units.positions[which])


def _add_transactions(stretch: Stretch, view: memoryview, units: Units) -> None:
    control = units.are_control
    for index in np.flatnonzero(control | units.are_transactional).tolist():
        producer = int(units.producer_ids[index])
        if not control[index]:
            stretch.ending(producer).add(int(units.counts[index]))
            continue
        try:
            kinds = [control_type(record) for record in unit_at(view, units, index).records()]
        except ProtocolError:
            continue  # whoever reads the records is told
        for kind in kinds:
            if kind in (ABORT, COMMIT):
                stretch.ending(producer).mark(kind == COMMIT)
