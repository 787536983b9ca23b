"""The verbs of a cluster as functions: of the cluster, and of arguments that JSON or words can give.

A signature is all that is known of a verb: what comes by HTTP is checked against it (control.py), and the help of
`minibroker cluster` is made of it.
"""

from __future__ import annotations

from minibroker.cleaner.results import COMPACT, RETENTION, ROLL
from minibroker.clock.steered import SteeredClock
from minibroker.cluster.cleaning import clean
from minibroker.cluster.control import node_of
from minibroker.cluster.groups import seen_groups

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from minibroker.cluster.cluster import Cluster
    from minibroker.groups.view_rows import GroupView
    from minibroker.replication.link import NodeId

    Verb = Callable[..., Any]

VERBS: dict[str, Verb] = {}


def verb(function: Verb) -> Verb:
    VERBS[function.__name__.replace("_", "-")] = function
    return function


# Brokers


@verb
async def kill(
    cluster: Cluster, broker: NodeId, *, lossy: bool = False, torn_bytes: int = 0, notice: bool = True
) -> None:
    """End a broker as kill -9 does; lossy: as a power loss does, what was not flushed is gone."""
    await cluster.kill(broker, lossy=lossy, torn_bytes=torn_bytes, notice=notice)


@verb
async def stop(cluster: Cluster, broker: NodeId) -> None:
    """Stop a broker in order: its leaders move first."""
    await cluster.stop(broker)


@verb
async def start(cluster: Cluster, broker: NodeId) -> None:
    """Start a broker that was stopped or killed."""
    await cluster.start(broker)


@verb
def pause(cluster: Cluster, broker: NodeId) -> None:
    """Let a broker stand still, as SIGSTOP does."""
    cluster.pause(broker)


@verb
def resume(cluster: Cluster, broker: NodeId) -> None:
    """Let a broker go on that was paused."""
    cluster.resume(broker)


@verb
def fill_disk(cluster: Cluster, broker: NodeId) -> None:
    """Let the disk of a broker have no room."""
    cluster.disks.fill(broker)


@verb
def slow_disk(cluster: Cluster, broker: int, ms: float) -> None:
    """Let each write of a broker take so long."""
    cluster.disks.slow(broker, ms)


@verb
def heal_disk(cluster: Cluster, broker: NodeId | None = None) -> None:
    """Let the disk of a broker work again, or every disk."""
    cluster.disks.heal(broker)


# Links


@verb
def cut(cluster: Cluster, a: NodeId, b: NodeId, *, one_way: bool = False) -> None:
    """Cut the link between two: brokers, "controller", "clients"."""
    cluster.links.cut(a, b, one_way=one_way)


@verb
def heal(cluster: Cluster, a: NodeId | None = None, b: NodeId | None = None) -> None:
    """Undo what was done to a link, to all links of one, or to every link."""
    cluster.links.heal(a, b)


@verb
def isolate(cluster: Cluster, broker: NodeId) -> None:
    """Cut a broker off from everybody, clients too."""
    cluster.links.isolate(broker)


@verb
def split(cluster: Cluster, *groups: str) -> None:
    """Cut every link from one group to another: 1,2 3,controller."""
    cluster.links.split([[node_of(word) for word in group.split(",")] for group in groups])


@verb
def delay(cluster: Cluster, a: NodeId, b: NodeId, ms: float, *, jitter_ms: float = 0, one_way: bool = False) -> None:
    """Let messages between two take so long."""
    cluster.links.delay(a, b, ms, jitter_ms=jitter_ms, one_way=one_way)


@verb
def throttle(cluster: Cluster, a: NodeId, b: NodeId, bytes_per_s: int, *, one_way: bool = False) -> None:
    """Let so many bytes a second through between two; 0 is any number."""
    cluster.links.throttle(a, b, bytes_per_s, one_way=one_way)


