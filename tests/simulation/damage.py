"""Damage on the disks of a simulated cluster, and an operator who does what the documentation tells.

Bits flip where they lie, of brokers that run, that have stopped in order and that were killed; disks give nothing for a
while, or have no room for new files. What is damaged on one broker another one in sync has whole. The operator looks
who that is, stops the broker, verifies its directory, takes away the logs that are damaged and starts it again.

What must hold beside all that invariants.py asks: a log that is damaged stops no other, and what one broker cannot open
another one leads (D4). Not drawn: the first offset and the epoch of a batch, of which no checksum knows.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from random import Random

from minibroker.cluster.cluster import Cluster
from minibroker.cluster.nodes import KILLED, RUNNING, STOPPED, NoSuchBroker
from minibroker.errors import KafkaError
from minibroker.log.batches import batches
from minibroker.metadata.image import Partition
from minibroker.replication.network import CONTROLLER
from minibroker.replication.replica import Replica
from minibroker.simulation.disk import SimulatedStorage

from .cluster_faults import ClusterFaults
from .invariants import Key, Violation

LENGTH, MAGIC, CHECKSUM = range(8, 12), 16, 17  # places in a batch; all from the checksum on is covered by it
HEADER_SHARE = 0.15  # of the flips hit length or magic
APART_MS_MAX = 40_000  # so long a damaged log may keep others from being in sync, or without a leader
IN_SYNC_MS_MAX = 120_000
LOOK_MS = 100
MENDED_SHARE = 0.7  # of the damages are mended soon, the others in the end


class Damaged:
    """A batch with one bit turned over."""

    def __init__(self, cluster: Cluster, replica: Replica, path: str, start: int, size_bytes: int, byte: int, bit: int):
        """start: where the batch lies in the file. byte: of the file."""
        self.cluster = cluster
        self.key: Key = (replica.topic, replica.partition)
        self.broker = replica.node_id
        self._path, self._start, self._byte, self._bit = path, start, byte, bit
        self._whole = self._read(size_bytes)
        self.flip()
        self._bytes = self._read(size_bytes)

    def __str__(self) -> str:
        return f"{self._path}, byte {self._byte} on broker {self.broker}"

    def is_there(self) -> bool:
        """Whether nobody has cut it off, written it anew, or taken it away."""
        return self._disk.exists(self._path) and self._read(len(self._bytes)) == self._bytes

    def flip(self) -> None:
        self._disk.flip(self._path, self._byte, self._bit)

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Let the log be as it was before, for who looks at it from outside."""
        if not self.is_there():
            yield
            return
        self.flip()
        try:
            yield
        finally:
            self.flip()

    @property
    def _disk(self) -> SimulatedStorage:
        storage = self.cluster.storages[self.broker]
        assert isinstance(storage, SimulatedStorage)
        return storage

    def _read(self, size_bytes: int) -> bytes:
        return self._disk.open(self._path).lossy("look at").read(self._start, size_bytes)


