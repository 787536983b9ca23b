"""Where an export goes: a folder of Parquet files, a Delta table, an Iceberg table; their columns, and how these grow.

    key, value [, json], partition, offset, timestamp, timestampType, headers, topic, date

What must hold: columns stay as a target was begun, but that JSON values may get more fields, at any depth; a target is
of one checkpoint, or a record could be there twice.
Not here: how Parquet files are written (export_files.py), the stream (export_stream.py).
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException  # pyright: ignore
from pyspark.sql import functions as sql  # pyright: ignore
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema  # pyright: ignore
from pyspark.sql.types import ArrayType, StringType, StructField, StructType  # pyright: ignore

from minibroker.spark.arrow_map import map_in_arrow
from minibroker.spark.folders import Folder, open_folder
from minibroker.spark.jobs.export_files import (
    BAD,
    RESULTS,
    Lake,
    clean,
    put_together,
    schema_of,
    small_files,
    writing,
)
from minibroker.spark.jobs.export_formats import BINARY, DELTA, ICEBERG, PARQUET, STRING, check_there
from minibroker.spark.jobs.export_stream import RowsOfTasks, sampled, tell
from minibroker.spark.jobs.summary import sums_of
from minibroker.spark.option_values import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REST = """
    partition int, offset bigint, timestamp timestamp, timestampType int,
    headers array<struct<key: string, value: binary>>
