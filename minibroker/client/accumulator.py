"""Record accumulator of the producer: for each partition a queue of batches, of which the last is still filling.

Plain objects without I/O. What must hold: the batches of a partition leave one after the other, the next when the
answer to the one before is there, so retries never reorder; a batch keeps its bytes, and with them its sequence
numbers, however often it is sent.
Not here: who sends and when (producer.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from minibroker.log.batches import SEQUENCE_MAX
from minibroker.log.build import build_batch
from minibroker.log.records import Record

RECORD_BYTES_EXTRA = 70  # about what a record needs besides key, value and headers, in the largest of the formats


class RecordMetadata(NamedTuple):
    """Where a record has been written."""

    topic: str
    partition: int
    offset: int  # -1: acks 0, nobody knows
    timestamp: int  # the broker's if the topic uses append time, else the record's


Pending = asyncio.Future[RecordMetadata]


class ProducerId:
    """Who an idempotent producer is. Another object is another identity, whose sequences begin at 0."""

    __slots__ = ("epoch", "id")

    def __init__(self, id: int, epoch: int):
        self.id = id
        self.epoch = epoch


class OpenBatch:
    """Records that will be one batch, and who waits for each."""

    __slots__ = ("_built", "base_sequence", "futures", "magic", "producer", "records", "size_bytes", "tries")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.futures: list[Pending] = []
        self.size_bytes = 0
        self.tries = 0
        self.magic = -1  # of the bytes, once there are some
        self.producer: ProducerId | None = None
        self.base_sequence = -1
        self._built = b""

    def add(self, record: Record, future: Pending) -> None:
        self.records.append(record)
        self.futures.append(future)
        self.size_bytes += size_of(record)

    def build(self, magic: int, codec: int, *, transactional: bool = False) -> bytes:
        """Return the bytes; the same ones unless the broker that leads now wants another format."""
        if self.magic != magic:
            producer = self.producer
            self._built = build_batch(
                magic,
                self.records,
                codec=codec,
                producer_id=producer.id if producer else -1,
                producer_epoch=producer.epoch if producer else -1,
                base_sequence=self.base_sequence,
                transactional=transactional,
            )
            self.magic = magic
        return self._built


class PartitionQueue:
    """The batches of one partition."""

    def __init__(self, topic: str, partition: int):
        self.topic = topic
        self.partition = partition
        self.is_sending = False  # a batch is on its way, and in nobody's queue
        self._batches: deque[OpenBatch] = deque()
        self._due = False  # the time to wait for more records is over
        self._producer: ProducerId | None = None
        self._next_sequence = 0

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, record: Record, future: Pending, batch_bytes: int) -> bool:
        """Take a record; return whether it is the first of those that wait."""
        was_empty = not self._batches
        if was_empty or not self._has_room(self._batches[-1], size_of(record), batch_bytes):
            self._batches.append(OpenBatch())
        self._batches[-1].add(record, future)
        return was_empty

    def is_filling(self, batch_bytes: int) -> bool:
        """Whether another record would still join a batch that is there."""
        return bool(self._batches) and self._has_room(self._batches[-1], RECORD_BYTES_EXTRA, batch_bytes)

    def is_ready(self, batch_bytes: int) -> bool:
        """Whether the first batch should go."""
        if self.is_sending or not self._batches:
            return False
        first = self._batches[0]
        return self._due or len(self._batches) > 1 or first.tries > 0 or first.size_bytes >= batch_bytes

    def make_due(self) -> None:
        self._due = bool(self._batches)

    def take(self, producer: ProducerId | None) -> OpenBatch:
        """Give the first batch away, numbered if there is a producer."""
        batch = self._batches.popleft()
        self.is_sending = True
        # Nobody has a timer for what came behind a batch that was to be sent again.
        self._due = bool(self._batches) and (self._due or batch.tries > 0)
        if producer is not None and batch.producer is None:
            if self._producer is not producer:
                self._producer, self._next_sequence = producer, 0
            batch.producer, batch.base_sequence = producer, self._next_sequence
            self._next_sequence = (self._next_sequence + len(batch.records)) & SEQUENCE_MAX
        return batch

    def drain(self) -> list[OpenBatch]:
        """Give all batches away; they will not be sent."""
        batches = list(self._batches)
        self._batches.clear()
        self._due = False
        return batches

    def put_back(self, batch: OpenBatch) -> None:
        """Take a batch back that shall be sent again, before all others."""
        self._batches.appendleft(batch)

    @staticmethod
    def _has_room(batch: OpenBatch, size_bytes: int, batch_bytes: int) -> bool:
        return batch.tries == 0 and batch.magic < 0 and batch.size_bytes + size_bytes <= batch_bytes


def size_of(record: Record) -> int:
    """Return about how many bytes a record takes, rather too many than too few."""
    size = RECORD_BYTES_EXTRA + len(record.key or b"") + len(record.value or b"")
    for key, value in record.headers:
        size += 10 + 4 * len(key) + len(value or b"")
    return size
