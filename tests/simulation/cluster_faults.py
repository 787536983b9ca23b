"""What befalls a simulated cluster: crashes, losses, pauses, cuts, elections, moves, wrong clocks, disks that are full.

`rotate` does some of it, one thing after another with quiet times between; several of them at once are in each other's
way. In the end `heal` makes all good. cluster_run.py lets it befall a log, group_run.py the coordinators of groups.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Iterator

from minibroker.cluster.cluster import Cluster
from minibroker.cluster.nodes import KILLED, PAUSED, RUNNING, STOPPED, NoSuchBroker
from minibroker.errors import KafkaError, StorageError
from minibroker.log.directory import split_name
from minibroker.metadata.image import Partition
from minibroker.replication.network import CONTROLLER
from minibroker.simulation.disk import SimulatedStorage
from minibroker.simulation.run import World
from minibroker.tools.verify.log_directory import VerifiedCounts, verify_directory

from .invariants import Invariants, Key, Violation

Fault = tuple[Callable[[], Awaitable[object]], str]


class ClusterFaults:
    """What can befall one cluster."""

    def __init__(self, world: World, cluster: Cluster, invariants: Invariants, *, struck: str, min_isr: int):
        """struck: the topic whose leaders and replicas are moved. min_isr: what min.insync.replicas is."""
        self.world = world
        self.cluster = cluster
        self.invariants = invariants
        self.chance = world.chance
        self.struck = struck
        self.min_isr = min_isr
        self.lossy: set[int] = set()  # who lost records, and may not have them again
        self.failing: set[int] = set()  # whose disk will refuse something, and who ends then
        self.all: list[Fault] = [
            (self.crash, "crash"),
            (self.crash, "crash"),
            (self.lossy_crash, "lossy crash"),
            (self.stop, "stop"),
            (self.pause, "pause"),
            (self.cut, "cut"),
            (self.delay, "delay"),
            (self.elect, "elect"),
            (self.reassign, "reassign"),
            (self.controller_away, "controller away"),
            (self.skew, "skew"),
            (self.disk, "disk"),
            (self.strike, "strike"),
        ]

    async def rotate(self, drawn: list[Fault], count: int) -> None:
        """Do harm for a while; what one of several does may be in the way of another."""
        world, chance = self.world, self.chance
        for _ in range(count):
            await world.clock.sleep(chance.choice([50, 500, 3000]) * chance.random())
            if chance.random() < 0.25:
                continue  # quiet
            act, name = chance.choice(drawn)
            world.trace.add(f"-- {name}")
            try:
                await act()
            except (NoSuchBroker, IndexError) as reason:
                world.trace.add(f"-- no {name}: {reason}")
            self.look()

    def look(self) -> None:
        if self.invariants.failure is not None:
            raise self.invariants.failure

    def _running(self) -> list[int]:
        return [broker for broker in self.cluster.broker_ids if self.cluster.states[broker] == RUNNING]

    async def crash(self) -> None:
        """kill -9, and another start; now and then of several at once."""
        running = self._running()
        for broker in self.chance.sample(running, min(self.chance.choice([1, 1, 1, 2, 3]), len(running))):
            await self._kill(broker)
        await self._pause_then_start()

    async def _kill(self, broker: int) -> None:
        """No protocol survives that one of two in sync loses its power and the other, unclean too, starts first."""
        if not self.owes():
            await self.cluster.kill(broker, notice=self.chance.random() < 0.5)

    async def lossy_crash(self) -> None:
        """A power loss. One at a time, and none of who is the last to have everything."""
        broker = self.chance.choice(self._running())
        if self.min_isr < 2 or not self.is_spare(broker):
            return
        self.lossy.add(broker)
        await self.cluster.kill(broker, lossy=True, notice=self.chance.random() < 0.5)
        await self._pause_then_start()

    def is_spare(self, broker: int) -> bool:
        """Return whether others that run have all that was committed, on disks that have lost nothing.

        Nobody else in sync may be dead: the controller, which need not know yet, might fence who lives first, and then
        none would be left but the dead.
        """
        keepers = {*self._running()} - {broker} - self.failing
        is_spare = all({broker} < {broker, *partition.isr} <= {broker, *keepers} for _, partition in self.partitions())
        return is_spare and self.cluster.states[CONTROLLER] == RUNNING and not self.owes(but=broker)

    def owes(self, *, but: int | None = None) -> bool:
        """Return whether one that lost records, another than this, has not got them again."""
        self.lossy = {each for each in self.lossy if not self._has_all(each)}
        return bool(self.lossy - {but})

    def _has_all(self, broker: int) -> bool:
        """Return whether it runs, and is in sync wherever it should be."""
        cluster = self.cluster
        is_damaged = any(each == broker for _, each in self.invariants.damages)
        if cluster.states[broker] != RUNNING or broker in self.failing or is_damaged:
            return False
        for key, partition in self.partitions():
            truth = self.invariants.truth.get(key) or [(0, 0, 0)]
            replica = cluster.replica(*key, broker)
            if broker in partition.replicas and (
                broker not in partition.isr or replica is None or replica.log.log_end_offset < truth[-1][1]
            ):
                return False
        return True

    def partitions(self) -> Iterator[tuple[Key, Partition]]:
        for name, topic in self.cluster.controller.image.topics.items():
            for number, partition in enumerate(topic.partitions):
                yield (name, number), partition

    def _struck_partition(self) -> int:
        return self.chance.randrange(len(self.cluster.controller.image.topics[self.struck].partitions))

    async def stop(self) -> None:
        broker = self.chance.choice(self._running())
        if len(self._running()) > 1 and self.cluster.states[CONTROLLER] == RUNNING:
            await self.cluster.stop(broker)
            await self._pause_then_start()

    async def _pause_then_start(self) -> None:
        await self.world.clock.sleep(self.chance.choice([0, 1000, 15_000]) * self.chance.random())
        await self.start_stopped()

    async def start_stopped(self) -> None:
        for broker in self.cluster.broker_ids:
            if self.cluster.states[broker] in (STOPPED, KILLED):
                try:
                    await self.cluster.start(broker)
                except (StorageError, NoSuchBroker) as failure:
                    self.world.trace.add(f"broker {broker} does not start: {failure}")

    async def pause(self) -> None:
        broker = self.chance.choice(self._running())
        self.cluster.pause(broker)
        await self.world.clock.sleep(self.chance.choice([500, 15_000]) * self.chance.random())
        self.cluster.resume(broker)

    async def cut(self) -> None:
        broker = self.chance.choice([*self._running(), CONTROLLER])
        others = [each for each in (*self.cluster.broker_ids, CONTROLLER) if each != broker]
        links = self.cluster.links
        if self.chance.random() < 0.4:
            links.isolate(broker)
        else:
            for other in self.chance.sample(others, self.chance.choice([1, 1, 2])):
                pair = (broker, other) if self.chance.random() < 0.5 else (other, broker)
                links.cut(*pair, one_way=self.chance.random() < 0.5)
        await self.world.clock.sleep(self.chance.choice([500, 20_000]) * self.chance.random())
        links.heal()

    async def delay(self) -> None:
        a, b = self.chance.sample([*self.cluster.broker_ids, CONTROLLER], 2)
        link = self.cluster.network.link(a, b)
        link.delay_ms, link.jitter_ms = self.chance.uniform(0, 300), self.chance.uniform(0, 1000)
        link.lost_share = self.chance.choice([0, 0.1, 0.5])
        link.twice_share = self.chance.choice([0, 0.1])
        link.late_share = self.chance.choice([0, 0, 0.05])
        await self.world.clock.sleep(self.chance.uniform(0, 10_000))
        self.cluster.links.heal()

    async def elect(self) -> None:
        number = self._struck_partition()
        try:
            if self.chance.random() < 0.5:
                self.cluster.elect(self.struck, number)
            else:
                self.cluster.move_leader(self.struck, number, self.chance.choice(self.cluster.broker_ids))
        except KafkaError as error:
            self.world.trace.add(f"no election: {error}")

    async def reassign(self) -> None:
        number = self._struck_partition()
        self._reassign(number, self.chance.sample(self.cluster.broker_ids, 3 if self.chance.random() < 0.5 else 2))

    def _reassign(self, number: int, replicas: list[int]) -> None:
        try:
            self.cluster.reassign(self.struck, number, replicas)
        except KafkaError as error:
            self.world.trace.add(f"no move: {error}")

    async def controller_away(self) -> None:
        cluster, chance = self.cluster, self.chance
        if chance.random() < 0.5:
            cluster.pause(CONTROLLER)
            await self.world.clock.sleep(chance.uniform(0, 15_000))
            cluster.resume(CONTROLLER)
        else:
            await cluster.kill(CONTROLLER, lossy=chance.random() < 0.5)
            await self.world.clock.sleep(chance.uniform(0, 15_000))
            await cluster.start(CONTROLLER)

    async def skew(self) -> None:
        broker = self.chance.choice(self.cluster.broker_ids)
        self.cluster.nodes[broker].clock.skew_ms = int(self.chance.uniform(-3_600_000, 3_600_000))

    async def disk(self) -> None:
        """Let a disk refuse something: the broker ends at the next write, and starts again when there is room."""
        broker = self.chance.choice(self._running())
        storage = self.cluster.storages[broker]
        assert isinstance(storage, SimulatedStorage)
        error = self.chance.choice([errno.ENOSPC, errno.EIO])
        doing = self.chance.choice(["append", "write", "sync"])
        if doing == "sync":  # what it should have written may be gone
            if self.min_isr < 2 or not self.is_spare(broker):
                return
            self.lossy.add(broker)
        elif self.owes():
            return
        self.failing.add(broker)
        storage.fail(error, times=self.chance.choice([1, 5, 1000]), doing=doing)
        await self.world.clock.sleep(self.chance.choice([500, 10_000]) * self.chance.random())
        storage.heal()
        self.failing.discard(broker)
        await self.start_stopped()

    async def strike(self) -> None:
        """Strike whoever has just been elected, with whatever."""
        try:
            event = await self.world.events.wait_for(
                lambda event: event.broker != -1, ["leader"], timeout_ms=self.chance.uniform(0, 10_000)
            )
        except TimeoutError:
            return
        await self.world.clock.sleep(self.chance.choice([0, 0, 20]))
        broker: int = event.broker  # type: ignore[attr-defined]
        if self.cluster.states[broker] != RUNNING:
            return
        if self.chance.random() < 0.5:
            await self._kill(broker)
            await self._pause_then_start()
        else:
            self.cluster.pause(broker)
            await self.world.clock.sleep(self.chance.uniform(0, 15_000))
            self.cluster.resume(broker)

    async def heal(self) -> None:
        cluster = self.cluster
        cluster.links.heal()
        for storage in cluster.storages.values():
            assert isinstance(storage, SimulatedStorage)
            storage.heal()
        for who, state in cluster.states.items():
            if state == PAUSED:
                cluster.resume(who)
        if cluster.states[CONTROLLER] in (STOPPED, KILLED):
            await cluster.start(CONTROLLER)
        while any(state != RUNNING for state in cluster.states.values()):
            await self.start_stopped()
            await self.world.clock.sleep(100)
        for broker in cluster.broker_ids:
            # A sync that failed may have dropped what a later one says is there, and a loss of power shows it.
            if cluster.nodes[broker].partitions.unopened:
                await cluster.stop(broker)
                self.take_away_damaged(broker)
                await cluster.start(broker)

    def take_away_damaged(self, broker: int) -> None:
        """Do what the documentation tells: let a broker that is stopped copy anew what is damaged and others have."""
        disk = self.cluster.storages[broker]
        for problem in list(verify_directory(disk, VerifiedCounts())):
            name = problem.path.partition("/")[0]
            key = split_name(name)
            if (
                key is not None
                and problem.path.endswith(".log")
                and disk.exists(name)
                and self.is_in_sync_elsewhere(key, broker)
            ):
                self.lossy.add(broker)
                self.world.trace.add(f"{name} of broker {broker} is taken away")
                for inner in disk.list(name):
                    disk.remove(f"{name}/{inner}")
                disk.remove(name)

    def is_in_sync_elsewhere(self, key: Key, but: int) -> bool:
        """Whether a broker that runs, another than this, is in sync and has no damage."""
        cluster = self.cluster
        return any(
            place == key
            and broker != but
            and cluster.states[broker] == RUNNING
            and broker not in self.failing
            and (key, broker) not in self.invariants.damages
            and cluster.replica(*key, broker) is not None
            for place, partition in self.partitions()
            for broker in partition.isr
        )

    def check_disks(self) -> None:
        """Read everything that the brokers have left (L1, L4, L5, L7, I1, I2, I4).

        Snapshots of producers are not flushed: a power loss may break one, and the start takes another.
        """
        for who, storage in self.cluster.storages.items():
            for problem in verify_directory(storage, VerifiedCounts()):
                if not problem.path.endswith(".snapshot"):
                    raise Violation("L4", f"on the disk of {who}: {problem}")
