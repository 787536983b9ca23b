"""Throttled replication: how fast replicas that are behind may be fetched, here or from here (KIP-73).

    topic    leader.replication.throttled.replicas = 0:1,2:1 or *     which partitions, on which brokers
    broker   leader.replication.throttled.rate = 1000000              bytes a second, of all of them together

The same for followers. Kafka counts all that is replicated of such partitions; what is held back is only who is not in
sync, so that nobody drops out of sync by it. kafka-reassign-partitions --throttle sets these for a move.
What must hold: without a rate nothing is looked at.
"""

from __future__ import annotations

from typing import Final

from minibroker.metadata.image import TOPIC
from minibroker.parts import Parts
from minibroker.quotas.rates import SimpleRate

LEADER: Final = "leader.replication.throttled.replicas"
FOLLOWER: Final = "follower.replication.throttled.replicas"
ALL: Final = "*"


class Throttle:
    """One direction of one broker."""

    def __init__(self, parts: Parts):
        self.parts = parts
        self.limit = 0
        self._rate = SimpleRate(
            parts.config["replication.quota.window.num"], parts.config["replication.quota.window.size.seconds"] * 1000
        )
        self._partitions: dict[str, frozenset[int] | None] = {}  # by topic; None: all of it

    def covers(self, topic: str, partition: int) -> bool:
        """Whether a partition is one of those that share the limit."""
        if topic not in self._partitions:
            return False
        partitions = self._partitions[topic]
        return partitions is None or partition in partitions

    @property
    def is_exceeded(self) -> bool:
        return self._rate.per_second(self.parts.clock.elapsed_ms()) > self.limit

    def record(self, size_bytes: int) -> None:
        self._rate.record(size_bytes, self.parts.clock.elapsed_ms())

    def take(self, kind: str, limit: int) -> None:
        """Take what the settings say now; what has been counted stays."""
        self.limit = limit
        me = str(self.parts.node_id)
        self._partitions.clear()
        for (resource_type, topic), configs in self.parts.image.configs.items():
            if resource_type == TOPIC and configs.get(kind):
                pairs = [pair.strip().partition(":") for pair in configs[kind].split(",")]
                mine = frozenset(int(partition) for partition, _, broker in pairs if broker == me)
                self._partitions[topic] = None if pairs[0][0] == ALL else mine


def taken(before: Throttle | None, kind: str, limit: int | None, parts: Parts) -> Throttle | None:
    """Return the throttle of one direction that the settings ask for now, if they do."""
    if limit is None:
        return None
    throttle = before or Throttle(parts)
    throttle.take(kind, limit)
    return throttle
