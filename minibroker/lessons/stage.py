"""The stage of a lesson: a cluster whose clock stands still, the lesson's clients, and what each command does to them.

    stage = Stage(clock, events, chance)
    told = await stage.do(parse_command('produce orders-0 "a" acks=all'))

What must hold: a command returns when nothing moves any more, and returns what it has to tell; what it did shows in the
events. With the clock frozen and nothing left to chance, the same commands have the same events.
"""

from __future__ import annotations

import asyncio

from minibroker.clock.steered import duration_ms
from minibroker.cluster.cluster import Cluster
from minibroker.cluster.control import call_through
from minibroker.cluster.nodes import RUNNING
from minibroker.errors import Error, KafkaError
from minibroker.event_kinds import Clock as ClockMoved
from minibroker.lessons.cleaning_stage import CLEANING_ACTS, CleaningStage
from minibroker.lessons.clients import Asking, Batch, NotPossible, Reader, delete_records, produce, record_of
from minibroker.lessons.group_stage import GROUP_ACTS, GroupStage
from minibroker.log.memory_storage import MemoryStorage
from minibroker.reporter import Reporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from random import Random

    from minibroker.clock.steered import SteeredClock
    from minibroker.events import EventStream
    from minibroker.lessons.commands import Command

CLIENT_ID = "lesson"
SETTINGS = {"offsets.topic.num.partitions": "1"}  # nobody wants to look at fifty
ARRIVAL_MS = 3_000  # within which what was sent is at its broker


class Quiet(Reporter):
    """What brokers would tell their operator; a student is told by events."""

    def say(self, line: str) -> None: ...


def _of_groups(
    act: Callable[[GroupStage, Command], Awaitable[list[str] | None]],
) -> Callable[[Stage, Command], Awaitable[list[str] | None]]:
    return lambda stage, command: act(stage.groups, command)


def _of_cleaning(
    act: Callable[[CleaningStage, Command], Awaitable[list[str] | None]],
) -> Callable[[Stage, Command], Awaitable[list[str] | None]]:
    return lambda stage, command: act(stage.cleaning, command)


