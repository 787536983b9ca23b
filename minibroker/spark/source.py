"""The data source `minibroker` of Spark: tables out of log directories and brokers.

    spark.dataSource.register(MinibrokerSource)
    spark.read.format("minibroker").option("path", "data").option("subscribe", "orders").load()

Spark makes the source in the driver, plans in a process of its own, and reads in its workers; what goes from one to the
other is pickled, so readers hold options and filters, and tasks hold names and numbers.
Only this module and what it imports when it is asked need pyspark.
Not here: brokers (wire_source.py), streams (streams.py), writing (wire_writer.py, load_writer.py).
"""

from __future__ import annotations

import sys

from pyspark.sql.datasource import (  # pyright: ignore
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import (  # pyright: ignore
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from minibroker.spark.filters import Filters
from minibroker.spark.option_values import OptionError
from minibroker.spark.options import QUARANTINE, parse
from minibroker.spark.rows import Manner, TaskReader
from minibroker.spark.segments import plan
from minibroker.spark.workers import remember_archives, settle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    import pyarrow as pa

    from minibroker.spark.options import Options
    from minibroker.spark.segments import Task

NAME = "minibroker"

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
ROWS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", ArrayType(HEADER)),
    ]
)
BROKEN = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("firstOffset", LongType()),
        StructField("lastOffset", LongType()),
        StructField("file", StringType()),
        StructField("position", LongType()),
        StructField("error", StringType()),
        StructField("bytes", BinaryType()),
    ]
)


def columns_of(options: Options) -> StructType:
    """Return the columns of a query that does not say which it wants."""
    if options.mode == QUARANTINE:
        return BROKEN
    return ROWS if options.include_headers else StructType(ROWS.fields[:-1])


def asked(given: Mapping[str, str], schema: StructType, *, streaming: bool = False) -> Options:
    """Return the options of a query with the columns that its schema names: no others are read.

    Spark does not tell which ones a query needs, so who wants less says so.
    """
    options = parse(given, streaming=streaming)
    types = {field.name: field.dataType for field in (BROKEN if options.mode == QUARANTINE else ROWS)}
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
    return options


class MinibrokerSource(DataSource):
    """What Spark asks for tables."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        remember_archives()
        try:
            return columns_of(parse(self.options))
        except OptionError as problem:
            # Spark does not say whether it is for a stream, which may begin at the latest offset.
            try:
                return columns_of(parse(self.options, streaming=True))
            except OptionError:
                raise problem from None

    def reader(self, schema: StructType) -> DataSourceReader:
        remember_archives()
        options = asked(self.options, schema)
        if not options.is_path:
            from minibroker.spark.wire_source import WireReader

            return WireReader(options)
        return SegmentReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        remember_archives()
        from minibroker.spark.streams import stream_reader

        return stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        remember_archives()
        if "path" in self.options:
            from minibroker.spark.load_writer import segment_writer

            return segment_writer(self.options, schema, overwrite)
        from minibroker.spark.wire_writer import wire_writer

        return wire_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        remember_archives()
        from minibroker.spark.wire_writer import stream_writer

        return stream_writer(self.options, schema, overwrite)


class SegmentTask(InputPartition):
    """What Spark hands from the planning to a worker."""

    def __init__(self, task: Task):
        super().__init__(task)


class SegmentReader(DataSourceReader):
    """Reads log directories."""

    def __init__(self, options: Options):
        self.options = options
        self.filters = Filters()

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Take filters (from Spark 4.1 on); those that are returned Spark keeps itself."""
        return filters if self.options.mode == QUARANTINE else self.filters.take(filters)

    def partitions(self) -> list[InputPartition]:
        # Without tasks Spark would ask for one row of nothing.
        return [SegmentTask(task) for task in plan(self.options, self.filters)] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return
        settle()
        reader = TaskReader(partition.value, Manner(self.options, self.filters))
        yield from reader.batches()
        for told in reader.left_out if self.options.mode != QUARANTINE else ():
            print(f"minibroker left out {told}", file=sys.stderr)
