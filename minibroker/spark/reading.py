"""Reading: the tasks of a query and their rows, from log directories or from brokers, as the options name them.

Either way is imported when it is asked for: planning over files needs no client, and the other way round.
Not here: how it is done (files/, brokers/), what Spark calls (source.py, streams/reader.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa

from minibroker.spark.columns.rows_of_query import RowReader
from minibroker.spark.filters import Filters
from minibroker.spark.options import Options
from minibroker.spark.ranges import ranges_of, reporting
from minibroker.spark.workers import naming_packages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.spark.ranges import Logs, Range, Report


def say(text: str) -> None:
    """Tell where Spark keeps what its workers say."""
    print(f"minibroker: {text}", file=sys.stderr)


def logs_of(options: Options, report: Report) -> Logs:
    if options.is_path:
        from minibroker.spark.files.planning import FileLogs

        return FileLogs(options, report)
    from minibroker.spark.brokers.planning import BrokerLogs

    return BrokerLogs(options)


def all_ranges(options: Options, filters: Filters | None = None, tell: Callable[[str], None] = say) -> list[Range]:
    """Return what a query reads of each partition, also where that is nothing; `tell` is told of data loss."""
    report = reporting(options.fail_on_data_loss, tell)
    with closing(logs_of(options, report)) as logs:
        return ranges_of(options, filters or Filters(), logs, report)


def plan(options: Options, filters: Filters | None = None, tell: Callable[[str], None] = say) -> list[Any]:
    """Return the tasks of a query, by topic, partition and offset; `tell` is told of data loss."""
    filters, report = filters or Filters(), reporting(options.fail_on_data_loss, tell)
    with closing(logs_of(options, report)) as logs:
        return logs.tasks(ranges_of(options, filters, logs, report), filters)


def reader_of(task: Any, options: Options, filters: Filters | None = None) -> RowReader:
    if options.is_path:
        from minibroker.spark.files.rows import TaskReader

        return TaskReader(task, options, filters)
    from minibroker.spark.brokers.rows import WireTaskReader

    return WireTaskReader(task, options, filters)


def read(
    task: Any, options: Options, filters: Filters | None = None, tell: Callable[[str], None] = say
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task; `tell` is told what was left out, and what looks odd."""
    reader = reader_of(task, options, filters)
    with naming_packages():
        yield from reader.batches()
    for told in reader.left_out:
        tell(f"left out {told}")
    for told in reader.noticed:
        tell(told)
