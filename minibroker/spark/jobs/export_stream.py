"""The stream that an export reads, and the rows of its tasks, made in Spark's workers without any JVM.

    frame = spark.readStream.format(TaskSource.name()).options(**options_of(source, notes, is_one=False)).load()
    key, value, partition, offset, timestamp, timestampType, headers, topic, date

A row of the stream says what one task of Spark is to read. Offsets, checkpoints and data loss are those of every stream
of ours (streams/reader.py); one that is to end somewhere ends its micro-batches there.
What a planning process or a task has to tell goes into a folder of notes beside the checkpoint, which the driver reads
when the query has ended: no other way leads from all of them to it, with Spark Connect neither.
What must hold: a date is one of UTC, whatever the session's time zone, and a text is one that every reader takes.
Not here: where rows go (export_files.py, export_targets.py).
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition  # pyright: ignore

from minibroker.spark.arrow_map import map_in_arrow
from minibroker.spark.columns.rows_of_query import ROWS
from minibroker.spark.folders import Folder
from minibroker.spark.jobs.export_files import as_text, dates_of
from minibroker.spark.jobs.tasks import grouped
from minibroker.spark.options import Options, parse
from minibroker.spark.reading import all_ranges, plan, reader_of
from minibroker.spark.source import MinibrokerSource
from minibroker.spark.streams import reader as streams
from minibroker.spark.streams.offsets import Json, from_json, reporting
from minibroker.spark.workers import naming_packages, prepare, settle

COLUMNS = ("key", "value", "partition", "offset", "timestamp", "timestampType", "headers", "topic", "date")
assert set(COLUMNS) == {*ROWS.names, "date"}
TOLD_MAX = 20  # sentences of one task
SAMPLE_PARTITIONS, SAMPLE_RECORDS = 64, 1000  # of a partition, if its first batch of Arrow has so many
TASK_OFFSETS_MIN = 100_000  # about; fewer are not worth a task, nor a file
TASK_TOPICS_MAX = 64  # a topic is a file at least, whatever is in it
_Reader: Any = streams.StreamReader if streams.limits is None else streams.AdmittingStreamReader


# The stream


def options_of(source: Mapping[str, str], notes: str, *, is_one: bool) -> dict[str, str]:
    """is_one: one new micro-batch, though more be there."""
    return {"source": json.dumps(dict(source)), "notes": notes, "is_one": str(is_one)}


class TaskSource(MinibrokerSource):
    """What Spark asks for the stream."""

    @classmethod
    def name(cls) -> str:
        return "minibroker-export"

    def schema(self) -> Any:
        return "tasks binary"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        prepare()
        given = self.options
        return TaskStreamReader(json.loads(given["source"]), given["notes"], given["is_one"] == "True")


class TaskStreamReader(_Reader):
    """Plans micro-batches, and hands out tasks in place of their rows."""

    def __init__(self, source: Mapping[str, str], notes: str, is_one: bool):
        options = parsed(source)
        super().__init__(options)
        self.source, self.notes, self.is_one = source, notes, is_one
        self.end: Json | None = None
        self.stream.report = reporting(options.fail_on_data_loss, lambda text: tell(notes, problems=[text]))

    def latestOffset(self, *asked: Any) -> Json:
        if self.end is not None:
            return self.end
        end: Json = super().latestOffset(*asked)
        if len(without(self.source, "ending")) < len(self.source):
            end = self._cut(end, asked[0] if asked else self.stream.planned or self.stream.initial())
        ends = from_json(end)
        bounds = self.stream.bounds.items()
        tell(self.notes, behind=sum(max(bound.end - ends.get(key, bound.begin), 0) for key, bound in bounds))
        if self.is_one and asked:  # before Spark 4.2 a run has one micro-batch anyway
            self.end = end
        return end

    def _cut(self, end: Json, start: Json) -> Json:
        """Return an end that is not behind what the options say, nor before the start."""
        limits = {
            (each.log.topic, each.log.partition): each.end_offset
            for each in all_ranges(parse(without(self.source, "starting")))
        }
        before = from_json(start)

        def cut(topic: str, partition: str, offset: int) -> int:
            key = topic, int(partition)
            return max(min(offset, limits.get(key, offset)), min(offset, before.get(key, 0)))

        return {
            topic: {each: cut(topic, each, offset) for each, offset in of_topic.items()}
            for topic, of_topic in end.items()
        }

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        tasks = self.stream.plan(start, end)
        ranges: dict[str, list[int]] = {}
        for task in tasks:
            name = f"{task.topic}/{task.partition}"
            first, last = ranges.get(name, (task.first_offset, task.end_offset))
            ranges[name] = [min(first, task.first_offset), max(last, task.end_offset)]
        tell(self.notes, ranges=ranges)
        return [InputPartition(pickle.dumps(each)) for each in works_of(tasks)]

    def read(self, partition: InputPartition) -> Iterator[tuple[bytes]]:
        yield (partition.value,)


def works_of(tasks: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield what one task of Spark is to read."""
    first = {task.topic: task for task in reversed(tasks)}

    def size_of(task: Any) -> int:
        size = int(task.end_offset - task.first_offset)
        return size + (TASK_OFFSETS_MIN // TASK_TOPICS_MAX if task is first[task.topic] else 0)

    return grouped(tasks, size_of, TASK_OFFSETS_MIN)


# Rows


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
        reader, no_text = reader_of(task, options), 0
        for rows in reader.batches():
            shaped, changed = self._shaped(rows)
            no_text += changed
            yield shaped
        if no_text:
            tell(self.notes, no_text={f"{task.topic}/{task.partition}/{task.first_offset}": no_text})
        if told := [*(f"left out: {text}" for text in reader.left_out), *reader.noticed]:
            more = [f"{len(told) - TOLD_MAX} more like these in {task}"] if len(told) > TOLD_MAX else []
            tell(self.notes, problems=told[:TOLD_MAX] + more)

    def _shaped(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """Return the columns of an export, and how many keys and values are no text though they should be."""
        columns, no_text = dict(zip(rows.schema.names, rows.columns, strict=True)), 0
        for name, is_text in (("key", self.keys_as_text), ("value", self.values_as_text)):
            if is_text:
                columns[name], changed = as_text(columns[name])
                no_text += changed
        columns["date"] = dates_of(columns["timestamp"])
        return pa.RecordBatch.from_pydict({name: columns[name] for name in COLUMNS}), no_text


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
                    texts, _ = as_text(rows["value"][:SAMPLE_RECORDS].drop_null())
                    yield pa.RecordBatch.from_pydict({"value": texts})

    frame = spark.createDataFrame([(task,) for task in tasks], "tasks binary").repartition(max(len(tasks), 1))
    return map_in_arrow(frame, first, "value string")


# Options and notes


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
