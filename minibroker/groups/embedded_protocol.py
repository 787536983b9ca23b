"""The bytes that consumers exchange through JoinGroup and SyncGroup, as far as the coordinator has to know them."""

from __future__ import annotations

from minibroker.errors import ProtocolError
from minibroker.groups.hash_order import as_filled
from minibroker.groups.subscriptions import CONSUMER_PROTOCOL, read_subscription
from minibroker.stored.consumer_protocol import ConsumerProtocolAssignment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from minibroker.groups.topics import Topics

CONSUMER = CONSUMER_PROTOCOL
AssignedTopic = ConsumerProtocolAssignment.TopicPartition

__all__ = ["CONSUMER", "read_assignment", "read_subscription", "write_assignment"]


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Read what a leader assigned; ProtocolError if it is something else. Newer versions only add fields behind."""
    version = _version(data)
    if version < 0:
        raise ProtocolError(f"version {version} of an assignment")
    last = ConsumerProtocolAssignment.schema.last_version
    found, _ = ConsumerProtocolAssignment.decode_from(data, 2, min(version, last))
    return found


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
