"""Retention and compaction in virtual time, from one seed: a cluster cleans its logs while faults befall it.

    python -m tests.simulation.cleaning_run 7              one seed; with --lines all that happened
    python -m tests.simulation.cleaning_run --seeds 100    many, and how fast they went
    python -m tests.simulation.cleaning_run --bug cleans-the-young           how many it takes to find a planted bug

Three topics: one is compacted, one is deleted from, one is both. A seed draws how soon segments end, how long records
and tombstones are kept, how often somebody looks, and the faults of cluster_run.py. Few keys are written again and
again. In the end all heals; then every replica must have what may be left (cleaning_invariants.py), and consumers get
it: from a hole the next record, from before the start an error.
"""

from __future__ import annotations

import sys

from minibroker.client import Cluster as Client
from minibroker.client import Consumer, Producer
from minibroker.errors import Error, KafkaError
from minibroker.replication.replica import Replica
from minibroker.simulation.run import World

from .cleaning_invariants import CleaningInvariants, Key, Row, rows_of
from .cluster_faults import ClusterFaults
from .invariants import Violation
from .seeded_runs import HEAL_MS_MAX, Runs, drawn_settings, simulated_cluster

COMPACTED, EXPIRING, BOTH = "compacted", "expiring", "both"
POLICIES = {COMPACTED: "compact", EXPIRING: "delete", BOTH: "compact,delete"}
FAULTS = 8
HOLES_MAX = 5  # of each partition, that are read from


