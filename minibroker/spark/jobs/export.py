"""`export`: topics to Parquet, Delta or Iceberg, each record once, as far as there are new ones.

    export(spark, {"path": "data", "subscribe": "orders"}, "lake") -> Summary

A run is a stream of Spark with Trigger.AvailableNow: its checkpoint says how far it is, and Delta and Iceberg know by
the query's id and the number of a micro-batch what they have already. Parquet files are written by the tasks.
What must hold: an offset is exported once, whatever was killed before. What was skipped, lost or could not be parsed is
a problem of the summary.
Not here: the stream (export_stream.py), Parquet files (export_files.py), columns and tables (export_targets.py).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from minibroker.clock import LoopClock
from minibroker.errors import StorageError
from minibroker.log.storage import OsStorage
from minibroker.spark.folders import Folder, open_folder
from minibroker.spark.jobs.arguments import add_source_arguments, call_with, check_mode, source_options
from minibroker.spark.jobs.command import BUSY, reason_of
from minibroker.spark.jobs.export_formats import BINARY, CHECKPOINT, FORMATS, ICEBERG, JSON, PARQUET, STRING, VALUES
from minibroker.spark.jobs.progress import QUIET, Progress
from minibroker.spark.jobs.summary import Summary, Table, sums_of
from minibroker.spark.jobs.tasks import TaskFailed
from minibroker.spark.option_values import OptionError
from minibroker.spark.options import OPTIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pyspark.sql.types import StructType  # pyright: ignore

    from minibroker.spark.jobs.export_stream import RowsOfTasks
    from minibroker.spark.jobs.export_targets import Target

DESCRIPTION = "Write topics to Parquet, Delta or Iceberg, each record once, as far as there are new ones."
EPILOG = """examples:
  minibroker spark export --path data -t orders lake
  minibroker spark export --bootstrap-server localhost:9092 --pattern '^shop' --values json s3a://bucket/shop
  minibroker spark export --path data -t orders lake --max-records 10000000 --compact
