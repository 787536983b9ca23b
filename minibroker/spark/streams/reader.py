"""Streams as Spark sees them: offsets, tasks and rows of micro-batches, of brokers and of log directories.

What must hold: a reader that starts anew goes on from the checkpoint, whatever it is asked first. Spark before 4.2 does
not say where a micro-batch begins when it asks where it ends; then the reader remembers: a new query asks for the end
before anything else, one that is restarted for the tasks of its last micro-batch first.
When Spark asks where the next micro-batch ends, the last one is done: then its offsets are committed to the group, if
`commitOffsets` asks for that.
Spark: `Trigger.AvailableNow` with `maxOffsetsPerTrigger` reads all that is there from 4.2 on only; before, it stops
after one micro-batch, and the next run goes on from there.
Not here: rules for offsets (offsets.py), asking for them (logs.py), lag as a table (minibroker/spark/lag.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition  # pyright: ignore

from minibroker.spark.option_values import Numbers
from minibroker.spark.options import Options
from minibroker.spark.reading import read
from minibroker.spark.streams.logs import Bounds, logs_of, now_ms
from minibroker.spark.streams.offsets import Admission, Json, from_json, ranges_between, reporting, to_json
from minibroker.spark.workers import settle

limits: Any = None  # before 4.2
with suppress(ImportError):
    limits = import_module("pyspark.sql.streaming.datasource")


def stream_reader(options: Options) -> DataSourceStreamReader:
    """Return a reader as the version of Spark wants it."""
    return StreamReader(options) if limits is None else AdmittingStreamReader(options)


class _Stream:
    """What readers of all versions have in common."""

    def __init__(self, options: Options):
        self.options = options
        self.logs = logs_of(options)
        self.admission = Admission(options)
        self.report = reporting(options.fail_on_data_loss, lambda text: print(text, file=sys.stderr))
        self.first: Json | None = None  # of a new query: asked for once, as the latest moves on
        self.planned: Numbers | None = None  # where the last micro-batch ends, which may be under way
        self.committed: Numbers | None = None
        self.bounds: Bounds = {}  # as of the last question
        self.target: Numbers | None = None  # of Trigger.AvailableNow

    def initial(self) -> Json:
        if self.first is None:
            self.first = to_json(self.logs.initial(self.report))
        return self.first

    def latest(self, start: Numbers, *, is_limited: bool) -> Json:
        """Return where the micro-batch behind `start` ends."""
        self.note_progress()
        self.bounds = self.logs.bounds()
        latest = {key: end for key, (_, end) in self.bounds.items()}
        if self.target is not None:
            latest = {key: end for key, end in self.target.items() if key in latest}
        if not is_limited:
            return to_json(latest)
        begins = {key: begin for key, (begin, _) in self.bounds.items()}
        return to_json(self.admission.end(start, latest, begins, now_ms()))

    def plan(self, start: Json, end: Json) -> list[Any]:
        first, last = from_json(start), from_json(end)
        self.planned = last
        if first == last:
            return []
        new = last.keys() - first.keys()
        if new - self.bounds.keys():
            self.bounds = self.logs.bounds()
        begins = {key: self.bounds[key][0] for key in new & self.bounds.keys()}
        return self.logs.tasks(ranges_between(first, last, begins, self.report), self.report)

    def note_progress(self, end: Numbers | None = None) -> None:
        """Commit what is done: the last micro-batch, once somebody asks for the next."""
        done = self.planned if end is None else end
        if done is not None and done != self.committed:
            self.logs.commit(done)
            self.committed = done


class _Reader(DataSourceStreamReader):
    def __init__(self, options: Options):
        self.stream = _Stream(options)

    def initialOffset(self) -> Json:
        return self.stream.initial()

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        return [InputPartition(task) for task in self.stream.plan(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        settle()
        yield from read(partition.value, self.stream.options)

    def commit(self, end: Json) -> None:
        if self.stream.planned is None:
            self.stream.note_progress(from_json(end))

    def stop(self) -> None:
        self.stream.logs.close()


class StreamReader(_Reader):
    """For Spark 4.0 and 4.1."""

    def latestOffset(self) -> Json:
        start = from_json(self.initialOffset()) if self.stream.planned is None else self.stream.planned
        return self.stream.latest(start, is_limited=True)


if limits is not None:

    class AdmittingStreamReader(_Reader, limits.SupportsTriggerAvailableNow):
        """From Spark 4.2 on, which says where a micro-batch begins, and what a trigger wants of it."""

        def getDefaultReadLimit(self) -> object:
            options = self.stream.options
            if options.trigger_offsets_max is not None:
                return limits.ReadMaxRows(options.trigger_offsets_max)
            least = options.trigger_offsets_min
            return limits.ReadAllAvailable() if least is None else limits.ReadMinRows(least)

        def latestOffset(self, start: Json, limit: object) -> Json:
            # There is no limit of Spark's that is both at once, and none with a delay: our own options say them all.
            return self.stream.latest(from_json(start), is_limited=not isinstance(limit, limits.ReadAllAvailable))

        def reportLatestOffset(self) -> Json | None:
            bounds = self.stream.bounds
            return to_json({key: end for key, (_, end) in bounds.items()}) if bounds else None

        def prepareForTriggerAvailableNow(self) -> None:
            self.stream.target = {key: end for key, (_, end) in self.stream.logs.bounds().items()}
