"""Waiting until a cluster is as one wants it, without asking again and again: events say when to look."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from minibroker.cluster.nodes import Nodes
from minibroker.errors import KafkaError

TIMEOUT_S = 10.0
METADATA_KINDS = ("isr", "leader", "topic", "broker", "metadata", "epoch")


class Waits:
    """What can be waited for."""

    def __init__(self, cluster: Nodes):
        self.cluster = cluster

    async def isr(
        self, topic: str, partition: int = 0, brokers: Iterable[int] | None = None, *, timeout: float = TIMEOUT_S
    ) -> list[int]:
        """Wait until these brokers are in sync and no others, without any all replicas; return the ISR."""
        wanted = None if brokers is None else set(brokers)

        def has_it() -> bool:
            found = self.cluster.partition(topic, partition)
            return set(found.isr) == (set(found.replicas) if wanted is None else wanted)

        def told() -> str:
            return f"the ISR of {topic}-{partition} is {self.cluster.partition(topic, partition).isr}"

        await self._until(has_it, METADATA_KINDS, timeout, told)
        return list(self.cluster.partition(topic, partition).isr)

    async def leader(
        self,
        topic: str,
        partition: int = 0,
        broker: int | None = None,
        *,
        other_than: int | None = None,
        timeout: float = TIMEOUT_S,
    ) -> int:
        """Return who leads as soon as a broker does and knows it: this one, or any other than one."""

        def has_it() -> bool:
            found = self.cluster.leader(topic, partition)
            return found is not None and found.node_id != other_than and broker in (None, found.node_id)

        def told() -> str:
            leader = self.cluster.partition(topic, partition).leader
            return f"{f'broker {leader}' if leader >= 0 else 'nobody'} leads {topic}-{partition}"

        await self._until(has_it, METADATA_KINDS, timeout, told)
        return self.cluster.partition(topic, partition).leader

    async def high_watermark(
        self,
        topic: str,
        partition: int = 0,
        offset: int | None = None,
        *,
        broker: int | None = None,
        timeout: float = TIMEOUT_S,
    ) -> int:
        """Return the high watermark as soon as it is there, on the leader or a broker; by default at the log's end."""

        def found() -> tuple[int, int]:
            replica = (
                self.cluster.leader(topic, partition)
                if broker is None
                else self.cluster.replica(topic, partition, broker)
            )
            return (-1, 0) if replica is None else (replica.high_watermark, replica.log.log_end_offset)

        def has_it() -> bool:
            high_watermark, end_offset = found()
            return high_watermark >= (end_offset if offset is None else offset)

        await self._until(
            has_it,
            ("high_watermark", "metadata", "epoch"),
            timeout,
            lambda: f"the high watermark of {topic}-{partition} is {found()[0]}",
        )
        return found()[0]

    async def in_sync(self, *, timeout: float = TIMEOUT_S) -> None:
        """Return when every partition has its leader, and all its replicas are in sync and have everything."""
        awaited: list[tuple[str, int]] = []

        def are_in_sync() -> bool:
            # Those that were behind at the last look are looked at first: it is done again with each event.
            while awaited:
                if self._is_behind(*awaited[-1]):
                    return False
                awaited.pop()
            awaited.extend(self._behind())
            return not awaited

        def told() -> str:
            return f"not in sync: {', '.join(self.behind()[:5])}"

        await self._until(are_in_sync, (), timeout, told)

    def behind(self) -> list[str]:
        """Return the partitions that lack a leader, a replica in sync, or a record on any replica."""
        return [f"{topic}-{number}" for topic, number in self._behind()]

    def _behind(self) -> list[tuple[str, int]]:
        topics = self.cluster.controller.image.topics.values()
        return [
            (topic.name, each.id)
            for topic in topics
            for each in topic.partitions
            if self._is_behind(topic.name, each.id)
        ]

    def _is_behind(self, name: str, number: int) -> bool:
        """Whether a partition that there is, perhaps of a topic that has been made anew, is not in sync."""
        from minibroker.replication.leader import LeaderState

        topic = self.cluster.controller.image.topics.get(name)
        if topic is None or number >= len(topic.partitions):
            return False
        partition = topic.partitions[number]
        leader = self.cluster.leader(name, number)
        if leader is None or len(partition.isr) < len(partition.replicas):
            return True
        role, end_offset = leader.role, leader.log.log_end_offset
        if not isinstance(role, LeaderState) or role.proposal is not None or leader.high_watermark != end_offset:
            return True
        for broker in partition.replicas:
            replica = self.cluster.replica(name, number, broker)
            if (
                replica is None
                or replica.leader_epoch != leader.leader_epoch
                or replica.log.log_end_offset != end_offset
            ):
                return True
        return False

    async def _until(
        self, condition: Callable[[], bool], kinds: Iterable[str], timeout: float, told: Callable[[], str]
    ) -> None:
        """Wait until a condition holds; a topic that is not there yet does not fulfil any."""

        def holds() -> bool:
            try:
                return condition()
            except KafkaError:
                return False

        try:
            await self.cluster.events.wait_until(holds, kinds, timeout_ms=timeout * 1000)
        except TimeoutError:
            try:
                state = told()
            except KafkaError as error:
                state = error.message
            raise TimeoutError(f"not within {timeout:g} s: {state}") from None
