"""Rows of files and tables as records: which column is the key, which the value, which the time, which the topic.

    as_records(opened(spark, ["orders.jsonl"], "json", {}), Choice(key="id", topic="orders"), FAIL)

What must hold: nothing is guessed from content. Without a word about the value it is a column of that name, or all
columns as JSON, which of JSON lines is the line as it stands; what `export` wrote is known by its columns and comes
back as it was. Files that have different columns are read by the names of their columns, or not at all. A line
or a time that cannot be read is never passed over: the column WRONG says what is wrong with a record, and ends the job
unless the mode is another one.
Not here: where the records go (loading.py).
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from minibroker.spark.arrow_map import map_in_arrow
from minibroker.spark.columns.rows_of_query import ROWS
from minibroker.spark.option_values import OptionError, one_of
from minibroker.spark.sink.columns import COLUMNS

FORMATS = {"parquet": "parquet", "json": "json", "jsonl": "json", "ndjson": "json", "csv": "csv", "tsv": "csv"}
FORMATS |= {"txt": "text", "log": "text", "orc": "orc", "avro": "avro"}
PACKED = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate")
EXPORTED = {"key", "value", "partition", "offset", "timestamp", "timestampType", "headers"}  # as export.py has them
TABLES = ("delta", "iceberg")
RECORDS = "records"  # lines as `slice` and `minibroker consume -J` write them
RECORDS_DDL = (  # ROWS, as Spark is told of them
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
ALL_AS_JSON = "json"
TASKS_MAX = 5000  # that write; of more partitions than these some fall together
NUMBERS_A_TASK = 24  # so many numbers for each task, and none is without one
FAIL, KEEP, DROP = MODES = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED")
# Columns beside those of files: a line of JSON as it stands; one that cannot be read; what is wrong with a record.
LINE, BROKEN, WRONG, TASK = OURS = tuple(f"__minibroker_{name}" for name in ("line", "broken", "wrong", "task"))
MERGING = ("parquet", "orc")  # formats whose files may have columns that others have not
FRACTIONS = ("double", "decimal")
TIME_MS_MAX = (1 << 63) // 1000 - 1  # Spark has microseconds
# Around a line of JSON, to see that it is one value: Spark reads the first of a line and nothing behind it. Two lists,
# so that a piece of a document, which may go on by `],"name":[`, is no JSON in them.
BEFORE, BEHIND = '{"lines":[[', '\n]],"is_whole":true}'


class Choice(NamedTuple):
    """Which columns are what; None: nobody said."""

    key: str | None = None
    value: str | None = None
    timestamp: str | None = None
    topic_column: str | None = None
    partition_column: str | None = None
    topic: str | None = None


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


def mode_of(options: Mapping[str, str]) -> str:
    """Return what becomes of lines and times that cannot be read."""
    for name in options:
        if name.lower() in ("ignorecorruptfiles", "ignoremissingfiles"):
            raise OptionError(f"--read-option {name}: files would be left out, and nobody could say which")
    given = {name.lower(): value for name, value in options.items()}
    return one_of("--read-option mode", given.get("mode", FAIL), MODES)


def opened(spark: Any, paths: Sequence[str], file_format: str, options: Mapping[str, str]) -> Any:
    """Return the rows of files or of a table; formats of lines have BROKEN, JSON lines have LINE."""
    reader = spark.read.format(file_format)
    told = {name: value for name, value in options.items() if name.lower() != "mode"}
    if file_format in TABLES:
        if len(paths) > 1:
            raise OptionError(f"--format {file_format}: name one table, not {', '.join(paths)}")
        is_name = "/" not in paths[0]
        rows = spark.read.options(**told).table(paths[0]) if is_name else reader.options(**told).load(paths[0])
        return _with_their_names(rows)
    # Names of folders are texts: a topic may be called 2024.
    name = "spark.sql.sources.partitionColumnTypeInference.enabled"
    before = spark.conf.get(name, "true")
    spark.conf.set(name, "false")
    try:
        if file_format == RECORDS:
            lines = spark.read.options(**told).text(list(paths)).selectExpr("cast(value as binary)")
            return map_in_arrow(lines, _read_lines, f"{RECORDS_DDL}, {BROKEN} BINARY")
        if file_format not in ("json", "csv"):
            told = ({"mergeSchema": "true"} if file_format in MERGING else {}) | told
            rows = reader.options(**told).load(list(paths))
            if file_format == "avro":
                _check_alike(rows, lambda file: spark.read.format(file_format).options(**told).load(file))
            return _with_their_names(rows)
        if file_format == "csv":
            told = {"header": "true"} | ({"sep": "\t"} if all(".tsv" in path for path in paths) else {}) | told
        # All columns are read, also of CSV: a line is broken by those, too, that nobody asks for.
        told |= {"mode": KEEP, "columnNameOfCorruptRecord": BROKEN, "columnPruning": "false"}
        rows = reader.options(**told).load(list(paths))
        if file_format == "csv":
            told = _with_header(_with_their_names(rows), told)
        schema = rows.schema if BROKEN in rows.columns else rows.schema.add(BROKEN, "string")
        if file_format == "json" and not {"multiline", "encoding", "charset"} & {each.lower() for each in options}:
            return _with_lines(spark.read.options(**told).text(list(paths)), schema, told)
        if schema.names == [BROKEN]:
            what = "no first line with names of columns" if file_format == "csv" else "nothing that can be read"
            raise OptionError(f"{', '.join(paths)}: there is {what}")
        return spark.read.schema(schema).format(file_format).options(**told).load(list(paths))
    finally:
        spark.conf.set(name, before)


def _with_their_names(rows: Any) -> Any:
    """Return rows of which no column is called as one of ours."""
    ours = [name for name in rows.columns if name in OURS]
    if ours:
        raise OptionError(f"there is a column {ours[0]}, and that is a name of ours: give it another one")
    return rows


def _check_alike(rows: Any, read: Callable[[str], Any]) -> None:
    """Refuse files whose columns differ, where a reader takes those of one file and drops what others have."""
    first, *others = [unquote(file) for file in rows.inputFiles()]
    columns = read(first).dtypes
    for file in others:
        if read(file).dtypes != columns:
            raise OptionError(f"{file} has other columns than {first}: import them one by one")


def _with_header(rows: Any, told: Mapping[str, str]) -> dict[str, str]:
    """Return options by which each file of CSV must have the columns of the first, in their order."""
    given = {name.lower(): value for name, value in told.items()}
    unnamed = [number for number, name in enumerate(rows.columns) if name == f"_c{number}"]
    if given["header"].lower() != "true" or "enforceschema" in given:
        return dict(told)
    if unnamed and len(rows.inputFiles()) > 1:
        raise OptionError(
            f"column {unnamed[0] + 1} has no name in the first line, so nobody can say whether all files have the same "
            "columns: import them one by one, or say --read-option enforceSchema=true if they have"
        )
    return {"enforceSchema": str(bool(unnamed)).lower(), **told}  # Spark would compare with the name that it has made


def _with_lines(lines: Any, schema: Any, told: Mapping[str, str]) -> Any:
    """Return the fields of JSON lines, and the lines."""
    from pyspark.sql import functions as sql  # pyright: ignore
    from pyspark.sql.types import ArrayType, BooleanType, StringType, StructField, StructType  # pyright: ignore

    # A number is text as it stands: the key 1 must not become 1.0 because another line has a fraction.
    fields = StructType(
        [
            StructField(each.name, StringType() if each.dataType.typeName() in FRACTIONS else each.dataType)
            for each in schema.fields
            if each.name != BROKEN and (each.name not in lines.columns or each.name == "value")
        ]
    )
    of_folders = [_quoted(name) for name in lines.columns if name != "value"]
    schema = StructType(
        [
            StructField("lines", ArrayType(ArrayType(fields))),
            StructField("is_whole", BooleanType()),
            StructField(BROKEN, StringType()),
        ]
    )
    within = sql.from_json(sql.concat(sql.lit(BEFORE), "value", sql.lit(BEHIND)), schema, dict(told))
    lines = lines.where(sql.col("value").rlike(r"\S")).select(
        sql.col("value").alias(LINE), within.alias("__within"), *of_folders
    )
    within = sql.col("__within")
    first = sql.get(within["lines"], sql.lit(0))
    line = sql.get(first, sql.lit(0))
    is_one = (sql.size(within["lines"]) == 1) & (sql.size(first) == 1) & line.isNotNull() & within["is_whole"]
    broken = sql.when(~sql.coalesce(is_one & within[BROKEN].isNull(), sql.lit(False)), sql.col(LINE))
    names = [line[name].alias(name) for name in fields.names]
    return lines.select(LINE, *names, broken.alias(BROKEN), *of_folders)


def _read_lines(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn lines of `slice` into records."""
    schema = ROWS.append(pa.field(BROKEN, pa.binary()))
    for batch in batches:
        rows = []
        for line in filter(bytes.strip, batch.column(0).to_pylist()):
            try:
                rows.append(_row_of(line))
            except ValueError:
                rows.append({BROKEN: line})
        yield pa.RecordBatch.from_pylist(rows, schema)


