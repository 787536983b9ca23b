"""A cluster in virtual time, from one seed: clients write and read, faults befall it, and nothing may be lost.

    python -m tests.simulation.cluster_run 7              one seed; with --lines all that happened
    python -m tests.simulation.cluster_run --seeds 100    many, and how fast they went
    python -m tests.simulation.cluster_run --bug hw-is-log-end --seeds 50     how many it takes to find a planted bug

A seed draws the cluster (partitions, min.insync.replicas, delays of links), the load and a rotation of faults, with
quiet times between: crashes with and without loss, stops in order, pauses, cuts one way and both, delays, elections,
moves of replicas, a controller that is away, clocks that are wrong, and strikes right after an election. In a third of
them a topic comes and goes while requests wait for it (waiting.py). In the end all heals, everybody has to agree, and
what clients were told is compared with what can be read.
"""

from __future__ import annotations

import sys
from random import Random

from minibroker.client import Cluster as Client
from minibroker.client import Consumer, Producer
from minibroker.errors import KafkaError, ProtocolError
from minibroker.simulation.run import World

from .cluster_faults import ClusterFaults
from .damage import Damage
from .invariants import Invariants, Violation
from .seeded_runs import HEAL_MS_MAX, Runs, drawn_settings, simulated_cluster
from .waiting import TOPIC as PASSING
from .waiting import Waiting

TOPIC = "orders"
FAULTS = 12
WAITING_SHARE = 0.34  # of the seeds have a topic that comes and goes while requests wait for it
DAMAGE_SHARE = 0.5  # of the seeds have disks that are damaged, and so many faults less of another kind:
DAMAGED_FAULTS = 4


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
            **drawn_settings(chance, self.min_isr),
            "replica.fetch.max.bytes": str(chance.choice([200, 1000, 1 << 20])),
            "leader.imbalance.check.interval.seconds": str(chance.choice([10, 300])),
            "log.flush.interval.messages": str(chance.choice([1, 10, 1 << 40])),
        }
        harm = Random(f"damage {world.seed}")  # of its own, as that of what waits, so that other seeds stay as they are
        is_damaged = not foreign and harm.random() < DAMAGE_SHARE
        if is_damaged:
            self.partitions = max(self.partitions, harm.choice([1, 5]))  # others, that must not suffer
            # What was flushed and is damaged keeps a log from being opened, what was not is cut off.
            settings["log.flush.interval.messages"] = str(harm.choice([1, 1, 10, 1 << 40]))
            settings["log.flush.offset.checkpoint.interval.ms"] = "500"
        self.cluster = simulated_cluster(world, settings)
        self.cluster.network.encodes = chance.random() < 0.2
        self.invariants = Invariants(self.cluster)
        self.history = History(world)
        self.is_over = False
        own = Random(f"waiting {world.seed}")
        self.waiting = Waiting(world, self.cluster, own) if own.random() < WAITING_SHARE else None
        self.faults = ClusterFaults(world, self.cluster, self.invariants, struck=TOPIC, min_isr=self.min_isr)
        self.damage = Damage(self.faults, harm, [TOPIC]) if is_damaged else None

    async def go(self) -> int:
        world, chance, cluster, faults = self.world, self.chance, self.cluster, self.faults
        world.loop.sockets.delay_ms = chance.choice([(0.05, 0.15), (0.05, 0.15), (1, 30)])
        await cluster.start_all()
        for a, b in ((1, 2), (1, 3), (2, 3)):
            if chance.random() < 0.5:
                cluster.links.delay(a, b, chance.uniform(0, 5), jitter_ms=chance.uniform(0, 20))
        cluster.create_topic(TOPIC, self.partitions)
        write, read = (self.write_aiokafka, self.read_aiokafka) if self.foreign else (self.write, self.read)
        clients = [world.loop.create_task(write(each)) for each in range(chance.choice([1, 2, 3]))]
        clients.append(world.loop.create_task(read()))
        if self.waiting is not None:
            self.invariants.passing.add(PASSING)
            self.waiting.begin()
        drawn = chance.sample(faults.all, chance.randrange(2, len(faults.all)))  # each seed has troubles of its own
        nemeses = chance.choice([1, 1, 2, 3])
        count = FAULTS if self.damage is None else FAULTS - DAMAGED_FAULTS
        harm = [] if self.damage is None else [world.loop.create_task(self.damage.go())]
        if self.damage is not None and self.damage.is_alone:
            await harm.pop()
        troubles = [world.loop.create_task(faults.rotate(drawn, count // nemeses)) for _ in range(nemeses)]
        for each in (*troubles, *harm):
            await each
        await faults.heal()
        if self.damage is not None:
            await self.damage.mend_all()
        await cluster.waits.in_sync(timeout=HEAL_MS_MAX / 1000)
        await world.clock.sleep(5000)
        self.is_over = True
        for task in clients:
            await task
        if self.waiting is not None:
            await self.waiting.end()
        await cluster.waits.in_sync(timeout=HEAL_MS_MAX / 1000)
        self.invariants.check_equal()
        self.history.check(await self.read_all())
        faults.look()
        await cluster.stop_all()
        self.invariants.close()
        faults.check_disks()
        return len(self.history.acknowledged)

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
            ends = dict.fromkeys(range(self.partitions), 0)
            while not self.is_over:
                try:
                    for record in await consumer.fetch(max_wait_ms=500):
                        if record.offset != ends[record.partition]:
                            place = f"{TOPIC}-{record.partition}"
                            raise Violation("G5", f"{place}: {record.offset} came, not {ends[record.partition]}")
                        ends[record.partition] += 1
                        self.history.serve(record.partition, record.offset, record.value)
                except (KafkaError, ProtocolError) as error:
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


RUNS = Runs(Run, "acknowledged")

if __name__ == "__main__":
    sys.exit(RUNS.command(sys.argv[1:]))
