"""The groups of a cluster: each as the broker that coordinates it has it, each partition as its leader has it."""

from __future__ import annotations

OFFSETS_TOPIC = "__consumer_offsets"
TIMEOUT_S = 10.0

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.group_view import SeenGroups
    from minibroker.cluster.nodes import Nodes
    from minibroker.groups.view_rows import GroupRow, GroupView


def seen_groups(cluster: Nodes) -> SeenGroups:
    from minibroker.broker.group_view import SeenGroups  # nothing of groups is loaded before somebody asks for one

    return SeenGroups(cluster.events, lambda: cluster.nodes, lambda: cluster.controller.image)


class Groups:
    """How groups are looked at and waited for."""

    def __init__(self, cluster: Nodes):
        self.cluster = cluster

    def groups(self) -> list[GroupRow]:
        """Return all groups: name, type, what its members are, state, number of members, coordinator."""
        return seen_groups(self.cluster).groups()

    def group(self, group: str) -> GroupView:
        """Return a group: members, what they have, what is committed, and how far that is behind.

        KafkaError if there is none.
        """
        return seen_groups(self.cluster).group(group)

    async def wait_group(
        self, group: str, members: int | None = None, state: str | None = None, timeout: float = TIMEOUT_S
    ) -> GroupView:
        """Wait until a group has so many members and a state, by default Stable with any members.

        TimeoutError says how it is instead. For members=0 it is to be Empty; state="Dead": there is none, or no more.
        """
        return await seen_groups(self.cluster).wait_group(group, members, state, timeout_ms=timeout * 1000)

    async def wait_committed(
        self, group: str, topic: str, partition: int = 0, offset: int | None = None, timeout: float = TIMEOUT_S
    ) -> int:
        """Wait until a group has committed an offset, or a later one; by default any. Return what it has committed."""
        seen = seen_groups(self.cluster)
        return await seen.wait_committed(group, topic, partition, offset, timeout_ms=timeout * 1000)