def _row_of(line: bytes) -> dict[str, Any]:
    """Return a record; raise ValueError where a line says something that a record cannot have."""
    from minibroker.tools.json_lines import read_line

    found = read_line(line)
    for name, end in (("partition", 1 << 31), ("offset", 1 << 63), ("ts", TIME_MS_MAX)):
        number = found.get(name)
        if number is not None and (type(number) is not int or not -end <= number < end):
            raise ValueError(f"{name} is {number!r}")
    if not isinstance(found.get("topic"), str | None):
        raise ValueError(f"topic is {found['topic']!r}")
    for text in (found.get("topic") or "", *(name for name, _ in found["headers"])):
        text.encode()  # JSON can say halves of letters
    row = {name: found.get(name) for name in ("key", "topic", "partition", "offset")}
    row |= {"value": found["payload"], "headers": found["headers"] or None}
    row["timestampType"] = int(found.get("tstype") == "logappend")
    row["timestamp"] = None if found.get("ts") is None else found["ts"] * 1000
    return row


def as_records(frame: Any, choice: Choice, mode: str) -> Any:
    """Return the columns that the writers want, and WRONG."""
    from pyspark.sql import functions as sql  # pyright: ignore

    types = {name: kind for name, kind in frame.dtypes if name not in (LINE, BROKEN)}
    for field in ("key", "value", "timestamp", "topic_column", "partition_column"):
        name = getattr(choice, field)
        if name is not None and name not in types and (field, name) != ("value", ALL_AS_JSON):
            raise OptionError(f"--{field.replace('_', '-')} {name}: there is no such column, only {', '.join(types)}")
    is_export = types.keys() >= EXPORTED
    topic = choice.topic_column or ("topic" if is_export and "topic" in types and choice.topic is None else None)
    if (topic is None) == (choice.topic is None):
        raise OptionError("say where the records go: --topic NAME, or --topic-column COLUMN" if topic is None else
                          "--topic and --topic-column are both there: say one")  # fmt: skip
    if is_export:
        frame = in_order(frame, [name for name in ("topic", "partition") if name in types])
    columns = {"topic": sql.col(_quoted(topic)).cast("string") if topic else sql.lit(choice.topic)}
    wrong = []
    if BROKEN in frame.columns:
        line = sql.substring(sql.col(BROKEN).cast("string"), 1, 60)
        wrong.append(sql.concat(sql.lit("a line cannot be read: "), line))
    key = choice.key or ("key" if is_export else None)
    if key is not None:
        columns["key"] = _bytes(sql, key, types[key])
    for column, name in (
        ("timestamp", choice.timestamp or ("timestamp" if is_export else None)),
        ("partition", choice.partition_column),
    ):
        if name is None:
            continue
        given = sql.col(_quoted(name))
        columns[column] = _time(sql, name, types[name]) if column == "timestamp" else _whole_number(given)
        is_wrong = given.isNotNull() & columns[column].isNull()
        told = sql.concat(sql.lit(f"{name} is no {column}: "), sql.substring(given.cast("string"), 1, 60))
        wrong.append(sql.when(is_wrong, told))
    if types.get("headers") in COLUMNS["headers"]:
        columns["headers"] = sql.col("headers")
    value = _value(sql, types, choice, LINE in frame.columns).cast("binary")
    if BROKEN in frame.columns:
        value = sql.coalesce(sql.col(BROKEN).cast("binary"), value)
    columns[WRONG] = sql.coalesce(*wrong, sql.lit(None).cast("string"))
    if mode == FAIL:
        value = sql.when(columns[WRONG].isNull(), value).otherwise(sql.raise_error(columns[WRONG]))
    return frame.select(value.alias("value"), *(column.alias(name) for name, column in columns.items()))


