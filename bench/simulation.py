"""How fast virtual time passes: seconds of it for one of the machine, and what one message or one turn costs.

Four programs from one seed each: fetch loops over links with delay and loss and nothing else; a broker that idles; a
broker and our own client, with a crash; a broker and an unmodified aiokafka. The figure is the best of three rounds.

    python bench/simulation.py [SECONDS OF VIRTUAL TIME]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from minibroker.broker.broker import Node
from minibroker.client import Cluster, Consumer, Producer
from minibroker.config import BrokerConfig
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.replication.network import Network, NetworkError
from minibroker.simulation.disk import SimulatedStorage
from minibroker.simulation.run import World, simulate

ROUNDS = 3
SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
ADDRESS = "127.0.0.1:9092"


async def links(world: World) -> int:
    """Two followers fetch from each other's leader over links of 1 to 20 ms that lose 5 % of all messages."""
    network = Network(world.clock, world.chance, world.events)
    answer = FetchResponse(responses=[])
    for node in (1, 2, 3):
        network.attach(node, lambda source, message, version: answer)
    for source, target in [(1, 2), (2, 3), (3, 1)]:
        for link in (network.link(source, target), network.link(target, source)):
            link.delay_ms, link.jitter_ms, link.lost_share = 1, 19, 0.05

    async def fetch(source: int, target: int) -> int:
        count = 0
        request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[], forgotten_topics_data=[])
        while world.loop.time() < SECONDS:
            count += 1
            try:
                await network.call(source, target, request, timeout_ms=500)
            except NetworkError:
                await world.clock.sleep(10)
        return count

    tasks = [world.loop.create_task(fetch(*pair)) for pair in [(1, 2), (2, 3), (3, 1)]]
    return sum([await task for task in tasks])


async def broker(world: World) -> Node:
    storage = SimulatedStorage(world.clock.now_ms)
    config = BrokerConfig.from_sources({"listeners": f"PLAINTEXT://{ADDRESS}"})
    node = Node(config, storage, clock=world.clock, chance=Random(world.seed))
    await world.loop.process("broker").run(node.start())
    return node


async def idle(world: World) -> int:
    """A broker without clients."""
    await broker(world)
    await world.clock.sleep(SECONDS * 1000)
    return 0


async def own_client(world: World) -> int:
    """Our client writes a record each 100 ms and reads them all the time."""
    await broker(world)
    count = 0

    async def write(producer: Producer) -> None:
        nonlocal count
        while world.loop.time() < SECONDS:
            await producer.send("orders", b"%d" % count, b"key")
            count += 1
            await world.clock.sleep(100)

    async with Cluster(ADDRESS, clock=world.clock) as cluster, Producer(cluster) as producer:
        writing = world.loop.create_task(write(producer))
        await world.clock.sleep(1000)
        async with Consumer(cluster) as consumer:
            await consumer.assign([("orders", 0, "earliest")])
            found = 0
            while not writing.done() or found < count:
                found += len(await consumer.fetch(max_wait_ms=500))
    return count


async def aiokafka(world: World) -> int:
    """The same with aiokafka as it is."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    (await broker(world)).create_topic("orders", 1)
    producer = AIOKafkaProducer(bootstrap_servers=ADDRESS)
    consumer = AIOKafkaConsumer("orders", bootstrap_servers=ADDRESS, auto_offset_reset="earliest", group_id=None)
    await producer.start()
    await consumer.start()
    count = 0
    while world.loop.time() < SECONDS:
        await producer.send_and_wait("orders", b"%d" % count, timestamp_ms=world.clock.now_ms())
        assert (await consumer.getone()).value == b"%d" % count
        count += 1
        await world.clock.sleep(100)
    await producer.stop()
    await consumer.stop()
    return count


def measure(program: Callable[[World], Coroutine[Any, Any, int]]) -> str:
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        outcome = simulate(program, 1)
        best = min(best, time.perf_counter() - begun)
    count = outcome.check()
    per_message = f"{best / count * 1e6:8.0f}" if count else "        "
    return f"{outcome.virtual_s / best:10,.0f} {best / outcome.turns * 1e6:9.1f} {count:9,} {per_message}"


if __name__ == "__main__":
    print(f"{SECONDS:,.0f} virtual seconds    x real   µs/turn  messages  µs each")
    for program in (links, idle, own_client, aiokafka):
        print(f"{program.__name__:18} {measure(program)}")
