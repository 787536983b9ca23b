"""What a reader with read_committed gets of a topic, once no transaction is open there any more."""

from __future__ import annotations

import asyncio

from minibroker.client import Cluster, ConsumedRecord, Consumer

SECONDS_MAX = 60


def committed_records(address: str, *topics: str) -> list[ConsumedRecord]:
    """Return the records of topics, those of a partition in their order."""

    async def read() -> list[ConsumedRecord]:
        found: list[ConsumedRecord] = []
        async with Cluster(address) as cluster, Consumer(cluster, isolation_level="read_committed") as consumer:
            partitions = [(name, index) for name in topics for index in (await cluster.topic(name)).partitions]
            await consumer.assign((*each, "earliest") for each in partitions)
            while not all(consumer.high_watermark(*each) == consumer.position(*each) for each in partitions):
                found += await consumer.fetch()
        return found

    async def read_in_time() -> list[ConsumedRecord]:
        return await asyncio.wait_for(read(), SECONDS_MAX)

    return asyncio.run(read_in_time())