def in_order(frame: Any, columns: Sequence[str]) -> Any:
    """Return an export's rows so that a task has one of its logs, in its order; of files of lines some, perhaps.

    Spark gives a row to a task by a hash, by which logs fall together. So each log gets a number whose hash is that of
    a task of its own; which logs there are, these two columns of the files say.
    """
    from pyspark.sql import functions as sql  # pyright: ignore

    if BROKEN in frame.columns:  # lines would have to be read twice
        return frame.repartition(*columns).sortWithinPartitions(*columns, "offset")
    found = frame.select(*columns).distinct()
    logs = sorted(map(tuple, found.collect()), key=str)
    count = max(1, min(len(logs), TASKS_MAX))
    hashed = frame.sparkSession.range(NUMBERS_A_TASK * count).selectExpr("id", f"pmod(hash(id), {count}) AS task")
    numbers = dict(map(tuple, hashed.groupBy("task").agg(sql.min("id")).collect()))
    schema = found.schema.add(TASK, "long")
    of_logs = [(*log, numbers.get(place % count, 0)) for place, log in enumerate(logs)]
    told = sql.broadcast(frame.sparkSession.createDataFrame(of_logs, schema))
    frame = frame.join(told, list(columns), "left").repartition(count, TASK).drop(TASK)
    return frame.sortWithinPartitions(*columns, "offset")


