"""How a cluster is looked at: topics, records, replicas; and waiting until it is as one wants it.

Nothing here asks again and again: what is waited for is looked at when an event says that it may have come. Patience is
measured by the machine's clock, since the cluster's may be frozen.
"""

from __future__ import annotations

from typing import NamedTuple

from minibroker.clock import LoopClock
from minibroker.cluster.groups import seen_groups
from minibroker.embedded.engine import too_few
from minibroker.embedded.reading import records_of
from minibroker.embedded.watching import fitting
from minibroker.errors import Error, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from minibroker.embedded.cluster_engine import ClusterEngine
    from minibroker.embedded.engine import Record
    from minibroker.events import Event
    from minibroker.groups.view_rows import GroupRow, GroupView
    from minibroker.metadata.image import Partition, Topic
    from minibroker.replication.link import NodeId
    from minibroker.replication.replica import Replica

TIMEOUT_S = 10.0
RECORD_KINDS = ("high_watermark", "leader", "epoch", "topic", "broker", "metadata", "delete")
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


# Looking


async def states(engine: ClusterEngine, /) -> dict[NodeId, str]:
    """Return who there is, and whether it is "running", "paused", "stopped" or "killed"."""
    return dict(engine.core.states)


async def topics(engine: ClusterEngine, /) -> dict[str, int]:
    """Return the names of all topics, with their numbers of partitions."""
    found = engine.core.controller.image.topics
    return {name: len(topic.partitions) for name, topic in sorted(found.items())}


async def leader(engine: ClusterEngine, /, topic: str, partition: int = 0) -> int:
    """Return who leads a partition, as the controller has it; -1: nobody."""
    return partition_of(engine, topic, partition).leader


async def isr(engine: ClusterEngine, /, topic: str, partition: int = 0) -> list[int]:
    """Return who is in sync, as the controller has it."""
    return list(partition_of(engine, topic, partition).isr)


async def describe(engine: ClusterEngine, /, topic: str) -> list[ReplicaRow]:
    """Return a row for each replica of a topic, by partition, the preferred leader first."""
    core = engine.core
    rows = []
    for partition in topic_of(engine, topic).partitions:
        for broker in partition.replicas:
            replica = core.replica(topic, partition.id, broker)
            is_in_sync = broker in partition.isr
            if replica is None:
                rows.append(ReplicaRow(partition.id, broker, OFFLINE, -1, -1, -1, -1, is_in_sync))
                continue
            role = LEADER if replica.is_leader else FOLLOWER
            log = replica.log
            ends = (log.log_start_offset, log.log_end_offset, replica.high_watermark)
            rows.append(ReplicaRow(partition.id, broker, role, *ends, replica.leader_epoch, is_in_sync))
    return rows


async def records(engine: ClusterEngine, /, topic: str) -> list[Record]:
    """Return all records that consumers may read, by partition and offset, from the replicas that lead."""
    found: list[Record] = []
    for partition in topic_of(engine, topic).partitions:
        replica = engine.core.leader(topic, partition.id)
        if replica is None:
            raise KafkaError(Error.LEADER_NOT_AVAILABLE, f"nobody leads {topic}-{partition.id}")
        found += records_of(replica)
    return found


async def groups(engine: ClusterEngine, /) -> list[GroupRow]:
    """Return all groups, with state, number of members and coordinator."""
    return seen_groups(engine.core).groups()


async def group(engine: ClusterEngine, /, group: str) -> GroupView:
    """Return a group: its members, what they have, what is committed and how far that is behind.

    KafkaError if there is none.
    """
    return seen_groups(engine.core).group(group)


def topic_of(engine: ClusterEngine, topic: str) -> Topic:
    found = engine.core.controller.image.topics.get(topic)
    if found is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
    return found


def partition_of(engine: ClusterEngine, topic: str, partition: int) -> Partition:
    topic_of(engine, topic)
    return engine.core.partition(topic, partition)


# Waiting