@verb
def lose(cluster: Cluster, a: NodeId, b: NodeId, share: float, *, one_way: bool = False) -> None:
    """Lose a share of the messages between two, 0 to 1."""
    cluster.links.lose(a, b, share, one_way=one_way)


# Leaders and replicas


@verb
def elect(cluster: Cluster, topic: str, partition: int = 0, *, unclean: bool = False) -> None:
    """Let the preferred leader lead; unclean: any live replica, where nobody leads."""
    cluster.elect(topic, partition, unclean=unclean)


@verb
def move_leader(cluster: Cluster, topic: str, partition: int, broker: int) -> None:
    """Let a replica lead that is in sync."""
    cluster.move_leader(topic, partition, broker)


@verb
def reassign(cluster: Cluster, topic: str, partition: int, *replicas: int) -> None:
    """Move a partition to these brokers; without any, give up a move."""
    cluster.reassign(topic, partition, list(replicas) or None)


# Cleaning


@verb
async def retention(cluster: Cluster, topic: str | None = None, partition: int | None = None) -> list[dict[str, Any]]:
    """Remove what retention does not keep, now: of a partition, a topic, or all."""
    return [row._asdict() for row in await clean(cluster, RETENTION, topic, partition)]


@verb
async def compact(cluster: Cluster, topic: str | None = None, partition: int | None = None) -> list[dict[str, Any]]:
    """Compact now, be it dirty enough or not: a partition, a topic, or all."""
    return [row._asdict() for row in await clean(cluster, COMPACT, topic, partition)]


@verb
async def roll(cluster: Cluster, topic: str | None = None, partition: int | None = None) -> list[dict[str, Any]]:
    """Begin new segments: of a partition, a topic, or all."""
    return [row._asdict() for row in await clean(cluster, ROLL, topic, partition)]


# Steps


@verb
def hold(cluster: Cluster, *kinds: str, broker: int | None = None) -> list[str]:
    """Let these wait for tokens: fetch, answer, isr, election, metadata."""
    cluster.steps.hold(kinds, broker=broker)
    return list(cluster.steps.gates)


@verb
def release(cluster: Cluster, *kinds: str) -> None:
    """Let these wait no more, or nothing at all."""
    cluster.steps.release(kinds or None)


@verb
def step(cluster: Cluster, kind: str | None = None, *, count: int = 1) -> list[str]:
    """Give a token; tell what went on."""
    return cluster.steps.step(kind, count)


@verb
def waiting(cluster: Cluster) -> list[list[str]]:
    """Tell what waits for a token."""
    return [[kind, what] for kind, what in cluster.steps.waiting]


# Time


@verb
def freeze(cluster: Cluster) -> None:
    """Let the clock stand still."""
    _clock(cluster).freeze()


@verb
def thaw(cluster: Cluster) -> None:
    """Let the clock run on."""
    _clock(cluster).thaw()


@verb
async def advance(cluster: Cluster, duration: str, *, sessions: bool = False) -> None:
    """Move the clock on: 7d, 30s, 250ms; sessions: heartbeats go on, too, and who is silent is taken for dead."""
    await _clock(cluster).advance(duration, sessions=sessions)


@verb
def rate(cluster: Cluster, factor: float) -> None:
    """Let the clock run so many times as fast."""
    _clock(cluster).rate(factor)


@verb
def jump(cluster: Cluster, duration: str) -> None:
    """Set the clock wrong by so much; timers do not notice."""
    _clock(cluster).jump(duration)


# Waiting


@verb
async def wait_isr(
    cluster: Cluster, topic: str, partition: int = 0, *brokers: int, timeout_ms: float = 10_000
) -> list[int]:
    """Wait until these brokers are in sync and no others; without any, all replicas."""
    return await cluster.waits.isr(topic, partition, brokers or None, timeout_ms=timeout_ms)


