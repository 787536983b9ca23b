"""A damaged log keeps one partition of one broker back, and no other; what is damaged leads nothing."""

from __future__ import annotations

import errno

import pytest

from minibroker.metadata.image import LOST_DIRECTORY
from minibroker.replication.replica import Replica
from minibroker.simulation.disk import SimulatedStorage

from .virtual import Lab, in_cluster

BAD, GOOD = "bad", "good"
DAMAGES = {"size": (8, (3).to_bytes(4, "big")), "format": (16, b"\x09"), "checksum": (17, b"\0\0\0\0")}


def damage(lab: Lab, offset: int, position: int, data: bytes) -> None:
    """Change bytes of a batch on the leader's disk."""
    replica = lab.cluster.replica(BAD, 0, 1)
    assert isinstance(replica, Replica)
    place = replica.log.segments[0].find(offset)
    assert place is not None
    replica.log.storage.open(replica.log.segments[0].path).write_at(place.position + position, data)


@pytest.mark.parametrize("kind", DAMAGES)
def test_followers_copy_the_neighbours_of_a_damaged_log(kind: str) -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        for topic in (BAD, GOOD):
            cluster.create_topic(topic, assignments=[[1, 2]])
            await lab.send(b"a", b"b", topic=topic)
        await cluster.kill(2)
        for topic in (BAD, GOOD):
            await lab.send(b"c", b"d", b"e", acks=1, topic=topic)
        damage(lab, 3, *DAMAGES[kind])
        await cluster.start(2)
        await cluster.waits.isr(GOOD, 0, [1, 2])
        before = len(lab.lines("fetch"))
        await lab.world.clock.sleep(20_000)  # of virtual time: it tries again each second, and not at once
        assert 0 < len([line for line in lab.lines("fetch")[before:] if BAD in line]) < 25
        assert lab.ends(GOOD) == {1: (5, 5), 2: (5, 5)}
        assert lab.ends(BAD)[2][0] == 3  # what came before the damage, and no more
        # What is written now goes on being copied.
        assert await lab.send(b"f", topic=GOOD) == [5]
        assert cluster.replica(GOOD, 0, 2).log.log_end_offset == 6  # type: ignore[union-attr]

    in_cluster(main, brokers=2)


def storage_of(lab: Lab, broker: int) -> SimulatedStorage:
    storage = lab.cluster.storages[broker]
    assert isinstance(storage, SimulatedStorage)
    return storage


def remove_log(lab: Lab, broker: int, name: str) -> None:
    """Do what the documentation tells: take the directory of a partition away while its broker is stopped."""
    storage = storage_of(lab, broker)
    for inner in storage.list(name):
        storage.remove(f"{name}/{inner}")
    storage.remove(name)


async def damage_flushed(lab: Lab, broker: int) -> None:
    """Damage what a broker had flushed, so that it cannot open the log of one of two partitions."""
    cluster = lab.cluster
    for topic in (BAD, GOOD):
        cluster.create_topic(topic, assignments=[[2, 1]])
        await lab.send(b"a", b"b", topic=topic)
    await cluster.waits.isr(BAD, 0, [1, 2])
    await cluster.stop(broker)
    storage_of(lab, broker).flip(f"{BAD}-0/{0:020d}.log", 70, 3)
    storage_of(lab, broker).remove(".kafka_cleanshutdown")


def test_a_broker_that_cannot_open_one_log_leads_and_follows_all_others() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        await damage_flushed(lab, 2)
        await cluster.start(2)
        await cluster.waits.isr(GOOD, 0, [1, 2])
        await lab.world.clock.sleep(5000)
        assert cluster.states[2] == "running"
        assert cluster.replica(BAD, 0, 2) is None
        bad = cluster.partition(BAD, 0)
        assert (bad.leader, bad.isr, bad.directories[0]) == (1, [1], LOST_DIRECTORY)
        cluster.move_leader(GOOD, 0, 2)
        assert await lab.send(b"c", topic=GOOD) == await lab.send(b"c", topic=BAD) == [2]
        await cluster.kill(1)  # there is nobody else; but one without the records does not lead
        await lab.world.clock.sleep(20_000)
        assert (cluster.partition(BAD, 0).leader, cluster.partition(GOOD, 0).leader) == (-1, 2)
        await cluster.start(1)
        await cluster.waits.leader(BAD, 0, 1)
        # As the documentation tells: another one has all of it, so it is copied anew.
        await cluster.stop(2)
        remove_log(lab, 2, f"{BAD}-0")
        await cluster.start(2)
        await cluster.waits.isr(BAD, 0, [1, 2])
        assert lab.ends(BAD) == {1: (3, 3), 2: (3, 3)}
        await cluster.kill(1)
        await cluster.waits.leader(BAD, 0, 2)

    in_cluster(main, brokers=2)


def test_a_log_that_a_disk_would_not_give_is_followed_again_without_a_start() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(BAD, assignments=[[2, 1]])
        await lab.send(b"a", b"b", topic=BAD)
        await cluster.kill(2)
        await lab.send(b"c", topic=BAD)
        storage_of(lab, 2).fail(errno.EIO, times=1000, doing="read", path=f"{BAD}-0/{0:020d}.log")
        await cluster.start(2)
        await lab.world.clock.sleep(5000)
        assert (cluster.states[2], cluster.partition(BAD, 0).isr) == ("running", [1])
        storage_of(lab, 2).heal()
        await cluster.waits.isr(BAD, 0, [1, 2])
        assert lab.ends(BAD) == {1: (3, 3), 2: (3, 3)}
        await cluster.kill(1)
        await cluster.waits.leader(BAD, 0, 2)

    in_cluster(main, brokers=2)


@pytest.mark.parametrize("doing", ["make directory", "create"])
def test_a_topic_is_made_on_a_disk_that_refuses_it_at_first(doing: str) -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        storage_of(lab, 2).fail(errno.ENOSPC, times=3, doing=doing)
        cluster.create_topic(BAD, assignments=[[2, 1]])
        await cluster.waits.leader(BAD, 0, 1)
        assert await lab.send(b"a", topic=BAD, acks=1) == [0]
        await cluster.waits.isr(BAD, 0, [1, 2])
        assert cluster.states[2] == "running"
        assert lab.ends(BAD) == {1: (1, 1), 2: (1, 1)}

    in_cluster(main, brokers=2)


def test_who_stopped_in_order_and_has_lost_a_log_since_is_no_eligible_leader() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(BAD, assignments=[[1, 2]], min_insync_replicas="2")
        await lab.send(b"a", b"b", topic=BAD)
        await cluster.stop(2)
        assert cluster.partition(BAD, 0).elr == [2]
        await cluster.kill(1)
        remove_log(lab, 2, f"{BAD}-0")
        await cluster.start(2)
        await lab.world.clock.sleep(5000)
        assert cluster.partition(BAD, 0).leader == -1
        await cluster.start(1)
        await cluster.waits.isr(BAD, 0, [1, 2])
        assert [end for end, _ in lab.ends(BAD).values()] == [2, 2]

    in_cluster(main, brokers=2)
