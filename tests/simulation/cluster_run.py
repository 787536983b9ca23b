"""A cluster in virtual time, from one seed: clients write and read, faults befall it, and nothing may be lost.

    python -m tests.simulation.cluster_run 7              one seed; with --lines all that happened
    python -m tests.simulation.cluster_run --seeds 100    many, and how fast they went
    python -m tests.simulation.cluster_run --bug hw-is-log-end --seeds 50     how many it takes to find a planted bug

A seed draws the cluster (partitions, min.insync.replicas, delays of links), the load and a rotation of faults, with
quiet times between: crashes with and without loss, stops in order, pauses, cuts one way and both, delays, elections,
moves of replicas, a controller that is away, clocks that are wrong, and strikes right after an election. In the end all
heals, everybody has to agree, and what clients were told is compared with what can be read.
"""

from __future__ import annotations

import argparse
import errno
import gc
import logging
import sys
import time
from collections.abc import Awaitable, Callable

from minibroker.client import Cluster as Client
from minibroker.client import Consumer, Producer
from minibroker.cluster.cluster import KILLED, PAUSED, RUNNING, STOPPED, Cluster, NoSuchBroker
from minibroker.errors import KafkaError, StorageError
from minibroker.log.simulated_storage import SimulatedStorage
from minibroker.log.verify import Verified, verify_directory
from minibroker.replication import bugs
from minibroker.replication.link import CONTROLLER
from minibroker.simulation.run import Outcome, World, simulate

from .invariants import Invariants, Violation
from .runs import TraceReporter

Fault = tuple[Callable[[], Awaitable[object]], str]

TOPIC = "orders"
FAULTS = 12
HEAL_MS_MAX = 120_000
LIMIT_S = 3600.0


class History:
    """What clients were told."""

    def __init__(self, world: World):
        self.world = world
        self.sent: dict[bytes, tuple[int, int]] = {}  # value -> producer and number
        self.acknowledged: dict[bytes, tuple[int, int]] = {}  # value -> partition and offset
        self.served: dict[tuple[int, int], bytes | None] = {}  # partition and offset -> value, as a consumer saw it
        self.failed = 0

    def serve(self, partition: int, offset: int, value: bytes | None) -> None:
        """Note what a consumer was given; the same offset never has another record (L3)."""
        before = self.served.setdefault((partition, offset), value)
        if before != value:
            raise Violation("L3", f"{TOPIC}-{partition} at {offset} was {before!r} and is {value!r} now")

    def check(self, found: dict[tuple[int, int], bytes | None]) -> None:
        """Compare what was told with what can be read in the end."""
        for value, place in self.acknowledged.items():
            if found.get(place) != value:
                raise Violation("R9", f"{value!r} was acknowledged at {place}, and there is {found.get(place)!r}")
        for place, served in self.served.items():
            if found.get(place) != served:
                raise Violation("L3", f"{served!r} was served at {place}, and there is {found.get(place)!r}")
        values = list(found.values())
        if len(set(values)) != len(values):
            double = next(value for value in values if values.count(value) > 1)
            raise Violation("T1", f"{double!r} was written twice")
        last: dict[tuple[int, int], int] = {}
        for (partition, _), value in sorted(found.items()):
            producer, number = self.sent[value or b""]
            if last.get((partition, producer), -1) > number:
                raise Violation("G5", f"{value!r} stands behind number {last[partition, producer]}")
            last[partition, producer] = number


