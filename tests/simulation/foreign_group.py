"""A group of unmodified aiokafka's consumers beside those of the simulation: they read, commit, come and go.

Whoever takes over a partition goes on where the group has committed, so together they miss nothing, whatever happens to
coordinators; and one that keeps its partitions gets record after record (G5).
"""

from __future__ import annotations

from asyncio import Task
from contextlib import suppress
from typing import TYPE_CHECKING

from minibroker.client import Cluster as Client
from minibroker.client import Producer
from minibroker.errors import KafkaError
from minibroker.simulation.processes import Process, ProcessKilled

from .invariants import Violation

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer

    from .group_run import Run

TOPIC, GROUP = "orders", "foreign"
READ_MS_MAX = 120_000
STOP_MS_MAX = 10_000


class ForeignGroup:
    """Somebody who writes, and a few who read."""

    def __init__(self, run: Run):
        self.run = run
        self.world = run.world
        self.acknowledged: set[tuple[int, int]] = set()  # partition and offset
        self.seen: set[tuple[int, int]] = set()
        self.processes: list[Process] = []
        self.consumers: list[AIOKafkaConsumer] = []
        self.tasks: list[Task[None]] = []
        self.is_written = False
        self.is_over = False

    def begin(self) -> None:
        loop = self.world.loop
        self.tasks += [loop.create_task(self._write()), loop.create_task(self._trouble())]
        for _ in range(2):
            self._start()

    def _start(self) -> None:
        process = self.world.loop.process(f"{GROUP}-{len(self.processes)}")
        self.processes.append(process)
        self.tasks.append(self.world.loop.create_task(self._live(process)))

    async def _live(self, process: Process) -> None:
        with suppress(ProcessKilled):
            await process.run(self._read())

    async def end(self) -> None:
        """Return when all that was acknowledged has been read, by somebody."""
        self.is_written = True
        waited_ms = 0
        while missed := self.acknowledged - self.seen:
            if waited_ms >= READ_MS_MAX:
                raise Violation("G5", f"nobody of {GROUP} was given {sorted(missed)[:5]}")
            await self.world.clock.sleep(500)
            waited_ms += 500
        self.is_over = True
        await self.world.clock.sleep(STOP_MS_MAX)
        for process in self.processes:
            process.kill()  # aiokafka's may wait for ever as they stop
        for consumer in self.consumers:
            consumer._closed = True  # it would complain that nobody has stopped it
        for task in self.tasks:
            await task

    async def _write(self) -> None:
        world, number = self.world, 0
        async with (
            Client(self.run.cluster.bootstrap_servers, clock=world.clock, timeout_ms=5000) as client,
            Producer(client, idempotent=True) as producer,
        ):
            while not self.is_written:
                partition = self.run.chance.randrange(self.run.counts[TOPIC])
                with suppress(KafkaError):
                    sent = await producer.send(TOPIC, b"%d" % number, partition=partition)
                    self.acknowledged.add((partition, sent.offset))
                number += 1
                await world.clock.sleep(self.run.chance.uniform(0, 600))

    async def _trouble(self) -> None:
        """Kill one now and then, and start another."""
        while not self.is_written:
            await self.world.clock.sleep(self.run.chance.uniform(0, 20_000))
            if not self.is_written:
                self.run.chance.choice(self.processes).kill()
                self._start()

    async def _read(self) -> None:
        from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
        from aiokafka.errors import KafkaError as ForeignError

        following: dict[int, int] = {}  # the next offset of each partition, as long as it stays with this one

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_revoked(self, revoked: object) -> None:
                following.clear()

            async def on_partitions_assigned(self, assigned: object) -> None:
                following.clear()

        while True:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self.run.cluster.bootstrap_servers,
                group_id=GROUP,
                auto_offset_reset="earliest",
                session_timeout_ms=6000,
                heartbeat_interval_ms=500,
                rebalance_timeout_ms=6000,
                auto_commit_interval_ms=700,
                request_timeout_ms=5000,
            )
            self.consumers.append(consumer)
            consumer.subscribe([TOPIC], listener=Listener())
            try:
                await consumer.start()
                break
            except ForeignError as error:
                self.world.trace.add(f"aiokafka does not start: {error!r}")
                await self.world.clock.sleep(500)
        while not self.is_over:
            try:
                found = await consumer.getmany(timeout_ms=500)
            except ForeignError as error:
                self.world.trace.add(f"aiokafka: {error!r}")
                continue
            for place, records in found.items():
                for record in records:
                    wanted = following.get(place.partition, record.offset)
                    if record.offset != wanted:
                        raise Violation("G5", f"{TOPIC}-{place.partition}: {record.offset} came, {wanted} was next")
                    following[place.partition] = record.offset + 1
                    self.seen.add((place.partition, record.offset))
        await consumer.stop()
