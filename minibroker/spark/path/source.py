"""Path mode as Spark sees it: a reader that plans from files and indexes, and tasks that read segments."""

from __future__ import annotations

import sys

from pyspark.sql.datasource import DataSourceReader, InputPartition  # pyright: ignore

from minibroker.spark.columns import Manner
from minibroker.spark.filters import Filters
from minibroker.spark.options import QUARANTINE
from minibroker.spark.path.planning import plan
from minibroker.spark.path.rows import TaskReader
from minibroker.spark.workers import settle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    import pyarrow as pa

    from minibroker.spark.options import Options


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
        return [InputPartition(task) for task in plan(self.options, self.filters)] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return
        settle()
        reader = TaskReader(partition.value, Manner(self.options, self.filters))
        yield from reader.batches()
        for told in reader.left_out if self.options.mode != QUARANTINE else ():
            print(f"minibroker left out {told}", file=sys.stderr)
