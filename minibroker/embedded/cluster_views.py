"""How a program looks at its cluster: topics, records, replicas, events; and waits for records and events."""

from __future__ import annotations

from typing import NamedTuple

from minibroker.embedded.reading import ends_of, last_of, records_of, wait_for_records
from minibroker.embedded.watching import fitting
from minibroker.errors import Error, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from minibroker.cluster.cluster import Cluster
    from minibroker.embedded.record import Record
    from minibroker.events import Event
    from minibroker.replication.network import NodeId
    from minibroker.replication.replica import Replica

TIMEOUT_S = 10.0
LEADER, FOLLOWER, OFFLINE = "leader", "follower", "offline"


class ReplicaRow(NamedTuple):
    """A replica, as its broker has it."""

    partition: int
    broker: int
    role: str  # "leader", "follower"; "offline": the broker does not run, or does not know of it yet
    log_start_offset: int  # -1, like the others, if it is offline
    log_end_offset: int
    high_watermark: int
    leader_epoch: int
    is_in_sync: bool  # as the controller has it


class Views:
    """A cluster as a program sees it."""

    def __init__(self, core: Cluster):
        self.core = core

    def states(self) -> dict[NodeId, str]:
        """Return who there is, and whether it is "running", "paused", "stopped" or "killed"."""
        return dict(self.core.states)

    def topics(self) -> dict[str, int]:
        """Return the names of all topics, with their numbers of partitions."""
        found = self.core.controller.image.topics
        return {name: len(topic.partitions) for name, topic in sorted(found.items())}

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return who leads a partition, as the controller has it; -1: nobody."""
        return self.core.partition(topic, partition).leader

    def isr(self, topic: str, partition: int = 0) -> list[int]:
        """Return who is in sync, as the controller has it."""
        return list(self.core.partition(topic, partition).isr)

    def describe(self, topic: str) -> list[ReplicaRow]:
        """Return a row for each replica of a topic, by partition, the preferred leader first."""
        rows = []
        for partition in self.core.topic(topic).partitions:
            for broker in partition.replicas:
                replica = self.core.replica(topic, partition.id, broker)
                is_in_sync = broker in partition.isr
                if replica is None:
                    rows.append(ReplicaRow(partition.id, broker, OFFLINE, -1, -1, -1, -1, is_in_sync))
                    continue
                role = LEADER if replica.is_leader else FOLLOWER
                log = replica.log
                ends = (log.log_start_offset, log.log_end_offset, replica.high_watermark)
                rows.append(ReplicaRow(partition.id, broker, role, *ends, replica.leader_epoch, is_in_sync))
        return rows

    def records(self, topic: str) -> list[Record]:
        """Return all records that consumers may read, by partition and offset, from the replicas that lead."""
        found: list[Record] = []
        for partition in self.core.topic(topic).partitions:
            replica = self.core.leader(topic, partition.id)
            if replica is None:
                raise KafkaError(Error.LEADER_NOT_AVAILABLE, f"nobody leads {topic}-{partition.id}")
            found += records_of(replica)
        return found

    def ends(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return the offsets at which each partition that somebody leads begins and ends for consumers."""
        self.core.topic(topic)
        return ends_of(self._leaders(topic))

    def last_records(self, topic: str, count: int = 1) -> list[Record]:
        """Return the last records of each partition, so many or fewer: some offsets are of markers, or of nothing."""
        self.core.topic(topic)
        return last_of(self._leaders(topic), count)

    async def wait_records(self, topic: str, count: int, timeout: float = TIMEOUT_S) -> list[Record]:
        """Return all records as soon as there are so many; TimeoutError if there are not within `timeout` seconds.

        The topic need not be there yet. A partition that nobody leads counts when somebody does.
        """
        core = self.core
        return await wait_for_records(
            core.events, lambda: self._leaders(topic), topic, count, timeout, lambda: core.controller.image.topics
        )

    async def wait_event(self, wanted: str | Callable[[Event], object], timeout: float = TIMEOUT_S) -> Event:
        """Return the first event from now on that is of a kind, or fits a predicate; TimeoutError if none comes."""
        fits, name = fitting(wanted)
        try:
            return await self.core.events.wait_for(fits, timeout_ms=timeout * 1000)
        except TimeoutError:
            raise TimeoutError(f"no {name} within {timeout:g} s") from None

    def _leaders(self, topic: str) -> list[Replica]:
        found = self.core.controller.image.topics.get(topic)
        leaders = [] if found is None else [self.core.leader(topic, partition.id) for partition in found.partitions]
        return [each for each in leaders if each is not None]
