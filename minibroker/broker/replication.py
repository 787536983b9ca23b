"""Replication as one broker takes part in it: it feeds its followers, follows its leaders, and tells the controller."""

from __future__ import annotations

from minibroker.broker.directory_assignments import DirectoryAssignments
from minibroker.broker.feeding import Feeding
from minibroker.broker.following import Following
from minibroker.broker.isr_changes import IsrChanges
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from minibroker.broker.node import Node
    from minibroker.replication.link import NodeId
    from minibroker.replication.network import Network
    from minibroker.replication.replica import Replica


class Replication:
    """One for the life of a broker in a cluster."""

    def __init__(self, node: Node, network: Network, controller: NodeId):
        self.feeding = Feeding(node)
        self.following = Following(node, network)
        self.isr = IsrChanges(node, network, controller)
        self.directories = DirectoryAssignments(node, network, controller)

    def answer(self, source: NodeId, message: Any, version: int) -> Any:
        """Answer another broker."""
        if isinstance(message, FetchRequest):
            return self.feeding.fetch(message)
        assert isinstance(message, ListOffsetsRequest), f"{source} sent {message!r}"
        return self.feeding.list_offsets(message)

    def took(self, replica: Replica) -> None:
        """Do what follows from the role that a partition has been given."""
        self.following.took(replica)

    def left(self, replica: Replica) -> None:
        """Have no more to do with a partition."""
        self.following.left(replica)
        self.feeding.left(replica)

    def start(self) -> None:
        self.isr.start()

    def stop(self) -> None:
        self.isr.stop()
        self.directories.stop()
        self.following.stop()
        self.feeding.stop()
