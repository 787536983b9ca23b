"""Applications with known bugs, as simulated tests; test_simulated.py has them found."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import minibroker

TOPICS = ["orders:2", "bills"]
ORDERS = 8


def consumer_of(servers: str) -> Any:
    from aiokafka import AIOKafkaConsumer

    return AIOKafkaConsumer(
        "orders", bootstrap_servers=servers, group_id="billing", auto_offset_reset="earliest", enable_auto_commit=False
    )


def producer_of(servers: str, *, idempotent: bool = True) -> Any:
    from aiokafka import AIOKafkaProducer

    return AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=idempotent, acks="all")


async def bill(servers: str, commits_first: bool) -> None:
    consumer, producer = consumer_of(servers), producer_of(servers)
    await consumer.start()
    await producer.start()
    async for order in consumer:
        if commits_first:
            await consumer.commit()
        await producer.send_and_wait("bills", order.value)
        if not commits_first:
            await consumer.commit()


async def order(servers: str, *, idempotent: bool = True) -> None:
    producer = producer_of(servers, idempotent=idempotent)
    await producer.start()
    for number in range(ORDERS):
        await producer.send_and_wait("orders", b"%d" % number)
        await asyncio.sleep(0.5)
    await producer.stop()


async def all_are_billed(world: Any, commits_first: bool) -> None:
    world.run(bill, world.bootstrap_servers, commits_first)
    await order(world.bootstrap_servers)
    await world.settle()
    assert len({record.value for record in world.records("bills")}) == ORDERS, "lost"


@minibroker.simulate(seeds=20, topics=TOPICS)
async def test_commit_after_work(world: Any) -> None:
    await all_are_billed(world, commits_first=False)


@minibroker.simulate(seeds=200, topics=TOPICS)
async def test_commit_before_work(world: Any) -> None:
    await all_are_billed(world, commits_first=True)


@minibroker.simulate(seeds=200, topics=TOPICS)
async def test_duplicate_on_retry(world: Any) -> None:
    await order(world.bootstrap_servers, idempotent=False)
    await world.settle()
    assert len(world.records("orders")) == ORDERS, "doubled"


async def count(servers: str, table: dict[int, int]) -> None:
    """Add up orders in a table that all workers share: read, think, write, commit."""
    consumer = consumer_of(servers)
    await consumer.start()
    async for record in consumer:
        total = table.get(0, 0)
        await asyncio.sleep(0.05)
        table[0] = total + json.loads(record.value)
        await consumer.commit()


@minibroker.simulate(seeds=200, topics=TOPICS)
async def test_lost_update_on_rebalance(world: Any) -> None:
    table: dict[int, int] = {}
    for _ in range(2):
        world.run(count, world.bootstrap_servers, table)
    await order(world.bootstrap_servers)
    await world.settle()
    assert table[0] >= sum(range(ORDERS)), "lost update"
