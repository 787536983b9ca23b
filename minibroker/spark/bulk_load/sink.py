"""Bulk load by `df.write.format("minibroker").option("path", ...).mode("append").save()`.

Spark makes the writer in one process, lets its tasks write, and commits in another process; so there is no lock while
tasks are at work. A broker that starts meanwhile removes what is staged, and the load fails as a whole.
What must hold: as in minibroker/spark/load.py.
Spark: a save without `mode` means errorIfExists, which sources in Python do not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage  # pyright: ignore

from minibroker.spark.bulk_load.options import LoadOptions, parse_load
from minibroker.spark.bulk_load.plans import Piece, Plan
from minibroker.spark.bulk_load.segments import load_here
from minibroker.spark.option_values import OptionError
from minibroker.spark.sink.columns import check_columns

if TYPE_CHECKING:
    from minibroker.spark.bulk_load.directory import LoadDirectory


class Written(WriterCommitMessage):
    """What a task hands to the commit."""

    def __init__(self, pieces: list[Piece]):
        self.pieces = pieces


class SegmentWriter(DataSourceArrowWriter):
    """What Spark asks to write; it goes from process to process."""

    def __init__(self, options: LoadOptions, plan: Plan, used: list[str]):
        self.options, self.plan, self.used = options, plan, used

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return Written(load_here((batch.select(self.used) for batch in iterator), self.plan))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        pieces = [piece for message in messages if isinstance(message, Written) for piece in message.pieces]
        with _directory(self.options) as directory:
            try:
                directory.commit(self.plan, pieces)
            finally:
                directory.drop()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        with _directory(self.options) as directory:
            directory.drop()


def _directory(options: LoadOptions) -> LoadDirectory:
    from minibroker.clock import LoopClock
    from minibroker.spark.bulk_load.directory import LoadDirectory  # workers have no use for it

    return LoadDirectory(options, LoopClock())


def segment_writer(given: Mapping[str, str], schema: Any, overwrite: bool) -> SegmentWriter:
    """Return who writes rows of this schema into a directory."""
    options = parse_load(given)
    if overwrite:
        raise OptionError("records can only be added to a log: write with .mode('append')")
    used = check_columns(((field.name, field.dataType.simpleString()) for field in schema.fields), options.topic)
    with _directory(options) as directory:
        return SegmentWriter(options, directory.look(), used)