class Stage:
    """One cluster, from the command that starts it to the end."""

    def __init__(self, clock: SteeredClock, events: EventStream, chance: Random, *, ports: Sequence[int] = ()):
        self.clock = clock
        self.events = events
        self.cluster: Cluster | None = None
        self._chance = chance
        self._ports = ports
        self._asking = Asking(self.address_of, CLIENT_ID)
        self._readers: dict[tuple[str, int, str], Reader] = {}
        self._later: dict[asyncio.Task[str], Asking] = {}
        self.groups = GroupStage(self, self._asking)
        self.cleaning = CleaningStage(self)
        clock.watchers[self._tell_clock] = None

    def _tell_clock(self, what: str) -> None:
        if self.events.observed and self.cluster is not None and self.cluster.nodes:
            self.events.emit(ClockMoved(what=what))

    async def do(self, command: Command) -> list[str]:
        """Carry out a command; return what it tells. KafkaError, ValueError or TimeoutError say why it cannot be."""
        act = self._acts[command.verb]
        if self.cluster is None and command.verb != "start brokers":
            raise NotPossible("a lesson begins with a cluster: start 3 brokers")
        told = await act(self, command) or []
        await self.clock.settle()
        return told + await self.groups.hear()

    async def close(self) -> None:
        """End the clients, then the cluster, as they stand."""
        for task in self._later:
            task.cancel()
        await asyncio.gather(*self._later, return_exceptions=True)
        await self.groups.close()
        for asking in (*self._later.values(), self._asking):
            await asking.close()
        if self.cluster is not None:
            self.cluster.links.heal()
            await self.cluster.kill_all()
        self.clock.watchers.pop(self._tell_clock, None)

    @property
    def on(self) -> Cluster:
        assert self.cluster is not None
        return self.cluster

    # Brokers

    async def _start_cluster(self, command: Command) -> None:
        if self.cluster is not None:
            raise NotPossible("the cluster is there already")
        cluster = self.cluster = Cluster(
            {**SETTINGS, **command.get("SETTINGS", {})},
            lambda name: MemoryStorage(self.clock.now_ms),
            brokers=command["COUNT"],
            racks=command.get("racks", ()),
            ports=self._ports,
            clock=self.clock,
            chance=self._chance,
            events=self.events,
            reporter=Quiet(),
            steer=call_through,
        )
        await self._in_time(cluster.start_all(), freeze=True)

    async def _start(self, command: Command) -> None:
        await self._in_time(self.on.start(command["WHO"]))

    async def _stop(self, command: Command) -> None:
        await self._in_time(self.on.stop(command["WHO"]))

    async def _kill(self, command: Command) -> None:
        values = command.values
        lossy, notice = "lossy" in values, "unnoticed" not in values
        await self.on.kill(command["WHO"], lossy=lossy, torn_bytes=command.get("torn", 0), notice=notice)

    async def _pause(self, command: Command) -> None:
        self.on.pause(command["WHO"])

    async def _resume(self, command: Command) -> None:
        self.on.resume(command["WHO"])

    async def _in_time(self, work: Awaitable[None], *, freeze: bool = False) -> None:
        """Let the clock run while something waits for it; brokers start and stop in real time."""
        was_frozen = self.clock.is_frozen or freeze
        watchers, self.clock.watchers = self.clock.watchers, {}  # nobody asked for it
        try:
            if was_frozen:
                self.clock.thaw()
            await work
        finally:
            if was_frozen:
                self.clock.freeze()
            self.clock.watchers = watchers

    # Topics

    async def _topic(self, command: Command) -> None:
        name = command["NAME"]
        self.on.create_topic(
            name,
            command.get("partitions", 1),
            assignments=command.get("replicas", ()),
            **command.get("SETTINGS", {}),
        )
        for partition in range(len(self.on.controller.controller.get_topic(name).partitions)):
            await self.on.waits.leader(name, partition)

    async def _set(self, command: Command) -> None:
        self.on.alter_topic(command["TOPIC"], **command["SETTINGS"])

    async def _elect(self, command: Command) -> None:
        self.on.elect(*command["PARTITION"], unclean="unclean" in command.values)

    async def _move(self, command: Command) -> None:
        topic, partition = command["PARTITION"]
        self.on.move_leader(topic, partition, command["BROKER"])

    async def _reassign(self, command: Command) -> None:
        topic, partition = command["PARTITION"]
        self.on.reassign(topic, partition, command.get("BROKERS"))

    async def _rule(self, command: Command) -> list[str]:
        cluster = self.on
        cluster.cuts_to_high_watermark = command["RULE"] == "high-watermark"
        for node in cluster.nodes.values():
            node.partitions.cuts_to_high_watermark = cluster.cuts_to_high_watermark
        if not cluster.cuts_to_high_watermark:
            return ["followers cut their logs where the epochs part, as since Kafka 0.11"]
        return ["followers cut their logs to their high watermark, as before Kafka 0.11"]

    # Links, steps, time

    async def _cut(self, command: Command) -> None:
        self.on.links.cut(command["END"], command["END'"], one_way="one-way" in command.values)

    async def _isolate(self, command: Command) -> None:
        self.on.links.isolate(command["WHO"])

    async def _heal(self, command: Command) -> None:
        self.on.links.heal(command.get("END"), command.get("END'"), one_way="one-way" in command.values)

    async def _hold(self, command: Command) -> None:
        self.on.steps.hold(*command["KINDS"], broker=command.get("of"))

    async def _step(self, command: Command) -> None:
        for _ in range(command.get("times", 1)):
            self.on.steps.step(command.get("KIND"))
            await self.clock.settle()

    async def _release(self, command: Command) -> None:
        self.on.steps.release(*command.get("KINDS", ()))

    async def _freeze(self, command: Command) -> None:
        self.clock.freeze()

    async def _thaw(self, command: Command) -> None:
        self.clock.thaw()

    async def _advance(self, command: Command) -> None:
        await self.clock.advance(command["TIME"], sessions=True)

    # Waits

    async def _wait_isr(self, command: Command) -> None:
        topic, partition = command["PARTITION"]
        await self.on.waits.isr(topic, partition, command["BROKERS"])

    async def _wait_leader(self, command: Command) -> None:
        topic, partition = command["PARTITION"]
        await self.on.waits.leader(topic, partition, command["BROKER"])

    async def _wait_hw(self, command: Command) -> None:
        topic, partition = command["PARTITION"]
        await self.on.waits.high_watermark(topic, partition, command["OFFSET"])

    async def _wait_in_sync(self, command: Command) -> None:
        await self.on.waits.in_sync()

    # Clients

    async def _produce(self, command: Command) -> list[str]:
        topic, partition = command["PARTITION"]
        found = self.on.controller.controller.get_topic(topic)
        broker = command.get("to", self.on.partition(topic, partition).leader)
        if broker < 0:
            raise KafkaError(Error.LEADER_NOT_AVAILABLE, "nobody leads")
        acks, is_later = command.get("acks", -1), "later" in command.values
        asking = Asking(self.address_of, CLIENT_ID) if is_later or not acks else self._asking
        now_ms = self.clock.now_ms() + round(duration_ms(command.get("ahead", 0)))
        rows = [record_of(text, now_ms, is_keyed="keyed" in command.values) for text in command["TEXTS"]]
        batch = Batch(topic, found.id, partition, rows, acks)
        work = produce(asking, broker, batch, is_later=is_later)
        if asking is self._asking:
            return [await work]
        # Nobody waits for the answer, so wait until it has arrived, as far as one can see that.
        task = asyncio.get_running_loop().create_task(work)
        self._later[task] = asking
        try:
            await self.events.wait_for(
                lambda event: event.kind == "produce" and getattr(event, "broker", 0) == broker, timeout_ms=ARRIVAL_MS
            )
        except TimeoutError:
            return ["sent, and not at its broker"]
        return [await task] if not acks else []

    def _reader(self, command: Command) -> Reader:
        rack = command.get("rack", "")
        topic, partition = command["PARTITION"]
        key = (topic, partition, rack)
        if key not in self._readers:
            self._readers[key] = Reader(self._asking, topic, partition, rack)
        return self._readers[key]

    async def _consume(self, command: Command) -> list[str]:
        reader, told = self._reader(command), []
        if "from" in command.values:
            told = await reader.seek(command["from"], self.reachable())
        return told + await reader.read(self.reachable())

    async def _delete(self, command: Command) -> None:
        topic, partition = command["PARTITION"]
        leader = self.on.partition(topic, partition).leader
        await delete_records(self._asking, leader, topic, partition, command["OFFSET"])

    async def _offsets(self, command: Command) -> list[str]:
        reader = Reader(self._asking, *command["PARTITION"])
        return await reader.ends(self.reachable())

    def reachable(self) -> list[int]:
        """Brokers that a client finds."""
        cluster = self.on
        return [
            broker
            for broker in cluster.broker_ids
            if cluster.states[broker] == RUNNING and broker not in cluster.cut_from_clients
        ]

    def address_of(self, broker: int) -> tuple[str, int]:
        node = self.on.nodes.get(broker)
        if node is None:
            raise NotPossible(f"there is no broker {broker}")
        server = node.servers[0]
        return server.host, server.port

    _acts: dict[str, Callable[[Stage, Command], Awaitable[list[str] | None]]] = {
        "start brokers": _start_cluster,
        "start": _start,
        "stop": _stop,
        "kill": _kill,
        "pause": _pause,
        "resume": _resume,
        "topic": _topic,
        "set": _set,
        "elect": _elect,
        "move to": _move,
        "reassign to": _reassign,
        "reassign cancel": _reassign,
        "followers cut by": _rule,
        "cut": _cut,
        "isolate": _isolate,
        "heal": _heal,
        "hold": _hold,
        "step": _step,
        "release": _release,
        "freeze": _freeze,
        "thaw": _thaw,
        "advance": _advance,
        "wait isr": _wait_isr,
        "wait leader": _wait_leader,
        "wait hw": _wait_hw,
        "wait in sync": _wait_in_sync,
        "produce": _produce,
        "consume": _consume,
        "delete": _delete,
        "offsets": _offsets,
        **{verb: _of_groups(act) for verb, act in GROUP_ACTS.items()},
        **{verb: _of_cleaning(act) for verb, act in CLEANING_ACTS.items()},
    }
