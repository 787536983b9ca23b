"""Disks that are full or slow.

A broker whose disk refuses a write ends, as Kafka's do when their last log directory fails; it starts again when there
is room. A slow disk holds up the whole broker for each write, as a write that blocks holds up a thread.
"""

from __future__ import annotations

import errno
import os

from minibroker.event_kinds import DiskChange

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from minibroker.cluster.links import Links
    from minibroker.cluster.nodes import Nodes
    from minibroker.replication.network import NodeId


class Trouble:
    """What befalls whoever writes to a disk."""

    __slots__ = ("_act", "kind", "write_ms")

    def __init__(self, kind: str, write_ms: float, act: Callable[[str, str], None]):
        self.kind = kind  # full or slow
        self.write_ms = write_ms  # how long each write takes
        self._act = act

    def __call__(self, doing: str, path: str) -> None:
        self._act(doing, path)


class Disks:
    """What can be done to the disks of a cluster."""

    def __init__(self, cluster: Nodes, links: Links):
        self.cluster = cluster
        self.links = links

    def fill(self, broker: NodeId) -> None:
        """Let a disk have no room: the broker ends at its next write, as Kafka's do, until it is started again."""

        def refuse(doing: str, path: str) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        self.cluster.check(broker)
        self.cluster.storages[broker].trouble = Trouble("full", 0, refuse)
        self._tell(broker, "full")

    def slow(self, broker: int, ms: float) -> None:
        """Let each write to a log take so long, and hold the whole broker up."""
        cluster = self.cluster
        cluster.check(broker)

        def hold_up(doing: str, path: str) -> None:
            node = cluster.nodes.get(broker)
            if node is not None and cluster.states[broker] == "running" and not node.is_held:
                node.pause()
                cluster.network.pause(broker)
                cluster.clock.after(ms, go_on)

        def go_on() -> None:
            node = cluster.nodes.get(broker)
            if node is not None and cluster.states[broker] != "paused" and node.is_held:
                node.resume()
                self.links.apply(broker)
                cluster.network.resume(broker)

        cluster.storages[broker].trouble = Trouble("slow", ms, hold_up)
        self._tell(broker, "slow", ms)

    def troubles(self) -> dict[NodeId, Trouble]:
        """Return what is wrong with which disk."""
        return disk_troubles(self.cluster)

    def heal(self, broker: NodeId | None = None) -> None:
        """Let a disk work again, or all of them."""
        for who in self.cluster.states if broker is None else [broker]:
            self.cluster.check(who)
            if self.cluster.storages[who].trouble is not None:
                self.cluster.storages[who].trouble = None
                self._tell(who, "healed")

    def _tell(self, who: NodeId, what: str, write_ms: float = 0) -> None:
        events = self.cluster.events
        if events.observed:
            events.emit(DiskChange(source=str(who), what=what, write_ms=write_ms))


def disk_troubles(cluster: Nodes) -> dict[NodeId, Trouble]:
    """Return what is wrong with which disk."""
    found = {who: storage.trouble for who, storage in cluster.storages.items()}
    return {who: trouble for who, trouble in found.items() if isinstance(trouble, Trouble)}
