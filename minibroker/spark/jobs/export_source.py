"""The stream that an export reads: a row says what one task of Spark is to read, so that records need not pass the JVM.

    frame = spark.readStream.format(TaskSource.name()).options(**options_of(source, notes, is_one=False)).load()

Offsets, checkpoints and data loss are those of every stream of ours (streams/reader.py); a stream that is to end
somewhere ends its micro-batches there.
Not here: rows (export_rows.py).
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition  # pyright: ignore

from minibroker.spark.jobs.export_rows import parsed, tell, without
from minibroker.spark.options import parse
from minibroker.spark.reading import all_ranges
from minibroker.spark.source import MinibrokerSource
from minibroker.spark.streams import reader as streams
from minibroker.spark.streams.offsets import Json, from_json, reporting
from minibroker.spark.workers import prepare

TASK_OFFSETS_MIN = 100_000  # about; fewer are not worth a task, nor a file
_Reader: Any = streams.StreamReader if streams.limits is None else streams.AdmittingStreamReader


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
        return [InputPartition(pickle.dumps(each)) for each in _packed(tasks)]

    def read(self, partition: InputPartition) -> Iterator[tuple[bytes]]:
        yield (partition.value,)


def _packed(tasks: list[Any]) -> list[list[Any]]:
    """Return tasks, small ones that follow each other as one."""
    found: list[list[Any]] = []
    offsets = 0
    for task in tasks:
        size = task.end_offset - task.first_offset
        if not found or offsets + size > TASK_OFFSETS_MIN:
            found.append([])
            offsets = 0
        found[-1].append(task)
        offsets += size
    return found
