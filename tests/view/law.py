"""The law of the feed under random faults, from seeds: what frames add up to is what there is to see.

    python -m tests.view.law 7                     one seed
    python -m tests.view.law --seeds 50            many
    python -m tests.view.law --what groups 7       groups, transactions or cleaning, with faults and clients of those

The simulation's own runs (tests/simulation), with somebody who looks; every now and then his state is compared.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from minibroker.cluster.cluster import Cluster
from minibroker.cluster.view_source import ClusterSource
from minibroker.simulation.run import World
from tests.simulation import cleaning_run, cluster_run, group_run, transaction_run
from tests.simulation.seeded_runs import Runs

from .watching import Onlooker, differences, tables_of

KINDS: dict[str, Callable[..., Any]] = {
    "cluster": cluster_run.Run,
    "groups": group_run.Run,
    "transactions": transaction_run.Run,
    "cleaning": cleaning_run.Run,
}
QUERIES = ("", "sums=1&clients=1", "parts=orders-0&contents=1", "contents=1", "topics=orders&groups=readers&groups=g")


class WatchedRun:
    """A run of the simulation with somebody who looks."""

    def __init__(self, world: World, new_run: Callable[..., Any]):
        self.world = world
        self.run = new_run(world)
        self.chance = Random(f"looking {world.seed}")
        self.checks = 0
        self.failure: AssertionError | None = None

    async def go(self) -> int:
        looking = self.world.loop.create_task(self.look())
        try:
            await self.run.go()
        finally:
            looking.cancel()
        if self.failure is not None:
            raise self.failure
        return self.checks

    async def look(self) -> None:
        cluster: Cluster = self.run.cluster
        while not hasattr(cluster, "controller") or not cluster.nodes:
            await self.world.clock.sleep(5)
        onlooker = Onlooker(ClusterSource(cluster, cluster.disks), self.chance.choice(QUERIES))
        try:
            while self.failure is None:
                await self.world.clock.sleep(self.chance.choice([1, 30, 300, 3000]) * self.chance.random())
                onlooker.sink.is_full = self.chance.random() < 0.3
                if not onlooker.sink.is_full:
                    self.compare(onlooker)
                if self.chance.random() < 0.05:
                    onlooker = self.come_again(onlooker)
        finally:
            onlooker.feed.close()

    def compare(self, onlooker: Onlooker) -> None:
        if not onlooker.look():
            return
        truth = onlooker.truth()
        self.checks += 1
        if found := differences(tables_of(onlooker.state), tables_of(truth)):
            lines = "\n  ".join(found[:10])
            self.failure = AssertionError(f"after {self.world.loop.time():.3f} s, look {self.checks}:\n  {lines}")

    def come_again(self, before: Onlooker) -> Onlooker:
        """Break the connection, and have the browser come again with the last frame that it has."""
        before.take()
        before.feed.leave(before.viewer)
        before.selection.since = before.last_id
        before.viewer = before.feed.open(before.selection, before.sink)
        return before


def runs_of(what: str) -> Runs:
    def new_run(world: World) -> Coroutine[Any, Any, int] | WatchedRun:
        return WatchedRun(world, KINDS[what])

    return Runs(new_run, "looks", what)  # type: ignore[arg-type]


if __name__ == "__main__":
    words = sys.argv[1:]
    what = "cluster"
    if words[:1] == ["--what"]:
        what, words = words[1], words[2:]
    sys.exit(runs_of(what).command(words))