"""
OF_FOLDERS = "topic string, date date"
CORRUPT = "_corrupt_record"
CASE = "spark.sql.caseSensitive"
OBSERVED = "export"
QUERY = "minibroker-query"  # a property of tables: the id of the query that the checkpoint is of
# Tasks write what they read, without a shuffle, and columns may be added.
OF_ICEBERG = {"write.distribution-mode": "none", "write.spark.accept-any-schema": "true"}
GROUPS_MAX = 64  # of small files that are put together at once


# Columns


def columns_of(keys: str, values: str, fields: StructType | None) -> StructType:
    """Return the columns of an export; fields: of JSON values, None: there is no such column."""
    found = StructType.fromDDL(f"key {keys}, value {BINARY if values == BINARY else STRING}")
    found = found if fields is None else found.add("json", fields)
    return StructType([*found, *StructType.fromDDL(REST), *StructType.fromDDL(OF_FOLDERS)])


def of_files(columns: StructType) -> StructType:
    """Return the columns but those that are names of folders."""
    return StructType([each for each in columns if f"{each.name} " not in OF_FOLDERS])


def as_arrow(columns: StructType) -> Any:
    try:
        return to_arrow_schema(columns, timezone="UTC")
    except TypeError:  # before Spark 4.2 there is no other
        return to_arrow_schema(columns)


def fields_of(schema: str) -> StructType:
    try:
        return StructType.fromDDL(schema)
    except Exception as error:  # of Spark's parser, whose names change
        raise OptionError(f"--schema {schema!r}: {str(error).strip().splitlines()[0]}") from None


def guessed_fields(spark: Any, source: Mapping[str, str]) -> StructType:
    """Return the fields that JSON values of some partitions have together, whatever their topics."""
    frame = sampled(spark, source)
    if not hasattr(frame, "rdd"):
        raise OptionError("--values json: with Spark Connect say which fields there are, with --schema")
    before = spark.conf.get(CASE)
    spark.conf.set(CASE, "true")  # else it takes some that differ in case for the same, and reads only one of them
    try:
        found = spark.read.json(frame.rdd.map(lambda row: row.value)).schema
    finally:
        spark.conf.set(CASE, before)
    fields = [each for each in found if each.name != CORRUPT]
    if not fields:
        raise OptionError(
            "--values json: of the first values none is a JSON object with fields; say which fields there are with "
            "--schema, or take --values string"
        )
    if alike := next(_alike(StructType(fields)), None):
        raise OptionError(
            f"--values json: {' and '.join(alike)} differ only in case of letters, and tables and readers take them "
            "for one column; say with --schema which fields there are, the others are still in column value"
        )
    return StructType(fields)


def _alike(kind: Any, where: str = "") -> Iterator[list[str]]:
    """Yield the names of fields that differ only in case of letters, at any depth."""
    if isinstance(kind, ArrayType):
        yield from _alike(kind.elementType, where)
    elif isinstance(kind, StructType):
        by_name: dict[str, list[str]] = {}
        for name in kind.names:
            by_name.setdefault(name.lower(), []).append(where + name)
        yield from (names for names in by_name.values() if len(names) > 1)
        for each in kind:
            yield from _alike(each.dataType, f"{where}{each.name}.")


def values_of(columns: StructType) -> str:
    return "json" if "json" in columns.names else columns["value"].dataType.simpleString()


def grown(there: Any, wanted: Any, where: str) -> Any:
    """Return a type with all fields of two; raise OptionError if one has lost some, or they are otherwise different."""
    if isinstance(there, StructType) and isinstance(wanted, StructType):
        old, new = ({each.name: each.dataType for each in kind} for kind in (there, wanted))
        if lost := [name for name in old if name not in new]:
            raise OptionError(f"--schema has no {where}.{lost[0]} any more: columns stay, only new ones can be added")
        both = [StructField(name, grown(kind, new[name], f"{where}.{name}")) for name, kind in old.items()]
        return StructType([*both, *(each for each in wanted if each.name not in old)])
    if isinstance(there, ArrayType) and isinstance(wanted, ArrayType):
        return ArrayType(grown(there.elementType, wanted.elementType, f"{where}[]"))
    if there.simpleString() != wanted.simpleString():
        raise OptionError(
            f"--schema says {where} {wanted.simpleString()}, and it is {there.simpleString()}: columns stay, only new "
            "ones can be added"
        )
    return there


def with_json(rows: Any, fields: StructType) -> Any:
    """Return rows with the fields of JSON values, and with a column that says which could not be parsed."""
    with_corrupt = StructType([*fields, StructField(CORRUPT, StringType())])
    parsed = sql.from_json("value", with_corrupt, {"columnNameOfCorruptRecord": CORRUPT})
    rows = rows.withColumn("json", parsed)
    # Of an empty text or blanks there is neither.
    is_nothing = sql.col("value").isNotNull() & sql.col("json").isNull()
    rows = rows.withColumn(BAD, sql.col(f"json.{CORRUPT}").isNotNull() | is_nothing)
    found = sql.col("json").dropFields(CORRUPT)
    # What is no object has no field at all: then there is no json either.
    is_none = sql.col(BAD) & (sql.to_json(found) == "{}")
    return rows.withColumn("json", sql.when(~is_none, found))


# Targets


class _Target:
    """One of a run. `clean`, `columns`, then `start`, then perhaps `compact`, and `end`."""

    table_format = PARQUET

    def __init__(self, spark: Any, place: str, checkpoint: Folder, notes: str):
        self.spark, self.place, self.checkpoint, self.notes = spark, place, checkpoint, notes

    def clean(self, unfinished: int | None) -> None:
        """Remove what a run left that was killed; unfinished: its micro-batch, which will be repeated."""

    def end(self) -> None: ...

    def stream(self, frame: Any) -> Any:
        return frame.writeStream.trigger(availableNow=True).option("checkpointLocation", self.checkpoint.place)

    def refuse_other(self) -> None:
        raise OptionError(
            f"{self.place} holds an export that {self.checkpoint.place} is not the checkpoint of: name its own "
            "with --checkpoint, or export to another place"
        )


class ParquetTarget(_Target):
    """A folder of files that our tasks write."""

    def __init__(self, spark: Any, place: str, checkpoint: Folder, notes: str, compression: str, run: str):
        super().__init__(spark, place, checkpoint, notes)
        self.folder = Folder(place)
        self.compression, self.run = compression, run
        self.lake: Lake | None = None

    def clean(self, unfinished: int | None) -> None:
        clean(self.folder, unfinished)

    def columns(self) -> StructType | None:
        schema = schema_of(self.folder)
        if schema is None:
            return None
        if (schema.metadata or {}).get(b"query", b"").decode() != query_id(self.checkpoint):
            self.refuse_other()
        return StructType([*from_arrow_schema(schema), *StructType.fromDDL(OF_FOLDERS)])

    def use(self, columns: StructType) -> Lake:
        self.lake = Lake(self.folder, as_arrow(of_files(columns)), self.compression, self.run)
        return self.lake

    def start(self, tasks: Any, rows: RowsOfTasks, columns: StructType) -> Any:
        lake, checkpoint, notes = self.use(columns), self.checkpoint, self.notes
        if "json" in columns.names:
            frame, of_task = rows_of(tasks, rows, columns), None
        else:
            frame, of_task = tasks, rows

        # With Spark Connect this goes to the server: it holds nothing of the session.
        def write(batch: Any, number: int) -> None:
            lake.begin(query_id(checkpoint))
            done = map_in_arrow(batch, writing(lake, number, of_task), RESULTS).collect()
            tell(notes, batch=number, written=sums_of(done))

        return self.stream(frame).foreachBatch(write).start()

    def compact(self, small_bytes: int) -> int:
        columns = self.columns()
        if columns is None:
            return 0
        lake = self.lake or self.use(columns)
        count = 0
        small = small_files(self.folder, small_bytes)
        while groups := list(islice(small, GROUPS_MAX)):
            lake.begin(query_id(self.checkpoint))
            put_together(self.spark, lake, groups, of_files(columns))
            count += sum(len(group.names) for group in groups)
        return count

    def end(self) -> None:
        if self.lake is not None:
            self.lake.end()


class TableTarget(_Target):
    """A table of a format that knows of transactions."""

    def __init__(self, spark: Any, place: str, checkpoint: Folder, notes: str, table_format: str):
        super().__init__(spark, place, checkpoint, notes)
        self.table_format = table_format
        check_there(spark, table_format)

    @property
    def table(self) -> str:
        """The name of it in SQL."""
        return self.place if self.table_format == ICEBERG else f"delta.`{self.place}`"

    def columns(self) -> StructType | None:
        if not self._is_there():
            return None
        properties = {row[0]: row[1] for row in self.spark.sql(f"SHOW TBLPROPERTIES {self.table}").collect()}
        frame = self.spark.table(self.table)
        # One without rows may be somebody's, or of a run that was killed before it said whose it is.
        if properties.get(QUERY, "") != query_id(self.checkpoint) and (QUERY in properties or not frame.isEmpty()):
            self.refuse_other()
        return frame.schema

    def _is_there(self) -> bool:
        if self.table_format == DELTA:
            return Folder(self.place).exists("_delta_log")
        with _named(self.place):
            return bool(self.spark.catalog.tableExists(self.place))

    def start(self, tasks: Any, rows: RowsOfTasks, columns: StructType) -> Any:
        frame = rows_of(tasks, rows, columns)
        bad = sql.count_if(BAD) if BAD in frame.columns else sql.lit(0)
        frame = frame.observe(OBSERVED, sql.count(sql.lit(1)).alias("records"), bad.alias(BAD)).select(*columns.names)
        self._begin(columns)
        stream = self.stream(frame).format(self.table_format).option("mergeSchema", "true")
        return stream.start(self.place) if self.table_format == DELTA else stream.toTable(self.place)

    def _begin(self, columns: StructType) -> None:
        """Make the table, and note in it whose it is, before there is a row."""
        if not query_id(self.checkpoint):  # Spark takes the id that it finds
            number = self.spark.sql("SELECT uuid()").first()[0]
            self.checkpoint.write("metadata", json.dumps({"id": number}).encode())
        if not self._is_there():
            none = self.spark.createDataFrame([], columns)
            if self.table_format == DELTA:
                none.write.format(DELTA).partitionBy("topic", "date").save(self.place)
            else:
                with _named(self.place):
                    none.writeTo(self.place).using(ICEBERG).partitionedBy("topic", "date").create()
        told = {QUERY: query_id(self.checkpoint), **(OF_ICEBERG if self.table_format == ICEBERG else {})}
        listed = ", ".join(f"'{name}'='{value}'" for name, value in told.items())
        self.spark.sql(f"ALTER TABLE {self.table} SET TBLPROPERTIES ({listed})")

    def compact(self, small_bytes: int) -> int | None:
        if self.table_format == DELTA:
            self.spark.sql(f"OPTIMIZE {self.table}").collect()
            return None
        catalog = self.place.partition(".")[0]
        row = self.spark.sql(f"CALL {catalog}.system.rewrite_data_files('{self.place}')").first()
        return int(row["rewritten_data_files_count"])


@contextmanager
def _named(table: str) -> Iterator[None]:
    """Say what the name of a table is, or what Java has against it."""
    try:
        yield
    except PySparkException as error:  # of Spark's parser and of catalogs, whose names differ
        raise OptionError(
            f"--format iceberg: {table} is no name of a table, as CATALOG.SCHEMA.TABLE, in a catalog that --conf "
            f"spark.sql.catalog.CATALOG=... sets: {str(error).strip().splitlines()[0]}"
        ) from None
    except Exception as error:
        if (thrown := getattr(error, "java_exception", None)) is None:
            raise
        raise OptionError(
            f"--format iceberg: the catalog of {table} does not go with this Spark, of which it may be another "
            f"release's, or its place cannot be opened: {thrown.toString()}"
        ) from error


def query_id(checkpoint: Folder) -> str:
    """Return the id of the query that a checkpoint is of; empty: of none yet."""
    return str(json.loads(checkpoint.read("metadata"))["id"]) if checkpoint.exists("metadata") else ""


def rows_of(tasks: Any, rows: RowsOfTasks, columns: StructType) -> Any:
    """Return a stream of records, with `json` and BAD if these are among the columns."""
    plain = StructType([each for each in columns if each.name != "json"])
    frame = map_in_arrow(tasks, rows, plain)
    return with_json(frame, columns["json"].dataType) if "json" in columns.names else frame


Target = ParquetTarget | TableTarget


def target_of(
    spark: Any, table_format: str, place: str, checkpoint: Folder, *, notes: str, compression: str, run: str
) -> Target:
    where = place if table_format == ICEBERG else open_folder(place, spark).place
    if table_format == PARQUET:
        return ParquetTarget(spark, where, checkpoint, notes, compression, run)
    return TableTarget(spark, where, checkpoint, notes, table_format)
