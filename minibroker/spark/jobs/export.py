"""`export`: topics to Parquet, each record once, as far as there are new ones.

    export(spark, {"path": "data", "subscribe": "orders"}, "lake") -> Summary

What must hold: an offset is exported once, whatever was killed before; readers of the folder see only what counts
(export_manifest.py says how). A run without anything new reads no record.
Not here: which offsets (export_ranges.py), files (export_files.py), tables of others (export_tables.py).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from minibroker.clock import LoopClock
from minibroker.spark.folders import Folder, open_folder
from minibroker.spark.jobs.arguments import add_source_arguments, source_options
from minibroker.spark.jobs.export_files import (
    BINARY,
    JSON,
    STRING,
    VALUES,
    WrittenFile,
    json_schema,
    rewrite,
    shaped,
    small_files,
    write,
)
from minibroker.spark.jobs.export_manifest import Lake, Manifest
from minibroker.spark.jobs.export_ranges import (
    Plan,
    Ranges,
    available,
    broken_in,
    check_topics,
    look,
    plan,
    reading,
    told_lost,
)
from minibroker.spark.jobs.export_tables import FORMATS, ICEBERG, PARQUET, append, check_there
from minibroker.spark.jobs.progress import Progress
from minibroker.spark.jobs.summary import Summary, Table
from minibroker.spark.option_values import OptionError
from minibroker.spark.options import SKIP
from minibroker.spark.ranges import DataLoss
from minibroker.spark.session import use_source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.clock import Clock

DESCRIPTION = "Write topics to Parquet, each record once, as far as there are new ones since the last time."
EPILOG = """examples:
  minibroker spark export --path data -t orders lake
  minibroker spark export --bootstrap-server localhost:9092 --pattern '^shop' --values json s3a://bucket/shop
  minibroker spark export --path data -t orders lake --max-records 10000000 --compact
