"""Writers of DataFrames to topics, in batches and streams, as Spark calls them.

    orders.write.format("minibroker").mode("append").option("kafka.bootstrap.servers", ...).option("topic", ...).save()

Spark makes a writer in a process for planning, for each micro-batch anew, and hands it to the workers; there `write`
gets the record batches of one task. Both writers are Arrow's: Spark 4.0 has such only for batches, but all that it asks
is whether a writer is one, so the stream's is one too.
What must hold: what cannot be written is refused in planning, as far as it can be known there.
Where `exactlyOnce` holds, a task finds by the ids of query and batch, which Spark sets where streams work and within
foreachBatch, what it has written of this batch before. A batch outside of streams has an id that a broker gives out, so
that a task that Spark repeats is found, and a job that is begun again is another one.
Not here: sending (task.py), options (options.py), directories (spark/bulk_load/sink.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

import pyarrow as pa
from pyspark import TaskContext  # pyright: ignore
from pyspark.sql.datasource import (  # pyright: ignore
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType  # pyright: ignore

from minibroker.client.groups import Groups
from minibroker.client.produce import new_producer
from minibroker.errors import KafkaError
from minibroker.spark.brokers.planning import run
from minibroker.spark.option_values import OptionError
from minibroker.spark.sink.batch_notes import NotRepeatable
from minibroker.spark.sink.exactly_once import unclaimed
from minibroker.spark.sink.options import WriteOptions, check_columns, parse
from minibroker.spark.sink.row_queue import WriteFailed, error_in
from minibroker.spark.sink.task import TaskResult, open_cluster, write_rows
from minibroker.spark.workers import naming_packages, prepare, settle

QUERY_ID, BATCH_ID, RUN_ID = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"
NO_WRITE = -1


def wire_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> TopicWriter:
    """Return what writes a batch."""
    told = _planned(options, schema, overwrite, streaming=False)
    return TopicWriter(told, _new_write(told) if told.exactly_once else NO_WRITE)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> TopicStreamWriter:
    """Return what writes a micro-batch."""
    return TopicStreamWriter(_planned(options, schema, overwrite, streaming=True))


def _planned(options: Mapping[str, str], schema: StructType, overwrite: bool, *, streaming: bool) -> WriteOptions:
    prepare()
    told = parse(options)
    if overwrite:
        what = "output mode complete" if streaming else 'mode("overwrite")'
        raise OptionError(f"{what}: records of a topic cannot be overwritten, only appended to: set append")
    open_cluster(told)  # addresses and security, without a connection
    check_columns([(field.name, field.dataType.simpleString()) for field in schema.fields], told)
    return told


def _new_write(options: WriteOptions) -> int:
    async def ask() -> int:
        async with open_cluster(options) as cluster:
            return (await new_producer(cluster))[0]

    try:
        return run(ask)
    except KafkaError as error:
        raise WriteFailed(error_in(f"brokers at {options.servers}", error)) from error


class WriteResult(WriterCommitMessage):
    """What a task tells the driver."""

    def __init__(self, name: str, batch: int, sent: TaskResult):
        self.name = name  # of the groups with notes; empty: there are none
        self.batch = batch
        self.sent = sent


class TopicWriter(DataSourceArrowWriter):
    """Writes a batch."""

    def __init__(self, options: WriteOptions, write_id: int):
        self.options = options
        self.write_id = write_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_task(iterator, self.options, self.write_id)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Forget the notes of a batch that nobody will repeat; those of streams are used again."""
        check_claims(messages, self.options)
        own = f"{self.options.group_prefix}-write-{self.write_id}"
        slots = [each.sent.slot for each in messages if isinstance(each, WriteResult) and each.name == own]
        slots = [slot for slot in slots if slot]
        if not slots:
            return

        async def forget() -> None:
            async with open_cluster(self.options) as cluster:
                await Groups(cluster).delete_groups(slots)

        with suppress(KafkaError):  # everything is written; brokers forget the notes later by themselves
            run(forget)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing can be taken back."""


class TopicStreamWriter(DataSourceStreamWriter, DataSourceArrowWriter):
    """Writes a micro-batch."""

    def __init__(self, options: WriteOptions):
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_task(iterator, self.options, NO_WRITE)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # pyright: ignore
        check_claims(messages, self.options)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # pyright: ignore
        """Nothing can be taken back; the batch will be repeated."""


def check_claims(messages: list[WriterCommitMessage | None], options: WriteOptions) -> None:
    """Raise if a task of a run before has written records that no task has taken for its own."""
    tasks = [each for each in messages if isinstance(each, WriteResult)]
    left = {slot for task in tasks for slot in task.sent.in_doubt} - {task.sent.slot for task in tasks}
    if not left:
        return

    async def ask() -> str:
        async with open_cluster(options) as cluster:
            return await unclaimed(cluster, tasks[0].name, sorted(left), tasks[0].batch)

    found = run(ask)
    if found:
        raise NotRepeatable(
            f"batch {tasks[0].batch}: records that were written before it was repeated belong to none of its tasks "
            f"now ({found}). The query gives other rows each time, or cuts them into other tasks. All rows of the "
            "batch are written, but some may be there twice. To go on, run it once with exactlyOnce false"
        )


def write_task(iterator: Iterator[pa.RecordBatch], options: WriteOptions, write_id: int) -> WriteResult:
    """Write what one task has."""
    settle()
    context = TaskContext.get()
    assert context is not None, "only tasks write"
    query, batch = context.getLocalProperty(QUERY_ID), int(context.getLocalProperty(BATCH_ID) or 0)
    name = ""
    if options.exactly_once:
        names = [query, options.sink_name] if query else ["write", str(write_id)]
        name = "-".join([options.group_prefix, *filter(None, names)])
    query_run = context.getLocalProperty(RUN_ID) if query else None
    with naming_packages():
        sent = write_rows(iterator, options, name, batch, context.partitionId(), query_run or "")
    return WriteResult(name, batch, sent)