"""
SMALL_BYTES = 32 << 20
COMPRESSION = "zstd"
NOTES, UNSAID = "notes", "unsaid"  # in the checkpoint, until a summary has said what is in them
PROGRESS_KEPT = "spark.sql.streaming.numRecentProgressUpdates"
PROGRESS_MAX = 1_000_000  # micro-batches of a run, whose counts Spark is to remember: it forgets all but 100
STARTS_MAX = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument("target", help="a folder or URL; for iceberg the name of a table")
    parser.add_argument("--format", dest="table_format", choices=FORMATS, default=PARQUET, help="(parquet)")
    parser.add_argument(
        "--values", choices=VALUES, default=BINARY, help="what values become; json: text, and a column json (binary)"
    )
    parser.add_argument("--keys", choices=(BINARY, STRING), default=BINARY, help="what keys become (binary)")
    parser.add_argument(
        "--schema", metavar="DDL", help="fields of JSON values, as 'id INT, name STRING'; else guessed the first time"
    )
    parser.add_argument(
        "--max-records",
        dest="offsets_max",
        type=int,
        metavar="N",
        help="export so many offsets at most, the rest later",
    )
    parser.add_argument("--compression", default=COMPRESSION, help=f"of Parquet files ({COMPRESSION})")
    parser.add_argument("--compact", action="store_true", help="put small files together afterwards")
    parser.add_argument("--small-bytes", type=int, default=SMALL_BYTES, help="which Parquet files are small (32 MiB)")
    parser.add_argument("--checkpoint", metavar="DIR", help=f"where the stream keeps its offsets (TARGET/{CHECKPOINT})")
    parser.add_argument(
        "--fail-on-data-loss",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="end if records were deleted before they were exported; else they are problems of the summary",
    )


def run(spark: Any, options: argparse.Namespace, progress: Progress) -> Summary:
    return call_with(export, options, spark, source_options(options), progress=progress)


def export(
    spark: Any,
    source: Mapping[str, str],
    target: str,
    *,
    table_format: str = PARQUET,
    values: str = BINARY,
    keys: str = BINARY,
    schema: str | None = None,
    offsets_max: int | None = None,
    compression: str = COMPRESSION,
    compact: bool = False,
    small_bytes: int = SMALL_BYTES,
    checkpoint: str | None = None,
    fail_on_data_loss: bool = True,
    progress: Progress = QUIET,
) -> Summary:
    """Export what is new in the topics of `source`, options of the data source, to `target`."""
    told = OPTIONS.by_true_names(source)
    check_mode(told)
    from minibroker.spark.jobs.export_stream import parsed
    from minibroker.spark.jobs.export_targets import target_of

    if offsets_max is not None and offsets_max < 1:
        raise OptionError(f"--max-records is {offsets_max}: it must be above 0")
    if schema is not None and values != JSON:
        raise OptionError("--schema is for --values json")
    if checkpoint is None and table_format == ICEBERG:
        raise OptionError("--format iceberg: the target is the name of a table; name a folder with --checkpoint DIR")
    if not fail_on_data_loss:
        told["failOnDataLoss"] = "false"
    if offsets_max is not None:
        told["maxOffsetsPerTrigger"] = str(offsets_max)
    parsed(told)  # raises for what cannot be
    folder = open_folder(checkpoint or f"{target.rstrip('/')}/{CHECKPOINT}", spark)
    with _locked(folder):
        unsaid = _unsaid(folder)
        notes = folder.at(NOTES)
        run_name = str(LoopClock().now_ms())
        to = target_of(spark, table_format, target, folder, notes=notes, compression=compression, run=run_name)
        job = _Export(spark, told, to, folder, progress)
        job.open(keys, values, schema)
        job.export(is_one=offsets_max is not None)
        if compact:
            job.compact(small_bytes)
        to.end()
        summary = job.summary(unsaid)
        folder.remove(NOTES)
        folder.remove(UNSAID)
        return summary


def _unsaid(checkpoint: Folder) -> list[str]:
    """Return the problems of runs that were killed before their summary said them, and remember them until one does."""
    notes = [json.loads(checkpoint.read(f"{NOTES}/{each.base_name}")) for each in checkpoint.list(NOTES)]
    problems = json.loads(checkpoint.read(UNSAID)) if checkpoint.exists(UNSAID) else []
    bad = sum(counts[3] for note in notes for counts in note.get("written", {}).values())
    problems += [text for text in _problems(notes, bad, _no_text(notes)) if text not in problems]
    if problems:
        checkpoint.write(UNSAID, json.dumps(problems).encode())
    checkpoint.remove(NOTES)
    return [f"{text} (found by a run that did not come to its end)" for text in problems]


def _problems(notes: Iterable[dict[str, Any]], bad: int, no_text: int) -> list[str]:
    """Return what is to be said of a run; bad: values that could not be parsed; no_text: bytes that are none."""
    found = sorted(text for note in notes for text in note.get("problems", ()))
    if bad:
        found.append(f"{bad:,} values are no JSON objects with these fields: see column json")
    if no_text:
        where = "replacement characters stand where their bytes were, and binary would keep them"
        found.append(f"{no_text:,} keys or values are no UTF-8: {where}")
    return found


def _no_text(notes: Iterable[dict[str, Any]]) -> int:
    return sum(count for note in notes for count in note.get("no_text", {}).values())


class _Export:
    """One run of the job."""

    columns: StructType

    def __init__(self, spark: Any, source: Mapping[str, str], target: Target, checkpoint: Folder, progress: Progress):
        self.spark, self.source, self.target, self.checkpoint = spark, source, target, checkpoint
        self.progress = progress
        self.observed = [0, 0]  # records, and those that could not be parsed; as far as the sink tells
        self.rewritten: int | None = 0
        self.was_unfinished = False

    def open(self, keys: str, values: str, schema: str | None) -> None:
        """Make good what a run left that was killed, and find the columns."""
        from minibroker.spark.jobs.export_targets import columns_of, fields_of, grown, guessed_fields, values_of

        begun, committed = (self._last_batch(name) for name in ("offsets", "commits"))
        self.was_unfinished = begun > committed
        self.target.clean(begun if self.was_unfinished else None)
        there = self.target.columns()
        if there is None and committed >= 0:
            raise OptionError(
                f"{self.target.place} is not there, and {self.checkpoint.place} is the checkpoint of an export that "
                "has written already: name that one's target, or a new folder with --checkpoint to begin anew"
            )
        if there is not None:
            for name, wanted, begun_with in (
                ("keys", keys, there["key"].dataType.simpleString()),
                ("values", values, values_of(there)),
            ):
                if wanted != begun_with:
                    raise OptionError(
                        f"{self.target.place} was begun with --{name} {begun_with}, not {wanted}: go on with that, or "
                        "export to another place"
                    )
        fields = None
        if values == JSON:
            fields = fields_of(schema) if schema else there["json"].dataType if there else None
            if fields is None:
                with self.progress.step("guessing fields of JSON"):
                    fields = guessed_fields(self.spark, self.source)
            fields = grown(there["json"].dataType, fields, "json") if there else fields
        self.columns = columns_of(keys, values, fields)

    def _last_batch(self, name: str) -> int:
        return max((int(each.base_name) for each in self.checkpoint.list(name) if each.base_name.isdigit()), default=-1)

    def export(self, *, is_one: bool) -> None:
        from minibroker.spark.jobs.export_stream import RowsOfTasks, TaskSource, options_of

        self.spark.dataSource.register(TaskSource)
        notes = self.target.notes
        options = options_of(self.source, notes, is_one=is_one)
        tasks = self.spark.readStream.format(TaskSource.name()).options(**options).load()
        texts = {name: self.columns[name].dataType.simpleString() == STRING for name in ("key", "value")}
        rows = RowsOfTasks(self.source, notes, keys_as_text=texts["key"], values_as_text=texts["value"])
        # Before Spark 4.2 a query that repeats a micro-batch does nothing else.
        repeats = 2 if self.was_unfinished and not is_one else 1
        kept = self.spark.conf.get(PROGRESS_KEPT)
        self.spark.conf.set(PROGRESS_KEPT, str(PROGRESS_MAX))
        try:
            with self.progress.step(f"exporting to {self.target.place}"):
                for _ in range(repeats):
                    self._run(tasks, rows)
        finally:
            self.spark.conf.set(PROGRESS_KEPT, kept)

    def _run(self, tasks: Any, rows: RowsOfTasks) -> None:
        from minibroker.spark.jobs.export_targets import OBSERVED

        before = len(self.checkpoint.list(NOTES))
        query = ended(
            lambda: self.target.start(tasks, rows, self.columns), lambda: len(self.checkpoint.list(NOTES)) > before
        )
        for progress in query.recentProgress:
            if (row := progress.observedMetrics.get(OBSERVED)) is not None:
                self.observed = [one + more for one, more in zip(self.observed, row, strict=True)]

    def compact(self, small_bytes: int) -> None:
        with self.progress.step("putting small files together"):
            self.rewritten = self.target.compact(small_bytes)

    def summary(self, unsaid: Sequence[str]) -> Summary:
        """unsaid: problems of runs that were killed."""
        notes = [json.loads(self.checkpoint.read(f"{NOTES}/{each.base_name}")) for each in self.checkpoint.list(NOTES)]
        ranges: dict[str, tuple[int, int]] = {}
        for name, (first, end) in (each for note in notes for each in note.get("ranges", {}).items()):
            before = ranges.get(name, (first, end))
            ranges[name] = min(before[0], first), max(before[1], end)
        read = sums_of((name.rpartition("/")[0], 1, end - first) for name, (first, end) in ranges.items())
        written = sums_of((topic, *each) for note in notes for topic, each in note.get("written", {}).items())
        files: int | None
        size_bytes: int | None
        files, records, size_bytes, bad = (sum(counts[place] for counts in written.values()) for place in range(4))
        if self.target.table_format != PARQUET:
            (records, bad), files, size_bytes = self.observed, None, None
        no_text = _no_text(notes)
        figures = {
            "target": self.target.place,
            "offsets": sum(offsets for _, offsets in read.values()),
            "records": records,
            "not parsed": bad,
            "not UTF-8": no_text,
            "files": files,
            "bytes": size_bytes,
            "left for later": min((note["behind"] for note in notes if "behind" in note), default=None),
            "files rewritten": self.rewritten,
            "finished a run that was killed": self.was_unfinished,
        }
        rows = [[topic, *counts, *written.get(topic, [None] * 4)[1:3]] for topic, counts in sorted(read.items())]
        table = Table("topics", ["topic", "partitions", "offsets", "records", "bytes"], rows)
        problems = [*unsaid, *_problems(notes, bad, no_text)]
        return Summary("export", figures, [table], problems, [] if ranges else ["nothing new"])


def ended(start: Callable[[], Any], has_begun: Callable[[], object]) -> Any:
    """Return a query that has ended. One whose worker came too late is started again, if nothing was planned yet."""
    for starts_left in reversed(range(STARTS_MAX)):
        query = start()
        try:
            query.awaitTermination()
            return query
        except Exception as error:
            reason = reason_of(error)
            if reason is None:
                raise
            if reason != BUSY or has_begun() or not starts_left:
                raise TaskFailed(reason) from error
        finally:
            query.stop()
    raise AssertionError("the last start returns or raises")


@contextmanager
def _locked(checkpoint: Folder) -> Iterator[None]:
    """Keep others off, as far as there are locks: on this machine."""
    if checkpoint.files.type_name != "local":
        yield
        return
    try:
        checkpoint.files.create_dir(checkpoint.path())
    except OSError as failure:
        raise OptionError(f"--checkpoint: {checkpoint.place} cannot be made: {failure}") from None
    storage = OsStorage(checkpoint.path())
    try:
        storage.lock()
    except StorageError as refused:
        raise StorageError(f"{checkpoint.place}: another export is at work with this checkpoint") from refused
    try:
        yield
    finally:
        storage.unlock()
