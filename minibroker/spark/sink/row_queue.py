"""Rows of one partition on their way out: the batch that is next, the rows that are left, since when it fails.

What must hold: a batch that may have arrived is sent again with the same bytes, and so with its sequence numbers.
Not here: who sends and when (sender.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from minibroker.client.accumulator import ProducerId
from minibroker.errors import Error, KafkaError
from minibroker.log.batches import SEQUENCE_MAX
from minibroker.spark.columns.building import BuiltBatch, build_batches
from minibroker.spark.sink.options import WriteOptions
from minibroker.spark.sink.rows import Rows

NO_OFFSET = bytes(8)  # each batch begins at 0 when clients send it; the checksum does not cover it
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


class WriteFailed(Exception):
    """Rows could not be written; the text says where, why, and what to do."""


def error_in(where: str, error: KafkaError) -> str:
    """Return what to say of an error."""
    advice = ADVICE.get(error.code)
    return f"{where}: {error.code.name}, {error.message or error.code.meaning}{'; ' + advice if advice else ''}"


class RowQueue:
    """Rows of one partition, and the batches that are made of them."""

    def __init__(self, rows: Rows, options: WriteOptions, producer: ProducerId | None, *, transactional: bool):
        self.topic = rows.topic
        self.partition = int(rows.partitions[0])
        self.sequence = 0  # of the next record that is not acknowledged
        self._rows = rows
        self._options = options
        self._producer = producer
        self._transactional = transactional
        self._done = 0  # rows that are acknowledged
        self._batch_bytes = options.batch_bytes
        self._built: Iterator[BuiltBatch] | None = None
        self._head: BuiltBatch | None = None
        self._failing_since: int | None = None
        self._failures = 0

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def is_empty(self) -> bool:
        return self._done == len(self._rows)

    def head(self) -> BuiltBatch:
        """Return the batch that is to be sent next."""
        if self._head is None:
            if self._built is None:
                self._built = self._build()
            self._head = next(self._built)
            if self._head.base_offset:
                if isinstance(self._head.data, memoryview):
                    self._head.data[: len(NO_OFFSET)] = NO_OFFSET
                else:
                    self._head.data = NO_OFFSET + self._head.data[len(NO_OFFSET) :]
        return self._head

    def advance(self) -> None:
        """The batch has been acknowledged."""
        count = self.head().count
        self._done += count
        self.sequence = self.sequence + count & SEQUENCE_MAX
        self._head = None
        self._failing_since, self._failures = None, 0

    def split(self) -> None:
        """The batch is too large for the broker, which has refused it as a whole."""
        self._batch_bytes = max(1, min(self._batch_bytes, self.head().size_bytes) // 2)
        self._head = self._built = None

    def failed(self, error: KafkaError, now_ms: int) -> None:
        """Take note of a failure; raise if it will not pass, or has not for too long."""
        options = self._options
        if not error.code.retriable:
            raise WriteFailed(error_in(f"{self}: {self._what()}", error)) from error
        if self._failing_since is None:
            self._failing_since = now_ms
        self._failures += 1
        waited_ms = now_ms - self._failing_since
        if self._failures > options.retry_count or waited_ms >= options.delivery_timeout_ms:
            limit = "kafka.delivery.timeout.ms" if self._failures <= options.retry_count else "kafka.retries"
            where = f"{self}: {self._what()} in {self._failures} tries and {waited_ms} ms ({limit})"
            raise WriteFailed(error_in(where, error)) from error

    def _what(self) -> str:
        if self._head is None:
            return f"{len(self._rows) - self._done} records could not be written"
        return f"a batch of {self._head.count} records, {self._head.size_bytes} bytes, could not be written"

    def _build(self) -> Iterator[BuiltBatch]:
        return build_batches(
            self._rows.take(slice(self._done, len(self._rows))).columns(),
            codec=self._options.codec,
            level=self._options.level,
            batch_bytes=self._batch_bytes,
            producer_id=self._producer.id if self._producer else -1,
            producer_epoch=self._producer.epoch if self._producer else -1,
            base_sequence=self.sequence if self._producer else -1,
            transactional=self._transactional,
        )
