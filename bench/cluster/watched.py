"""A program: brokers of ours in memory, and a subscriber to all events that comes and goes as stdin says.

python -m bench.cluster.watched 3       prints the address, then answers each line:
watch      "watching", everything; with a kind behind it only that
rest       how many events came meanwhile
"""

from __future__ import annotations

import asyncio
import gc
import sys
from random import SystemRandom

from minibroker.broker.broker import Node
from minibroker.clock.steered import SteeredClock
from minibroker.config import BrokerConfig
from minibroker.embedded.cluster_engine import ClusterEngine, ClusterStart
from minibroker.events import Event, EventStream, Subscription
from minibroker.log.memory_storage import MemoryStorage
from minibroker.server.loops import new_loop


def new_cluster(clock: SteeredClock, events: EventStream, brokers: int) -> ClusterEngine:
    """Return a cluster in memory, with free ports."""
    start = ClusterStart({}, (), brokers, 1, "127.0.0.1", (), (), None, None, None)
    names = ["controller", *(f"broker-{each}" for each in range(1, brokers + 1))]
    return ClusterEngine(start, {name: MemoryStorage(clock.now_ms) for name in names}, clock=clock, events=events)


def new_broker(clock: SteeredClock, events: EventStream) -> Node:
    config = BrokerConfig.from_sources({"listeners": "PLAINTEXT://127.0.0.1:0"})
    return Node(config, MemoryStorage(clock.now_ms), clock=clock, chance=SystemRandom(), events=events)


class Watcher:
    """Who reads stdin, and counts events."""

    def __init__(self, events: EventStream):
        self.events = events
        self.heard = 0
        self.over = asyncio.Event()
        self._subscription: Subscription | None = None

    def read(self) -> None:
        """Do what the next line says."""
        verb, *kinds = sys.stdin.readline().split() or [""]
        if verb == "watch":
            self.heard = 0
            self._subscription = self.events.subscribe(self._hear, kinds)
            print("watching", flush=True)
        elif verb == "rest":
            if self._subscription is not None:
                self._subscription.cancel()
            print(self.heard, flush=True)
        else:
            self.over.set()

    def _hear(self, event: Event) -> None:
        self.heard += 1


async def main(brokers: int) -> None:
    clock = SteeredClock()
    events = EventStream(clock.now_ms)
    served = new_broker(clock, events) if brokers == 1 else new_cluster(clock, events, brokers)
    await served.start()
    watcher = Watcher(events)
    gc.freeze()  # as `minibroker serve` does
    gc.set_threshold(20_000, 20, 50)
    print(served.bootstrap_servers, flush=True)
    asyncio.get_running_loop().add_reader(sys.stdin, watcher.read)
    await watcher.over.wait()
    await served.stop()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main(int(sys.argv[1])))
