"""Waiting for a cluster to be as one wants it."""

from __future__ import annotations

from minibroker.cluster.cluster import Cluster
from minibroker.log.memory_storage import MemoryStorage
from minibroker.replication.network import CONTROLLER
from minibroker.simulation.run import World, simulate

from .virtual import TOPIC, Lab, in_cluster


def test_a_wait_looks_while_a_replica_is_changing_its_role() -> None:
    async def main(world: World) -> None:
        cluster = Cluster(
            {},
            lambda name: MemoryStorage(world.clock.now_ms),
            clock=world.clock,
            chance=world.chance,
            events=world.events,
        )
        await cluster.start_all()
        cluster.create_topic("orders", 1, 3)  # its leader tells of a new epoch before it has the role
        await cluster.waits.in_sync()
        assert not cluster.waits.behind()
        await cluster.stop_all()

    simulate(main, seed=1).check()


def test_a_wait_goes_on_with_what_a_controller_knows_that_was_started_anew() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, assignments=[[1, 2, 3]])
        await cluster.waits.in_sync()
        await cluster.kill(3)
        wait = lab.world.loop.create_task(cluster.waits.in_sync())
        await lab.world.clock.sleep(1000)
        await cluster.kill(CONTROLLER)
        await cluster.start(CONTROLLER)
        await cluster.start(3)
        await wait

    in_cluster(main)
