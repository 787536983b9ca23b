"""What consumers put into JoinGroup: the one protocol type whose bytes the coordinator looks into, if it can."""

from __future__ import annotations

from minibroker.errors import ProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from minibroker.stored.consumer_protocol import ConsumerProtocolSubscription

CONSUMER_PROTOCOL = "consumer"


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """Return what a consumer wants, None if this cannot be read: clients may send whatever they understand."""
    from minibroker.stored.consumer_protocol import ConsumerProtocolSubscription

    if len(metadata) < 2:
        return None
    version = int.from_bytes(metadata[:2], "big", signed=True)
    if version < 0:
        return None
    try:
        found, _ = ConsumerProtocolSubscription.decode_from(
            metadata, 2, min(version, ConsumerProtocolSubscription.schema.last_version)
        )
    except ProtocolError:
        return None
    return found


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics that any of the members reads, None if one of them does not say."""
    topics: set[str] = set()
    for each in metadata:
        subscription = read_subscription(each)
        if subscription is None:
            return None
        topics.update(subscription.topics)
    return frozenset(topics)
