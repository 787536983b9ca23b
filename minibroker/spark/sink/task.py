"""Sender of one task: pieces of rows in, acknowledged batches out.

    write_rows(record_batches, options, name, batch, task, run) -> TaskResult

A piece is sorted into partitions and goes out in rounds: to each leader one request, in it one batch of each partition
that has any left. The next round waits for the answers, so retries never reorder, and of each producer id one batch for
a partition is under way at a time.
What must hold: when `send` returns all of the piece is written, as far as `acks` says, or, while records of an earlier
attempt are still to be met, kept for later. Whatever cannot be written raises WriteFailed with topic and partition.
Kafka: a producer has five requests under way; here the pieces are larger.
Not here: rows (rows.py), what makes a repetition write nothing twice (exactly_once.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from minibroker.client.cluster import NO_NODE, Cluster, Topic, TopicPartition
from minibroker.client.connection import error_of
from minibroker.client.produce import form_for, new_producer, send
from minibroker.client.security import Security, SecurityError
from minibroker.errors import Error, KafkaError
from minibroker.spark.option_values import OptionError
from minibroker.spark.sink.exactly_once import ExactlyOnce, OtherAttempt
from minibroker.spark.sink.options import WriteOptions
from minibroker.spark.sink.row_queue import RowQueue, WriteFailed, error_in
from minibroker.spark.sink.rows import Rows, Spread, by_partition, joined, pieces

ANSWER_MS_EXTRA = 5_000  # for the way, when a broker has waited for its replicas as long as it may
CONFLICTS = (
    Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Error.DUPLICATE_SEQUENCE_NUMBER,
    Error.UNKNOWN_PRODUCER_ID,
)
TOPIC_TRIES = 10
PAUSE_MS, PAUSE_MS_MAX = 20, 1_000  # between questions, as the client has them
HELD_BYTES_MAX = 64 * 1024 * 1024


def open_cluster(options: WriteOptions) -> Cluster:
    """Return a client for the brokers of a write, which has no connection yet."""
    try:
        return Cluster(
            options.servers,
            client_id=options.client_id,
            timeout_ms=options.request_timeout_ms,
            retry_count=min(options.retry_count, 6 + options.delivery_timeout_ms // PAUSE_MS_MAX),
            retry_pause_ms=PAUSE_MS,
            security=Security.of(options.security),
        )
    except SecurityError as error:
        raise OptionError(f"kafka.{error}") from None
    except ValueError as error:
        raise OptionError(f"kafka.bootstrap.servers is {options.servers!r}: {error}") from None


class TaskResult(NamedTuple):
    """What a task has done."""

    record_count: int  # written by this attempt
    slot: str = ""  # the group with its notes; empty: there are none
    in_doubt: Sequence[str] = ()  # slots of a run before, of which somebody has to take each


def write_rows(
    batches: Iterable[pa.RecordBatch],
    options: WriteOptions,
    name: str = "",
    batch: int = 0,
    task: int = 0,
    run: str = "",
) -> TaskResult:
    """Write what a task has, exactly once if there is a name for groups with notes.

    batch, task, run: which micro-batch and which task of it this is; what the run of a query is known by.
    """
    cluster = open_cluster(options)
    exactly_once = ExactlyOnce(cluster, name, task, batch, run) if name else None
    sender = Sender(cluster, options, exactly_once)
    with asyncio.Runner() as runner:
        try:
            for piece in pieces(batches, options, cluster.clock.now_ms()):
                runner.run(sender.send(piece))
            runner.run(sender.finish())
        except KafkaError as error:
            raise WriteFailed(error_in(f"brokers at {options.servers}", error)) from error
        finally:
            runner.run(cluster.close())
    if exactly_once is None:
        return TaskResult(sender.record_count)
    return TaskResult(sender.record_count, exactly_once.group, exactly_once.in_doubt)


class Sender:
    """Sends for one task."""

    def __init__(self, cluster: Cluster, options: WriteOptions, exactly_once: ExactlyOnce | None):
        self.record_count = 0  # written by this attempt
        self._cluster = cluster
        self._options = options
        self._exactly_once = exactly_once
        self._has_begun = False
        self._producer: tuple[int, int] | None = None  # id and epoch
        self._spreads: dict[str, Spread] = {}
        self._partition_counts: dict[str, int] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._held: list[Rows] = []  # in the order in which they came
        self._conflict_since: int | None = None
        self._rest_until: dict[int, int] = {}  # leader -> when a quota lets it be asked again

    async def send(self, piece: Iterable[Rows]) -> None:
        placed = []
        for rows in piece:
            self._check_sizes(rows)
            placed.append(await self._place(rows))
        if self._exactly_once is not None and not self._has_begun:
            await self._exactly_once.begin(placed)
            self._has_begun = True
        await self._admit(placed)

    async def finish(self) -> None:
        """Send what was held back; raise if this attempt must not count."""
        if self._exactly_once is None or not self._has_begun:
            return
        if not self._exactly_once.found.count:
            await self._admit([])
        await self._exactly_once.end()

    async def _admit(self, placed: list[Rows]) -> None:
        """Send rows that are not there yet, once all that is there has been met."""
        while True:
            if self._exactly_once is not None:
                placed = [self._exactly_once.found.leave_out(rows) for rows in placed]
                self._held += [rows for rows in placed if len(rows)]
                size_bytes = sum(rows.size_bytes for rows in self._held)
                if self._exactly_once.found.count and size_bytes < HELD_BYTES_MAX:
                    return
                placed, self._held = self._held, []
            by_topic: dict[str, list[Rows]] = {}
            for rows in placed:
                by_topic.setdefault(rows.topic, []).append(rows)
            placed = await self._deliver([_sorted(parts) for parts in by_topic.values()])
            if not placed:
                return
            await self._resolve()

    async def _resolve(self) -> None:
        """Somebody else has written with our producer id: find out what."""
        assert self._exactly_once is not None
        clock, options = self._cluster.clock, self._options
        if self._conflict_since is None:
            self._conflict_since = clock.steady_ms()
        elif clock.steady_ms() - self._conflict_since >= options.delivery_timeout_ms:
            raise WriteFailed(
                f"{self._exactly_once}: brokers refuse sequence numbers that follow what is in the log, since "
                f"{options.delivery_timeout_ms} ms (kafka.delivery.timeout.ms): another attempt is at work, or a "
                "broker has lost records that it had acknowledged"
            )
        else:  # what the other one wrote may not be replicated, and so not to be seen
            await clock.sleep(options.retry_pause_ms)
        await self._exactly_once.look_again()
        self._sequences |= self._exactly_once.sequences

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

    async def _deliver(self, sorted_rows: list[Rows]) -> list[Rows]:
        """Write rows; return those that were not, if a batch met one of another attempt."""
        parts = [part for rows in sorted_rows if len(rows) for part in by_partition(rows)]
        if not parts:
            return []
        await self._identify()
        if self._exactly_once is not None:
            await self._exactly_once.note(sorted_rows)
        queues = {_key(part): RowQueue(part, self._options, self._producer) for part in parts}
        for key, queue in queues.items():
            queue.sequence = self._sequences.get(key, 0)
        conflict = False
        pause_ms = self._options.retry_pause_ms
        while queues and not conflict:
            if self._exactly_once is not None:
                await self._exactly_once.check()
            failures, conflict = await self._round(list(queues.values()))
            queues = {key: queue for key, queue in queues.items() if not queue.is_empty}
            if failures:
                await self._cluster.clock.sleep(pause_ms)
                pause_ms = min(pause_ms * 2, self._options.retry_pause_ms_max)
            else:
                pause_ms = self._options.retry_pause_ms
        return [queue.left() for queue in queues.values()]

    async def _identify(self) -> None:
        """See to it that there is a producer id, if one is wanted."""
        if self._producer is not None or not self._options.idempotent:
            return
        if self._exactly_once is None:
            self._producer = await new_producer(self._cluster)
            return
        self._producer = (self._exactly_once.producer, self._exactly_once.epoch)
        self._sequences |= self._exactly_once.sequences

    async def _round(self, queues: list[RowQueue]) -> tuple[int, bool]:
        """Send a batch of each queue; return how many failed for now, and whether one met another attempt's."""
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
        conflict = False
        for answers in await asyncio.gather(*requests):
            for queue, outcome in answers:
                if isinstance(outcome, int):
                    conflict |= not await self._acknowledged(queue, outcome)
                elif self._exactly_once is not None and outcome.code in CONFLICTS:
                    conflict = True
                else:
                    self._judge(queue, outcome)
                    failed += 1
        return failed, conflict

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

    async def _acknowledged(self, queue: RowQueue, base_offset: int) -> bool:
        """Go on behind a batch that is written; return False if it is not, whatever the broker says."""
        key, count = (queue.topic, queue.partition), queue.head().count
        if self._exactly_once is not None and not await self._exactly_once.written(queue.head_rows(), key, base_offset):
            return False
        queue.advance()
        self._sequences[key] = queue.sequence
        self.record_count += count
        self._conflict_since = None
        return True

    def _judge(self, queue: RowQueue, error: KafkaError) -> None:
        """Prepare another try, or raise."""
        if error.code in (Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE) and queue.head().count > 1:
            queue.split()
            return
        if error.code == Error.INVALID_PRODUCER_EPOCH and self._exactly_once is not None:
            raise OtherAttempt(f"{self._exactly_once}: another attempt has written to {queue} with a higher epoch")
        self._cluster.forget(queue.topic)
        queue.failed(error, self._cluster.clock.steady_ms())

    # One request

    async def _request(self, leader: int, queues: list[RowQueue]) -> list[tuple[RowQueue, int | KafkaError]]:
        """Send one batch of each queue; return base offsets or errors."""
        clock = self._cluster.clock
        rest_ms = self._rest_until.get(leader, 0) - clock.steady_ms()
        if rest_ms > 0:
            await clock.sleep(rest_ms)
        options = self._options
        batches = {(queue.topic, queue.partition): queue.head().data for queue in queues}
        try:
            form = await form_for(self._cluster, leader, {topic for topic, _ in batches}, codec=options.codec)
            outcomes, throttle_ms = await send(
                self._cluster,
                leader,
                form,
                batches,
                acks=options.acks,
                timeout_ms=options.request_timeout_ms,
                extra_ms=ANSWER_MS_EXTRA,
            )
        except KafkaError as error:
            return [(queue, error) for queue in queues]
        if throttle_ms:
            self._rest_until[leader] = clock.steady_ms() + throttle_ms
        found = (outcomes[queue.topic, queue.partition] for queue in queues)
        return [
            (queue, outcome.error() if outcome.error_code else outcome.base_offset)
            for queue, outcome in zip(queues, found, strict=True)
        ]


def _key(rows: Rows) -> TopicPartition:
    """Return where rows go that all go to one partition."""
    return rows.topic, int(rows.partitions[0])


def _sorted(parts: list[Rows]) -> Rows:
    """Return rows of one topic by partitions; those of a partition stay in their order."""
    rows = joined(parts)
    if len(parts) > 1:
        rows = rows.take(rows.partitions.argsort(kind="stable"))
    return rows
