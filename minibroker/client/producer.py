"""Producer: records in, batches out to the leaders of their partitions.

A record joins the batch of its partition; a batch goes when it is full or has waited `linger_ms`. One request at a time
is under way to each broker, with one batch of every partition there that is ready; what comes meanwhile fills the next
ones, so throughput needs no waiting. A batch that failed for a passing reason goes again, before later ones.

    async with Producer(cluster, transactional_id="pay-1") as producer:
        await producer.init_transactions()
        producer.begin_transaction()
        await producer.send("orders", b"hello")
        await producer.send_offsets_to_transaction({("payments", 0): 17}, "billing")
        await producer.commit_transaction()

What must hold: each record's future ends; records of a partition are written in the order of their `send`.
Not here: what a transaction may do (transaction_manager.py); cutting a batch that the broker finds too large.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

from minibroker.client.accumulator import OpenBatch, PartitionQueue, Pending, ProducerId, RecordMetadata, size_of
from minibroker.client.cluster import NO_NODE, Cluster, Topic
from minibroker.client.connection import AsyncCloseable
from minibroker.client.partitioner import Sticky
from minibroker.client.produce import Outcome, form_for, new_producer, send
from minibroker.errors import Error, KafkaError
from minibroker.log.compression import CODEC_NAMES
from minibroker.log.murmur2 import partition_of_key
from minibroker.log.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.client.cluster import TopicPartition
    from minibroker.client.groups import CommittedOffset
    from minibroker.client.transaction_manager import TransactionManager

REQUEST_BYTES_MAX = 8 * 1024 * 1024  # of batches in one request; a single batch may be larger


class Producer(AsyncCloseable):
    """An async context manager: leaving it sends what is left."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = -1,
        compression: str | None = None,
        idempotent: bool | None = None,
        linger_ms: int = 0,
        batch_bytes: int = 16_384,
        buffer_bytes_max: int = 32 * 1024 * 1024,
        timeout_ms: int = 30_000,
        partitioner: Callable[[bytes, int], int] = partition_of_key,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
    ):
        """idempotent: by default with a transactional id only, which needs it.

        transaction_timeout_ms: how long a transaction may be open before its coordinator aborts it.
        """
        idempotent = transactional_id is not None if idempotent is None else idempotent
        if acks not in (-1, 0, 1):
            raise ValueError(f"acks {acks} is none of -1, 0, 1")
        if idempotent and acks != -1:
            raise ValueError("an idempotent producer needs acks -1")
        if transactional_id is not None and not idempotent:
            raise ValueError("a producer with a transactional_id is idempotent")
        self._cluster = cluster
        self._acks = acks
        self._codec = CODEC_NAMES.index(compression or "none")
        self._idempotent = idempotent
        self._linger_ms = linger_ms
        self._batch_bytes = batch_bytes
        self._buffer_bytes_max = buffer_bytes_max
        self._timeout_ms = timeout_ms  # how long the broker may wait for its replicas
        self._partitioner = partitioner  # for records with keys
        self._sticky: dict[str, Sticky] = {}
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._busy: dict[int | str, asyncio.Task[None]] = {}  # broker -> the round that is under way to it
        self._producer: ProducerId | None = None
        self._transactional_id = transactional_id
        self._transactions = self._manager(transaction_timeout_ms)
        self._buffered_bytes = 0
        self._unfinished: set[Pending] = set()
        self._room: asyncio.Future[None] | None = None  # there while somebody waits for room
        self._closed = False

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is written, as far as `acks` says."""
        return await (await self.enqueue(topic, value, key, headers, partition, timestamp))

    async def enqueue(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Pending:
        """Take a record, as soon as there is room, and return the future of its place: for sending many."""
        while self._buffered_bytes >= self._buffer_bytes_max:
            await self._wait_for_room()
        known = self._cluster.topics.get(topic) or await self._cluster.topic(topic, create=True)
        if self._closed:
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR, "the producer is closed")
        if self._transactions is not None:
            self._transactions.check("send")
        if partition is None:
            partition = self._choose_partition(known, key)
        when = self._cluster.clock.now_ms() if timestamp is None else timestamp
        record = Record(key, value, tuple(headers), when)
        queue = self._queue(topic, partition)
        future: Pending = asyncio.get_running_loop().create_future()
        self._unfinished.add(future)
        self._buffered_bytes += size_of(record)
        if queue.add(record, future, self._batch_bytes):
            # Even without linger the records of this turn of the loop go together.
            self._cluster.clock.after(self._linger_ms, lambda: self._send_due(queue))
        elif queue.is_ready(self._batch_bytes) and self._lane(queue) not in self._busy:
            self._send_ready()
        return future

    async def flush(self) -> None:
        """Send what is there and wait for it. Failures are those of the futures."""
        for queue in self._queues.values():
            queue.make_due()
        self._send_ready()
        if self._unfinished:
            await asyncio.wait(self._unfinished)

    async def close(self) -> None:
        """Send what is left and take no more; abort a transaction that is open. The cluster stays open."""
        self._closed = True
        if self._transactions is not None and self._transactions.is_open:
            try:
                await self._end(commit=False)
            except KafkaError:
                self._drop(KafkaError(Error.UNKNOWN_SERVER_ERROR, "the producer is closed"))
        await self.flush()
        if self._busy:
            await asyncio.wait(self._busy.values())

    # Transactions

    async def init_transactions(self) -> None:
        """Fence whoever had the transactional id; once, before the first transaction."""
        await self._of_transactions().init()

    def begin_transaction(self) -> None:
        self._of_transactions().begin()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, int | CommittedOffset],
        group: str,
        *,
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
    ) -> None:
        """Commit offsets of a group, the next ones to read, with the transaction.

        generation, member_id, instance_id: of the consumer in the group; by default it is not checked.
        """
        from minibroker.client.groups import CommittedOffset

        committed = {
            place: offset if isinstance(offset, CommittedOffset) else CommittedOffset(offset)
            for place, offset in offsets.items()
        }
        member = {"generation": generation, "member_id": member_id, "instance_id": instance_id}
        await self._of_transactions().add_offsets(group, committed, member)

    async def commit_transaction(self) -> None:
        """Send what is left and commit. After an error that passes it may be called again.

        TransactionAbortable: abort it, and go on. ProducerFatal, ProducerFenced: close the producer.
        """
        await self._end(commit=True)

    async def abort_transaction(self) -> None:
        """Let everything since the beginning not count, what has not been sent with it."""
        await self._end(commit=False)

    async def _end(self, *, commit: bool) -> None:
        transactions = self._of_transactions()
        transactions.begin_end(commit=commit)
        if commit:
            await self.flush()
        while self._unfinished or (self._busy and not commit):
            self._drop(KafkaError(Error.TRANSACTION_ABORTABLE, "the transaction was aborted"))
            if self._busy:
                await asyncio.wait(self._busy.values())
        await transactions.end()

    def _of_transactions(self) -> TransactionManager:
        if self._transactions is None:
            raise ValueError("a producer without transactional_id has no transactions")
        return self._transactions

    def _manager(self, timeout_ms: int) -> TransactionManager | None:
        if self._transactional_id is None:
            return None
        from minibroker.client.transaction_calls import TransactionCalls
        from minibroker.client.transaction_manager import TransactionManager

        return TransactionManager(TransactionCalls(self._cluster, self._transactional_id, timeout_ms=timeout_ms))

    # Partitions

    def _choose_partition(self, topic: Topic, key: bytes | None) -> int:
        if key is not None:
            return self._partitioner(key, len(topic.partitions))
        usable = [p.id for p in topic.partitions.values() if p.leader_id != NO_NODE] or list(topic.partitions)
        sticky = self._sticky.setdefault(topic.name, Sticky())
        return sticky.choose(usable, lambda index: self._queue(topic.name, index).is_filling(self._batch_bytes))

    def _queue(self, topic: str, partition: int) -> PartitionQueue:
        found = self._queues.get((topic, partition))
        if found is None:
            found = self._queues[topic, partition] = PartitionQueue(topic, partition)
        return found

    async def _wait_for_room(self) -> None:
        if self._room is None:
            self._room = asyncio.get_running_loop().create_future()
        for queue in self._queues.values():
            queue.make_due()
        self._send_ready()
        await asyncio.shield(self._room)

    # Sending

    def _send_due(self, queue: PartitionQueue) -> None:
        queue.make_due()
        self._send_ready()

    def _send_ready(self) -> None:
        """Begin a round to every broker that is free and has something ready."""
        rounds: dict[int | str, list[PartitionQueue]] = {}
        for queue in self._queues.values():
            if queue.is_ready(self._batch_bytes):
                rounds.setdefault(self._lane(queue), []).append(queue)
        for lane, queues in rounds.items():
            if lane not in self._busy:
                work = self._send_round(lane, queues) if isinstance(lane, int) else self._find_leaders(queues)
                self._busy[lane] = asyncio.get_running_loop().create_task(self._round(lane, work))

    def _lane(self, queue: PartitionQueue) -> int | str:
        """Return the leader; without one the topic, so that each is searched for by itself."""
        topic = self._cluster.topics.get(queue.topic)
        found = topic.partitions.get(queue.partition) if topic else None
        return queue.topic if found is None or found.leader_id == NO_NODE else found.leader_id

    async def _round(self, lane: int | str, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        finally:
            del self._busy[lane]
            if self._room is not None and self._buffered_bytes < self._buffer_bytes_max:
                self._room.set_result(None)
                self._room = None
            self._send_ready()

    async def _find_leaders(self, queues: list[PartitionQueue]) -> None:
        for queue in queues:
            try:
                await self._cluster.leader_of(queue.topic, queue.partition, create=True)
            except KafkaError as error:  # the cluster has been patient with it
                self._fail_queue(queue, error)

    async def _send_round(self, leader: int, queues: list[PartitionQueue]) -> None:
        try:
            producer = await self._identity(queues) if self._idempotent else None
        except Exception as error:  # whatever it is: a round that ends with nothing taken begins again at once
            for queue in queues:
                self._fail_queue(queue, error)
            return
        taken: dict[tuple[str, int], tuple[PartitionQueue, OpenBatch]] = {}
        size_bytes = 0
        for queue in queues:
            # While the identity was asked for, its leader may have moved, and another round have taken the batch.
            if size_bytes < REQUEST_BYTES_MAX and queue and not queue.is_sending:
                batch = queue.take(producer)
                size_bytes += batch.size_bytes
                taken[queue.topic, queue.partition] = (queue, batch)
        if not taken:
            return
        failures: dict[tuple[str, int], KafkaError] = {}
        try:
            failures = await self._produce(leader, taken)
        except KafkaError as error:
            failures = dict.fromkeys(taken, error)
        except Exception as error:  # an answer that cannot be read, or a bug: whoever waits shall see it
            for _, batch in taken.values():
                self._fail(batch, error)
        pause_ms = 0
        for key, failure in failures.items():
            pause_ms = max(pause_ms, self._retry_or_fail(*taken[key], failure))
        if pause_ms:
            await self._cluster.clock.sleep(pause_ms)
        for queue, _ in taken.values():
            queue.is_sending = False

    async def _produce(
        self, leader: int, taken: dict[tuple[str, int], tuple[PartitionQueue, OpenBatch]]
    ) -> dict[tuple[str, int], KafkaError]:
        """Send one request; return what failed."""
        topics = {topic for topic, _ in taken}
        transactions = self._transactions
        form = await form_for(
            self._cluster,
            leader,
            topics,
            codec=self._codec,
            needs_batches=self._idempotent,
            version_max=None if transactions is None else transactions.calls.produce_version_max,
        )
        is_transactional = transactions is not None
        batches = {
            key: batch.build(form.magic, self._codec, transactional=is_transactional)
            for key, (_, batch) in taken.items()
        }
        outcomes, _ = await send(
            self._cluster,
            leader,
            form,
            batches,
            acks=self._acks,
            timeout_ms=self._timeout_ms,
            extra_ms=self._cluster.timeout_ms,
            transactional_id=self._transactional_id,
        )
        failures = {}
        for key, outcome in outcomes.items():
            queue, batch = taken[key]
            if outcome.error_code == Error.DUPLICATE_SEQUENCE_NUMBER:  # written long ago, only nobody remembers where
                outcome = Outcome()
            if outcome.error_code:
                failures[key] = outcome.error(f"{key[0]}-{key[1]}")
            else:
                self._finish(queue, batch, outcome)
        return failures

    async def _identity(self, queues: Iterable[PartitionQueue]) -> ProducerId | None:
        """Return who sends the batches of some queues; their partitions are part of his transaction then."""
        if self._transactions is not None:
            await self._transactions.add((queue.topic, queue.partition) for queue in queues)
            return self._transactions.producer
        if self._producer is None:
            found = ProducerId(*await new_producer(self._cluster))
            if self._producer is None:  # another round may have asked too
                self._producer = found
        return self._producer

    # What became of a batch

    def _retry_or_fail(self, queue: PartitionQueue, batch: OpenBatch, error: KafkaError) -> int:
        """Return how long to pause, 0 if there will be no other try."""
        is_over = self._transactions is not None and self._transactions.error is not None
        if not error.code.retriable or is_over or batch.tries >= self._cluster.retry_count:
            self._fail(batch, error)
            return 0
        self._cluster.forget(queue.topic)
        batch.tries += 1
        queue.put_back(batch)
        return min(self._cluster.retry_pause_ms << batch.tries - 1, 1000)

    def _finish(self, queue: PartitionQueue, batch: OpenBatch, outcome: Outcome) -> None:
        base_offset, append_time = outcome.base_offset, outcome.append_time_ms
        for index, (record, future) in enumerate(zip(batch.records, batch.futures)):
            if not future.done():
                offset = base_offset + index if base_offset >= 0 else -1
                time = append_time if append_time >= 0 else record.timestamp
                future.set_result(RecordMetadata(queue.topic, queue.partition, offset, time))
        self._forget_batch(batch)

    def _fail_queue(self, queue: PartitionQueue, error: Exception) -> None:
        """Fail all that waits, unless another round sends of it meanwhile: then there is a leader, and hope."""
        if queue.is_sending:
            return
        for batch in queue.drain():
            self._fail(batch, error)

    def _fail(self, batch: OpenBatch, error: Exception) -> None:
        # Sequence numbers of this batch are lost: later ones of this identity would leave a gap.
        if self._transactions is not None:
            error = self._transactions.fail(error)
        elif batch.producer is not None and batch.producer is self._producer:
            self._producer = None
        self._give_up(batch, error)
        if self._transactions is not None:
            self._drop(error)  # nothing of the transaction will count

    def _drop(self, error: Exception) -> None:
        """Give up what waits to be sent in a transaction."""
        for queue in self._queues.values():
            for batch in queue.drain():
                if batch.producer is not None:
                    self._of_transactions().lose_sequences()
                self._give_up(batch, error)

    def _give_up(self, batch: OpenBatch, error: Exception) -> None:
        for future in batch.futures:
            if not future.done():
                future.set_exception(error)
        self._forget_batch(batch)

    def _forget_batch(self, batch: OpenBatch) -> None:
        self._unfinished.difference_update(batch.futures)
        self._buffered_bytes -= batch.size_bytes
        batch.futures, batch.size_bytes = [], 0
