"""Inside the process, without sockets: from an append on the leader until every replica in sync has it.

    by events      from the leader's append event to its high_watermark event
    unobserved     from the call of append to the waiter that is told of the high watermark; nobody watches
    looks          how often a produced batch and its replication look whether anybody watches, and what that takes

The thread does nothing else meanwhile, so what is measured is the followers being woken, fetching and fetching again.
"""

from __future__ import annotations

import asyncio
import statistics
import time
import timeit

from bench.broker.load import batch
from bench.broker.rounds import Figures
from bench.cluster.kinds import BROKERS
from bench.cluster.watched import new_cluster
from minibroker.clock.steered import SteeredClock
from minibroker.events import Event, EventStream
from minibroker.replication.replica import Replica
from minibroker.server.loops import new_loop

TOPIC = "inside"
WARM_UP = 300
HANDLER_LOOKS = 1  # by the handler of Produce, which is passed by here


class CountedStream(EventStream):
    """One that counts who asks whether anybody watches."""

    looks = 0
    _is_observed = False
    _wanted: frozenset[str] = frozenset()

    @property
    def observed(self) -> bool:
        self.looks += 1
        return self._is_observed

    @observed.setter
    def observed(self, value: bool) -> None:
        self._is_observed = value

    @property
    def wanted(self) -> frozenset[str]:
        self.looks += 1
        return self._wanted

    @wanted.setter
    def wanted(self, value: frozenset[str]) -> None:
        self._wanted = value


def measure(what: str, records: int, count: int) -> Figures:
    """Return what one kind of measurement says of batches of so many records of 100 bytes."""
    measures = {"by events": by_events, "unobserved": unobserved, "looks": looks}
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(in_cluster(measures[what], batch(100, records), count))


async def in_cluster(measuring, data: bytes, count: int) -> Figures:  # type: ignore[no-untyped-def]
    clock = SteeredClock()
    events: EventStream = CountedStream(clock.now_ms) if measuring is looks else EventStream(clock.now_ms)
    engine = new_cluster(clock, events, BROKERS)
    await engine.start()
    try:
        engine.core.create_topic(TOPIC, 1, BROKERS, assignments=[[1, 2, 3]])
        await engine.let_know()
        replica = engine.core.leader(TOPIC, 0)
        assert replica is not None
        await unobserved(replica, events, data, WARM_UP)
        figures: Figures = await measuring(replica, events, data, count)
        return figures
    finally:
        await engine.stop()


async def unobserved(replica: Replica, events: EventStream, data: bytes, count: int) -> Figures:
    took = []
    loop = asyncio.get_running_loop()
    for _ in range(count):
        done: asyncio.Future[float] = loop.create_future()

        def changed(size_bytes: int, done: asyncio.Future[float] = done) -> None:
            if replica.high_watermark == replica.log.log_end_offset and not done.done():
                done.set_result(time.perf_counter())

        await asyncio.sleep(0)
        start = time.perf_counter()
        replica.waiters[changed] = None
        replica.append(data, now_ms=time.time_ns() // 1_000_000, steady_ms=0, acks=-1)
        took.append(await done - start)
        del replica.waiters[changed]
    return centiles(took)


async def by_events(replica: Replica, events: EventStream, data: bytes, count: int) -> Figures:
    took = []
    start = 0.0
    loop = asyncio.get_running_loop()
    done: asyncio.Future[float]

    def hear(event: Event) -> None:
        nonlocal start
        if event.broker == replica.node_id:  # type: ignore[attr-defined]
            if event.kind == "append":
                start = time.perf_counter()
            elif not done.done():
                done.set_result(time.perf_counter())

    with events.subscribe(hear, ("append", "high_watermark")):
        for _ in range(count):
            done = loop.create_future()
            await asyncio.sleep(0)
            replica.append(data, now_ms=time.time_ns() // 1_000_000, steady_ms=0, acks=-1)
            took.append(await done - start)
    return centiles(took)


async def looks(replica: Replica, events: EventStream, data: bytes, count: int) -> Figures:
    """Kept apart from the times: a counted look takes longer."""
    assert isinstance(events, CountedStream)
    before = events.looks
    await unobserved(replica, events, data, count)
    each = (events.looks - before) / count + HANDLER_LOOKS
    plain = EventStream()
    rounds = 200_000
    look = timeit.timeit("if 'append' in events.wanted: pass", globals={"events": plain}, number=rounds)
    nothing = timeit.timeit("pass", number=rounds)
    return {"looks": each, "looks_us": each * (look - nothing) / rounds * 1e6}


def centiles(took: list[float]) -> Figures:
    found = statistics.quantiles(took, n=100)
    return {"p50_us": found[49] * 1e6, "p99_us": found[98] * 1e6}
