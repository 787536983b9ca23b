"""A damaged batch on a leader keeps one partition's follower back, and no other."""

from __future__ import annotations

import pytest

from minibroker.replication.replica import Replica

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
        assert cluster.replica(GOOD, 0, 2).log.next_offset == 6  # type: ignore[union-attr]

    in_cluster(main, brokers=2)
