"""Rows of one partition on their way out: the batch that is next, the rows that are left, since when it fails.

What must hold: a batch that may have arrived is sent again with the same bytes, and so with its sequence numbers.
Not here: who sends and when (sender.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from minibroker.errors import Error, KafkaError
from minibroker.log.batches import SEQUENCE_MAX
from minibroker.spark.columns.building import BuiltBatch, RowColumns, Section
from minibroker.spark.sink.options import WriteOptions
from minibroker.spark.sink.rows import Rows

Build = Callable[[RowColumns, list[Section], int], Iterator[BuiltBatch]]  # the last: how long batches become at most

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
