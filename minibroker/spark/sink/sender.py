"""Sender: pieces of rows in, acknowledged batches out.

    write_rows(record_batches, options) -> how many

A piece is sorted into partitions and goes out in rounds: to each leader one request, in it one batch of each partition
that has any left. The next round waits for the answers, so retries never reorder, and of each producer id one batch for
a partition is under way at a time; one that may have arrived is sent again with the same bytes.
What must hold: when `send` returns all of the piece is written, as far as `acks` says. What cannot be written raises
WriteFailed with topic and partition.
Kafka: a producer has five requests under way; here the pieces are larger.
Not here: rows (rows.py), what makes the batches of one write count together (transaction.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

import pyarrow as pa

from minibroker.client.accumulator import ProducerId
from minibroker.client.cluster import Cluster, Topic, TopicPartition
from minibroker.client.connection import error_of
from minibroker.client.produce import form_for, new_producer, send
from minibroker.client.security import Security, SecurityError
from minibroker.errors import Error, KafkaError
from minibroker.log.batches import SEQUENCE_MAX
from minibroker.spark.columns.building import BuiltBatch, RowColumns, Section, build_batches
from minibroker.spark.option_values import OptionError
from minibroker.spark.sink.columns import COLUMNS
from minibroker.spark.sink.options import WriteOptions
from minibroker.spark.sink.rows import Rows, Spread, pieces
from minibroker.spark.sink.transaction import WriteTransaction

ANSWER_MS_EXTRA = 5_000  # for the way, when a broker has waited for its replicas as long as it may
TOPIC_TRIES = 10
PIECE_BYTES = 8 * 1024 * 1024  # of rows that are held at once
PAUSE_MS, PAUSE_MS_MAX = 20, 1_000  # between questions, as the client has them
FENCED = (
    "another run of the query has taken over, or the write took longer than kafka.transaction.timeout.ms: then raise "
    "it, or let a batch have fewer rows. Nothing of this write is visible"
)
ADVICE = {
    Error.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic, and brokers have made none: create it before",
    Error.INVALID_TOPIC_EXCEPTION: "a topic cannot have this name, or must not be written to",
    Error.TOPIC_AUTHORIZATION_FAILED: "the user may not write to the topic: grant WRITE",
    Error.GROUP_AUTHORIZATION_FAILED: "the number of a batch is an offset of a group: grant READ on groups that begin "
    "with transactionalIdPrefix, or set exactlyOnce to false",
    Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant WRITE and DESCRIBE on transactional ids that begin with "
    "transactionalIdPrefix, or set exactlyOnce to false",
    Error.INVALID_TRANSACTION_TIMEOUT: "set kafka.transaction.timeout.ms to no more than transaction.max.timeout.ms of "
    "the brokers",
    Error.INVALID_PRODUCER_EPOCH: FENCED,
    Error.PRODUCER_FENCED: FENCED,
    Error.INVALID_TXN_STATE: FENCED,
    Error.CLUSTER_AUTHORIZATION_FAILED: "grant IDEMPOTENT_WRITE, or set kafka.enable.idempotence to false",
    Error.MESSAGE_TOO_LARGE: "raise max.message.bytes of the topic, or leave such rows out",
    Error.RECORD_LIST_TOO_LARGE: "segment.bytes of the topic is too small for it",
    Error.INVALID_RECORD: "the topic does not take such a record; compacted topics want keys",
    Error.INVALID_TIMESTAMP: "the column timestamp is too far from the broker's time: see "
    "message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic",
    Error.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas of the topic wants",
    Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "fewer replicas are in sync than min.insync.replicas of the topic wants",
    Error.UNSUPPORTED_COMPRESSION_TYPE: "set another kafka.compression.type",
    Error.LEADER_NOT_AVAILABLE: "the partition has no leader: are its brokers at work?",
    Error.NETWORK_EXCEPTION: "can the brokers be reached from here by the addresses that they advertise?",
}

Build = Callable[[RowColumns, list[Section], int], Iterator[BuiltBatch]]  # the last: how long batches become at most


class WriteFailed(Exception):
    """Rows could not be written; the text says where, why, and what to do."""


def error_in(where: str, error: KafkaError) -> str:
    """Return what to say of an error."""
    advice = ADVICE.get(error.code)
    return f"{where}: {error.code.name}, {error.message or error.code.meaning}{'; ' + advice if advice else ''}"


def open_cluster(options: WriteOptions) -> Cluster:
    """Return a client for the brokers of a write, which has no connection yet."""
    try:
        return Cluster(
            options.servers,
            client_id=options.client_id,
            timeout_ms=options.request_timeout_ms,
            retry_count=6 + options.delivery_timeout_ms // PAUSE_MS_MAX,
            retry_pause_ms=PAUSE_MS,
            security=Security.of(options.security),
        )
    except SecurityError as error:
        raise OptionError(f"kafka.{error}") from None
    except ValueError as error:
        raise OptionError(f"kafka.bootstrap.servers is {options.servers!r}: {error}") from None


def write_rows(
    batches: Iterable[pa.RecordBatch], options: WriteOptions, transaction: WriteTransaction | None = None
) -> int:
    """Write rows and return how many, 0 if the transaction says that this was done before."""
    cluster = open_cluster(options)
    with asyncio.Runner() as runner:
        try:
            if transaction is not None and not runner.run(transaction.begin(cluster)):
                return 0
            sender = Sender(cluster, options, transaction)
            names = [*COLUMNS] if options.include_headers else [name for name in COLUMNS if name != "headers"]
            rows = (batch.select([name for name in batch.schema.names if name in names]) for batch in batches)
            for piece in pieces(rows, options.topic, cluster.clock.now_ms(), size_bytes=PIECE_BYTES):
                runner.run(sender.send(piece))
            if transaction is not None:
                runner.run(transaction.commit())
            return sender.record_count
        except KafkaError as error:
            raise WriteFailed(error_in(f"brokers at {options.servers}", error)) from error
        finally:
            if transaction is not None:
                runner.run(transaction.abort_if_open())
            runner.run(cluster.close())


class RowQueue:
    """Rows of one partition, and the batches that are made of them."""

    def __init__(self, rows: Rows, partition: int, first_row: int, sequence: int):
        self.topic, self.partition = rows.topic, partition
        self.sequence = sequence  # of the next record that is not acknowledged
        self.batches: deque[BuiltBatch] = deque()  # those that are left
        self._rows = rows
        self._first_row = first_row  # the next one, in the order of the rows
        self._failing_since: int | None = None
        self._failures = 0

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def advance(self) -> int:
        """The first batch has been acknowledged; return how many records it has."""
        count = self.batches.popleft().count
        self._first_row += count
        self.sequence = self.sequence + count & SEQUENCE_MAX
        self._failing_since, self._failures = None, 0
        return count

    def split(self, build: Build) -> None:
        """The first batch is too large for the broker, which has refused it as a whole: make smaller ones."""
        rows = self._rows.part(self._first_row, sum(batch.count for batch in self.batches))
        section = Section(len(rows), base_sequence=self.sequence)
        self.batches = deque(build(rows, [section], self.batches[0].size_bytes // 2))

    def failed(self, error: KafkaError, now_ms: int, options: WriteOptions) -> None:
        """Take note of a failure; raise if it will not pass, or has not for too long."""
        head = self.batches[0]
        where = f"{self}: a batch of {head.count} records, {head.size_bytes} bytes, could not be written"
        if not error.code.retriable:
            raise WriteFailed(error_in(where, error)) from error
        if self._failing_since is None:
            self._failing_since = now_ms
        self._failures += 1
        waited_ms = now_ms - self._failing_since
        if self._failures > options.retry_count or waited_ms >= options.delivery_timeout_ms:
            limit = "kafka.delivery.timeout.ms" if self._failures <= options.retry_count else "kafka.retries"
            raise WriteFailed(
                error_in(f"{where} in {self._failures} tries and {waited_ms} ms ({limit})", error)
            ) from error


class Sender:
    """Sends for one task, or for the driver in a transaction."""

    def __init__(self, cluster: Cluster, options: WriteOptions, transaction: WriteTransaction | None):
        self.record_count = 0  # acknowledged
        self._cluster = cluster
        self._options = options
        self._transaction = transaction
        self._producer = transaction.producer if transaction else None
        self._spreads: dict[str, Spread] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._rest_until: dict[int, int] = {}  # leader -> when a quota lets it be asked again

    async def send(self, piece: Iterable[Rows]) -> None:
        placed = [(rows, *await self._place(rows)) for rows in piece]
        if self._producer is None and self._options.idempotent:
            self._producer = ProducerId(*await new_producer(self._cluster))
        if self._transaction is not None:
            names = [(rows.topic, partition) for rows, partitions, _ in placed for partition in partitions]
            await self._transaction.add(names)
        queues = [queue for each in placed for queue in self._queues(*each)]
        pause_ms = self._options.retry_pause_ms
        while queues:
            failures = await self._round(queues)
            queues = [queue for queue in queues if queue.batches]
            if failures:
                await self._cluster.clock.sleep(pause_ms)
                pause_ms = min(pause_ms * 2, self._options.retry_pause_ms_max)
            else:
                pause_ms = self._options.retry_pause_ms

    def _queues(self, rows: Rows, partitions: list[int], counts: list[int]) -> list[RowQueue]:
        """Return the batches of each partition, which are built all at once."""
        sequences = [self._sequences.get((rows.topic, partition), 0) for partition in partitions]
        firsts = accumulate(counts, initial=0)
        queues = [RowQueue(rows, *each) for each in zip(partitions, firsts, sequences, strict=False)]
        sections = [Section(count, base_sequence=sequence) for count, sequence in zip(counts, sequences, strict=True)]
        for batch in self._build(rows, sections, self._options.batch_bytes):
            queues[batch.section].batches.append(batch)
        return queues

    def _build(self, rows: RowColumns, sections: list[Section], batch_bytes: int) -> Iterator[BuiltBatch]:
        producer = self._producer
        return build_batches(
            rows,
            sections,
            codec=self._options.codec,
            level=self._options.level,
            batch_bytes=batch_bytes,
            is_sent=True,
            producer_id=producer.id if producer else -1,
            producer_epoch=producer.epoch if producer else -1,
            transactional=self._transaction is not None,
        )

    # Where rows go

    async def _place(self, rows: Rows) -> tuple[list[int], list[int]]:
        """Sort rows by partition; return which these are, and how many rows each has."""
        options, topic = self._options, rows.topic
        limit = options.record_bytes_max
        if limit is not None and (size := int(rows.sizes().max())) > limit:
            raise WriteFailed(f"topic {topic}: a record of {size} bytes is larger than kafka.max.request.size, {limit}")
        if topic not in self._spreads:
            partition_count = len((await self._find_topic(topic)).partitions)
            self._spreads[topic] = Spread(partition_count, options.batch_bytes, ignore_keys=options.ignore_keys)
        return self._spreads[topic].place(rows)

    async def _find_topic(self, name: str) -> Topic:
        """Return a topic, which brokers may make now."""
        pause_ms, tries = PAUSE_MS, 0
        while True:
            topic = (await self._cluster.metadata([name], create=True))[name]
            if not topic.error:
                return topic
            error, tries = error_of(topic.error, ""), tries + 1
            if not error.code.retriable or tries == TOPIC_TRIES:
                raise WriteFailed(error_in(f"topic {name}", error)) from error
            await self._cluster.clock.sleep(pause_ms)
            pause_ms = min(pause_ms * 2, PAUSE_MS_MAX)

    # Rounds

    async def _round(self, queues: list[RowQueue]) -> int:
        """Send a batch of each queue; return how many failed for now."""
        by_leader: dict[int, list[RowQueue]] = {}
        answers: list[tuple[RowQueue, KafkaError | None]] = []
        for queue in queues:
            try:
                (leader,) = await self._cluster.by_leader([(queue.topic, queue.partition)])
                by_leader.setdefault(leader, []).append(queue)
            except KafkaError as error:
                answers.append((queue, error))
        requests = [
            self._request(leader, part) for leader, all_of in by_leader.items() for part in self._requests(all_of)
        ]
        for some in await asyncio.gather(*requests):
            answers += some
        for queue, failure in answers:
            if failure is None:
                self.record_count += queue.advance()
                self._sequences[queue.topic, queue.partition] = queue.sequence
            elif failure.code in (Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE) and queue.batches[0].count > 1:
                queue.split(self._build)
            else:
                self._cluster.forget(queue.topic)
                queue.failed(failure, self._cluster.clock.steady_ms(), self._options)
        return sum(failure is not None for _, failure in answers)

    def _requests(self, queues: list[RowQueue]) -> list[list[RowQueue]]:
        """Cut the batches for one leader into requests that are not too large."""
        made: list[list[RowQueue]] = []
        size_bytes = 0
        for queue in queues:
            size_bytes += queue.batches[0].size_bytes
            if not made or size_bytes > self._options.request_bytes:
                made.append([])
                size_bytes = queue.batches[0].size_bytes
            made[-1].append(queue)
        return made

    # One request

    async def _request(self, leader: int, queues: list[RowQueue]) -> list[tuple[RowQueue, KafkaError | None]]:
        """Send one batch of each queue; return what went wrong with it, None if nothing."""
        clock = self._cluster.clock
        rest_ms = self._rest_until.get(leader, 0) - clock.steady_ms()
        if rest_ms > 0:
            await clock.sleep(rest_ms)
        options, transaction = self._options, self._transaction
        batches = {(queue.topic, queue.partition): queue.batches[0].data for queue in queues}
        try:
            form = await form_for(
                self._cluster,
                leader,
                {topic for topic, _ in batches},
                codec=options.codec,
                version_max=transaction.produce_version_max if transaction else None,
            )
            outcomes, throttle_ms = await send(
                self._cluster,
                leader,
                form,
                batches,
                acks=options.acks,
                timeout_ms=options.request_timeout_ms,
                extra_ms=ANSWER_MS_EXTRA,
                transactional_id=transaction.transactional_id if transaction else None,
            )
        except KafkaError as error:
            return [(queue, error) for queue in queues]
        if throttle_ms:
            self._rest_until[leader] = clock.steady_ms() + throttle_ms
        found = (outcomes[queue.topic, queue.partition] for queue in queues)
        return [
            (queue, outcome.error() if outcome.error_code else None)
            for queue, outcome in zip(queues, found, strict=True)
        ]
