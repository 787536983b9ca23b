"""Cleaning on demand in a cluster: on every broker that runs, for each replica of the partitions that are meant.

The rows of all brokers come by topic and partition; each says what was done, or why nothing was.
"""

from __future__ import annotations

from minibroker.cluster.nodes import RUNNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from minibroker.cleaner.results import CompactionRow, RetentionRow, RollRow
    from minibroker.cluster.nodes import Nodes


class Cleaning:
    """What can be done to old records."""

    def __init__(self, cluster: Nodes):
        self.cluster = cluster

    async def retention_now(self, topic: str | None = None, partition: int | None = None) -> list[RetentionRow]:
        """Remove what retention does not keep, on every broker: of a partition, a topic, or all.

        A row for each replica says what went, or why nothing.
        """
        return await self._on_all("retention_now", topic, partition)

    async def compact_now(self, topic: str | None = None, partition: int | None = None) -> list[CompactionRow]:
        """Compact on every broker, be it dirty enough or not: a partition, a topic, or all; return when it is done.

        What is in the active segment stays as it is: roll_now comes before.
        """
        return await self._on_all("compact_now", topic, partition)

    async def roll_now(self, topic: str | None = None, partition: int | None = None) -> list[RollRow]:
        """Begin new segments on every broker: of a partition, a topic, or all."""
        return await self._on_all("roll_now", topic, partition)

    async def _on_all(self, verb: str, topic: str | None, partition: int | None) -> list[Any]:
        from minibroker.cleaner.scheduler import check_place  # is there as soon as a broker runs

        check_place(self.cluster.controller.image, topic, partition)
        rows: list[Any] = []
        for broker_id, node in sorted(self.cluster.nodes.items()):
            knows = topic is None or topic in node.image.topics  # who is cut off may not have heard of it
            if self.cluster.states[broker_id] == RUNNING and knows:
                rows += await getattr(node.cleaning, verb)(topic, partition)
        return sorted(rows, key=lambda row: (row.topic, row.partition, row.broker))
