"""The files of an export: rows of topics as Parquet, one folder for each topic and date, and small files together.

What must hold: a file holds records of one topic and one date of UTC, by partition and offset; its columns are those of
the manifest's shape, whatever the time zone of the session.
Not here: when a file counts (export_manifest.py).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from minibroker.spark.folders import Folder, walk
from minibroker.spark.jobs.export_manifest import staging_of
from minibroker.spark.jobs.export_ranges import Ranges
from minibroker.spark.option_values import OptionError

FILE_RECORDS_MIN = 100_000  # about; fewer are not worth a task
BINARY, STRING, JSON = VALUES = ("binary", "string", "json")
SAMPLE_RECORDS = 10_000  # from which the fields of JSON are guessed
# In UTC, whatever the session thinks. Who sends nanoseconds for milliseconds has records of the year 294247, which
# would make the whole column one of texts for those who read the folders' names.
DATE = """
    date_from_unix_date(cast(greatest(least(
        unix_micros(timestamp) div 86400000000 - if(unix_micros(timestamp) % 86400000000 < 0, 1, 0),
        2932896), -719162) as int))
"""
# WrittenFile by default are 96 bits, which only Spark's friends read and which filters do not skip by.
SETTINGS = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}


class WrittenFile:
    """Files that a run has staged."""

    def __init__(self) -> None:
        self.moves: dict[str, str] = {}  # name in the staging folder -> the one it gets
        self.files: dict[str, dict[str, int]] = {}  # the latter -> bytes, records

    def count(self, what: str, topic: str | None = None) -> int:
        return sum(told[what] for name, told in self.files.items() if topic is None or topic_of(name) == topic)


# Columns


def shaped(frame: Any, shape: Mapping[str, Any]) -> Any:
    """Return the columns that are exported, of rows as the data source has them."""
    from pyspark.sql import functions as sql  # pyright: ignore

    def as_text(name: str) -> Any:
        # What is not UTF-8 shows as replacement characters: Parquet's readers refuse anything else.
        return sql.make_valid_utf8(sql.col(name).cast("string"))

    key = as_text("key") if shape["keys"] == STRING else sql.col("key")
    value = sql.col("value") if shape["values"] == BINARY else as_text("value")
    columns = [key.alias("key"), value.alias("value")]
    if shape["values"] == JSON:
        columns.append(sql.from_json(value, shape["json"]).alias("json"))
    columns += [sql.col(name) for name in ("partition", "offset", "timestamp", "timestampType", "headers", "topic")]
    return frame.select(*columns, sql.expr(DATE).alias("date"))


def json_schema(frame: Any) -> str:
    """Return the fields of JSON values, as far as a sample shows them."""
    from pyspark.sql import functions as sql  # pyright: ignore

    texts = frame.where("value is not null").select(sql.make_valid_utf8(sql.col("value").cast("string")).alias("value"))
    values = [row.value for row in texts.limit(SAMPLE_RECORDS).collect()]
    objects = [value for value in values if _is_object(value)]
    if not objects:
        raise OptionError(
            f"--values json: of the first {len(values):,} values none is a JSON object with fields; say which fields "
            "there are with --schema, or take --values string"
        )
    # All of them in one array: what is guessed fits each.
    sample = sql.lit(f"[{','.join(objects)}]")
    row = frame.sparkSession.range(1).select(sql.schema_of_json(sample).alias("found")).first()
    return str(row.found).removeprefix("ARRAY<").removesuffix(">")


def _is_object(text: str) -> bool:
    import json

    try:
        found = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, dict) and bool(found)


# Writing


def write(frame: Any, folder: Folder, run: str, ranges: Ranges, compression: str) -> WrittenFile:
    """Write rows below a run's staging folder."""
    offsets = sum(end - first for first, end in ranges.values())
    tasks = max(offsets // FILE_RECORDS_MIN, 1)
    if tasks < len(ranges):  # else there are as many tasks as the source likes
        frame = frame.coalesce(tasks)
    _write(frame, folder, run, compression)
    return staged(frame.sparkSession, folder, run)


def _write(frame: Any, folder: Folder, run: str, compression: str) -> None:
    ordered = frame.sortWithinPartitions("topic", "date", "partition", "offset")
    with _set(frame.sparkSession, SETTINGS):
        ordered.write.partitionBy("topic", "date").option("compression", compression).parquet(
            folder.at(staging_of(run))
        )


@contextmanager
def _set(spark: Any, settings: Mapping[str, str]) -> Iterator[None]:
    """Have settings of a session for a while."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def staged(spark: Any, folder: Folder, run: str) -> WrittenFile:
    """Return what a run has staged, and the names that the files get: they begin with the run's."""
    found = WrittenFile()
    staging = staging_of(run)
    sizes = {
        entry.name.removeprefix(f"{staging}/"): entry.size_bytes
        for entry in walk(folder, staging)
        if entry.name.endswith(".parquet") and not posixpath.basename(entry.name).startswith((".", "_"))
    }
    records = _records(spark, [folder.at(f"{staging}/{name}") for name in sizes])
    for number, (name, size_bytes) in enumerate(sorted(sizes.items())):
        directory = posixpath.dirname(name)
        own = f"{directory}/{run}-{number:05d}.parquet"
        found.moves[name] = own
        found.files[own] = {"bytes": size_bytes, "records": records.get(name, 0)}
    return found


def _records(spark: Any, paths: list[str]) -> dict[str, int]:
    """Return how many records are in each file, by topic, date and name."""
    if not paths:
        return {}
    rows = spark.read.parquet(*paths).groupBy("_metadata.file_path").count().collect()
    return {"/".join(row["file_path"].split("/")[-3:]): row["count"] for row in rows}


def topic_of(name: str) -> str:
    return name.split("/")[0].removeprefix("topic=")


# Small files


def small_files(files: Mapping[str, Mapping[str, int]], small_bytes: int, file_bytes: int) -> list[list[str]]:
    """Return which small files of one folder go together, at most `file_bytes` in one."""
    by_directory: dict[str, list[str]] = {}
    for name, told in sorted(files.items()):
        if told["bytes"] < small_bytes:
            by_directory.setdefault(posixpath.dirname(name), []).append(name)
    found: list[list[str]] = []
    for names in by_directory.values():
        group: list[str] = []
        size_bytes = 0
        for name in names:
            if group and size_bytes + files[name]["bytes"] > file_bytes:
                found.append(group)
                group, size_bytes = [], 0
            group.append(name)
            size_bytes += files[name]["bytes"]
        found.append(group)
    return [group for group in found if len(group) > 1]


def rewrite(
    spark: Any, folder: Folder, run: str, groups: list[list[str]], schema: Any, compression: str
) -> WrittenFile:
    """Write each group of files as one, below a run's staging folder."""
    frames = [
        spark.read.schema(schema)
        .option("basePath", folder.place)
        .parquet(*(folder.at(name) for name in group))
        .coalesce(1)
        for group in groups
    ]
    together = frames[0]
    for frame in frames[1:]:
        together = together.unionAll(frame)
    _write(together, folder, run, compression)
    return staged(spark, folder, run)
