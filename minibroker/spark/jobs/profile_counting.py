"""What tasks of a profile count: records, and batches by their headers.

    work: what one task of the data source reads -> facts, as a table: keys, hours, producers, and what there is of each
                                                 -> a stretch: sums, ends, sizes; stretches that follow are joined
What must hold: a record is counted where it is read and does not leave its task. Stretches are joined in the order of
their offsets, within a task of Spark and by the driver alike, which gets one of each of those tasks and partitions.
Not here: what is made of facts (profile_sql.py) and of stretches (profile_tables.py).
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

from minibroker.spark.columns.varints import Bools, Int64s
from minibroker.spark.jobs.profile_sql import BROKEN_MAX, HOUR_MS
from minibroker.spark.jobs.tasks import grouped
from minibroker.spark.options import BATCHES, Options
from minibroker.spark.reading import reader_of
from minibroker.spark.workers import naming_packages, settle

pc: Any = pyarrow.compute  # its functions are made when it is imported
ROWS = ["offset", "timestamp", "timestampType", "key", "value", "headers"]
HEADERS = ["baseOffset", "lastOffset", "format", "codec", "sizeBytes", "records", "error", "maxTimestamp", "producerId"]
HEADERS += ["producerEpoch", "isTransactional", "isControl", "control", "file", "position"]
# A fact is a stretch, or is about a key, an hour or a producer; chunk: about the first offset of what it was made of.
FACTS_SCHEMA = """topic string, partition int, chunk bigint, stretch binary, key binary, hour bigint, producer bigint,
    epoch int, marker int, batches bigint, records bigint, bytes bigint, transactional bigint, committed bigint,
    aborted bigint, open bigint, oldest bigint, newest bigint"""
TYPES = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary()}
FACTS = pa.schema([(name, TYPES[kind]) for name, kind in map(str.split, FACTS_SCHEMA.split(","))])
KEYS_AT_ONCE, KEY_BYTES_AT_ONCE, HEADERS_AT_ONCE = 1 << 20, 64 << 20, 1 << 16
COMMITTED, ABORTED = 1, 2  # as markers say


@dataclass(slots=True)
class Stretch:
    """What there is to say of offsets that follow each other, of their records or of their batches."""

    sums: Counter[Any] = field(default_factory=Counter)
    least: dict[str, int] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)  # offset and time, for what comes before and behind
    last: dict[str, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def reach(self, name: str, least: int, most: int) -> None:
        self.least[name] = min(self.least.get(name, least), least)
        self.most[name] = max(self.most.get(name, most), most)

    def append(self, later: Stretch) -> None:
        """Join what lies behind this."""
        if "offset" in self.last and "offset" in later.first:
            hole = later.first["offset"] - self.last["offset"] - 1
            self.sums["holes"] += hole > 0
            self.reach("hole", hole, hole)
        if "time" in self.last and "time" in later.first:
            self.sums["out_of_order"] += later.first["time"] < self.last["time"]
            late_ms = self.most["time"] - later.least["time"]
            self.reach("late_ms", late_ms, late_ms)
        self.sums.update(later.sums)
        for name, least in later.least.items():
            self.reach(name, least, later.most[name])
        self.first = {**later.first, **self.first}
        self.last.update(later.last)
        self.broken = (self.broken + later.broken)[: BROKEN_MAX + 1]

    def add_sizes(self, what: str, sizes: Int64s) -> None:
        """Count sizes by bins, of which eight lie between two powers of two; each goes by its largest number."""
        if not len(sizes):
            return
        self.sums[what] += int(sizes.sum())
        self.reach(what, int(sizes.min()), int(sizes.max()))
        units = np.left_shift(1, np.maximum(np.frexp(np.maximum(sizes, 1))[1] - 4, 0))
        ends, counts = np.unique(sizes | (units - 1), return_counts=True)
        self.sums.update({("bin", what, end): count for end, count in zip(ends.tolist(), counts.tolist(), strict=True)})


class Work(NamedTuple):
    """What is counted of one partition."""

    task: Any  # of the data source
    options: Options
    first_offset: int  # of all that is read of the partition
    now_ms: int


def count_works(works: list[Work]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what Spark gives the numbers of works to, and gets facts from."""

    def count(chunks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        found: dict[tuple[str, int], tuple[Any, Stretch]] = {}
        for number in (number for chunk in chunks for number in chunk.column(0).to_pylist()):
            task = works[number].task
            with naming_packages():
                stretch = yield from _count(works[number])
            found.setdefault((task.topic, task.partition), (task, Stretch()))[1].append(stretch)
        for task, stretch in found.values():
            yield _facts(task, stretch=[pickle.dumps(stretch)])

    return count


def _facts(task: Any, **columns: Any) -> pa.RecordBatch:
    count = len(next(iter(columns.values())))
    given = {"topic": [task.topic], "partition": [task.partition], "chunk": [task.first_offset]}
    told = {name: pa.repeat(pa.scalar(value[0]), count) for name, value in given.items()} | columns
    made = [
        pa.array(told[each.name]).cast(each.type) if each.name in told else pa.nulls(count, each.type) for each in FACTS
    ]
    return pa.RecordBatch.from_arrays(made, schema=FACTS)


def _count(work: Work) -> Generator[pa.RecordBatch, None, Stretch]:
    with closing(reader_of(work.task, work.options).batches()) as batches:
        if work.options.mode != BATCHES:
            return (yield from _count_records(work, batches))
        found = Stretch()
        for some in grouped(batches, len, HEADERS_AT_ONCE):
            found.append((yield from _count_batches(work, pa.Table.from_batches(some))))
        return found


# Records


def _count_records(work: Work, batches: Iterator[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, Stretch]:
    stretch, hours, keys = Stretch(), Counter[tuple[int, str]](), list[pa.Array]()
    for rows in batches:
        stretch.append(_records(rows, hours, work.now_ms))
        keys.append(rows["key"])
        if sum(map(len, keys)) >= KEYS_AT_ONCE or sum(each.nbytes for each in keys) >= KEY_BYTES_AT_ONCE:
            yield _key_counts(work.task, keys)
            keys = []
    if keys:
        yield _key_counts(work.task, keys)
    names = sorted({hour for hour, _ in hours})
    if names:
        told = {what: [hours[hour, what] for hour in names] for what in ("records", "bytes")}
        yield _facts(work.task, hour=names, **told)
    return stretch


def _key_counts(task: Any, keys: list[pa.Array]) -> pa.RecordBatch:
    counts = pa.chunked_array(keys).drop_null().value_counts()
    return _facts(task, key=counts.field("values"), records=counts.field("counts"))


def _records(rows: pa.RecordBatch, hours: Counter[tuple[int, str]], now_ms: int) -> Stretch:
    found, offsets = Stretch(), rows["offset"].to_numpy()
    times = rows["timestamp"].cast(pa.int64()).to_numpy() // 1000
    types, headers = rows["timestampType"].to_numpy(), pc.list_flatten(rows["headers"])
    are_timed = times >= 0
    sizes = np.zeros(len(rows), np.int64)
    for name in ("key", "value"):
        lengths = pc.binary_length(rows[name])
        found.add_sizes(f"{name}_bytes", lengths.drop_null().to_numpy().astype(np.int64))
        sizes += lengths.fill_null(0).to_numpy()
    holes = np.diff(offsets) - 1
    found.sums.update(
        records=len(rows),
        null_keys=rows["key"].null_count,
        null_values=rows["value"].null_count,
        headers=len(headers),
        header_bytes=sum(pc.sum(pc.binary_length(headers.field(n))).as_py() or 0 for n in (0, 1)),
        create_time=int((types == 0).sum()),
        append_time=int((types == 1).sum()),
        in_the_future=int((times > now_ms).sum()),
        holes=int((holes > 0).sum()),
    )
    if len(holes):
        found.reach("hole", 0, int(holes.max()))
    if len(rows):
        found.first["offset"], found.last["offset"] = int(offsets[0]), int(offsets[-1])
    if are_timed.any():
        _times(found, times[are_timed])
        names, places = np.unique(times[are_timed] // HOUR_MS, return_inverse=True)
        records, size_bytes = np.bincount(places), np.bincount(places, sizes[are_timed])
        hours.update({(int(hour), "records"): int(count) for hour, count in zip(names, records, strict=True)})
        hours.update({(int(hour), "bytes"): int(count) for hour, count in zip(names, size_bytes, strict=True)})
    return found


def _times(found: Stretch, times: Int64s) -> None:
    found.sums.update(timed=len(times), out_of_order=int((np.diff(times) < 0).sum()))
    found.reach("time", int(times.min()), int(times.max()))
    found.first["time"], found.last["time"] = int(times[0]), int(times[-1])
    found.reach("late_ms", 0, int((np.maximum.accumulate(times) - times).max()))


# Batches


def _count_batches(work: Work, rows: pa.Table) -> Generator[pa.RecordBatch, None, Stretch]:
    found = Stretch(broken=[_broken(work.task, row) for row in rows.filter(rows["error"].is_valid()).to_pylist()])
    rows = rows.filter(rows["error"].is_null())
    are_control = rows["isControl"].to_numpy()
    counts, data = rows["records"].fill_null(0).to_numpy().astype(np.int64), rows.filter(pa.array(~are_control))
    found.sums.update(stored_bytes=pc.sum(rows["sizeBytes"]).as_py() or 0, batches=len(data))
    found.sums["control_records"] = int(counts[are_control].sum())
    found.add_sizes("batch_bytes", data["sizeBytes"].to_numpy().astype(np.int64))
    found.add_sizes("batch_records", data["records"].drop_null().to_numpy().astype(np.int64))
    _promised(found, data, work.first_offset)
    whats = {"batches": ("sizeBytes", "count"), "stored_bytes": ("sizeBytes", "sum"), "records": ("records", "sum")}
    for row in data.group_by(["format", "codec"]).aggregate([*whats.values()]).to_pylist():
        for what, column in whats.items():
            if (count := row["_".join(column)]) is not None:
                found.sums["codec", row["format"], row["codec"], what] += count
    if len(rows := rows.filter(pc.equal(rows["format"], 2))):
        told = _producers(rows)
        begin = pa.repeat(rows["lastOffset"][0], len(told))
        yield _facts(work.task, chunk=begin, **{name: told[name].combine_chunks() for name in told.column_names})
    return found


def _broken(task: Any, row: dict[str, Any]) -> str:
    base, last, position = row["baseOffset"], row["lastOffset"], row["position"]
    offsets = "" if last is None else f", offsets {last if base is None else base} to {last}"
    where = ", from " if position is None else f", byte {position} of "
    return f"{task}{offsets}{where}{row['file']}: {row['error']}"


def _promised(found: Stretch, data: pa.Table, first_offset: int) -> None:
    """Count the records that batches hold from an offset on, and those batches that do not say it."""
    last = data["lastOffset"].to_numpy()
    base = pc.coalesce(data["baseOffset"], data["lastOffset"]).to_numpy()
    counts = data["records"].fill_null(-1).to_numpy().astype(np.int64)
    are_cut = base < first_offset
    are_vague = (counts < 0) | are_cut & (counts <= last - base)
    shown = np.where(are_cut, last - first_offset + 1, counts)
    found.sums.update(promised=int(shown[~are_vague].sum()), vague=int(are_vague.sum()))


def _producers(rows: pa.Table) -> pa.Table:
    """Return what there is of each producer and epoch, and the first marker of the producer."""
    control = rows["control"]
    markers = np.zeros(len(rows), np.int64)
    for marker, name in ((COMMITTED, "commit"), (ABORTED, "abort")):
        markers[pc.starts_with(control, name).fill_null(False).to_numpy()] = marker
    are_data = ~rows["isControl"].to_numpy()
    kept = are_data | (markers > 0)
    rows, markers, are_data = rows.filter(pa.array(kept)), markers[kept], are_data[kept]
    producers = rows["producerId"].to_numpy()
    ends, first_markers = _markers(producers, markers)
    records = rows["records"].to_numpy().astype(np.int64) * are_data
    transactional = records * rows["isTransactional"].to_numpy()
    times = pa.array(rows["maxTimestamp"].cast(pa.int64()).fill_null(0).to_numpy() // 1000)
    times = pc.if_else(pc.and_(pa.array(are_data), rows["maxTimestamp"].is_valid()), times, None)
    told = {"batches": are_data.astype(np.int64), "records": records, "transactional": transactional}
    told |= {"committed": transactional * (ends == COMMITTED), "aborted": transactional * (ends == ABORTED)}
    told |= {"open": transactional * (ends == 0)}
    table = pa.table({**told, "oldest": times, "newest": times, "marker": first_markers})
    table = table.append_column("producer", rows["producerId"]).append_column("epoch", rows["producerEpoch"])
    sums = [(name, "sum") for name in told]
    grouped = table.group_by(["producer", "epoch"]).aggregate(
        [*sums, ("oldest", "min"), ("newest", "max"), ("marker", "max")]
    )
    names = {f"{name}_{how}": name for name, how in [*sums, ("oldest", "min"), ("newest", "max"), ("marker", "max")]}
    return grouped.rename_columns([names.get(name, name) for name in grouped.column_names])


def _markers(producers: Int64s, markers: Int64s) -> tuple[Int64s, Int64s]:
    """Return the next marker of each batch's producer, and the first there is of it; 0: there is none."""
    count = len(producers)
    if not count:
        return producers, producers
    places = np.arange(count)
    order = np.lexsort((-places, producers))  # each producer's batches together, the last first
    sorted_ids, sorted_markers = producers[order], markers[order]
    begins: Bools = np.ones(count, np.bool_)
    begins[1:] = sorted_ids[1:] != sorted_ids[:-1]
    nearest = np.maximum.accumulate(np.where(sorted_markers > 0, places, -1))
    starts = np.maximum.accumulate(np.where(begins, places, 0))
    ends = np.where(nearest >= starts, sorted_markers[nearest], 0)
    last_of_group = np.append(np.flatnonzero(begins)[1:], count) - 1
    firsts = ends[last_of_group][np.cumsum(begins) - 1]
    found, first = np.empty(count, np.int64), np.empty(count, np.int64)
    found[order], first[order] = ends, firsts
    return found, first
