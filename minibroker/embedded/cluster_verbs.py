"""What can be done to a cluster in the hand: kill, pause, cut, hold, elect, move time.

Each verb is awaited in the loop of the cluster; `Cluster` makes a plain one and one to await out of it.
What must hold: a verb that changes the metadata returns when every broker that can hear of it has.
"""

from __future__ import annotations

from minibroker.cleaner.results import COMPACT, RETENTION, ROLL
from minibroker.cluster.cleaning import clean
from minibroker.embedded.arguments import setting_texts, steered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from minibroker.cleaner.results import CompactionRow, RetentionRow, RollRow
    from minibroker.embedded.cluster_engine import ClusterEngine
    from minibroker.replication.link import NodeId

RUNNING = "running"


# Brokers


async def start_broker(engine: ClusterEngine, /, broker: NodeId) -> None:
    """Start a broker that was stopped or killed, on its port and its disk; return when it may lead."""
    await engine.core.start(broker)


async def stop_broker(engine: ClusterEngine, /, broker: NodeId) -> None:
    """Stop a broker in order: others lead what it led before it goes."""
    await engine.core.stop(broker)


async def restart_broker(engine: ClusterEngine, /, broker: NodeId) -> None:
    """Start a broker again, after stopping it in order if it runs."""
    if engine.core.check(broker) == RUNNING:
        await engine.core.stop(broker)
    await engine.core.start(broker)


async def kill(
    engine: ClusterEngine, /, broker: NodeId, *, lossy: bool = False, torn_bytes: int = 0, notice: bool = True
) -> None:
    """End a broker as kill -9 does; lossy: as a power loss, with all that was not flushed.

    torn_bytes: so much of what is lost stays, as half a batch. notice: the controller hears of it at once, and not only
    when the broker has been silent for broker.session.timeout.ms.
    """
    await engine.core.kill(broker, lossy=lossy, torn_bytes=torn_bytes, notice=notice)


async def pause(engine: ClusterEngine, /, broker: NodeId) -> None:
    """Let a broker stand still, as SIGSTOP does: clients see no error, they wait."""
    engine.core.pause(broker)


async def resume(engine: ClusterEngine, /, broker: NodeId) -> None:
    """Let a broker that was paused go on."""
    engine.core.resume(broker)


# Links: between brokers, to the "controller" and to the "clients"


async def cut(engine: ClusterEngine, /, a: NodeId, b: NodeId, *, one_way: bool = False) -> None:
    """Let nothing through between two; one_way: only from a to b."""
    engine.core.links.cut(a, b, one_way=one_way)


async def heal(
    engine: ClusterEngine, /, a: NodeId | None = None, b: NodeId | None = None, *, one_way: bool = False
) -> None:
    """Undo the cuts between two, or of one to everybody, or all there are."""
    engine.core.links.heal(a, b, one_way=one_way)


async def isolate(engine: ClusterEngine, /, broker: NodeId) -> None:
    """Cut a broker off from everybody, clients too."""
    engine.core.links.isolate(broker)


async def split(engine: ClusterEngine, /, *groups: Iterable[NodeId]) -> None:
    """Cut every link from one group to another: split([1, "controller"], [2, 3])."""
    engine.core.links.split(groups)


async def delay(
    engine: ClusterEngine, /, a: NodeId, b: NodeId, ms: float, *, jitter_ms: float = 0, one_way: bool = False
) -> None:
    """Let messages take so long, and up to the jitter longer; 0 undoes it."""
    engine.core.links.delay(a, b, ms, jitter_ms=jitter_ms, one_way=one_way)


async def throttle(engine: ClusterEngine, /, a: NodeId, b: NodeId, bytes_per_s: int, *, one_way: bool = False) -> None:
    """Let so many bytes through in a second; 0 is any number."""
    engine.core.links.throttle(a, b, bytes_per_s, one_way=one_way)


async def lose(engine: ClusterEngine, /, a: NodeId, b: NodeId, share: float, *, one_way: bool = False) -> None:
    """Lose a share of the messages, 0 to 1."""
    engine.core.links.lose(a, b, share, one_way=one_way)


# Disks


async def fill_disk(engine: ClusterEngine, /, broker: NodeId) -> None:
    """Let a disk have no room: the broker ends at its next write, as Kafka's do, until it is started again."""
    engine.core.disks.fill(broker)


async def slow_disk(engine: ClusterEngine, /, broker: int, ms: float) -> None:
    """Let each write take so long, and hold the whole broker up."""
    engine.core.disks.slow(broker, ms)


async def heal_disk(engine: ClusterEngine, /, broker: NodeId | None = None) -> None:
    """Let a disk work again, or all of them."""
    engine.core.disks.heal(broker)


# Step mode


