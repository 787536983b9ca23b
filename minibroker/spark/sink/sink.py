"""Writers of DataFrames to topics, in batches and streams, as Spark calls them.

    orders.write.format("minibroker").mode("append").option("kafka.bootstrap.servers", ...).option("topic", ...).save()

Spark makes a writer in a process for planning, for each micro-batch anew, and hands it to the workers; there `write`
gets the record batches of one task, and `commit` on the driver a message of one attempt of each. Both writers are
Arrow's: Spark 4.0 has such only for batches, but all that it asks is whether a writer is one, so the stream's is one
too.
With `exactlyOnce` tasks write nothing to brokers: they spool their rows, and `commit` writes them all in a transaction.
Its id comes from that of the query, which Spark sets where streams work and within foreachBatch, or from what the write
itself is told; a batch outside of streams has one that a broker gives out.
What must hold: what cannot be written is refused in planning, as far as it can be known there.
Not here: sending (sender.py), transactions (transaction.py), options (options.py), directories (bulk_load/sink.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark import TaskContext  # pyright: ignore
from pyspark.sql.datasource import (  # pyright: ignore
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType  # pyright: ignore

from minibroker.client.produce import new_producer
from minibroker.errors import KafkaError
from minibroker.spark.brokers.planning import run
from minibroker.spark.option_values import OptionError
from minibroker.spark.sink.checkpoint import Checkpoint
from minibroker.spark.sink.columns import check_columns
from minibroker.spark.sink.options import WriteOptions, parse
from minibroker.spark.sink.sender import WriteFailed, error_in, open_cluster, write_rows
from minibroker.spark.sink.spool import Spool, SpooledRows
from minibroker.spark.sink.transaction import WriteTransaction
from minibroker.spark.workers import naming_packages, prepare, settle

QUERY_ID, BATCH_ID, RUN_ID = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"
NO_WRITE = -1
TIMEOUT_MS, TIMEOUT_MS_MAX = 60_000, 900_000  # Kafka's producer's default, and what its brokers allow by default
BYTES_PER_MS = 10_000  # so slow may writing be


def wire_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> TopicWriter:
    """Return what writes a batch."""
    told = _planned(options, schema, overwrite, streaming=False)
    return TopicWriter(told, _new_write(told) if told.exactly_once else NO_WRITE)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> TopicWriter:
    """Return what writes a micro-batch."""
    return TopicWriter(_planned(options, schema, overwrite, streaming=True), NO_WRITE)


def _planned(options: Mapping[str, str], schema: StructType, overwrite: bool, *, streaming: bool) -> WriteOptions:
    prepare()
    told = parse(options, streaming=streaming)
    if overwrite:
        what = "output mode complete" if streaming else 'mode("overwrite")'
        raise OptionError(f"{what}: records of a topic cannot be overwritten, only appended to: set append")
    open_cluster(told)  # addresses and security, without a connection
    check_columns([(field.name, field.dataType.simpleString()) for field in schema.fields], told.topic)
    return told


def _new_write(options: WriteOptions) -> int:
    """Return a number that no other write has."""

    async def ask() -> int:
        async with open_cluster(options) as cluster:
            return (await new_producer(cluster))[0]

    try:
        return run(ask)
    except KafkaError as error:
        raise WriteFailed(error_in(f"brokers at {options.servers}", error)) from error


class TaskRows(WriterCommitMessage):
    """What a task tells the driver that has written nothing."""

    def __init__(self, spool: Spool, batch: int | None, rows: SpooledRows):
        self.spool, self.batch, self.rows = spool, batch, rows


class TopicWriter(DataSourceStreamWriter, DataSourceArrowWriter):
    """Writes a batch, or a micro-batch."""

    def __init__(self, options: WriteOptions, write_id: int):
        """write_id: of a batch that is written in a transaction, else NO_WRITE."""
        self.options = options
        self.write_id = write_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write what one task has, or spool it."""
        settle()
        options = self.options
        if not options.exactly_once:
            with naming_packages():
                write_rows(iterator, options)
            return WriterCommitMessage()
        context = TaskContext.get()
        assert context is not None, "only tasks write"
        query, batch = self._named(context)
        names = [options.id_prefix, query or f"write-{self.write_id}", options.sink_name]
        spool = Spool(options, "-".join(filter(None, names)), Checkpoint(options.checkpoint, query))
        query_run = str(context.getLocalProperty(RUN_ID)).replace("/", "-")
        return TaskRows(spool, batch, spool.put(iterator, f"{query_run}-{context.taskAttemptId()}"))

    def _named(self, context: TaskContext) -> tuple[str, int | None]:
        """Return who writes, and the number of the batch; nobody and None if the write will never be repeated."""
        options = self.options
        if options.app_id:
            return options.app_id, options.app_version
        query = context.getLocalProperty(QUERY_ID)
        if query and self.write_id != NO_WRITE and not options.sink_name:
            raise OptionError(
                "exactlyOnce in foreachBatch needs a sinkName, another one for each write: with the same one the "
                "second write of a batch would be taken for the first, repeated"
            )
        if options.sink_name and not query:
            raise OptionError(
                "sinkName is for exactlyOnce in foreachBatch, and here nobody knows the query: outside of streams, "
                "with Spark Connect, and in threads that the function has begun (pyspark.inheritable_thread_target "
                "hands it on). Set txnAppId to a name that only this write has, and txnVersion to the number of the "
                "batch"
            )
        return (str(query), int(context.getLocalProperty(BATCH_ID))) if query else ("", None)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:
        """Write what tasks have spooled, all of it in one transaction."""
        tasks = [each for each in messages if isinstance(each, TaskRows)]
        size_bytes = sum(each.rows.size_bytes for each in tasks)
        if not size_bytes:
            return
        spool, batch, options = tasks[0].spool, tasks[0].batch, self.options
        by_size_ms = min(TIMEOUT_MS + size_bytes // BYTES_PER_MS, TIMEOUT_MS_MAX)
        transaction = WriteTransaction(
            spool.transactional_id,
            batch,
            options.transaction_timeout_ms or by_size_ms,
            topic=options.topic,
            plan="" if batch is None else spool.checkpoint.plan_of(batch),
        )
        with naming_packages():
            write_rows(spool.rows([each.rows for each in tasks]), options, transaction)
        self.abort(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:
        """Delete the files of tasks, if there are any."""
        for each in messages:
            if isinstance(each, TaskRows) and each.rows.path:
                each.spool.clear()
                return
