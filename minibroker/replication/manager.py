"""Replication as one broker takes part in it: it feeds its followers, follows its leaders, and tells the controller."""

from __future__ import annotations

from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest
from minibroker.replication.directory_assignments import DirectoryAssignments
from minibroker.replication.fetcher import ReplicaFetchers
from minibroker.replication.follower_sessions import FollowerSessions
from minibroker.replication.isr_updates import IsrUpdates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from minibroker.parts import Parts
    from minibroker.replication.link import NodeId
    from minibroker.replication.network import Network
    from minibroker.replication.replica import Replica
    from minibroker.replication.replica_set import Partitions


class Replication:
    """One for the life of a broker in a cluster."""

    def __init__(self, parts: Parts, partitions: Partitions, network: Network, controller: NodeId):
        self.isr = IsrUpdates(parts, partitions.replicas, network, controller)
        self.follower_sessions = FollowerSessions(parts, partitions.replicas, self.isr)
        self.fetchers = ReplicaFetchers(parts, network)
        self.directories = DirectoryAssignments(parts, partitions.unopened, network, controller)

    def answer(self, source: NodeId, message: Any, version: int) -> Any:
        """Answer another broker."""
        if isinstance(message, FetchRequest):
            return self.follower_sessions.fetch(message)
        assert isinstance(message, ListOffsetsRequest), f"{source} sent {message!r}"
        return self.follower_sessions.list_offsets(message)

    def took(self, replica: Replica) -> None:
        """Do what follows from the role that a partition has been given."""
        self.fetchers.took(replica)

    def left(self, replica: Replica) -> None:
        """Have no more to do with a partition."""
        self.fetchers.left(replica)
        self.follower_sessions.left(replica)

    def start(self) -> None:
        self.isr.start()

    def stop(self) -> None:
        self.isr.stop()
        self.directories.stop()
        self.fetchers.stop()
        self.follower_sessions.stop()
