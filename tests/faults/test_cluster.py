"""Faults of one broker among several: what it forwards, what the stream of the cluster tells, links in virtual time.

And `cluster.faults(broker)`: the verbs of `broker.faults`, for one of them.
"""

from __future__ import annotations

import pytest

from minibroker import Cluster
from minibroker.client import Admin, NewTopic, Producer
from minibroker.client import Cluster as Client
from minibroker.client.descriptions import SomeFailed
from minibroker.cluster.nodes import NoSuchBroker
from minibroker.embedded import FaultError
from minibroker.errors import Error
from tests.cluster.virtual import TOPIC, Lab, in_cluster

pytestmark = pytest.mark.outside


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


def test_each_broker_has_faults_of_its_own() -> None:
    with Cluster(topics=["orders"]) as cluster:
        with cluster.faults(2).add(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=2) as rule:
            assert [len(cluster.faults(broker).rules()) for broker in (1, 2, 3)] == [0, 1, 0]
            assert rule.strikes() == 0
        with cluster.faults(3).toxic("latency", latency=5):
            assert [len(cluster.faults(broker).toxics()) for broker in (1, 2, 3)] == [0, 0, 1]
        assert not any(cluster.faults(broker).rules() + cluster.faults(broker).toxics() for broker in (1, 2, 3))
        with pytest.raises(FaultError, match="did you mean Produce"):
            cluster.faults(1).add(api="Prodce", delay_ms=1)
        with pytest.raises(NoSuchBroker, match="there is no broker 7"):
            cluster.faults(7)


def test_a_broker_that_has_gone_has_forgotten_its_faults() -> None:
    with Cluster(topics=["orders"]) as cluster:
        with cluster.faults(1).add(delay_ms=1):
            cluster.kill(1)  # then the block has nothing left to do
        with pytest.raises(FaultError, match="broker 1 is killed"):
            cluster.faults(1).add(delay_ms=1)
        cluster.start_broker(1)
        assert cluster.faults(1).rules() == []
        with cluster.faults(1).add(delay_ms=1):
            cluster.stop()


async def test_rules_of_a_cluster_in_a_loop_are_events() -> None:
    async with Cluster(topics=["orders"]) as cluster:
        leader = cluster.leader("orders")
        with cluster.watching("fault") as heard:
            async with await cluster.faults(leader).aadd(
                api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=1
            ) as rule:
                async with Client(cluster.bootstrap_servers) as client, Producer(client) as producer:
                    await producer.send("orders", b"a")
                assert await rule.astrikes() == 1
            states = [state for event in heard for state in ("is set", "strikes", "is removed") if state in event.line]
            assert states == ["is set", "strikes", "is removed"]
            assert not [event for event in heard if "because ." in event.sentence]
            assert all(f"b{leader} api=Produce" in event.line for event in heard)
        assert [record.value for record in cluster.records("orders")] == [b"a"]
        assert cluster.faults(leader).rules() == await cluster.faults(leader).atoxics() == []
