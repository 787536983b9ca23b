"""Offsets by time: the first record at or after a moment, the log's ends, and the newest timestamp."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from minibroker.client.cluster import Cluster, TopicPartition
from minibroker.client.connection import error_of
from minibroker.errors import Error, KafkaError
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
NAMED = {"latest": LATEST, "earliest": EARLIEST, "max": MAX_TIMESTAMP}
FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}

READ_UNCOMMITTED, READ_COMMITTED = 0, 1


class AtTime(NamedTuple):
    """The first record at or after a moment; a class, as a bare number is an offset.

    Before 1970 that is the first of all: such numbers have other meanings for brokers, from LATEST on.
    """

    timestamp_ms: int  # since 1970


class FoundOffset(NamedTuple):
    """An answer about one partition."""

    offset: int  # -1: there is no such record
    timestamp: int  # of the record; -1: not asked by a time since 1970, or the broker is too old to tell
    leader_epoch: int  # -1: not known


async def find_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int | str | AtTime], isolation: int = READ_UNCOMMITTED
) -> dict[TopicPartition, FoundOffset | KafkaError]:
    """Find one offset for each partition: by a timestamp, or by "earliest", "latest" or "max".

    What fails for a passing reason is asked again; what fails for good is the error in its place.
    """
    timestamps = {key: _timestamp(value) for key, value in wanted.items()}
    topics = {topic for topic, _ in wanted}

    async def ask() -> dict[TopicPartition, FoundOffset | KafkaError]:
        found: dict[TopicPartition, FoundOffset | KafkaError] = {}
        for leader, partitions in (await cluster.by_leader(timestamps)).items():
            found |= await _ask(cluster, leader, {key: timestamps[key] for key in partitions}, isolation)
        for result in found.values():
            if isinstance(result, KafkaError) and result.code.retriable:
                raise result
        return found

    return await cluster.retrying(ask, topics)


def _timestamp(wanted: int | str | AtTime) -> int:
    if isinstance(wanted, AtTime):
        return wanted.timestamp_ms if wanted.timestamp_ms >= 0 else EARLIEST
    return NAMED[wanted] if isinstance(wanted, str) else wanted


async def _ask(
    cluster: Cluster, leader: int, wanted: dict[TopicPartition, int], isolation: int
) -> dict[TopicPartition, FoundOffset | KafkaError]:
    connection = await cluster.connection(leader)
    version = connection.version_of(ListOffsetsRequest)
    needed = max(FIRST_VERSION.get(timestamp, 0) for timestamp in wanted.values())
    if version < max(needed, 2 if isolation else 0):
        reason = f"needs ListOffsets v{max(needed, 2)}, {connection.address} has v{version}"
        raise KafkaError(Error.UNSUPPORTED_VERSION, reason)
    Row = ListOffsetsRequest.ListOffsetsTopic
    rows: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
    for (topic, partition), timestamp in wanted.items():
        row = rows.setdefault(topic, Row(name=topic, partitions=[]))
        row.partitions.append(Row.ListOffsetsPartition(partition_index=partition, timestamp=timestamp))
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=list(rows.values()), timeout_ms=cluster.timeout_ms
    )
    answer: ListOffsetsResponse = await cluster.call(request, leader)
    found: dict[TopicPartition, FoundOffset | KafkaError] = {}
    for topic_row in answer.topics:
        for at in topic_row.partitions:
            key = (topic_row.name, at.partition_index)
            if at.error_code:
                found[key] = error_of(at.error_code, f"{key[0]}-{key[1]}")
            else:
                offset = at.offset if version else next(iter(at.old_style_offsets), -1)
                found[key] = FoundOffset(offset, at.timestamp, at.leader_epoch)
    return found
