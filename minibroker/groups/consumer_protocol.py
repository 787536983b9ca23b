"""Consumer protocol: the bytes that consumers exchange through JoinGroup and SyncGroup, as far as we look into them.

It is the one protocol type whose bytes the coordinator reads, if it can: clients may send whatever they understand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minibroker.coordinator.hashing import as_filled
from minibroker.errors import ProtocolError
from minibroker.groups.topics import Topics
from minibroker.stored.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

CONSUMER = "consumer"  # the protocol type
AssignedTopic = ConsumerProtocolAssignment.TopicPartition


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """Return what a consumer wants, None if this cannot be read."""
    try:
        version = _version(metadata)
        last = ConsumerProtocolSubscription.schema.last_version
        return None if version < 0 else ConsumerProtocolSubscription.decode_from(metadata, 2, min(version, last))[0]
    except ProtocolError:
        return None


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics that any of the members reads, None if one of them does not say."""
    topics: set[str] = set()
    for each in metadata:
        subscription = read_subscription(each)
        if subscription is None:
            return None
        topics.update(subscription.topics)
    return frozenset(topics)


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Read what a leader assigned; ProtocolError if it is something else. Newer versions only add fields behind."""
    version = _version(data)
    if version < 0:
        raise ProtocolError(f"version {version} of an assignment")
    last = ConsumerProtocolAssignment.schema.last_version
    return ConsumerProtocolAssignment.decode_from(data, 2, min(version, last))[0]


def write_assignment(held: Mapping[bytes, Iterable[int]], metadata: bytes, topics: Topics) -> bytes:
    """Return what a member holds, in the version of what it sent in JoinGroup."""
    version = min(max(_version(metadata), 0), ConsumerProtocolAssignment.schema.last_version)
    parts = []
    for topic_id in as_filled(held):
        topic = topics.find_id(topic_id)
        if topic is not None:
            parts.append(AssignedTopic(topic=topic.name, partitions=sorted(held[topic_id])))
    return version.to_bytes(2, "big") + ConsumerProtocolAssignment(assigned_partitions=parts).encode(version)


def _version(data: bytes) -> int:
    if len(data) < 2:
        raise ProtocolError("too short for a version")
    return int.from_bytes(data[:2], "big", signed=True)
