"""The data source `minibroker` of Spark: tables out of log directories and brokers.

    spark.dataSource.register(MinibrokerSource)
    spark.read.format("minibroker").option("path", "data").option("subscribe", "orders").load()

Spark makes the source in the driver, plans in a process of its own, and reads in its workers; what goes from one to the
other is pickled, so readers hold options and filters, and tasks hold names and numbers.
Only this module and what it imports when it is asked need pyspark.
Not here: reading (reading.py), streams (streams/reader.py), writers (sink.py in sink/ and bulk_load/).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from minibroker.spark.workers import SparkMissing, prepare, settle

try:
    from pyspark.sql.datasource import (  # pyright: ignore
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        InputPartition,
    )
    from pyspark.sql.pandas.types import from_arrow_schema  # pyright: ignore
    from pyspark.sql.types import StructType  # pyright: ignore
except ImportError as error:
    raise SparkMissing(error) from None

from minibroker.spark.columns.rows_of_query import all_columns, columns_of
from minibroker.spark.filters import Filters
from minibroker.spark.option_values import OptionError
from minibroker.spark.options import Options, parse
from minibroker.spark.reading import plan, read

NAME = "minibroker"


def asked(given: Mapping[str, str], schema: StructType, *, streaming: bool = False) -> Options:
    """Return the options of a query with the columns that its schema names: no others are read.

    Spark does not tell which ones a query needs, so who wants less says so.
    """
    options = parse(given, streaming=streaming)
    types = {field.name: field.dataType for field in from_arrow_schema(all_columns(options))}
    for field in schema:
        known = types.get(field.name)
        if known is None:
            raise OptionError(f"the schema names {field.name!r}; the columns there are: {', '.join(types)}")
        if field.dataType != known:
            raise OptionError(
                f"the schema says {field.name} {field.dataType.simpleString()}, and it is {known.simpleString()}: "
                "say that, and turn it into something else in the query"
            )
    options.columns = schema.names
    options.must_match = False  # as in Spark's source: a table without rows, a stream that waits for a topic
    return options


class MinibrokerSource(DataSource):
    """What Spark asks for tables."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        prepare()
        try:
            return from_arrow_schema(columns_of(parse(self.options)))
        except OptionError as problem:
            # Spark does not say whether it is for a stream, which may begin at the latest offset.
            try:
                return from_arrow_schema(columns_of(parse(self.options, streaming=True)))
            except OptionError:
                raise problem from None

    def reader(self, schema: StructType) -> DataSourceReader:
        prepare()
        kind = FilteringReader if hands_filters_down() else Reader
        return kind(asked(self.options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        prepare()
        from minibroker.spark.streams.reader import stream_reader

        return stream_reader(asked(self.options, schema, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        prepare()
        if "path" in self.options:
            from minibroker.spark.bulk_load.sink import segment_writer

            return segment_writer(self.options, schema, overwrite)
        from minibroker.spark.sink.sink import wire_writer

        return wire_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        prepare()
        from minibroker.spark.sink.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)


# Which program plans a query whose filters Spark hands down, where `spark.sql.python.filterPushdown.enabled` is true.
FILTERING_PROGRAM = "pyspark.sql.worker.data_source_pushdown_filters"


def hands_filters_down() -> bool:
    """Return whether this process will call `pushFilters`.

    Spark tells readers nothing of its settings, and from 4.1 on refuses one that has `pushFilters` unless the setting
    is on, which it is not by default. But it has a program of its own for handing filters down, started only then.
    """
    main = getattr(sys.modules["__main__"].__spec__, "name", "")
    return main == FILTERING_PROGRAM or FILTERING_PROGRAM in sys.modules


class Reader(DataSourceReader):
    """Plans a query and reads its tasks."""

    def __init__(self, options: Options):
        self.options = options
        self.filters = Filters()

    def partitions(self) -> list[InputPartition]:
        # Without tasks Spark would ask for one row of nothing.
        return [InputPartition(task) for task in plan(self.options, self.filters)] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:
            settle()
            yield from read(partition.value, self.options, self.filters)


class FilteringReader(Reader):
    """One that keeps filters itself; only where Spark hands them down."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Take filters (from Spark 4.1 on); those that are returned Spark keeps itself."""
        return self.filters.take(filters)
