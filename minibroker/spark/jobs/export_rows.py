"""The rows of an export, made in Spark's workers from tasks of our data source, without any JVM.

    key, value, partition, offset, timestamp, timestampType, headers, topic, date

What a planning process or a task has to tell goes into a folder of notes beside the checkpoint, which the driver reads
when the query has ended: no other way leads from all of them to it, with Spark Connect neither.
What must hold: a date is one of UTC, whatever the session's time zone, and a text is one that every reader takes.
Not here: which tasks (export_source.py), where rows go (export_files.py, export_targets.py).
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from minibroker.spark.arrow_map import map_in_arrow
from minibroker.spark.columns.rows_of_query import ROWS
from minibroker.spark.folders import Folder
from minibroker.spark.options import Options, parse
from minibroker.spark.reading import plan, reader_of
from minibroker.spark.workers import naming_packages, settle

COLUMNS = ("key", "value", "partition", "offset", "timestamp", "timestampType", "headers", "topic", "date")
assert set(COLUMNS) == {*ROWS.names, "date"}
TOLD_MAX = 20  # sentences of one task
SAMPLE_PARTITIONS, SAMPLE_RECORDS = 64, 1000  # of a partition, if its first batch of Arrow has so many
DAY_US = 86_400_000_000
DATES = (-719_162, 2_932_896)  # 0001-01-01 and 9999-12-31, between which readers of folders know dates


class RowsOfTasks:
    """Makes rows of tasks, in Spark's workers: the columns of an export, as far as no JSON is to be parsed."""

    def __init__(self, source: Mapping[str, str], notes: str, *, keys_as_text: bool, values_as_text: bool):
        self.source, self.notes = dict(source), notes
        self.keys_as_text, self.values_as_text = keys_as_text, values_as_text

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        options = parsed(self.source)
        with naming_packages():
            for batch in batches:
                for tasks in batch.column(0).to_pylist():
                    for task in pickle.loads(tasks):
                        yield from self._read(task, options)

    def _read(self, task: Any, options: Options) -> Iterator[pa.RecordBatch]:
        reader = reader_of(task, options)
        yield from map(self._shaped, reader.batches())
        if told := [*(f"left out: {text}" for text in reader.left_out), *reader.noticed]:
            more = [f"{len(told) - TOLD_MAX} more like these in {task}"] if len(told) > TOLD_MAX else []
            tell(self.notes, problems=told[:TOLD_MAX] + more)

    def _shaped(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        for name, is_text in (("key", self.keys_as_text), ("value", self.values_as_text)):
            columns[name] = as_text(columns[name]) if is_text else columns[name]
        columns["date"] = dates_of(columns["timestamp"])
        return pa.RecordBatch.from_pydict({name: columns[name] for name in COLUMNS})


def as_text(values: pa.Array) -> pa.Array:
    """Return bytes as text. What is not UTF-8 shows as replacement characters: readers of Parquet refuse all else."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if value is None else value.decode(errors="replace") for value in values.to_pylist()]
        return pa.array(texts, pa.string())


def dates_of(timestamps: pa.Array) -> pa.Array:
    """Return days of UTC. Who sends nanoseconds for milliseconds has records of the year 294247, which would make the
    column one of texts for those who read the names of folders."""
    days = np.floor_divide(timestamps.view(pa.int64()).to_numpy(), DAY_US)
    return pa.array(np.clip(days, *DATES).astype(np.int32)).view(pa.date32())


def sampled(spark: Any, source: Mapping[str, str]) -> Any:
    """Return a frame of the first values of some partitions, as text."""
    by_partition: dict[tuple[str, int], Any] = {}
    for task in plan(parse(without(source, "starting", "ending"))):
        by_partition.setdefault((task.topic, task.partition), task)
    tasks = [pickle.dumps(task) for task in by_partition.values()]
    tasks = tasks[:: len(tasks) // SAMPLE_PARTITIONS + 1]

    def first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for rows in islice(reader_of(pickle.loads(task), parsed(source)).batches(), 1):
                    yield pa.RecordBatch.from_pydict({"value": as_text(rows["value"][:SAMPLE_RECORDS].drop_null())})

    frame = spark.createDataFrame([(task,) for task in tasks], "tasks binary").repartition(max(len(tasks), 1))
    return map_in_arrow(frame, first, "value string")


def without(source: Mapping[str, str], *beginnings: str) -> dict[str, str]:
    """Return options but for those that say where to begin, or to end."""
    return {name: value for name, value in source.items() if not name.lower().startswith(beginnings)}


def parsed(source: Mapping[str, str]) -> Options:
    """Return the options of the stream, which begins at the earliest offsets unless somebody says otherwise."""
    start = {} if len(without(source, "starting")) < len(source) else {"startingOffsets": "earliest"}
    return parse({**without(source, "ending"), **start, "includeHeaders": "true"}, streaming=True)


def tell(notes: str, **told: Any) -> None:
    """Leave a note; who repeats what somebody else has done says the same again."""
    data = json.dumps(told, sort_keys=True).encode()
    Folder(notes).write(f"{sha256(data).hexdigest()[:32]}.json", data)