class Damage:
    """What befalls the disks of one cluster."""

    def __init__(self, faults: ClusterFaults, chance: Random, topics: Collection[str]):
        """chance: of its own, so that seeds without damage stay as they are. topics: whose logs are damaged."""
        self.faults = faults
        self.cluster = faults.cluster
        self.world = faults.world
        self.damages = faults.invariants.damages
        self.chance = chance
        self.topics = topics
        self.is_alone = chance.random() < 0.5  # nothing else befalls the cluster meanwhile
        self.count = chance.choice([1, 2, 3])

    async def go(self) -> None:
        """Do harm a few times."""
        chance = self.chance
        acts: list[tuple[Callable[[], Awaitable[object]], str]] = [
            (self.flip_while_it_runs, "flip"),
            (self.flip_while_it_is_down, "flip, down"),
            (self.flip_while_it_is_down, "flip, down"),
            (self.give_nothing, "reads fail"),
            (self.make_nothing, "no new files"),
        ]
        if self.is_alone:
            acts += [(self.flip_ahead, "flip ahead")] * 2
        for _ in range(self.count):
            await self.world.clock.sleep(chance.choice([500, 5000, 15_000]) * chance.random())
            act, name = chance.choice(acts)
            self.world.trace.add(f"-- {name}")
            try:
                await act()
                await self.world.clock.sleep(chance.choice([0, 2000, 10_000]) * chance.random())
                for broker in sorted({each.broker for each in self._all()}) if chance.random() < MENDED_SHARE else ():
                    await self.mend(broker)
            except (NoSuchBroker, TimeoutError) as reason:  # somebody else was in the way
                self.world.trace.add(f"-- no {name}: {reason}")
            self.faults.look()

    def _all(self) -> list[Damaged]:
        """Return what is damaged, and forget what is so no more."""
        for place, damaged in list(self.damages.items()):
            if not damaged.is_there():
                del self.damages[place]
        return list(self.damages.values())

    # Flips

    async def flip_while_it_runs(self) -> None:
        """Damage what a broker has, and perhaps let it lead."""
        found = self._choose()
        if found is not None:
            self._damage(*found)
            replica = found[0]
            if self.chance.random() < 0.6:
                self._lead(replica)
            await self.world.clock.sleep(self.chance.uniform(0, 5000))

    def _lead(self, replica: Replica) -> None:
        try:
            self.cluster.move_leader(replica.topic, replica.partition, replica.node_id)
        except KafkaError as error:
            self.world.trace.add(f"no election: {error}")

    async def flip_while_it_is_down(self) -> None:
        """Damage what a broker has that does not run: after a kill its start looks at some of that, else at nothing."""
        found = self._choose()
        if found is None:
            return
        replica, broker = found[0], found[0].node_id
        is_killed = self.chance.random() < 0.7
        if is_killed:
            if not self.faults.is_spare(broker):
                return
            self.faults.lossy.add(broker)
            await self.cluster.kill(broker, notice=self.chance.random() < 0.5)
        else:
            await self.cluster.stop(broker)
        if self.cluster.states[broker] not in (STOPPED, KILLED):
            return  # somebody has started it meanwhile
        self._damage(*found)
        await self.world.clock.sleep(self.chance.choice([0, 1000, 10_000]) * self.chance.random())
        await self.faults.start_stopped()
        if self.is_alone:
            await self._check_others(broker, (replica.topic, replica.partition))
        if self.chance.random() < 0.5 and self._all():
            self._lead(replica)

    async def flip_ahead(self) -> None:
        """Damage a batch on a leader that one follower has still to copy, and another one has."""
        cluster, chance = self.cluster, self.chance
        await cluster.waits.in_sync(timeout=5)
        places = [
            (key, partition)
            for key, partition in self.faults.partitions()
            if key[0] in self.topics and len(partition.isr) == 3 and self._may_damage(key, partition, partition.leader)
        ]
        if not places:
            return
        key, partition = chance.choice(places)
        leader = partition.leader
        follower = chance.choice([broker for broker in partition.replicas if broker != leader])
        behind = cluster.replica(*key, follower)
        if behind is None:
            return
        end = behind.log.log_end_offset
        await (cluster.stop(follower) if chance.random() < 0.5 else cluster.kill(follower))
        await self.world.clock.sleep(chance.uniform(500, 5000))
        replica = cluster.replica(*key, leader)
        if replica is not None and self._may_damage(key, cluster.partition(*key), leader):
            found = [place for place in self._batches(replica) if place[1] >= end]
            if found:
                self._damage(replica, *chance.choice(found))
        await self.faults.start_stopped()
        await self._check_others(follower, key)

    def _choose(self) -> tuple[Replica, str, int, int, int] | None:
        """Return a batch that others have too, and where it lies: replica, path, first offset, position, size."""
        places = [
            (key, broker)
            for key, partition in self.faults.partitions()
            for broker in partition.replicas
            if key[0] in self.topics and self._may_damage(key, partition, broker)
        ]
        if not places:
            return None
        key, broker = self.chance.choice(places)
        replica = self.cluster.replica(*key, broker)
        found = [] if replica is None else self._batches(replica)
        return (replica, *self.chance.choice(found)) if replica is not None and found else None

    def _may_damage(self, key: Key, partition: Partition, broker: int) -> bool:
        """Whether a broker runs that has a log, another one has the same, and nobody owes anything."""
        cluster, faults = self.cluster, self.faults
        return (
            cluster.states.get(broker) == RUNNING
            and cluster.states[CONTROLLER] == RUNNING
            and broker not in faults.failing
            and cluster.replica(*key, broker) is not None
            and not faults.owes()
            and not any(each.key == key for each in self._all())
            and faults.is_in_sync_elsewhere(key, broker)
        )

    def _batches(self, replica: Replica) -> list[tuple[str, int, int, int]]:
        """Return path, first offset, position and size of the batches that are committed and everybody in sync has."""
        found = []
        end = min(
            other.log.log_end_offset
            for broker in self.cluster.partition(replica.topic, replica.partition).isr
            if (other := self.cluster.replica(replica.topic, replica.partition, broker)) is not None
        )
        for segment in replica.log.segments:
            data = memoryview(segment.storage.open(segment.path).read_at(0, segment.size_bytes))
            found += [
                (segment.path, batch.base_offset, batch.position, batch.size_bytes)
                for batch in batches(data)
                if batch.last_offset < min(replica.high_watermark, end)
            ]
        return found

    def _damage(self, replica: Replica, path: str, offset: int, position: int, size_bytes: int) -> None:
        chance = self.chance
        if chance.random() < HEADER_SHARE:
            byte = chance.choice([*LENGTH, MAGIC])
        else:
            byte = chance.randrange(CHECKSUM, size_bytes)
        damaged = Damaged(self.cluster, replica, path, position, size_bytes, position + byte, chance.randrange(8))
        self.damages[damaged.key, damaged.broker] = damaged
        self.faults.lossy.add(damaged.broker)
        self.world.trace.add(f"damaged: {damaged}, offset {offset}")

    async def _check_others(self, broker: int, but: Key) -> None:
        """Wait until one broker has all partitions but one, and that one is led by somebody."""
        waited_ms = 0
        while missing := self._missing(broker, but):
            if waited_ms >= APART_MS_MAX:
                raise Violation("D4", f"after damage to {but}: {missing}")
            await self.world.clock.sleep(LOOK_MS)
            waited_ms += LOOK_MS

    def _missing(self, broker: int, but: Key) -> str:
        if self.cluster.states[broker] != RUNNING:
            return f"broker {broker} is {self.cluster.states[broker]}"
        for key, partition in self.faults.partitions():
            if key == but and self.cluster.leader(*key) is None:
                return f"nobody leads {key}"
            if key[0] in self.topics and key != but and broker in partition.replicas and broker not in partition.isr:
                return f"broker {broker} is not in sync in {key}"
        return ""

    # Disks that refuse

    async def give_nothing(self) -> None:
        """Let a disk fail to read one log, or anything."""
        found = self._choose()
        if found is not None:
            path = found[1] if self.chance.random() < 0.7 else ""
            await self._refuse(found[0].node_id, errno.EIO, "read", path)

    async def make_nothing(self) -> None:
        """Let a disk refuse new files and directories."""
        found = self._choose()
        if found is not None:
            doing = self.chance.choice(["create", "make directory", "rename"])
            await self._refuse(found[0].node_id, self.chance.choice([errno.ENOSPC, errno.EIO]), doing, "")

    async def _refuse(self, broker: int, error: int, doing: str, path: str) -> None:
        disk = self.cluster.storages[broker]
        assert isinstance(disk, SimulatedStorage)
        self.faults.failing.add(broker)
        disk.fail(error, doing=doing, path=path, times=self.chance.choice([1, 5, 1000]))
        fault = disk.faults[-1]
        await self.world.clock.sleep(self.chance.choice([500, 10_000]) * self.chance.random())
        disk.faults = [each for each in disk.faults if each is not fault]
        self.faults.failing.discard(broker)
        await self.faults.start_stopped()

    # The operator

    async def mend(self, broker: int) -> None:
        """Let a broker copy anew what is damaged, if others have it."""
        cluster = self.cluster
        if broker in self.faults.failing or cluster.states[CONTROLLER] != RUNNING or not self._can_copy(broker):
            return
        if cluster.states[broker] == RUNNING:
            await cluster.stop(broker)
        if cluster.states[broker] not in (STOPPED, KILLED):
            return
        if self._can_copy(broker):
            self.faults.take_away_damaged(broker)
        self._all()
        await self.faults.start_stopped()

    def _can_copy(self, broker: int) -> bool:
        return all(self.faults.is_in_sync_elsewhere(each.key, broker) for each in self._all() if each.broker == broker)

    async def mend_all(self) -> None:
        """Mend everything; nothing befalls the cluster any more."""
        for broker in self.cluster.broker_ids:
            waited_ms = 0
            while any(each.broker == broker for each in self._all()):
                if waited_ms >= IN_SYNC_MS_MAX:
                    raise Violation("R12", f"{self._all()[0]}: nobody else is in sync")
                await self.mend(broker)
                await self.world.clock.sleep(LOOK_MS)
                waited_ms += LOOK_MS
