"""What an election loses is told when it is held, with its exact range, and once."""

from __future__ import annotations

from .virtual import TOPIC, Lab, in_cluster

LAGS = {"replica.lag.time.max.ms": "5000", "broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}


async def _commit_at_one_alone(lab: Lab) -> None:
    """Let broker 2 have a, and broker 1 have b and c besides, committed."""
    cluster = lab.cluster
    cluster.create_topic(TOPIC, assignments=[[1, 2]])
    await lab.send(b"a")
    cluster.links.cut(1, 2)
    await lab.send(b"b", b"c", timeout_ms=60_000)
    assert cluster.partition(TOPIC, 0).isr == [1]


def test_the_range_is_that_of_the_leader_that_is_gone_and_not_of_its_checkpoint() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        await _commit_at_one_alone(lab)
        await cluster.kill(1)
        cluster.elect(TOPIC, 0, unclean=True)
        assert lab.lines("leader", "loss")[-2:] == [
            "leader orders-0 b-1->b2 epoch=2 unclean",
            "loss b2 orders-0 offsets=1..2",
        ]
        await cluster.waits.leader(TOPIC)
        assert await lab.send(b"x") == [1]
        cluster.links.heal()
        await cluster.start(1)  # its checkpoint says nothing of c
        await cluster.waits.isr(TOPIC)
        await cluster.kill(2)  # the next election loses nothing
        await cluster.waits.leader(TOPIC, other_than=2)
        assert len(lab.lines("loss")) == 1

    in_cluster(main, brokers=2, settings=LAGS)


def test_a_leader_that_lives_where_nobody_hears_it_is_asked_too() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        await _commit_at_one_alone(lab)
        cluster.links.cut(1, "controller")
        await cluster.events.wait_until(lambda: cluster.partition(TOPIC, 0).leader < 0)
        cluster.elect(TOPIC, 0, unclean=True)
        assert lab.lines("loss") == ["loss b2 orders-0 offsets=1..2"]

    in_cluster(main, brokers=2, settings=LAGS)


def test_a_clean_election_of_a_leader_that_lost_its_disk_is_told() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, assignments=[[1]])
        await lab.send(b"a", b"b")
        await cluster.kill(1, lossy=True)
        await cluster.start(1)
        await cluster.waits.leader(TOPIC)
        assert lab.lines("loss") == ["loss b1 orders-0 offsets=0..1"]

    in_cluster(main, brokers=1)


def test_no_election_of_a_replica_in_sync_loses_anything() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, assignments=[[1, 2, 3]])
        for leader in (1, 2, 1):
            await lab.send(b"a", b"b")
            await cluster.kill(leader)
            await cluster.waits.leader(TOPIC, other_than=leader)
            await cluster.start(leader)
            await cluster.waits.isr(TOPIC)
        assert lab.lines("loss") == []

    in_cluster(main)