class Run:
    """One seed."""

    def __init__(self, world: World, *, foreign: bool = False):
        """foreign: the clients are unmodified aiokafka's, not ours."""
        self.world = world
        self.foreign = foreign
        self.chance = chance = world.chance
        self.partitions = chance.choice([1, 1, 2, 5])
        self.min_isr = chance.choice([1, 2, 2, 2])
        settings = {
            "min.insync.replicas": str(self.min_isr),
            "broker.session.timeout.ms": str(chance.choice([3000, 9000])),
            "broker.heartbeat.interval.ms": str(chance.choice([300, 1000])),
            "replica.lag.time.max.ms": str(chance.choice([2000, 10_000])),
            "replica.fetch.max.bytes": str(chance.choice([200, 1000, 1 << 20])),
            "leader.imbalance.check.interval.seconds": str(chance.choice([10, 300])),
            "log.flush.interval.messages": str(chance.choice([1, 10, 1 << 40])),
        }
        self.cluster = Cluster(
            settings,
            lambda name: SimulatedStorage(world.clock.now_ms),
            clock=world.clock,
            chance=chance,
            events=world.events,
            reporter=TraceReporter(world),
        )
        self.cluster.network.encodes = chance.random() < 0.2
        self.invariants = Invariants(self.cluster)
        self.history = History(world)
        self.is_over = False
        self.lossy: set[int] = set()  # who lost records, and may not have them again
        self.failing: set[int] = set()  # whose disk will refuse something, and who ends then
        self.faults: list[Fault] = [
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

    async def go(self) -> int:
        world, chance, cluster = self.world, self.chance, self.cluster
        world.loop.sockets.delay_ms = chance.choice([(0.05, 0.15), (0.05, 0.15), (1, 30)])
        await cluster.start_all()
        for a, b in ((1, 2), (1, 3), (2, 3)):
            if chance.random() < 0.5:
                cluster.links.delay(a, b, chance.uniform(0, 5), jitter_ms=chance.uniform(0, 20))
        cluster.create_topic(TOPIC, self.partitions)
        write, read = (self.write_aiokafka, self.read_aiokafka) if self.foreign else (self.write, self.read)
        clients = [world.loop.create_task(write(each)) for each in range(chance.choice([1, 2, 3]))]
        clients.append(world.loop.create_task(read()))
        drawn = chance.sample(self.faults, chance.randrange(2, len(self.faults)))  # each seed has troubles of its own
        nemeses = chance.choice([1, 1, 2, 3])
        troubles = [world.loop.create_task(self.trouble(drawn, FAULTS // nemeses)) for _ in range(nemeses)]
        for each in troubles:
            await each
        await self.heal()
        await cluster.waits.in_sync(timeout_ms=HEAL_MS_MAX)
        await world.clock.sleep(5000)
        self.is_over = True
        for task in clients:
            await task
        await cluster.waits.in_sync(timeout_ms=HEAL_MS_MAX)
        self.invariants.check_equal()
        self.history.check(await self.read_all())
        self._look()
        await cluster.stop_all()
        self.invariants.close()
        self.check_disks()
        return len(self.history.acknowledged)

    async def trouble(self, drawn: list[Fault], count: int) -> None:
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
            self._look()

    def check_disks(self) -> None:
        """Read everything that the brokers have left (L1, L4, L5, L7, I1, I2, I4).

        Snapshots of producers are not flushed: a power loss may break one, and the start takes another.
        """
        for who, storage in self.cluster.storages.items():
            for problem in verify_directory(storage, Verified()):
                if not problem.path.endswith(".snapshot"):
                    raise Violation("L4", f"on the disk of {who}: {problem}")

    def _look(self) -> None:
        if self.invariants.failure is not None:
            raise self.invariants.failure

    # Clients

    async def write(self, producer_number: int) -> None:
        world, history = self.world, self.history
        number = 0
        async with (
            Client(self.cluster.bootstrap_servers, clock=world.clock, timeout_ms=5000) as client,
            Producer(client, idempotent=True) as producer,
        ):
            while not self.is_over:
                sent = []
                for _ in range(self.chance.choice([1, 1, 1, 5, 20])):
                    value = b"%d/%d" % (producer_number, number)
                    history.sent[value] = (producer_number, number)
                    number += 1
                    partition = self.chance.randrange(self.partitions)
                    try:
                        sent.append((value, await producer.enqueue(TOPIC, value, partition=partition)))
                    except KafkaError as error:
                        world.trace.add(f"{value!r} was not sent: {error}")
                for value, waiting in sent:
                    try:
                        metadata = await waiting
                        history.acknowledged[value] = (metadata.partition, metadata.offset)
                    except KafkaError as error:
                        history.failed += 1
                        world.trace.add(f"{value!r} failed: {error}")
                await world.clock.sleep(self.chance.uniform(0, 300))

    async def read(self) -> None:
        """Read along, and note what was served."""
        world = self.world
        async with (
            Client(self.cluster.bootstrap_servers, clock=world.clock, timeout_ms=5000) as client,
            Consumer(client) as consumer,
        ):
            await consumer.assign([(TOPIC, partition, 0) for partition in range(self.partitions)])
            while not self.is_over:
                try:
                    for record in await consumer.fetch(max_wait_ms=500):
                        self.history.serve(record.partition, record.offset, record.value)
                except KafkaError as error:
                    world.trace.add(f"a consumer failed: {error}")
                    await world.clock.sleep(200)

    async def write_aiokafka(self, producer_number: int) -> None:
        from aiokafka import AIOKafkaProducer
        from aiokafka.errors import KafkaError as ForeignError

        world, number = self.world, 0
        producer = AIOKafkaProducer(
            bootstrap_servers=self.cluster.bootstrap_servers,
            acks="all",
            enable_idempotence=True,
            request_timeout_ms=5000,
        )
        await producer.start()
        while not self.is_over:
            value = b"%d/%d" % (producer_number, number)
            self.history.sent[value] = (producer_number, number)
            number += 1
            try:
                # Compiled code of aiokafka would ask the real clock, so it is told the time.
                metadata = await producer.send_and_wait(
                    TOPIC, value, partition=self.chance.randrange(self.partitions), timestamp_ms=world.clock.now_ms()
                )
                self.history.acknowledged[value] = (metadata.partition, metadata.offset)
            except ForeignError as error:
                self.history.failed += 1
                world.trace.add(f"{value!r} failed: {error!r}")
            await world.clock.sleep(self.chance.uniform(0, 300))
        await producer.stop()

    async def read_aiokafka(self) -> None:
        from aiokafka import AIOKafkaConsumer
        from aiokafka import TopicPartition as Partition

        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.cluster.bootstrap_servers, auto_offset_reset="earliest", group_id=None
        )
        await consumer.start()
        consumer.assign([Partition(TOPIC, number) for number in range(self.partitions)])
        while not self.is_over:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                for record in records:
                    self.history.serve(record.partition, record.offset, record.value)
        await consumer.stop()

    async def read_all(self) -> dict[tuple[int, int], bytes | None]:
        cluster, found = self.cluster, {}
        ends = {}
        for partition in range(self.partitions):
            leader = cluster.leader(TOPIC, partition)
            assert leader is not None
            ends[partition] = leader.high_watermark
        async with Client(cluster.bootstrap_servers, clock=self.world.clock) as client, Consumer(client) as consumer:
            await consumer.assign([(TOPIC, partition, 0) for partition in range(self.partitions)])
            while any(consumer.position(TOPIC, partition) < end for partition, end in ends.items()):
                for record in await consumer.fetch(max_wait_ms=500):
                    found[record.partition, record.offset] = record.value
        return found

    # Faults

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
        if not self._owes():
            await self.cluster.kill(broker, notice=self.chance.random() < 0.5)

    async def lossy_crash(self) -> None:
        """A power loss. One at a time, and none of who is the last to have everything."""
        broker = self.chance.choice(self._running())
        if self.min_isr < 2 or not self._is_spare(broker):
            return
        self.lossy.add(broker)
        await self.cluster.kill(broker, lossy=True, notice=self.chance.random() < 0.5)
        await self._pause_then_start()

    def _is_spare(self, broker: int) -> bool:
        """Return whether others that run have all that was committed, on disks that have lost nothing."""
        keepers = {*self._running()} - {broker} - self.failing
        return not self._owes(but=broker) and all(
            keepers.intersection(partition.isr) for partition in self.cluster.controller.image.topics[TOPIC].partitions
        )

    def _owes(self, *, but: int | None = None) -> bool:
        """Return whether one that lost records, another than this, has not got them again."""
        self.lossy = {each for each in self.lossy if not self._has_all(each)}
        return bool(self.lossy - {but})

    def _has_all(self, broker: int) -> bool:
        """Return whether it runs, and is in sync wherever it should be."""
        cluster = self.cluster
        if cluster.states[broker] != RUNNING or broker in self.failing:
            return False
        for number, partition in enumerate(cluster.controller.image.topics[TOPIC].partitions):
            truth = self.invariants.truth.get((TOPIC, number)) or [(0, 0, 0)]
            replica = cluster.replica(TOPIC, number, broker)
            if broker in partition.replicas and (
                broker not in partition.isr or replica is None or replica.log.next_offset < truth[-1][1]
            ):
                return False
        return True

    async def stop(self) -> None:
        broker = self.chance.choice(self._running())
        if len(self._running()) > 1 and self.cluster.states[CONTROLLER] == RUNNING:
            await self.cluster.stop(broker)
            await self._pause_then_start()

    async def _pause_then_start(self) -> None:
        await self.world.clock.sleep(self.chance.choice([0, 1000, 15_000]) * self.chance.random())
        await self._start_stopped()

    async def _start_stopped(self) -> None:
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
        number = self.chance.randrange(self.partitions)
        try:
            if self.chance.random() < 0.5:
                self.cluster.elect(TOPIC, number)
            else:
                self.cluster.move_leader(TOPIC, number, self.chance.choice(self.cluster.broker_ids))
        except KafkaError as error:
            self.world.trace.add(f"no election: {error}")

    async def reassign(self) -> None:
        number = self.chance.randrange(self.partitions)
        replicas = self.chance.sample(self.cluster.broker_ids, 3 if self.chance.random() < 0.5 else 2)
        try:
            self.cluster.reassign(TOPIC, number, replicas)
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
            if self.min_isr < 2 or not self._is_spare(broker):
                return
            self.lossy.add(broker)
        elif self._owes():
            return
        self.failing.add(broker)
        storage.fail(error, times=self.chance.choice([1, 5, 1000]), doing=doing)
        await self.world.clock.sleep(self.chance.choice([500, 10_000]) * self.chance.random())
        storage.heal()
        self.failing.discard(broker)
        await self._start_stopped()

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
            await self._start_stopped()
            await self.world.clock.sleep(100)


async def cluster_run(world: World) -> int:
    """Return how many records were acknowledged."""
    return await Run(world).go()


async def foreign_cluster_run(world: World) -> int:
    """The same with clients of aiokafka."""
    return await Run(world, foreign=True).go()


def run_seed(seed: int, *, foreign: bool = False, keep_lines: bool = False) -> Outcome:
    program = foreign_cluster_run if foreign else cluster_run
    return simulate(program, seed, limit_s=LIMIT_S, keep_lines=keep_lines)


def replay(seed: int, *, foreign: bool = False) -> str:
    return f"make sim SEED={seed}{' CLIENT=aiokafka' if foreign else ''}"


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser("make sim")
    parser.add_argument("seed", type=int, nargs="?")
    parser.add_argument("--lines", action="store_true")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--bug", default="")
    parser.add_argument("--client", choices=["own", "aiokafka"], default="own")
    options = parser.parse_args(words)
    foreign = options.client == "aiokafka"
    logging.disable()  # what clients complain of is what the run is about
    if options.bug:
        bugs.planted = frozenset((options.bug,))
    if options.seed is not None:
        outcome = run_seed(options.seed, foreign=foreign, keep_lines=options.lines)
        print("\n".join(outcome.lines or ()))
        acknowledged = outcome.check()
        print(f"seed {options.seed}: {acknowledged} acknowledged, {outcome.virtual_s:.0f} s, {outcome.trace_hash}")
        return 0
    begun, virtual_s, failed, records = time.perf_counter(), 0.0, 0, 0
    for seed in range(options.first, options.first + options.seeds):
        outcome = run_seed(seed, foreign=foreign)
        gc.collect()  # a run makes much garbage, and collects none
        if (seed - options.first) % 100 == 99:
            print(f"{seed - options.first + 1} of {options.seeds} seeds, {failed} failed", file=sys.stderr, flush=True)
        virtual_s += outcome.virtual_s
        if outcome.failure is None:
            records += outcome.result
            continue
        failed += 1
        print(f"seed {seed}: {type(outcome.failure).__name__}: {outcome.failure}", flush=True)
        print(f"    replay: {replay(seed, foreign=foreign)}", flush=True)
        if options.bug:
            print(f"found after {seed - options.first + 1} seeds")
            return 0
    took_s = time.perf_counter() - begun
    print(
        f"{options.seeds} seeds, {failed} failed, {records} records; {60 * options.seeds / took_s:.0f} seeds a minute, "
        f"{virtual_s / took_s:.0f} virtual seconds a second"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
