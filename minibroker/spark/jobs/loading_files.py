"""Rows of files as records: which column is the key, which the value, which the time, which the topic.

What must hold: nothing is guessed from content. Without a word about the value it is a column of that name, or all
columns as JSON, which of JSON lines is the line as it stands; files of `export` are known by their columns and come
back as they were. A line that is broken ends the job, unless `--read-option mode=` says something else.
Not here: where the records go (loading.py).
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from minibroker.spark.arrow_map import map_in_arrow
from minibroker.spark.option_values import OptionError

FORMATS = {"parquet": "parquet", "json": "json", "jsonl": "json", "ndjson": "json", "csv": "csv", "tsv": "csv"}
FORMATS |= {"txt": "text", "log": "text", "orc": "orc", "avro": "avro"}
PACKED = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate")
EXPORTED = {"key", "value", "partition", "offset", "timestamp", "timestampType", "headers"}  # as export.py has them
ALL_AS_JSON = "json"
LINE = "__line"  # a line of JSON as it stands, beside its fields
FAIL_FAST = "FAILFAST"
CHECKED = ("json", "csv")  # formats of lines that may be broken
RECORDS = "records"  # lines as `slice` and `minibroker consume -J` write them
HEADERS = "array<struct<key:string,value:binary>>"


class Choice:
    """Which columns are what; None: nobody said."""

    def __init__(
        self,
        key: str | None = None,
        value: str | None = None,
        timestamp: str | None = None,
        topic_column: str | None = None,
        partition_column: str | None = None,
        topic: str | None = None,
    ):
        self.key = key
        self.value = value
        self.timestamp = timestamp
        self.topic_column = topic_column
        self.partition_column = partition_column
        self.topic = topic


def format_of(paths: Sequence[str]) -> str:
    """Return the format that the names of files end in."""
    found = set()
    for path in paths:
        name = posixpath.basename(path.rstrip("/")).lower()
        for packed in PACKED:
            name = name.removesuffix(packed)
        found.add(FORMATS.get(name.rpartition(".")[2], "") if "." in name else "parquet")
    if len(found) == 1 and "" not in found:
        return found.pop()
    raise OptionError(f"cannot tell the format of {', '.join(paths[:3])}: say it with --format")


def opened(spark: Any, paths: Sequence[str], file_format: str, options: Mapping[str, str]) -> Any:
    """Return the rows of files."""
    told = dict(options)
    if file_format == RECORDS:
        from minibroker.spark.jobs.slice_lines import RECORDS_DDL, as_records

        return map_in_arrow(spark.read.text(list(paths)), as_records, RECORDS_DDL)
    if file_format in CHECKED:
        told.setdefault("mode", FAIL_FAST)
    if file_format == "csv":
        told.setdefault("header", "true")
        if all(".tsv" in path for path in paths):
            told.setdefault("sep", "\t")
    # Names of folders are texts: a topic may be called 2024.
    name = "spark.sql.sources.partitionColumnTypeInference.enabled"
    before = spark.conf.get(name, "true")
    spark.conf.set(name, "false")
    try:
        frame = spark.read.format(file_format).options(**told).load(list(paths))
        is_lines = told.get("multiLine", "false").lower() == "false" and told.get("mode") == FAIL_FAST
        return _with_lines(spark, frame, paths, told) if file_format == "json" and is_lines else frame
    finally:
        spark.conf.set(name, before)


def _with_lines(spark: Any, frame: Any, paths: Sequence[str], options: Mapping[str, str]) -> Any:
    """Return the fields of JSON lines and the lines; `frame` has read all of them, to know which fields there are."""
    from pyspark.sql import functions as sql  # pyright: ignore
    from pyspark.sql.types import StructType  # pyright: ignore

    encoding = {name: value for name, value in options.items() if name in ("lineSep", "recursiveFileLookup")}
    lines = spark.read.options(**encoding).text(list(paths))
    of_folders = [name for name in lines.columns if name != "value"]
    fields = StructType([field for field in frame.schema.fields if field.name not in of_folders])
    lines = lines.where("trim(value) <> ''").select(
        sql.col("value").alias(LINE),
        sql.from_json("value", fields, dict(options)).alias("__fields"),
        *(sql.col(_quoted(name)) for name in of_folders),
    )
    return lines.select(LINE, "__fields.*", *map(_quoted, of_folders))


def as_records(frame: Any, choice: Choice) -> Any:
    """Return the columns that the writers want."""
    from pyspark.sql import functions as sql  # pyright: ignore

    types = {name: kind for name, kind in frame.dtypes if name != LINE}
    has_lines = LINE in frame.columns
    for word, name in (
        ("--key", choice.key),
        ("--value", choice.value if choice.value != ALL_AS_JSON else None),
        ("--timestamp", choice.timestamp),
        ("--topic-column", choice.topic_column),
        ("--partition-column", choice.partition_column),
    ):
        if name is not None and name not in types:
            raise OptionError(f"{word} {name}: there is no such column, only {', '.join(types)}")
    is_export = types.keys() >= EXPORTED
    columns = [_value(sql, types, choice, has_lines).alias("value")]
    key = choice.key or ("key" if is_export else None)
    if key is not None:
        columns.append(_bytes(sql, key, types[key]).alias("key"))
    timestamp = choice.timestamp or ("timestamp" if is_export else None)
    if timestamp is not None:
        columns.append(_time(sql, timestamp, types[timestamp]).alias("timestamp"))
    if types.get("headers") == HEADERS:
        columns.append(sql.col("headers"))
    topic = choice.topic_column or ("topic" if is_export and "topic" in types and choice.topic is None else None)
    if (topic is None) == (choice.topic is None):
        raise OptionError("say where the records go: --topic NAME, or --topic-column COLUMN" if topic is None else
                          "--topic and --topic-column are both there: say one")  # fmt: skip
    columns.append(sql.col(topic).cast("string").alias("topic") if topic else sql.lit(choice.topic).alias("topic"))
    if choice.partition_column is not None:
        columns.append(sql.col(choice.partition_column).cast("int").alias("partition"))
    if is_export:  # each of its partitions in its order
        frame = frame.repartition("topic", "partition") if "topic" in types else frame.repartition("partition")
        frame = frame.sortWithinPartitions("partition", "offset")
    return frame.select(*columns)


def _value(sql: Any, types: Mapping[str, str], choice: Choice, has_lines: bool) -> Any:
    name = choice.value or ("value" if "value" in types else ALL_AS_JSON)
    if name == ALL_AS_JSON and ALL_AS_JSON not in types:
        if has_lines:
            return sql.col(LINE)
        return sql.to_json(sql.struct(*(_quoted(each) for each in types)), {"ignoreNullFields": "false"})
    return _bytes(sql, name, types[name])


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _bytes(sql: Any, name: str, kind: str) -> Any:
    """Return a column as bytes or text: what is nested as JSON, all else as Spark writes it."""
    column = sql.col(_quoted(name))
    if kind in ("binary", "string"):
        return column
    if kind.startswith(("struct", "array", "map")):
        return sql.to_json(column)
    return column.cast("string")


def _time(sql: Any, name: str, kind: str) -> Any:
    column = sql.col(_quoted(name))
    if kind == "timestamp":
        return column
    if kind in ("bigint", "int"):
        return sql.timestamp_millis(column)
    if kind in ("string", "date", "timestamp_ntz"):
        return column.cast("timestamp")
    raise OptionError(f"--timestamp {name}: the column is {kind}, no time; milliseconds, times and texts of times are")