@verb
async def wait_leader(
    cluster: Cluster,
    topic: str,
    partition: int = 0,
    broker: int | None = None,
    *,
    other_than: int | None = None,
    timeout_ms: float = 10_000,
) -> int:
    """Wait until a broker leads: this one, or any."""
    return await cluster.waits.leader(topic, partition, broker, other_than=other_than, timeout_ms=timeout_ms)


@verb
async def wait_high_watermark(
    cluster: Cluster,
    topic: str,
    partition: int = 0,
    offset: int | None = None,
    *,
    broker: int | None = None,
    timeout_ms: float = 10_000,
) -> int:
    """Wait until the high watermark is there; by default at the end of the log."""
    return await cluster.waits.high_watermark(topic, partition, offset, broker=broker, timeout_ms=timeout_ms)


@verb
async def wait_in_sync(cluster: Cluster, *, timeout_ms: float = 10_000) -> None:
    """Wait until every replica has everything."""
    await cluster.waits.in_sync(timeout_ms=timeout_ms)


@verb
async def wait_group(
    cluster: Cluster,
    group: str,
    members: int | None = None,
    *,
    state: str | None = None,
    timeout_ms: float = 10_000,
) -> dict[str, Any]:
    """Wait until a group has so many members and a state, by default Stable."""
    return _view(await seen_groups(cluster).wait_group(group, members, state, timeout_ms=timeout_ms))


@verb
async def wait_committed(
    cluster: Cluster,
    group: str,
    topic: str,
    partition: int = 0,
    offset: int | None = None,
    *,
    timeout_ms: float = 10_000,
) -> int:
    """Wait until a group has committed an offset, or a later one; by default any."""
    return await seen_groups(cluster).wait_committed(group, topic, partition, offset, timeout_ms=timeout_ms)


# Looking


@verb
def groups(cluster: Cluster) -> list[list[Any]]:
    """Tell of all groups: name, type, what its members are, state, number of members, coordinator."""
    return [list(row) for row in seen_groups(cluster).groups()]


@verb
def group(cluster: Cluster, group: str) -> dict[str, Any]:
    """Tell of a group: members, what they have, what is committed, and how far that is behind."""
    return _view(seen_groups(cluster).group(group))


@verb
def state(cluster: Cluster) -> dict[str, Any]:
    """Tell of each broker and of each replica how far it is."""
    partitions = []
    for topic in cluster.controller.image.topics.values():
        for partition in topic.partitions:
            replicas = []
            for broker in partition.replicas:
                replica = cluster.replica(topic.name, partition.id, broker)
                row: dict[str, Any] = {"broker": broker, "in_sync": broker in partition.isr}
                if replica is not None:
                    row |= {
                        "leads": replica.is_leader,
                        "leader_epoch": replica.leader_epoch,
                        "log_start": replica.log.log_start_offset,
                        "high_watermark": replica.high_watermark,
                        "log_end": replica.log.log_end_offset,
                    }
                replicas.append(row)
            partitions.append(
                {
                    "topic": topic.name,
                    "partition": partition.id,
                    "leader": partition.leader,
                    "leader_epoch": partition.leader_epoch,
                    "isr": list(partition.isr),
                    "replicas": replicas,
                }
            )
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "now_ms": cluster.clock.now_ms(),
        "brokers": {str(who): how for who, how in cluster.states.items()},
        "waiting": waiting(cluster),
        "partitions": partitions,
    }


@verb
async def watch(cluster: Cluster, since: int = -1, *, wait_ms: float = 0) -> dict[str, Any]:
    """Tell the state as it is drawn, and the events after a number; wait so long for the first of them."""
    return await cluster.watchers.news(since, wait_ms)


def _view(view: GroupView) -> dict[str, Any]:
    from minibroker.groups.view_rows import view_as_json

    return view_as_json(view)


def _clock(cluster: Cluster) -> SteeredClock:
    if not isinstance(cluster.clock, SteeredClock):
        raise ValueError("the clock of this cluster cannot be moved")
    return cluster.clock