"""
SMALL_BYTES, FILE_BYTES = 32 << 20, 128 << 20
GROUPS_MAX = 64  # of small files that one version rewrites
COMPRESSION = "zstd"
FROM_ANYWHERE = {"startingOffsets": "earliest", "endingOffsets": "latest"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument("target", help="a folder or URL; for iceberg the name of a table")
    parser.add_argument("--format", choices=FORMATS, default=PARQUET, help="(parquet)")
    parser.add_argument(
        "--values", choices=VALUES, default=BINARY, help="what values become; json: text, and a column json (binary)"
    )
    parser.add_argument("--keys", choices=(BINARY, STRING), default=BINARY, help="what keys become (binary)")
    parser.add_argument(
        "--schema", metavar="DDL", help="fields of JSON values, as 'id INT, name STRING'; else guessed the first time"
    )
    parser.add_argument("--max-records", type=int, metavar="N", help="export so many offsets at most, the rest later")
    parser.add_argument("--compression", default=COMPRESSION, help=f"of the files ({COMPRESSION})")
    parser.add_argument("--compact", action="store_true", help="rewrite small files together afterwards")
    parser.add_argument("--small-bytes", type=int, default=SMALL_BYTES, help="which files are small (32 MiB)")
    parser.add_argument("--manifest", metavar="DIR", help="where the manifest is, if not in the target")
    parser.add_argument(
        "--fail-on-data-loss",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="end if records were deleted before they were exported; else they are told and noted in the manifest",
    )


def run(spark: Any, options: argparse.Namespace, progress: Progress) -> Summary:
    return export(
        spark,
        source_options(options),
        options.target,
        table_format=options.format,
        values=options.values,
        keys=options.keys,
        schema=options.schema,
        offsets_max=options.max_records,
        compression=options.compression,
        compact=options.compact,
        small_bytes=options.small_bytes,
        manifest=options.manifest,
        fail_on_data_loss=options.fail_on_data_loss,
        progress=progress,
    )


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
    manifest: str | None = None,
    fail_on_data_loss: bool = True,
    progress: Progress | None = None,
    clock: Clock | None = None,
    folder: Folder | None = None,
) -> Summary:
    """Export what is new in the topics of `source`, options of the data source, to `target`.

    folder: where files and manifest go instead of what `target` names; for tests.
    """
    asked = {"format": table_format, "keys": keys, "values": values}
    if offsets_max is not None and offsets_max < 1:
        raise OptionError(f"--max-records is {offsets_max}: it must be above 0")
    if table_format != PARQUET:
        check_there(spark, table_format)
        if compact:
            raise OptionError(f"--compact is for Parquet: {table_format} has a command of its own for that")
    said = [value for name, value in source.items() if name.lower() == "failondataloss"]
    fail_on_data_loss = fail_on_data_loss and said != ["false"]
    source = {name: value for name, value in source.items() if name.lower() != "failondataloss"}
    source["failOnDataLoss"] = str(fail_on_data_loss).lower()
    place = manifest or (target if table_format == PARQUET else f"{target}/_minibroker")
    if table_format == ICEBERG and manifest is None:
        raise OptionError("--format iceberg: the target is the name of a table; say with --manifest DIR where to note")
    if manifest is not None and table_format == PARQUET:
        raise OptionError("--manifest is for tables: that of Parquet files is beside them")
    job = _Export(spark, source, target, Lake(folder or open_folder(place, spark)), progress or Progress(None, False))
    job.clock, job.compression = clock or LoopClock(), compression
    job.open(asked, schema)
    job.export(offsets_max, fail_on_data_loss)
    if compact:
        job.compact(small_bytes)
    return job.summary()


class _Export:
    """One run of the job."""

    clock: Clock
    compression: str
    plan: Plan

    def __init__(self, spark: Any, source: Mapping[str, str], target: str, lake: Lake, progress: Progress):
        self.spark = spark
        self.source = source
        self.target = target
        self.lake = lake
        self.progress = progress
        self.written = WrittenFile()
        self.rewritten = 0
        self.was_unfinished = False
        self.topic_ids: dict[str, str] = {}
        self.broken: list[str] = []

    def open(self, asked: dict[str, Any], schema: str | None) -> None:
        """Read the manifest, and finish what a run left that was killed."""
        self.was_unfinished = self.lake.recover(self.clock.now_ms())
        shape = self.lake.manifest.shape
        for name, wanted in asked.items():
            if shape and shape[name] != wanted:
                raise OptionError(
                    f"{self.target} was begun with --{name} {shape[name]}, not {wanted}: go on with that, or export to "
                    "another folder"
                )
        if schema is not None:
            if asked["values"] != JSON:
                raise OptionError("--schema is for --values json")
            begun = shape.get("json", schema)
            if begun != schema:
                raise OptionError(f"{self.target} was begun with --schema {begun!r}: columns stay the same")
            asked = {**asked, "json": schema}
        if not shape:
            self.lake.manifest.shape = asked

    def export(self, offsets_max: int | None, fail_on_data_loss: bool) -> None:
        manifest = self.lake.manifest
        if manifest.planned:  # and perhaps appended
            self.was_unfinished = True
            self._append_planned()
        with self.progress.step("looking for what is new"):
            there = available(self.source, self.lake.manifest.offsets)
            check_topics(there.topic_ids, self.lake.manifest.topic_ids)
        self.topic_ids = there.topic_ids
        has_end = any(name.lower().startswith("ending") for name in self.source)
        self.plan = plan(there.ranges, self.lake.manifest.offsets, offsets_max=offsets_max, has_end=has_end)
        lost = told_lost(self.plan.lost)
        if lost and fail_on_data_loss:
            raise DataLoss(f"{'; '.join(lost[:3])}{f' and {len(lost) - 3} more' if len(lost) > 3 else ''}")
        if not self.plan.ranges and not self.plan.lost:
            return
        if self.lake.manifest.shape["format"] == PARQUET:
            self._write_files()
        else:
            following = self._following("")
            following.planned = self.plan.ranges
            self.lake.commit(following)
            self._append_planned()

    def _frame(self, ranges: dict[Any, Any], shape: dict[str, Any]) -> Any:
        from minibroker.spark.source import NAME

        use_source(self.spark)
        frame = self.spark.read.format(NAME).options(**reading(self.source, ranges)).load()
        if shape["values"] == JSON and "json" not in shape:
            with self.progress.step("guessing fields of JSON"):
                shape["json"] = json_schema(frame)
        return shaped(frame, shape)

    def _look_back(self, following: Manifest, ranges: Ranges) -> None:
        """Note what reading has left out; raise if the topics have become others while it was at work."""
        check_topics(look(reading(self.source, ranges) | FROM_ANYWHERE).topic_ids, following.topic_ids)
        offsets = sum(end - first for first, end in ranges.values())
        is_whole = following.shape["format"] == PARQUET and self.written.count("records") == offsets
        mode = [value for name, value in self.source.items() if name.lower() == "mode"]
        if ranges and not is_whole and mode == [SKIP]:
            with self.progress.step("looking for broken batches"):
                lost, self.broken = broken_in(self.spark, self.source, ranges)
            following.lost += [each for each in lost if each not in following.lost]

    def _following(self, run: str) -> Manifest:
        following = self.lake.manifest.following(run, self.clock.now_ms())
        following.lost += [each for each in self.plan.lost if each not in following.lost]
        following.topic_ids |= self.topic_ids
        return following

    def _write_files(self) -> None:
        lake, ranges = self.lake, self.plan.ranges
        run = lake.begin(self.clock.now_ms())
        following = self._following(run)
        if ranges:
            frame = self._frame(ranges, following.shape)
            following.shape["schema"] = frame.schema.json()
            with self.progress.step(f"exporting {self.plan.offsets:,} offsets of {len(ranges)} partitions"):
                self.written = write(frame, lake.folder, run, ranges, self.compression)
            self._look_back(following, ranges)
        following.files |= self.written.files
        following.moves = self.written.moves
        _advance(following, ranges)
        lake.commit(following)

    def _append_planned(self) -> None:
        lake = self.lake
        ranges, shape = lake.manifest.planned, dict(lake.manifest.shape)
        frame = self._frame(ranges, shape)
        with self.progress.step(f"appending {len(ranges)} partitions to {self.target}"):
            append(frame, shape["format"], self.target, lake.manifest.version, lake.folder.place)
        following = lake.manifest.following("", self.clock.now_ms())
        following.shape = shape
        self._look_back(following, ranges)
        _advance(following, ranges)
        lake.commit(following)

    def compact(self, small_bytes: int) -> None:
        """Rewrite small files of one folder together, some folders at a time."""
        from pyspark.sql.types import StructType  # pyright: ignore

        lake = self.lake
        if "schema" not in lake.manifest.shape:
            return
        import json

        schema = StructType.fromJson(json.loads(lake.manifest.shape["schema"]))
        while groups := small_files(lake.manifest.files, small_bytes, FILE_BYTES):
            groups = groups[:GROUPS_MAX]
            names = [name for group in groups for name in group]
            run = lake.begin(self.clock.now_ms())
            with self.progress.step(f"rewriting {len(names):,} small files as {len(groups):,}"):
                written = rewrite(self.spark, lake.folder, run, groups, schema, self.compression)
            following = lake.manifest.following(run, self.clock.now_ms())
            before = sum(following.files.pop(name)["records"] for name in names)
            assert written.count("records") == before, f"{written.count('records')} records of {before} in {names}"
            following.files |= written.files
            following.moves, following.removed = written.moves, names
            lake.commit(following)
            self.rewritten += len(names)
            if len(written.files) == len(names):  # spark.sql.files.maxRecordsPerFile wants them small
                return

    def summary(self) -> Summary:
        manifest, ranges = self.lake.manifest, self.plan.ranges
        is_parquet = manifest.shape.get("format") == PARQUET
        rows = []
        for topic in sorted({topic for topic, _ in ranges}):
            mine = [limits for key, limits in ranges.items() if key[0] == topic]
            offsets = sum(end - first for first, end in mine)
            counted = [self.written.count(what, topic) if is_parquet else None for what in ("records", "bytes")]
            rows.append([topic, len(mine), offsets, *counted])
        figures: dict[str, Any] = {
            "target": self.target,
            "version": manifest.version,
            "offsets": self.plan.offsets,
            "records": self.written.count("records") if is_parquet else None,
            "files": len(self.written.files) if is_parquet else None,
            "bytes": self.written.count("bytes") if is_parquet else None,
            "left for later": self.plan.behind,
            "files rewritten": self.rewritten,
            "finished a run that was killed": self.was_unfinished,
        }
        notes = [] if ranges else [f"nothing new in {self.plan.partitions} partitions"]
        table = Table("topics", ["topic", "partitions", "offsets", "records", "bytes"], rows)
        return Summary("export", figures, [table], told_lost(self.plan.lost) + self.broken, notes)


def _advance(manifest: Manifest, ranges: Mapping[Any, tuple[int, int]]) -> None:
    for key, (first, end) in ranges.items():
        manifest.offsets[key] = manifest.offsets.get(key, (first, end))[0], end
    for topic, partition, _, end in manifest.lost:
        begun, exported = manifest.offsets.get((topic, partition), (end, end))
        manifest.offsets[topic, partition] = begun, max(exported, end)
