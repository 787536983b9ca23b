"""The groups of a cluster: each as the broker that coordinates it has it, each partition as its leader has it."""

from __future__ import annotations

OFFSETS_TOPIC = "__consumer_offsets"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.group_view import SeenGroups
    from minibroker.cluster.cluster import Cluster


def seen_groups(cluster: Cluster) -> SeenGroups:
    from minibroker.broker.group_view import SeenGroups  # nothing of groups is loaded before somebody asks for one

    return SeenGroups(cluster.events, lambda: cluster.nodes, lambda: cluster.controller.image)