async def hold(engine: ClusterEngine, /, *kinds: str, broker: int | None = None) -> None:
    """Let replication wait for tokens: "fetch", "answer", "isr", "election", "metadata"; without any, all but the last.

    broker: only those of one follower, or of one leader for "isr".
    """
    engine.core.steps.hold(kinds, broker=broker)


async def step(engine: ClusterEngine, /, kind: str | None = None, count: int = 1) -> list[str]:
    """Let what waits longest go on, of one kind or of any; return what it was. NothingWaits if nothing does."""
    return engine.core.steps.step(kind, count)


async def release(engine: ClusterEngine, /, *kinds: str) -> None:
    """Let these wait no more, or nothing at all; what waited goes on."""
    engine.core.steps.release(kinds or None)


async def waiting(engine: ClusterEngine, /) -> list[tuple[str, str]]:
    """Return what waits for a token: its kind, and what it is."""
    return engine.core.steps.waiting


# Topics and leaders


async def create_topic(
    engine: ClusterEngine,
    /,
    name: str,
    partitions: int | None = None,
    replication_factor: int | None = None,
    *,
    assignments: Sequence[Sequence[int]] = (),
    **configs: object,
) -> None:
    """Make a topic; settings have _ for each dot: cleanup_policy="compact".

    Without the two numbers it has num.partitions, and default.replication.factor, which is min(3, brokers) unless set.
    assignments: the brokers of each partition, the preferred leader first, in place of the two.
    """
    engine.core.create_topic(
        name,
        -1 if partitions is None else partitions,
        -1 if replication_factor is None else replication_factor,
        configs=setting_texts(configs),
        assignments=assignments,
    )
    await engine.let_know()


async def delete_topic(engine: ClusterEngine, /, name: str) -> None:
    """Delete a topic; KafkaError if there is none."""
    engine.core.delete_topic(name)
    await engine.let_know()


async def alter_topic(engine: ClusterEngine, /, name: str, **configs: object) -> None:
    """Change settings of a topic, written as for create_topic; None takes one back."""
    given: Mapping[str, str] = setting_texts({key: value for key, value in configs.items() if value is not None})
    gone = dict.fromkeys(setting_texts({key: "" for key, value in configs.items() if value is None}))
    engine.core.alter_topic(name, {**given, **gone})
    await engine.let_know()


async def elect(engine: ClusterEngine, /, topic: str, partition: int = 0, *, unclean: bool = False) -> None:
    """Give a partition to its preferred leader; unclean: to any live replica, where nobody leads."""
    engine.core.elect(topic, partition, unclean=unclean)
    await engine.let_know()


async def move_leader(engine: ClusterEngine, /, topic: str, partition: int, broker: int) -> None:
    """Let a replica that is in sync lead."""
    engine.core.move_leader(topic, partition, broker)
    await engine.let_know()


async def reassign(engine: ClusterEngine, /, topic: str, partition: int, replicas: Sequence[int] | None) -> None:
    """Begin to move a partition to other brokers; None gives the move up. `wait_in_sync` returns when it is done."""
    engine.core.reassign(topic, partition, replicas)
    await engine.let_know()


# Cleaning


async def retention_now(
    engine: ClusterEngine, /, topic: str | None = None, partition: int | None = None
) -> list[RetentionRow]:
    """Remove what retention does not keep, on every broker: a row for each replica says what went, or why nothing."""
    return await clean(engine.core, RETENTION, topic, partition)


async def compact_now(
    engine: ClusterEngine, /, topic: str | None = None, partition: int | None = None
) -> list[CompactionRow]:
    """Compact on every broker, be it dirty enough or not; return when it is done. roll_now comes before."""
    return await clean(engine.core, COMPACT, topic, partition)


async def roll_now(engine: ClusterEngine, /, topic: str | None = None, partition: int | None = None) -> list[RollRow]:
    """Begin new segments on every broker."""
    return await clean(engine.core, ROLL, topic, partition)


# Time


async def freeze(engine: ClusterEngine, /) -> None:
    """Let the clock stand still for all brokers, the controller too."""
    steered(engine.clock).freeze()


async def thaw(engine: ClusterEngine, /) -> None:
    """Let the clock run again, from where it stands."""
    steered(engine.clock).thaw()


async def advance(engine: ClusterEngine, /, amount: float | str, *, sessions: bool = False) -> None:
    """Move time on by "7d" or by milliseconds; return when all that is due up to there has been done.

    Brokers and members of groups stay: they would have sent their heartbeats. sessions: heartbeats, fetches of
    followers and whatever else is timed go on as well, and who is silent meanwhile is taken for dead.
    """
    await steered(engine.clock).advance(amount, sessions=sessions)


async def rate(engine: ClusterEngine, /, factor: float) -> None:
    """Let time run so many times as fast."""
    steered(engine.clock).rate(factor)


async def jump(engine: ClusterEngine, /, amount: float | str) -> None:
    """Set the clock wrong by "1h", or "-1h"; timers do not notice."""
    steered(engine.clock).jump(amount)
