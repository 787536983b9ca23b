"""Fetching from one broker: positions in, records and new positions out.

`Position` is all that is known of a partition being read. A request is made of positions, and an answer is applied to
them; one that was asked for before a position was moved (seek) is passed over.
What must hold: a position only moves past what has been handed over, or must not be seen.
Not here: which broker and when, and what to do about errors (consumer.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from minibroker.client.aborted import AbortedFilter
from minibroker.client.cluster import TopicPartition
from minibroker.client.connection import error_of
from minibroker.client.offsets import READ_COMMITTED
from minibroker.client.sessions import FetchSession
from minibroker.errors import Error, KafkaError, ProtocolError
from minibroker.log.batches import Batch, batches
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.schema.types import NO_ID

PartitionData = FetchResponse.FetchableTopicResponse.PartitionData


LAST_VERSION_WITH_NAMES = 12
LAST_VERSION_WITH_HARD_LIMITS = 2  # before KIP-74 a batch larger than the limit comes cut off, for ever


class ConsumedRecord(NamedTuple):
    """A record and where it was."""

    topic: str
    partition: int
    offset: int
    timestamp: int  # ms since 1970; -1: none (format v0)
    timestamp_type: int  # 0: set by the producer, 1: by the broker on append, -1: none
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class FetchLimits(NamedTuple):
    """How much and how long; see FetchRequest."""

    max_wait_ms: int
    bytes_min: int
    bytes_max: int
    partition_bytes_max: int
    decompressed_bytes_max: int  # of one batch
    isolation: int
    check_crc: bool


class Position:
    """Where reading of one partition is."""

    __slots__ = ("failures", "high_watermark", "last_stable_offset", "leader_epoch", "offset", "topic_id", "widened")

    def __init__(self, offset: int):
        self.offset = offset  # the next one to read
        self.topic_id = NO_ID
        self.leader_epoch = -1  # what we believe; the broker objects if it is wrong
        self.high_watermark = -1  # as of the last answer; -1: none yet
        self.last_stable_offset = -1
        self.failures = 0  # in a row, that may pass
        self.widened = 0  # how often partition_bytes_max was doubled (see LAST_VERSION_WITH_HARD_LIMITS)

    def asked(self) -> tuple[int, int, int]:
        """Return what a fetch of it depends on."""
        return self.offset, self.leader_epoch, self.widened


def version_for(version: int, positions: Iterable[Position]) -> int:
    """Return the version to use: newer ones need topic ids, which metadata of older brokers lack."""
    return min(version, LAST_VERSION_WITH_NAMES) if any(p.topic_id == NO_ID for p in positions) else version


def fetch_request(
    positions: Mapping[TopicPartition, Position], limits: FetchLimits, session: FetchSession
) -> FetchRequest:
    """Ask for what comes at the positions."""
    listed, forgotten = session.next({key: position.asked() for key, position in positions.items()})
    Topic = FetchRequest.FetchTopic
    topics: dict[str, FetchRequest.FetchTopic] = {}
    for topic, index in listed:
        position = positions[topic, index]
        session.topic_ids[topic] = position.topic_id
        row = topics.setdefault(topic, Topic(topic_id=position.topic_id, topic=topic, partitions=[]))
        row.partitions.append(
            Topic.FetchPartition(
                partition=index,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.offset,
                partition_max_bytes=min(limits.partition_bytes_max << position.widened, limits.bytes_max),
            )
        )
    Forgotten = FetchRequest.ForgottenTopic
    return FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.bytes_min,
        max_bytes=limits.bytes_max,
        isolation_level=limits.isolation,
        session_id=session.id,
        session_epoch=session.epoch,
        topics=list(topics.values()),
        forgotten_topics_data=[
            Forgotten(topic=topic, topic_id=session.topic_ids.get(topic, NO_ID), partitions=[index])
            for topic, index in forgotten
        ],
    )


def read_partition(
    key: TopicPartition, position: Position, data: PartitionData, limits: FetchLimits, version: int
) -> list[ConsumedRecord]:
    """Return the records of an answer that an application may see, and move the position behind them."""
    if data.error_code:
        raise error_of(data.error_code, f"{key[0]}-{key[1]} at offset {position.offset}")
    position.failures = 0
    position.high_watermark = data.high_watermark
    position.last_stable_offset = data.last_stable_offset
    aborted: Iterable[tuple[int, int]] = ()
    if limits.isolation == READ_COMMITTED:
        aborted = ((row.first_offset, row.producer_id) for row in data.aborted_transactions or ())
    aborted_filter = AbortedFilter(aborted)
    found: list[ConsumedRecord] = []
    seen = False
    try:
        for batch in batches(data.records or b""):
            seen = True
            if not aborted_filter.hides(batch):
                found += _records(key, position.offset, batch, limits)
            position.offset = max(position.offset, batch.next_offset)
    except ProtocolError as error:
        if not found:  # else the next fetch begins with what is broken
            error.path = f"{key[0]}-{key[1]} at offset {position.offset}: {error.path}"
            raise
    if not seen and version <= LAST_VERSION_WITH_HARD_LIMITS and data.high_watermark > position.offset:
        _widen(key, position, limits)
    return found


def _records(key: TopicPartition, first_offset: int, batch: Batch, limits: FetchLimits) -> list[ConsumedRecord]:
    topic, index = key
    kind = batch.timestamp_type
    return [
        ConsumedRecord(topic, index, offset, timestamp, kind, key_, value, headers)
        for key_, value, headers, timestamp, offset in batch.records(
            limits.decompressed_bytes_max, check_crc=limits.check_crc
        )
        if offset >= first_offset  # a batch may begin before what was asked for
    ]


def _widen(key: TopicPartition, position: Position, limits: FetchLimits) -> None:
    if limits.partition_bytes_max << position.widened >= limits.bytes_max:
        reason = f"{key[0]}-{key[1]}: what is at offset {position.offset} is larger than {limits.bytes_max} bytes"
        raise KafkaError(Error.MESSAGE_TOO_LARGE, reason)
    position.widened += 1
