"""Sender: pieces of rows in, acknowledged batches out.

    write_rows(record_batches, options) -> how many

A piece is sorted into partitions and goes out in rounds: to each leader one request, in it one batch of each partition
that has any left. The next round waits for the answers, so retries never reorder, and of each producer id one batch for
a partition is under way at a time.
What must hold: when `send` returns all of the piece is written, as far as `acks` says. What cannot be written raises
WriteFailed with topic and partition.
Kafka: a producer has five requests under way; here the pieces are larger.
Not here: rows (rows.py), what makes the batches of one write count together (transaction.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pyarrow as pa

from minibroker.client.accumulator import ProducerId
from minibroker.client.cluster import NO_NODE, Cluster, Topic, TopicPartition
from minibroker.client.connection import error_of
from minibroker.client.produce import form_for, new_producer, send
from minibroker.client.security import Security, SecurityError
from minibroker.errors import Error, KafkaError
from minibroker.spark.option_values import OptionError
from minibroker.spark.sink.options import WriteOptions
from minibroker.spark.sink.row_queue import RowQueue, WriteFailed, error_in
from minibroker.spark.sink.rows import Rows, Spread, by_partition, pieces
from minibroker.spark.sink.transaction import WriteTransaction

ANSWER_MS_EXTRA = 5_000  # for the way, when a broker has waited for its replicas as long as it may
TOPIC_TRIES = 10
PAUSE_MS, PAUSE_MS_MAX = 20, 1_000  # between questions, as the client has them


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
            for piece in pieces(batches, options, cluster.clock.now_ms()):
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


class Sender:
    """Sends for one task, or for the driver in a transaction."""

    def __init__(self, cluster: Cluster, options: WriteOptions, transaction: WriteTransaction | None):
        self.record_count = 0  # acknowledged
        self._cluster = cluster
        self._options = options
        self._transaction = transaction
        self._producer = transaction.producer if transaction else None
        self._spreads: dict[str, Spread] = {}
        self._partition_counts: dict[str, int] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._rest_until: dict[int, int] = {}  # leader -> when a quota lets it be asked again

    async def send(self, piece: Iterable[Rows]) -> None:
        parts: list[Rows] = []
        for rows in piece:
            self._check_sizes(rows)
            parts += by_partition(await self._place(rows))
        if self._producer is None and self._options.idempotent:
            self._producer = ProducerId(*await new_producer(self._cluster))
        is_transactional = self._transaction is not None
        queues = [RowQueue(part, self._options, self._producer, transactional=is_transactional) for part in parts]
        if self._transaction is not None:
            await self._transaction.add((queue.topic, queue.partition) for queue in queues)
        for queue in queues:
            queue.sequence = self._sequences.get((queue.topic, queue.partition), 0)
        pause_ms = self._options.retry_pause_ms
        while queues:
            failures = await self._round(queues)
            queues = [queue for queue in queues if not queue.is_empty]
            if failures:
                await self._cluster.clock.sleep(pause_ms)
                pause_ms = min(pause_ms * 2, self._options.retry_pause_ms_max)
            else:
                pause_ms = self._options.retry_pause_ms

    # Where rows go

    async def _place(self, rows: Rows) -> Rows:
        topic = rows.topic
        if topic not in self._partition_counts:
            self._partition_counts[topic] = len((await self._find_topic(topic)).partitions)
            options = self._options
            self._spreads[topic] = Spread(options.batch_bytes, ignore_keys=options.ignore_keys)
        return self._spreads[topic].place(rows, self._partition_counts[topic])

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

    async def _find_leader(self, topic: str, partition: int) -> int:
        known = self._cluster.topics.get(topic) or (await self._cluster.metadata([topic]))[topic]
        if known.error:
            raise error_of(known.error, "")
        found = known.partitions.get(partition)
        if found is None:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"the topic has {len(known.partitions)} partitions now")
        if found.leader_id == NO_NODE:
            raise KafkaError(Error.LEADER_NOT_AVAILABLE)
        return found.leader_id

    def _check_sizes(self, rows: Rows) -> None:
        limit = self._options.record_bytes_max
        if limit is not None and (size := rows.largest_bytes()) > limit:
            raise WriteFailed(
                f"topic {rows.topic}: a record of {size} bytes is larger than kafka.max.request.size, {limit}"
            )

    # Rounds

    async def _round(self, queues: list[RowQueue]) -> int:
        """Send a batch of each queue; return how many failed for now."""
        by_leader: dict[int, list[RowQueue]] = {}
        failed = 0
        for queue in queues:
            try:
                leader = await self._find_leader(queue.topic, queue.partition)
                by_leader.setdefault(leader, []).append(queue)
            except KafkaError as error:
                self._judge(queue, error)
                failed += 1
        requests = [
            self._request(leader, part) for leader, all_of in by_leader.items() for part in self._requests(all_of)
        ]
        for answers in await asyncio.gather(*requests):
            for queue, failure in answers:
                if failure is None:
                    self._acknowledged(queue)
                else:
                    self._judge(queue, failure)
                    failed += 1
        return failed

    def _requests(self, queues: list[RowQueue]) -> list[list[RowQueue]]:
        """Cut the batches for one leader into requests that are not too large."""
        made: list[list[RowQueue]] = []
        size_bytes = 0
        for queue in queues:
            size_bytes += queue.head().size_bytes
            if not made or size_bytes > self._options.request_bytes:
                made.append([])
                size_bytes = queue.head().size_bytes
            made[-1].append(queue)
        return made

    def _acknowledged(self, queue: RowQueue) -> None:
        """Go on behind a batch that is written."""
        self.record_count += queue.head().count
        queue.advance()
        self._sequences[queue.topic, queue.partition] = queue.sequence

    def _judge(self, queue: RowQueue, error: KafkaError) -> None:
        """Prepare another try, or raise."""
        if error.code in (Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE) and queue.head().count > 1:
            queue.split()
            return
        self._cluster.forget(queue.topic)
        queue.failed(error, self._cluster.clock.steady_ms())

    # One request

    async def _request(self, leader: int, queues: list[RowQueue]) -> list[tuple[RowQueue, KafkaError | None]]:
        """Send one batch of each queue; return what went wrong with it, None if nothing."""
        clock = self._cluster.clock
        rest_ms = self._rest_until.get(leader, 0) - clock.steady_ms()
        if rest_ms > 0:
            await clock.sleep(rest_ms)
        options, transaction = self._options, self._transaction
        batches = {(queue.topic, queue.partition): queue.head().data for queue in queues}
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
