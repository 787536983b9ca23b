"""Waiting until a cluster is as one wants it, without asking again and again: events say when to look."""

from __future__ import annotations

from minibroker.errors import KafkaError
from minibroker.replication.leader import LeaderState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from minibroker.cluster.cluster import Cluster

TIMEOUT_MS = 10_000
METADATA_KINDS = ("isr", "leader", "topic", "broker", "metadata", "epoch")


class Waits:
    """What can be waited for."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster

    async def isr(
        self, topic: str, partition: int = 0, brokers: Iterable[int] | None = None, *, timeout_ms: float = TIMEOUT_MS
    ) -> list[int]:
        """Return the ISR as soon as it has these brokers and no others; without any, all replicas."""
        wanted = None if brokers is None else set(brokers)

        def has_it() -> bool:
            found = self.cluster.partition(topic, partition)
            return set(found.isr) == (set(found.replicas) if wanted is None else wanted)

        def told() -> str:
            return f"the ISR of {topic}-{partition} is {self.cluster.partition(topic, partition).isr}"

        await self._until(has_it, METADATA_KINDS, timeout_ms, told)
        return list(self.cluster.partition(topic, partition).isr)

    async def leader(
        self,
        topic: str,
        partition: int = 0,
        broker: int | None = None,
        *,
        other_than: int | None = None,
        timeout_ms: float = TIMEOUT_MS,
    ) -> int:
        """Return who leads as soon as a broker does and knows it: this one, or any other than one."""

        def has_it() -> bool:
            found = self.cluster.leader(topic, partition)
            return found is not None and found.node_id != other_than and broker in (None, found.node_id)

        def told() -> str:
            return f"broker {self.cluster.partition(topic, partition).leader} leads {topic}-{partition}"

        await self._until(has_it, METADATA_KINDS, timeout_ms, told)
        return self.cluster.partition(topic, partition).leader

    async def high_watermark(
        self,
        topic: str,
        partition: int = 0,
        offset: int | None = None,
        *,
        broker: int | None = None,
        timeout_ms: float = TIMEOUT_MS,
    ) -> int:
        """Return the high watermark as soon as it is there, on the leader or on one broker; by default all there is."""

        def found() -> tuple[int, int]:
            replica = (
                self.cluster.leader(topic, partition)
                if broker is None
                else self.cluster.replica(topic, partition, broker)
            )
            return (-1, 0) if replica is None else (replica.high_watermark, replica.log.next_offset)

        def has_it() -> bool:
            high_watermark, end_offset = found()
            return high_watermark >= (end_offset if offset is None else offset)

        await self._until(
            has_it,
            ("high_watermark", "metadata", "epoch"),
            timeout_ms,
            lambda: f"the high watermark of {topic}-{partition} is {found()[0]}",
        )
        return found()[0]

    async def in_sync(self, *, timeout_ms: float = TIMEOUT_MS) -> None:
        """Return when every partition has its leader, and all its replicas are in sync and have everything."""
        await self._until(
            lambda: not self.behind(), (), timeout_ms, lambda: f"not in sync: {', '.join(self.behind()[:5])}"
        )

    def behind(self) -> list[str]:
        """Return the partitions that lack a leader, a replica in sync, or a record on any replica."""
        cluster, found = self.cluster, []
        for topic in cluster.controller.image.topics.values():
            for partition in topic.partitions:
                leader = cluster.leader(topic.name, partition.id)
                if leader is None or len(partition.isr) < len(partition.replicas):
                    found.append(f"{topic.name}-{partition.id}")
                    continue
                role = leader.role
                replicas = [cluster.replica(topic.name, partition.id, broker) for broker in partition.replicas]
                # Its role may still be the one of before: events are told while a replica changes.
                if (
                    not isinstance(role, LeaderState)
                    or role.proposal is not None
                    or any(
                        each is None
                        or each.leader_epoch != leader.leader_epoch
                        or each.log.next_offset != leader.log.next_offset
                        or leader.high_watermark != leader.log.next_offset
                        for each in replicas
                    )
                ):
                    found.append(f"{topic.name}-{partition.id}")
        return found

    async def _until(
        self, condition: Callable[[], bool], kinds: Iterable[str], timeout_ms: float, told: Callable[[], str]
    ) -> None:
        """Wait until a condition holds; a topic that is not there yet does not fulfil any."""

        def holds() -> bool:
            try:
                return condition()
            except KafkaError:
                return False

        try:
            await self.cluster.events.wait_until(holds, kinds, timeout_ms=timeout_ms)
        except TimeoutError:
            try:
                state = told()
            except KafkaError as error:
                state = error.message
            raise TimeoutError(f"not within {timeout_ms / 1000:g} s: {state}") from None
