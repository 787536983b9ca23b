"""Runs of one broker in virtual time.

As a program it prints the trace hash of a seed: `python -m tests.simulation.runs node 7`, and with one more word all
that happened.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from minibroker.broker.broker import Node
from minibroker.client import Cluster, Consumer, Producer
from minibroker.config import BrokerConfig
from minibroker.errors import KafkaError
from minibroker.reporter import Reporter
from minibroker.simulation.disk import SimulatedStorage
from minibroker.simulation.processes import Process
from minibroker.simulation.run import World, simulate

PORT = 9092
ADDRESS = f"127.0.0.1:{PORT}"


class TraceReporter(Reporter):
    """Lines for people become part of the trace."""

    def __init__(self, world: World):
        self.say = world.trace.add  # type: ignore[method-assign]


class Machine:
    """A broker that can crash and come back with what its disk kept."""

    def __init__(self, world: World, **settings: object):
        self.world = world
        self.settings = {"listeners": f"PLAINTEXT://{ADDRESS}", **settings}
        self.storage = SimulatedStorage(world.clock.now_ms)
        self.life = 0
        self.process: Process
        self.node: Node

    async def start(self) -> None:
        self.life += 1
        self.storage.before_step = lambda step: self.world.trace.add(str(step))
        self.process = self.world.loop.process(f"broker, life {self.life}")
        self.node = Node(
            BrokerConfig.from_sources(self.settings),
            self.storage,
            clock=self.world.clock,
            chance=Random(self.world.chance.random()),
            reporter=TraceReporter(self.world),
        )
        await self.process.run(self.node.start())

    def crash(self) -> None:
        """Lose the power, and what was not synced."""
        self.process.kill()
        self.storage = self.storage.crashed(self.world.chance)


async def crashing_node(world: World) -> list[int]:
    """Our own client writes and reads while the broker crashes; return how many records each life showed."""
    machine = Machine(world)
    counts = []
    sent = 0
    for _ in range(4):
        await machine.start()
        async with Cluster(ADDRESS, clock=world.clock) as cluster:
            async with Producer(cluster) as producer:
                for _ in range(world.chance.randrange(10, 60)):
                    await producer.enqueue("orders", b"%d" % sent, b"k")
                    sent += 1
                    await world.clock.sleep(world.chance.uniform(0, 50))
                await producer.flush()
            async with Consumer(cluster) as consumer:
                await consumer.assign([("orders", 0, "earliest")])
                end = machine.node.replicas["orders", 0].high_watermark
                found: list[bytes | None] = []
                while len(found) < end:
                    found += [record.value for record in await consumer.fetch(max_wait_ms=500)]
                assert len(found) == end
                counts.append(end)
        if world.chance.random() < 0.3:
            await machine.process.run(machine.node.stop())
            machine.process.kill()
        else:
            machine.crash()
    return counts


async def aiokafka_on_a_node(world: World, count: int = 100, pause_ms: float = 100) -> list[bytes]:
    """An unmodified aiokafka writes and reads; in the middle the broker is killed and started again on its disk."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    machine = Machine(world)
    await machine.start()
    machine.node.create_topic("orders", 1)
    producer = AIOKafkaProducer(bootstrap_servers=ADDRESS, acks="all", enable_idempotence=True)
    consumer = AIOKafkaConsumer("orders", bootstrap_servers=ADDRESS, auto_offset_reset="earliest", group_id=None)
    await producer.start()
    await consumer.start()

    async def send() -> None:
        for number in range(count):
            # Compiled code of aiokafka would ask the real clock, so it is told the time.
            await producer.send_and_wait("orders", b"%d" % number, timestamp_ms=world.clock.now_ms())
            await world.clock.sleep(world.chance.uniform(0, 2 * pause_ms))

    sending = world.loop.create_task(send())
    found: list[bytes] = []
    async for record in consumer:
        found.append(record.value)
        if len(found) == count // 2:
            machine.process.kill()  # kill -9: the disk is as it was
            await world.clock.sleep(500)
            machine.storage.unlock()
            await machine.start()
        if len(found) == count:
            break
    await sending
    await producer.stop()
    await consumer.stop()
    await machine.process.run(machine.node.stop())
    return found


async def troubled_node(world: World, *, idempotent: bool = True) -> int:
    """A broker is killed, paused, cut off and reset under a producer; return how many records were acknowledged."""
    world.loop.sockets.max_piece_bytes = world.chance.choice([0, 0, 50])
    world.loop.sockets.delay_ms = world.chance.choice([(0.05, 0.15), (1, 30), (20, 80)])
    machine = Machine(world)
    await machine.start()
    machine.node.create_topic("orders", 1)
    acknowledged: dict[int, bytes] = {}
    is_over = False

    async def write() -> None:
        number = 0
        async with (
            Cluster(ADDRESS, clock=world.clock, timeout_ms=3000) as cluster,
            Producer(cluster, idempotent=idempotent) as producer,
        ):
            while not is_over:
                value = b"%d" % number
                try:
                    acknowledged[(await producer.send("orders", value)).offset] = value
                except KafkaError as error:
                    world.trace.add(f"{value!r} failed: {error}")
                number += 1
                await world.clock.sleep(world.chance.uniform(0, 400))

    writing = world.loop.create_task(write())
    for _ in range(10):
        await world.clock.sleep(world.chance.uniform(100, 5000))
        trouble = world.chance.choice(["kill", "pause", "cut", "reset"])
        world.trace.add(trouble)
        if trouble == "kill":
            machine.process.kill()
            machine.storage.unlock()
            await world.clock.sleep(world.chance.uniform(0, 500))
            await machine.start()
        elif trouble == "pause":
            machine.process.pause()
            await world.clock.sleep(world.chance.uniform(0, 8000))
            machine.process.resume()
        elif trouble == "cut":
            world.loop.sockets.cut(PORT)
            await world.clock.sleep(world.chance.uniform(0, 8000))
            world.loop.sockets.heal(PORT)
        else:
            world.loop.sockets.reset(PORT)
    await world.clock.sleep(10_000)
    is_over = True
    await writing
    found: dict[int, bytes | None] = {}
    async with Cluster(ADDRESS, clock=world.clock) as cluster, Consumer(cluster) as consumer:
        await consumer.assign([("orders", 0, "earliest")])
        while len(found) < machine.node.replicas["orders", 0].high_watermark:
            found |= {record.offset: record.value for record in await consumer.fetch(max_wait_ms=500)}
    assert not [offset for offset, value in acknowledged.items() if found.get(offset) != value], "lost"
    assert len(set(found.values())) == len(found), "written twice"
    numbers = [int(found[offset] or b"") for offset in sorted(found)]
    assert numbers == sorted(numbers), "out of order"
    return len(acknowledged)


RUNS: dict[str, Callable[[World], Coroutine[Any, Any, Any]]] = {
    "node": crashing_node,
    "trouble": troubled_node,
    "aiokafka": aiokafka_on_a_node,
}

if __name__ == "__main__":
    outcome = simulate(RUNS[sys.argv[1]], int(sys.argv[2]), keep_lines=len(sys.argv) > 3)
    if outcome.lines is not None:
        print("\n".join(outcome.lines))
    outcome.check()
    print(outcome.trace_hash, outcome.trace_count)
