"""The replicas of a broker: which are opened when it starts, and what is told of that. In virtual time."""

from __future__ import annotations

import pytest

from tests.cluster.virtual import TOPIC, Lab, in_cluster

pytestmark = pytest.mark.outside


def test_a_broker_that_was_killed_tells_what_it_recovers_of_logs_that_hold_something() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        cluster.create_topic("empty", 1)
        assert await lab.send(b"a", b"b") == [0, 1]
        await cluster.waits.in_sync()
        assert not lab.lines("recover")
        await cluster.kill(3)
        await cluster.start(3)
        await cluster.waits.in_sync()
        told = [line for line in lab.lines("recover") if not line.startswith("recover b3 __")]
        assert len(told) == 1
        assert told[0].startswith(f"recover b3 {TOPIC}-0 ")

    in_cluster(main)


def test_a_broker_that_was_stopped_in_order_has_nothing_to_recover() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        assert await lab.send(b"a") == [0]
        await cluster.waits.in_sync()
        await cluster.stop(3)
        await cluster.start(3)
        await cluster.waits.in_sync()
        assert not lab.lines("recover")

    in_cluster(main)
