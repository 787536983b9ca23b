"""Cleaning on demand in a cluster: on every broker that runs, for each replica of the partitions that are meant."""

from __future__ import annotations

from minibroker.cleaner.scheduler import VERBS, check_place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from minibroker.cluster.cluster import Cluster

RUNNING = "running"


async def clean(cluster: Cluster, verb: str, topic: str | None, partition: int | None) -> list[Any]:
    """Return the rows of all brokers, by partition."""
    check_place(cluster.controller.image, topic, partition)
    rows: list[Any] = []
    for broker_id, node in sorted(cluster.nodes.items()):
        knows = topic is None or topic in node.image.topics  # who is cut off may not have heard of it
        if cluster.states[broker_id] == RUNNING and knows:
            rows += await VERBS[verb](node.cleaning, topic, partition)
    return sorted(rows, key=lambda row: (row.topic, row.partition, row.broker))
