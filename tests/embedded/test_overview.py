"""What is shown of a broker when a test has failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from minibroker import Broker, Cluster
from minibroker.client import Cluster as Client
from minibroker.client.groups import Groups
from minibroker.errors import Error, KafkaError

KINDS: dict[str, Callable[[], Any]] = {
    "memory": lambda: Broker(topics=["orders:2", "empty"]),
    "process": lambda: Broker(topics=["orders:2", "empty"], process=True),
    "cluster": lambda: Cluster(2, topics=["orders:2:2", "empty"]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_topics_with_their_ends_and_groups_with_their_lag(kind: str) -> None:
    with KINDS[kind]() as running:
        for number in range(5):
            running.produce("orders", {"id": number}, key="k", partition=number % 2, timestamp=1000 + number)
        assert running.ends("orders") == {0: (0, 3), 1: (0, 2)}
        assert [(each.partition, each.offset) for each in running.last_records("orders", 2)] == [
            *((0, 1), (0, 2), (1, 0), (1, 1)),
        ]
        for verb in (running.ends, running.last_records):
            with pytest.raises(KafkaError) as failure:
                verb("nowhere")
            assert failure.value.code == Error.UNKNOWN_TOPIC_OR_PARTITION
        asyncio.run(commit(running.bootstrap_servers))
        assert running.overview().splitlines() == [
            "empty: 1 partition, 0 offsets",
            "orders: 2 partitions, 5 offsets",
            "  [0] 0..3  [1] 0..2",
            '  [0] 1  key k  {"id":2}',
            '  [1] 1  key k  {"id":3}',
            '  [0] 2  key k  {"id":4}',
            "group billing: Empty, 0 members, lag 2",
            "  orders-0: committed 1 of 3",
        ]


async def commit(servers: str) -> None:
    async with Client(servers) as client:
        await Groups(client).alter_offsets("billing", {("orders", 0): 1})


async def test_very_many_are_counted_and_not_shown() -> None:
    async with Broker(topics=[f"t{number:02}:12" for number in range(25)]) as broker:
        async with Client(broker.bootstrap_servers) as client:
            places = {("t00", partition): 0 for partition in range(12)}
            for number in range(12):
                await Groups(client).alter_offsets(f"g{number:02}", places)
        for partition in range(10):
            await broker.aproduce("t00", "x", partition=partition)
        lines = (await broker.aoverview()).splitlines()
        assert lines[1].endswith("[7] 0..1  and 2 more")
        assert len([line for line in lines if line.startswith("t")]) == 20
        assert "and 5 more topics" in lines
        assert "  and 4 more partitions" in lines
        assert lines[-1] == "and 2 more groups"


def test_of_nothing_it_says_so() -> None:
    with Broker() as broker:
        assert broker.overview() == "no topic"
