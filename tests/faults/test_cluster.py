"""Faults of one broker among several: what it forwards, what the stream of the cluster tells, links in virtual time."""

from __future__ import annotations

import pytest

from minibroker.client import Admin, NewTopic
from minibroker.client import Cluster as Client
from minibroker.client.descriptions import SomeFailed
from minibroker.errors import Error
from tests.cluster.virtual import TOPIC, Lab, in_cluster


def test_an_error_for_one_topic_leaves_the_rest_to_the_controller() -> None:
    async def main(lab: Lab) -> None:
        for node in lab.cluster.nodes.values():
            node.faults.add(api="CreateTopics", topic="bad", error="POLICY_VIOLATION", times=1)
        async with Client(lab.cluster.bootstrap_servers, clock=lab.world.clock) as client:
            with pytest.raises(SomeFailed) as failed:
                await Admin(client).create_topics([NewTopic("bad", 1), NewTopic("good", 1)])
        (error,) = failed.value.errors.values()
        assert error.code == Error.POLICY_VIOLATION
        await lab.cluster.waits.in_sync()
        assert list(lab.cluster.nodes[1].image.topics) == ["good"]
        assert [line for line in lab.lines("fault") if "strikes" in line]

    in_cluster(main)


def test_an_idempotent_producer_lives_with_a_moody_leader_and_a_slow_link() -> None:
    async def main(lab: Lab) -> None:
        lab.cluster.create_topic(TOPIC, 1)
        leader = lab.cluster.nodes[lab.cluster.partition(TOPIC, 0).leader]
        leader.faults.add(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=2)
        begun_ms = lab.world.clock.now_ms()
        leader.faults.add_toxic(type="latency", attributes={"latency": 500})
        assert await lab.send(b"a", b"b") == [0, 1]
        assert lab.world.clock.now_ms() - begun_ms >= 2000

    in_cluster(main)
