"""Requests that wait for a topic that is made, altered, deleted and made anew meanwhile.

W1: whoever waits for a partition has seen it as it is. After each turn of the loop what is registered with a replica is
    compared with the replica: a high watermark that has moved, a log that is offline, a replica that has gone, or a
    decision that could be made, and nobody was woken, is a wake-up that was lost.
W2: in the end, with everybody alive and the topic gone, every request is answered at once.
"""

from __future__ import annotations

import asyncio
from random import Random

from minibroker.broker.broker import Node
from minibroker.broker.handlers.fetch_sessions import CachedPartition
from minibroker.broker.handlers.waiting import Decision
from minibroker.client import Cluster as Client
from minibroker.cluster.cluster import Cluster
from minibroker.cluster.nodes import RUNNING, NoSuchBroker
from minibroker.errors import KafkaError
from minibroker.events import Event
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.delete_records import DeleteRecordsRequest
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.replication.replica import Replica
from minibroker.simulation.run import World

from .invariants import Violation

TOPIC = "passing"
WAIT_MS = 20_000
END_MS_MAX = 3_000
WAITERS = 4


class Waiting:
    """What waits in one run."""

    def __init__(self, world: World, cluster: Cluster, chance: Random):
        self.world = world
        self.cluster = cluster
        self.chance = chance
        self.failure: Violation | None = None
        self.answered = 0
        self.checks = 0
        self._is_over = False
        self._is_due = False
        self._replicas: dict[Replica, Node] = {}  # that somebody may wait for, whether they are a broker's still or not
        self._tasks: list[asyncio.Task[None]] = []
        self._subscription = cluster.events.subscribe(self._hear)

    def begin(self) -> None:
        loop = self.world.loop
        self._tasks = [loop.create_task(self._wait(), name="waits") for _ in range(WAITERS)]
        self._tasks.append(loop.create_task(self._come_and_go(), name="comes and goes"))

    async def end(self) -> None:
        """Let everybody go; all brokers live."""
        self._is_over = True
        await self._tasks.pop()
        begun_ms = self.world.clock.steady_ms()
        for task in self._tasks:
            await task
        took_ms = self.world.clock.steady_ms() - begun_ms
        self._subscription.cancel()
        if self.failure is None and took_ms > END_MS_MAX:
            self.failure = Violation("W2", f"a request was answered {took_ms} ms after its topic had gone")
        if self.failure is not None:
            raise self.failure

    # The rule

    def _hear(self, event: Event) -> None:
        if not self._is_due and self.failure is None:
            self._is_due = True
            self.world.loop.call_soon(self._check)

    def _check(self) -> None:
        self._is_due = False
        for broker, node in self.cluster.nodes.items():
            if self.cluster.states[broker] == RUNNING:
                self._replicas.update(dict.fromkeys(node.replicas.values(), node))
        for replica, node in list(self._replicas.items()):
            if self.cluster.nodes.get(node.node_id) is not node or self.cluster.states[node.node_id] != RUNNING:
                del self._replicas[replica]
                continue
            is_there = node.replicas.get((replica.topic, replica.partition)) is replica
            for waiter in replica.waiters:
                if isinstance(waiter, CachedPartition) and waiter.key not in waiter.session.changed:
                    self._look(
                        replica,
                        is_there
                        and waiter.read_high_watermark == replica.high_watermark
                        and replica.log.offline is None,
                    )
                elif isinstance(waiter, Decision):
                    self._look(replica, is_there and waiter.decide() is None)
            if not is_there and not replica.waiters:
                del self._replicas[replica]

    def _look(self, replica: Replica, has_heard: bool) -> None:
        self.checks += 1
        if not has_heard and self.failure is None:
            self.failure = Violation("W1", f"who waits for {replica.place} has not heard how it is")

    # The requests

    async def _wait(self) -> None:
        clock = self.world.clock
        async with Client(self.cluster.bootstrap_servers, clock=clock, timeout_ms=2 * WAIT_MS) as client:
            while not self._is_over:
                try:
                    await client.metadata()
                    connection = await client.connection(self.chance.choice(self.cluster.broker_ids))
                    request, version = self._request()
                    await connection.call(request, version, timeout_ms=2 * WAIT_MS)
                    self.answered += 1
                except (KafkaError, OSError) as error:
                    self.world.trace.add(f"a request that waits failed: {error}")
                await clock.sleep(self.chance.uniform(1, 100))

    def _request(self) -> tuple[Request, int]:
        kind = self.chance.choice(["fetch", "fetch", "fetch", "produce", "delete"])
        if kind == "produce":
            Data = ProduceRequest.TopicProduceData
            records = build_batch(2, [Record(None, b"value", (), self.world.clock.now_ms())])
            data = Data(name=TOPIC, partition_data=[Data.PartitionProduceData(index=0, records=records)])
            return ProduceRequest(acks=-1, timeout_ms=WAIT_MS, topic_data=[data]), 9
        if kind == "delete":
            Deleted = DeleteRecordsRequest.DeleteRecordsTopic
            row = Deleted.DeleteRecordsPartition(partition_index=0, offset=-1)
            return DeleteRecordsRequest(timeout_ms=WAIT_MS, topics=[Deleted(name=TOPIC, partitions=[row])]), 2
        version = self.chance.choice([4, 12, 17])
        topic = self.cluster.controller.image.topics.get(TOPIC)
        named = FetchRequest.FetchTopic(
            topic="" if version >= 13 else TOPIC,
            topic_id=bytes(16) if version < 13 or topic is None else topic.id,
            partitions=[
                FetchRequest.FetchTopic.FetchPartition(
                    partition=0, fetch_offset=self.chance.choice([0, 0, 1, 3]), partition_max_bytes=1 << 20
                )
            ],
        )
        fetch = FetchRequest(
            replica_id=-1,
            max_wait_ms=WAIT_MS,
            min_bytes=self.chance.choice([1, 1, 150, 10_000]),
            isolation_level=self.chance.choice([0, 1]),
            session_epoch=self.chance.choice([0, -1]),
            topics=[named],
        )
        return fetch, version

    async def _come_and_go(self) -> None:
        """Make the topic, alter it, delete it, again and again; in the end it is gone."""
        cluster, chance, clock = self.cluster, self.chance, self.world.clock
        while not self._is_over:
            await self._try(lambda: cluster.create_topic(TOPIC, 1, chance.choice([1, 2, 3])))
            for _ in range(chance.choice([1, 3, 10])):
                await clock.sleep(chance.uniform(0, 2_000))
                count = chance.choice(["1", "2", "3"])
                await self._try(lambda: cluster.alter_topic(TOPIC, min_insync_replicas=count))  # noqa: B023
                if self._is_over:
                    break
            await self._try(lambda: cluster.delete_topic(TOPIC))
            await clock.sleep(chance.choice([0, 0, 1_000]) * chance.random())
        while TOPIC in cluster.controller.image.topics:
            await self._try(lambda: cluster.delete_topic(TOPIC))
            await clock.sleep(100)

    async def _try(self, act) -> None:  # type: ignore[no-untyped-def]
        try:
            act()
        except (KafkaError, NoSuchBroker) as error:
            self.world.trace.add(f"{TOPIC}: {error}")
