"""A cluster in virtual time, for tests that know what is to happen when."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from minibroker.client import Cluster as Client
from minibroker.client import Producer
from minibroker.cluster.cluster import Cluster
from minibroker.events import Event
from minibroker.reporter import Reporter
from minibroker.simulation.disk import SimulatedStorage
from minibroker.simulation.run import World, simulate

TOPIC = "orders"


class Lab:
    """A cluster, and what happened in it."""

    def __init__(self, world: World, cluster: Cluster):
        self.world = world
        self.cluster = cluster
        self.heard: list[Event] = []
        cluster.events.subscribe(self.heard.append)

    def lines(self, *kinds: str) -> list[str]:
        return [event.line for event in self.heard if event.kind in kinds]

    def ends(self, topic: str = TOPIC, partition: int = 0) -> dict[int, tuple[int, int]]:
        """Return the end of the log and the high watermark of each replica that runs."""
        return {
            broker: (replica.log.log_end_offset, replica.high_watermark)
            for broker in self.cluster.broker_ids
            if (replica := self.cluster.replica(topic, partition, broker)) is not None
        }

    async def send(self, *values: bytes, acks: int = -1, topic: str = TOPIC, timeout_ms: int = 5000) -> list[int]:
        """Send values one after the other; return their offsets."""
        async with (
            Client(self.cluster.bootstrap_servers, clock=self.world.clock, timeout_ms=timeout_ms) as client,
            Producer(client, acks=acks) as producer,
        ):
            return [(await producer.send(topic, value, partition=0)).offset for value in values]


def in_cluster(
    main: Callable[[Lab], Coroutine[Any, Any, Any]],
    *,
    brokers: int = 3,
    seed: int = 1,
    racks: tuple[str, ...] = (),
    settings: dict[str, str] | None = None,
    reporter: Reporter | None = None,
    as_version: str | None = None,
) -> Any:
    """Run a program with a cluster that has started, and stop it in order in the end."""

    async def run(world: World) -> Any:
        cluster = Cluster(
            settings or {},
            lambda name: SimulatedStorage(world.clock.now_ms),
            brokers=brokers,
            racks=racks,
            clock=world.clock,
            chance=Random(seed),
            events=world.events,
            reporter=reporter,
            as_version=as_version,
        )
        await cluster.start_all()
        result = await main(Lab(world, cluster))
        await cluster.stop_all()
        return result

    outcome = simulate(run, seed, limit_s=3600)
    result = outcome.check()
    assert outcome.left == [], f"left behind: {outcome.left}"
    return result
