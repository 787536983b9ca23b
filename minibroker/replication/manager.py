"""Replication as one broker takes part in it: fetch sessions of its followers, fetchers for its leaders, and what it
has the controller change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minibroker.parts import Parts
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest
from minibroker.replication.directory_assignments import DirectoryAssignments
from minibroker.replication.fetcher import ReplicaFetchers
from minibroker.replication.follower_sessions import FollowerSessions
from minibroker.replication.isr_updates import IsrUpdates
from minibroker.replication.network import Network, NodeId
from minibroker.replication.replica import Replica


class Replication:
    """One for the life of a broker in a cluster."""

    def __init__(
        self,
        parts: Parts,
        network: Network,
        replicas: Mapping[tuple[str, int], Replica],
        unopened: Mapping[tuple[str, int], object],
    ):
        """replicas, unopened: the partitions of this broker, and those whose logs it cannot open."""
        self.parts = parts
        self.isr = IsrUpdates(parts, replicas, network)
        self.follower_sessions = FollowerSessions(parts, replicas, self.isr)
        self.fetchers = ReplicaFetchers(parts, network)
        self.directories = DirectoryAssignments(parts, unopened, network)
        self.answer_call: Callable[[Any, int], Any]  # what is no part of replication; set before the first comes

    def answer(self, source: NodeId, message: Any, version: int) -> Any:
        """Answer another broker."""
        if isinstance(message, FetchRequest):
            return self.follower_sessions.fetch(message)
        if isinstance(message, ListOffsetsRequest):
            return self.follower_sessions.list_offsets(message)
        return self.answer_call(message, version)

    def role_changed(self, replica: Replica) -> None:
        self.fetchers.role_changed(replica)

    def remove(self, replica: Replica) -> None:
        self.fetchers.remove(replica)
        self.follower_sessions.remove(replica)

    def take_throttles(self) -> None:
        """Replicate as fast as the settings allow now."""
        sessions, fetchers, config = self.follower_sessions, self.fetchers, self.parts.config
        rates = (config["leader.replication.throttled.rate"], config["follower.replication.throttled.rate"])
        if rates == (None, None) and sessions.throttle is None and fetchers.throttle is None:
            return
        from minibroker.replication.throttles import FOLLOWER, LEADER, taken

        sessions.throttle = taken(sessions.throttle, LEADER, rates[0], self.parts)
        fetchers.take_throttle(taken(fetchers.throttle, FOLLOWER, rates[1], self.parts))

    def start(self) -> None:
        self.take_throttles()
        self.isr.start()
        self.fetchers.start()

    def stop(self) -> None:
        self.isr.stop()
        self.directories.stop()
        self.fetchers.stop()
        self.follower_sessions.stop()