class Run:
    """One seed."""

    def __init__(self, world: World):
        self.world = world
        self.chance = chance = world.chance
        self.partitions = chance.choice([1, 1, 2])
        self.min_isr = chance.choice([1, 2, 2, 2])
        self.keys = chance.choice([2, 5, 20])
        settings = {
            **drawn_settings(chance, self.min_isr),
            "replica.fetch.max.bytes": str(chance.choice([200, 1000, 1 << 20])),
            "log.flush.interval.messages": str(chance.choice([1, 10, 1 << 40])),
            "log.index.size.max.bytes": "4096",
            "log.initial.task.delay.ms": "500",
            "log.retention.check.interval.ms": str(chance.choice([300, 2000])),
            "log.cleaner.backoff.ms": str(chance.choice([100, 1000])),
        }
        self.topic_settings = {
            "segment.ms": str(chance.choice([300, 1000, 4000])),
            "retention.ms": str(chance.choice([2000, 10_000])),
            "delete.retention.ms": str(chance.choice([0, 1000, 60_000])),
            "min.compaction.lag.ms": str(chance.choice([0, 0, 2000])),
            "min.cleanable.dirty.ratio": str(chance.choice([0.01, 0.5])),
            "file.delete.delay.ms": str(chance.choice([0, 1000])),
        }
        self.cluster = simulated_cluster(world, settings)
        self.invariants = CleaningInvariants(self.cluster)
        self.acknowledged: dict[tuple[Key, int], bytes | None] = {}
        self.served: dict[tuple[Key, int], bytes | None] = {}
        self.is_over = False
        self.faults = ClusterFaults(world, self.cluster, self.invariants, struck=COMPACTED, min_isr=self.min_isr)

    async def go(self) -> int:
        """Return how many records were removed."""
        world, chance, cluster, faults = self.world, self.chance, self.cluster, self.faults
        await cluster.start_all()
        for topic, policy in POLICIES.items():
            cluster.create_topic(topic, self.partitions, cleanup_policy=policy, **self.topic_settings)
        clients = [world.loop.create_task(self.write(each)) for each in range(chance.choice([1, 2]))]
        clients.append(world.loop.create_task(self.read()))
        drawn = chance.sample(faults.all, chance.randrange(2, len(faults.all)))
        nemeses = chance.choice([1, 1, 2])
        troubles = [world.loop.create_task(faults.rotate(drawn, FAULTS // nemeses)) for _ in range(nemeses)]
        for each in troubles:
            await each
        await faults.heal()
        await cluster.waits.in_sync(timeout=HEAL_MS_MAX / 1000)
        await world.clock.sleep(5000)
        self.is_over = True
        for task in clients:
            await task
        await cluster.waits.in_sync(timeout=HEAL_MS_MAX / 1000)
        await world.clock.sleep(5000)
        self.invariants.check_equal()
        self.check_told()
        for topic in POLICIES:
            for partition in range(self.partitions):
                await self.check_served(topic, partition)
        faults.look()
        await cluster.stop_all()
        self.invariants.close()
        faults.check_disks()
        return self.invariants.removed

    # Clients

    async def write(self, number: int) -> None:
        world, chance, count = self.world, self.chance, 0
        async with (
            Client(self.cluster.bootstrap_servers, clock=world.clock, timeout_ms=5000) as client,
            Producer(client, idempotent=True) as producer,
        ):
            while not self.is_over:
                sent = []
                for _ in range(chance.choice([1, 3, 10])):
                    count += 1
                    topic, partition = chance.choice(list(POLICIES)), chance.randrange(self.partitions)
                    value = None if chance.random() < 0.2 else b"%d/%d" % (number, count)
                    key = b"key-%d" % chance.randrange(self.keys)
                    try:
                        sent.append((value, await producer.enqueue(topic, value, key, partition=partition)))
                    except KafkaError as error:
                        world.trace.add(f"{value!r} was not sent: {error}")
                for value, waiting in sent:
                    try:
                        metadata = await waiting
                        key_of = (metadata.topic, metadata.partition)
                        self.acknowledged[key_of, metadata.offset] = value
                    except KafkaError as error:
                        world.trace.add(f"{value!r} failed: {error}")
                await world.clock.sleep(chance.uniform(0, 300))

    async def read(self) -> None:
        """Read along from the beginning, again and again, and note what was served (L3)."""
        world = self.world
        while not self.is_over:
            async with (
                Client(self.cluster.bootstrap_servers, clock=world.clock, timeout_ms=5000) as client,
                Consumer(client, out_of_range="earliest") as consumer,
            ):
                try:
                    places = [(topic, each, "earliest") for topic in POLICIES for each in range(self.partitions)]
                    await consumer.assign(places)
                    for _ in range(self.chance.choice([5, 50])):
                        for record in await consumer.fetch(max_wait_ms=200):
                            place = ((record.topic, record.partition), record.offset)
                            before = self.served.setdefault(place, record.value)
                            if before != record.value:
                                raise Violation("L3", f"{place} was {before!r} and is {record.value!r} now")
                except KafkaError as error:
                    world.trace.add(f"a consumer failed: {error}")
                    await world.clock.sleep(200)

    # The end

    def check_told(self) -> None:
        """What was acknowledged or served is what was committed (R9, L3)."""
        for rule, told in (("R9", self.acknowledged), ("L3", self.served)):
            for (key, offset), value in told.items():
                row = self.invariants.committed.get(key, {}).get(offset)
                if key not in self.invariants.unclean and (row is None or row.value != value):
                    raise Violation(rule, f"{key}: {value!r} was told of at {offset}, and committed was {row}")

    async def check_served(self, topic: str, partition: int) -> None:
        """Check what consumers get; once more if retention has taken away meanwhile what one of them was about to."""
        leader = self.cluster.leader(topic, partition)
        assert leader is not None
        while True:
            start = leader.log.log_start_offset
            try:
                return await self._check_served(leader, start)
            except KafkaError as error:
                if error.code != Error.OFFSET_OUT_OF_RANGE or leader.log.log_start_offset == start:
                    raise

    async def _check_served(self, leader: Replica, start: int) -> None:
        """A consumer gets all that is left, from a hole the next record, and from before the start an error (C5)."""
        topic, partition = leader.topic, leader.partition
        place = f"{topic}-{partition}"
        left = dict(rows_of(leader, leader.high_watermark))
        if (found := await self.fetched(topic, partition, start, leader.high_watermark)) != left:
            # Retention may have gone on meanwhile.
            left = dict(rows_of(leader, leader.high_watermark))
            start = leader.log.log_start_offset
            if {offset: row for offset, row in found.items() if offset >= start} != left:
                raise Violation("C5", f"{place}: {[*found]} was served, and there is {[*left]}")
        holes = [offset for offset in range(start, max(left, default=start)) if offset not in left]
        for hole in self.chance.sample(holes, min(HOLES_MAX, len(holes))):
            wanted = min((offset for offset in left if offset > hole), default=-1)
            got = min(await self.fetched(topic, partition, hole, wanted + 1), default=-1)
            if got != wanted and hole >= leader.log.log_start_offset:
                raise Violation("C5", f"{place}: from {hole} came {got}, not {wanted}")
        if start > 0:
            try:
                await self.fetched(topic, partition, start - 1, start)
            except KafkaError as error:
                if error.code == Error.OFFSET_OUT_OF_RANGE:
                    return
                raise
            raise Violation("C5", f"{place}: begins at {start}, and {start - 1} is no error")

    async def fetched(self, topic: str, partition: int, start: int, end: int) -> dict[int, Row]:
        found = {}
        async with (
            Client(self.cluster.bootstrap_servers, clock=self.world.clock) as client,
            Consumer(client, out_of_range="error") as consumer,
        ):
            await consumer.assign([(topic, partition, start)])
            while consumer.position(topic, partition) < end:
                for record in await consumer.fetch(max_wait_ms=500):
                    found[record.offset] = Row(record.key, record.value, record.timestamp)
        return found


RUNS = Runs(Run, "removed", "cleaning")

if __name__ == "__main__":
    sys.exit(RUNS.command(sys.argv[1:]))
