"""Step mode: replication waits for tokens."""

from __future__ import annotations

import pytest

from minibroker.cluster.steps import NothingWaits

from .virtual import TOPIC, Lab, in_cluster


def test_the_high_watermark_moves_on_the_second_fetch() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, assignments=[[1, 2]])
        await cluster.waits.in_sync()
        cluster.steps.hold("fetch")
        await lab.world.clock.sleep(600)  # the follower comes to the gate with its next fetch
        sending = lab.world.loop.create_task(lab.send(b"a", timeout_ms=60_000))
        await lab.world.clock.sleep(100)
        assert lab.ends() == {1: (1, 0), 2: (0, 0)}
        assert cluster.steps.step("fetch") == ["FetchRequest 2->1"]
        await lab.world.clock.sleep(100)
        assert lab.ends() == {1: (1, 0), 2: (1, 0)}
        assert not sending.done()
        cluster.steps.step("fetch")
        await lab.world.clock.sleep(100)
        assert lab.ends()[1] == (1, 1)
        assert await sending == [0]
        cluster.steps.release()
        await cluster.waits.high_watermark(TOPIC, broker=2, offset=1)

    in_cluster(main, brokers=2)


def test_an_election_waits() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        await cluster.waits.in_sync()
        cluster.steps.hold("election")
        await cluster.kill(1)
        await lab.world.clock.sleep(60_000)
        assert cluster.partition(TOPIC, 0).leader == 1
        assert cluster.waiting() == [("election", "fence broker 1")]
        assert cluster.steps.step() == ["fence broker 1"]
        assert cluster.partition(TOPIC, 0).leader == 2
        cluster.steps.release()

    in_cluster(main)


def test_a_new_isr_waits() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        await cluster.waits.in_sync()
        await cluster.kill(3)
        cluster.steps.hold("isr")
        await cluster.start(3)
        await lab.world.clock.sleep(2000)
        assert cluster.partition(TOPIC, 0).isr == [1, 2]
        cluster.steps.step("isr")
        await cluster.waits.isr(TOPIC)
        cluster.steps.release()

    in_cluster(main)


def test_a_step_that_nobody_waits_for_says_so() -> None:
    async def main(lab: Lab) -> None:
        with pytest.raises(NothingWaits, match="held are nothing: hold something first"):
            lab.cluster.steps.step()
        with pytest.raises(ValueError, match="'fetches' is none of fetch, answer, isr, election, metadata, marker"):
            lab.cluster.steps.hold("fetches")

    in_cluster(main)
