"""Streams as Spark sees them: offsets, tasks and rows of micro-batches, of brokers and of log directories.

What must hold: a reader that starts anew goes on from the checkpoint, whatever it is asked first. Spark before 4.2 does
not say where a micro-batch begins when it asks where it ends; then the reader remembers: a new query asks for the end
before anything else, one that is restarted for the tasks of its last micro-batch first.
When Spark asks where the next micro-batch ends, the last one is done: then its offsets are committed to the group, if
`commitOffsets` asks for that.
Spark: `Trigger.AvailableNow` with `maxOffsetsPerTrigger` reads all that is there from 4.2 on only; before, it stops
after one micro-batch, and the next run goes on from there.
Not here: rules for offsets (offsets.py), asking for them (planning.py of files/ and brokers/), lag as a table (lag.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition  # pyright: ignore

from minibroker.clock import LoopClock
from minibroker.spark.filters import Filters
from minibroker.spark.option_values import TopicPartition
from minibroker.spark.options import Options
from minibroker.spark.ranges import Log
from minibroker.spark.reading import logs_of, read, say
from minibroker.spark.streams.offsets import (
    Admission,
    Bound,
    Bounds,
    Json,
    ends_of,
    from_json,
    ids_in,
    ids_of,
    initial_offsets,
    ranges_between,
    remade,
    reporting,
    to_json,
    without,
)
from minibroker.spark.workers import settle

limits: Any = None  # before 4.2
with suppress(ImportError):
    limits = import_module("pyspark.sql.streaming.datasource")


def stream_reader(options: Options) -> DataSourceStreamReader:
    """Return a reader as the version of Spark wants it."""
    return StreamReader(options) if limits is None else AdmittingStreamReader(options)


class _Stream:
    """What readers of all versions have in common. Offsets are as in a checkpoint."""

    def __init__(self, options: Options):
        self.options = options
        self.logs = logs_of(options, lambda text: self.report(text))
        self.admission = Admission(options)
        self.report = reporting(options.fail_on_data_loss, say)
        self.first: Json | None = None  # of a new query: asked for once, as the latest moves on
        self.planned: Json | None = None  # where the last micro-batch ends, which may be under way
        self.committed: Json | None = None
        self.bounds: Bounds = {}  # as of the last question
        self.target: Bounds | None = None  # of Trigger.AvailableNow

    def look(self, *, must_be_there: bool = False) -> Mapping[TopicPartition, Log]:
        found = self.logs.find(Filters(), must_be_there=must_be_there)
        bounds = {key: Bound(log.start_offset, self.logs.end_of(log), log.topic_id) for key, log in found.items()}
        self.bounds = bounds
        return found

    def initial(self) -> Json:
        if self.first is None:
            found = self.look(must_be_there=True)
            first = initial_offsets(self.options, found, self.bounds, self.report)
            self.first = to_json(first, ids_of(self.bounds))
        return self.first

    def latest(self, start: Json, *, is_limited: bool) -> Json:
        """Return where the micro-batch behind `start` ends."""
        self.note_progress()
        self.look()
        ids, latest = ids_of(self.bounds), ends_of(self.bounds)
        if self.target is not None:
            gone = remade(ids_of(self.target), ids)
            latest = {key: end for key, end in without(gone, ends_of(self.target)).items() if key in latest}
        known, before = from_json(start), without(remade(ids_in(start), ids), from_json(start))
        if is_limited:
            begins = {key: bound.begin for key, bound in self.bounds.items()}
            latest = self.admission.end(before, latest, begins, LoopClock().now_ms())
        return start if latest == known == before or latest is before else to_json(latest, ids)

    def plan(self, start: Json, end: Json) -> list[Any]:
        self.planned = end
        if start == end:
            return []
        ids, others = ids_in(end), remade(ids_in(start), ids_in(end))
        for topic in sorted(others):
            self.report(f"{topic} is another topic: it was deleted and made anew")
        first, last = without(others, from_json(start)), from_json(end)
        new = last.keys() - first.keys()
        if new - self.bounds.keys():
            self.look()
        begins = {key: self.bounds[key].begin for key in new & self.bounds.keys()}
        ranges = self.logs.again(ranges_between(first, last, begins, self.report), ids, self.report)
        return self.logs.tasks(ranges, Filters())

    def note_progress(self, end: Json | None = None) -> None:
        """Commit what is done: the last micro-batch, once somebody asks for the next."""
        done = self.planned if end is None else end
        if done is not None and done != self.committed:
            self.logs.commit(from_json(done))
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
            self.stream.note_progress(end)

    def stop(self) -> None:
        self.stream.logs.close()


class StreamReader(_Reader):
    """For Spark 4.0 and 4.1."""

    def latestOffset(self) -> Json:
        start = self.initialOffset() if self.stream.planned is None else self.stream.planned
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
            return self.stream.latest(start, is_limited=not isinstance(limit, limits.ReadAllAvailable))

        def reportLatestOffset(self) -> Json | None:
            bounds = self.stream.bounds
            return to_json(ends_of(bounds), ids_of(bounds)) if bounds else None

        def prepareForTriggerAvailableNow(self) -> None:
            self.stream.look()
            self.stream.target = self.stream.bounds
