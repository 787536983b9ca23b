"""Members of groups for tests: they ask once, over the wire, as those of the lessons do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from minibroker.lessons.clients import Asking
from minibroker.lessons.members import CONSUMER, EAGER, Member
from minibroker.protocol.messages.fetch import FetchRequest

PATIENCE_MS = 120_000  # bounds a hang: the first answer needs 50 partitions to be made, maybe on a busy machine


class Team:
    """Members of one group, of brokers at these addresses."""

    def __init__(self, bootstrap_servers: str, group: str, topics: Sequence[str], by: str = EAGER):
        self.addresses = [each.rpartition(":") for each in bootstrap_servers.split(",")]
        self.group = group
        self.topics = list(topics)
        self.by = by
        self.members: dict[str, Member] = {}
        self.joining: dict[str, asyncio.Task[None]] = {}

    def _address(self, broker: int) -> tuple[str, int]:
        host, _, port = self.addresses[broker - 1]
        return host, int(port)

    def asking(self, name: str) -> Asking:
        return Asking(self._address, name, PATIENCE_MS)

    async def coordinator(self, ask: int = 1) -> int:
        asking = self.asking("finder")
        try:
            return await asking.coordinator(ask, self.group)
        finally:
            await asking.close()

    async def join(self, *names: str) -> None:
        """Let members ask to be in, again if they have been; each waits in a task of its own."""
        broker = await self.coordinator()
        for name in names:
            if name not in self.members:
                asking = self.asking(name)
                self.members[name] = Member(name, self.group, self.topics, by=self.by, asking=asking)
            member = self.members[name]
            if self.by == CONSUMER:
                await member.enter(broker)
            else:
                self.joining[name] = asyncio.create_task(member.join(broker))

    async def share(self) -> None:
        """Wait until all who have asked are in, and share what there is."""
        broker = await self.coordinator()
        await asyncio.gather(*self.joining.values())
        await asyncio.gather(*(self.members[name].sync(broker) for name in self.joining))
        self.joining.clear()

    async def beat(self, name: str) -> None:
        await self.members[name].heartbeat(await self.coordinator())

    async def leave(self, name: str) -> None:
        await self.members.pop(name).leave(await self.coordinator())

    async def commit(self, name: str, topic: str, partition: int, offset: int) -> None:
        await self.members[name].commit(await self.coordinator(), (topic, partition), offset)

    async def fetch(self, name: str, topic: str, topic_id: bytes, partition: int, offset: int, broker: int = 1) -> None:
        """Read a partition once, as the client of a member would."""
        Topic = FetchRequest.FetchTopic
        wanted = Topic.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, topics=[Topic(topic=topic, topic_id=topic_id, partitions=[wanted])]
        )
        await self.members[name].asking.ask(broker, request)


@asynccontextmanager
async def team(bootstrap_servers: str, group: str, topics: Sequence[str], by: str = EAGER) -> AsyncIterator[Team]:
    found = Team(bootstrap_servers, group, topics, by)
    try:
        yield found
    finally:
        for task in found.joining.values():
            task.cancel()
        await asyncio.gather(*found.joining.values(), return_exceptions=True)
        for member in found.members.values():
            await member.asking.close()