def partition_counts(frame: Any, choice: Choice) -> dict[str, int]:
    """Return how many partitions each topic needs for the partitions that a column names."""
    from pyspark.sql import functions as sql  # pyright: ignore

    named = choice.topic_column or "topic"
    topic = sql.lit(choice.topic) if choice.topic else sql.col(_quoted(named)).cast("string")
    partition = sql.col(_quoted(choice.partition_column or "partition")).try_cast("int")
    counted = frame.where(partition >= 0).groupBy(topic.alias("topic")).agg(sql.max(partition) + 1)
    return dict(map(tuple, counted.collect()))


def _value(sql: Any, types: Mapping[str, str], choice: Choice, has_lines: bool) -> Any:
    name = choice.value or ("value" if "value" in types else ALL_AS_JSON)
    if name != ALL_AS_JSON or ALL_AS_JSON in types:
        return _bytes(sql, name, types[name])
    if has_lines:
        return sql.col(LINE)
    return sql.to_json(sql.struct(*map(_quoted, types)), {"ignoreNullFields": "false"})


def _whole_number(column: Any) -> Any:
    """Return an int; null also for what has a fraction."""
    from pyspark.sql import functions as sql  # pyright: ignore

    number = column.cast("string").try_cast("double")
    return sql.when(number == number.try_cast("int"), number.try_cast("int"))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _bytes(sql: Any, name: str, kind: str) -> Any:
    """Return a column as bytes or text: what is nested as JSON, all else as Spark writes it."""
    column = sql.col(_quoted(name))
    if kind.startswith(("struct", "array", "map")):
        return sql.to_json(column)
    return column if kind == "binary" else column.cast("string")


def _time(sql: Any, name: str, kind: str) -> Any:
    column = sql.col(_quoted(name))
    if kind in ("bigint", "int"):
        return sql.when(column.between(-TIME_MS_MAX, TIME_MS_MAX), sql.timestamp_millis(column))
    if kind in ("timestamp", "string", "date", "timestamp_ntz"):
        return column.try_cast("timestamp")
    raise OptionError(f"--timestamp {name}: the column is {kind}, no time; milliseconds, times and texts of times are")