async def wait_records(engine: ClusterEngine, /, topic: str, count: int, timeout: float = TIMEOUT_S) -> list[Record]:
    """Return all records as soon as there are so many; TimeoutError if there are not within `timeout` seconds.

    The topic need not be there yet. A partition that nobody leads counts when somebody does.
    """
    clock = LoopClock()
    deadline_ms = clock.now_ms() + timeout * 1000
    while True:
        replicas = _leaders(engine, topic)
        found = [record for replica in replicas for record in records_of(replica)]
        if len(found) >= count:
            return found
        before = _ends(replicas)
        # Markers of transactions have offsets too, so it is counted again when there are enough of those.
        end = sum(before.values()) + count - len(found)
        try:
            await engine.events.wait_until(
                lambda before=before, end=end: _is_more(before, _ends(_leaders(engine, topic)), end),  # type: ignore[misc]
                RECORD_KINDS,
                timeout_ms=max(deadline_ms - clock.now_ms(), 0),
            )
        except TimeoutError:
            known = engine.core.controller.image.topics
            raise too_few(topic, len(found), count, timeout * 1000, known) from None


def _leaders(engine: ClusterEngine, topic: str) -> list[Replica]:
    found = engine.core.controller.image.topics.get(topic)
    leaders = [] if found is None else [engine.core.leader(topic, partition.id) for partition in found.partitions]
    return [each for each in leaders if each is not None]


def _ends(replicas: Iterable[Replica]) -> dict[int, int]:
    return {replica.partition: replica.high_watermark for replica in replicas}


def _is_more(before: dict[int, int], now: dict[int, int], end: int) -> bool:
    """Whether it is worth counting again: another leader may have been without records that are there now."""
    return sum(now.values()) >= end or before.keys() != now.keys()


async def wait_isr(
    engine: ClusterEngine,
    /,
    topic: str,
    partition: int = 0,
    brokers: Iterable[int] | None = None,
    *,
    timeout: float = TIMEOUT_S,
) -> list[int]:
    """Return the ISR as soon as it has these brokers and no others; without any, all replicas."""
    return await engine.core.waits.isr(topic, partition, brokers, timeout_ms=timeout * 1000)


async def wait_leader(
    engine: ClusterEngine,
    /,
    topic: str,
    partition: int = 0,
    broker: int | None = None,
    *,
    other_than: int | None = None,
    timeout: float = TIMEOUT_S,
) -> int:
    """Return who leads as soon as a broker does and knows it: this one, or any other than one."""
    return await engine.core.waits.leader(topic, partition, broker, other_than=other_than, timeout_ms=timeout * 1000)


async def wait_high_watermark(
    engine: ClusterEngine,
    /,
    topic: str,
    partition: int = 0,
    offset: int | None = None,
    *,
    broker: int | None = None,
    timeout: float = TIMEOUT_S,
) -> int:
    """Return the high watermark as soon as it is there, on the leader or one broker; by default at the log's end."""
    return await engine.core.waits.high_watermark(topic, partition, offset, broker=broker, timeout_ms=timeout * 1000)


async def wait_in_sync(engine: ClusterEngine, /, *, timeout: float = TIMEOUT_S) -> None:
    """Return when every partition has its leader, and every replica is in sync and has everything."""
    await engine.core.waits.in_sync(timeout_ms=timeout * 1000)


async def wait_group(
    engine: ClusterEngine,
    /,
    group: str,
    members: int | None = None,
    state: str | None = None,
    timeout: float = TIMEOUT_S,
) -> GroupView:
    """Return a group as soon as it has so many members and a state; TimeoutError says how it is instead.

    By default it is to be Stable, with any members; for members=0 Empty. state="Dead": there is none, or no more.
    """
    return await seen_groups(engine.core).wait_group(group, members, state, timeout_ms=timeout * 1000)


async def wait_committed(
    engine: ClusterEngine,
    /,
    group: str,
    topic: str,
    partition: int = 0,
    offset: int | None = None,
    timeout: float = TIMEOUT_S,
) -> int:
    """Return what a group has committed as soon as it has got so far, by default as soon as there is anything."""
    seen = seen_groups(engine.core)
    return await seen.wait_committed(group, topic, partition, offset, timeout_ms=timeout * 1000)


async def wait_event(
    engine: ClusterEngine, /, wanted: str | Callable[[Event], object], timeout: float = TIMEOUT_S
) -> Event:
    """Return the first event from now on that is of a kind, or fits a predicate; TimeoutError if none comes."""
    fits, name = fitting(wanted)
    try:
        return await engine.events.wait_for(fits, timeout_ms=timeout * 1000)
    except TimeoutError:
        raise TimeoutError(f"no {name} within {timeout:g} s") from None
