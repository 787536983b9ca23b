"""Whoever waits is answered as soon as something has changed that ends the wait, and not when the time is over.

Each case is a request that waits, something that happens, and the answer, in a cluster in virtual time. All that wait:

    Fetch                 high watermark, last stable offset, log start, deletion, leader, epoch, disk, session: here
    Produce, acks=-1      high watermark, ISR, min.insync.replicas, deletion, leader, disk: here
    DeleteRecords         every living follower has deleted, deletion, leader, and who lives: here
    Metadata, FindCoordinator, and CreateTopics of others    the topic is known here, or its time is over: here
    fetches of followers  test_feeding.py
    JoinGroup, SyncGroup, heartbeats, commits                tests/groups
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from minibroker.client import Cluster as Client
from minibroker.cluster.cluster import Cluster
from minibroker.errors import Error, StorageError
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.replication.replica import Replica

from .virtual import TOPIC, Lab, in_cluster

WAIT_MS = 60_000
SOON_MS = 300  # brokers and controller talk to each other, and nothing else takes time

Event = Callable[[Cluster, Replica], Awaitable[None] | None]


def batch(*values: bytes) -> bytes:
    return build_batch(2, [Record(None, value, (), 1_700_000_000_000) for value in values])


def append(replica: Replica, *values: bytes) -> None:
    replica.append(bytearray(batch(*values)), now_ms=1_700_000_000_000, steady_ms=0)


# The requests


def fetch(
    lab: Lab, version: int, *, offset: int = 0, min_bytes: int = 1, committed: bool = False, epoch: int = -1
) -> Any:
    topic_id = lab.cluster.controller.image.topics[TOPIC].id
    partition = FetchRequest.FetchTopic.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch
    )
    by_id = version >= 13
    topic = FetchRequest.FetchTopic(
        topic="" if by_id else TOPIC, topic_id=topic_id if by_id else bytes(16), partitions=[partition]
    )
    return FetchRequest(
        replica_id=-1, max_wait_ms=WAIT_MS, min_bytes=min_bytes, isolation_level=int(committed), topics=[topic]
    )


def fetched(answer: Any) -> tuple[int, int]:
    """Return the error and how many bytes of records."""
    assert answer.error_code == 0, answer
    (topic,) = answer.responses
    (partition,) = topic.partitions
    return partition.error_code, len(partition.records or b"")


# What happens


def append_one(cluster: Cluster, leader: Replica) -> None:
    append(leader, b"a")


async def append_committed(cluster: Cluster, leader: Replica) -> None:
    append(leader, b"a")
    await cluster.waits.high_watermark(TOPIC, 0, leader.log.next_offset)


def delete_topic(cluster: Cluster, leader: Replica) -> None:
    cluster.delete_topic(TOPIC)


def make_anew(cluster: Cluster, leader: Replica) -> None:
    cluster.delete_topic(TOPIC)
    cluster.create_topic(TOPIC, 1, len(leader.replicas))


def move_leader(cluster: Cluster, leader: Replica) -> None:
    cluster.move_leader(TOPIC, 0, next(each for each in leader.in_sync if each != leader.node_id))


def move_away(cluster: Cluster, leader: Replica) -> None:
    others = [each for each in cluster.broker_ids if each != leader.node_id]
    cluster.reassign(TOPIC, 0, others[: len(leader.replicas)] if len(leader.replicas) == 1 else others)


def fail_disk(cluster: Cluster, leader: Replica) -> None:
    cluster.nodes[leader.node_id].disk_failed = lambda failure: None
    leader.log.fail(StorageError("the disk is gone"))


def delete_records(cluster: Cluster, leader: Replica) -> None:
    leader.log.advance_log_start(leader.high_watermark)
    leader.log_start_moved("somebody asked for it")


def lower_min_in_sync(cluster: Cluster, leader: Replica) -> None:
    cluster.alter_topic(TOPIC, {"min.insync.replicas": "1"})


class Case(NamedTuple):
    what: Event
    error: int
    size: int = 0  # of the records that come
    factors: tuple[int, ...] = (1, 3)
    versions: tuple[int, ...] = (4, 12, 17)
    offset: int = 0
    min_bytes: int = 1
    committed: bool = False
    names_epoch: bool = False
    before: int = 0  # records that are there before the request comes


ONE = len(batch(b"a"))
FETCHES = {
    "append": Case(append_one, 0, ONE),
    "append, read_committed": Case(append_one, 0, ONE, committed=True),
    "append, more than one byte": Case(append_one, 0, 2 * ONE, before=1, min_bytes=2 * ONE),
    "delete": Case(delete_topic, Error.UNKNOWN_TOPIC_OR_PARTITION),
    "delete, with records": Case(delete_topic, Error.UNKNOWN_TOPIC_OR_PARTITION, before=1, min_bytes=WAIT_MS),
    "leader moves, old client": Case(move_leader, Error.NOT_LEADER_OR_FOLLOWER, factors=(3,), versions=(4, 9)),
    "leader moves": Case(move_leader, Error.FENCED_LEADER_EPOCH, factors=(3,), versions=(12, 17), names_epoch=True),
    "replica moves": Case(move_away, Error.NOT_LEADER_OR_FOLLOWER),
    "disk fails": Case(fail_disk, Error.KAFKA_STORAGE_ERROR, versions=(12, 17)),
    "disk fails, old client": Case(fail_disk, Error.NOT_LEADER_OR_FOLLOWER, versions=(4,)),
    "records deleted": Case(delete_records, Error.OFFSET_OUT_OF_RANGE, before=1, min_bytes=WAIT_MS),
}


@pytest.mark.parametrize(
    ("name", "factor", "version"),
    [(name, factor, version) for name, case in FETCHES.items() for factor in case.factors for version in case.versions],
)
def test_a_fetch_that_waits_is_answered_when(name: str, factor: int, version: int) -> None:
    case = FETCHES[name]

    async def main(lab: Lab) -> None:
        leader = await prepared(lab, factor, case.before)
        epoch = leader.leader_epoch if case.names_epoch else -1
        request = fetch(
            lab, version, offset=case.offset, min_bytes=case.min_bytes, committed=case.committed, epoch=epoch
        )
        answer = await answered_after(lab, leader, request, version, case.what)
        assert fetched(answer) == (case.error, case.size)

    in_cluster(main)


async def prepared(lab: Lab, factor: int, count: int = 0, configs: dict[str, str] | None = None) -> Replica:
    """Make the topic, with some records that everybody has; return its leader."""
    cluster = lab.cluster
    cluster.create_topic(TOPIC, 1, factor, configs=configs or {})
    await cluster.waits.in_sync()
    leader = cluster.leader(TOPIC, 0)
    assert leader is not None
    for _ in range(count):
        append(leader, b"a")
    await cluster.waits.high_watermark(TOPIC, 0, count)
    await lab.world.clock.sleep(2_000)  # followers know of it too
    return leader


async def answered_after(lab: Lab, leader: Replica, request: Any, version: int, what: Event) -> Any:
    """Return the answer, which has to come soon after something has happened and not before."""
    clock = lab.world.clock
    async with Client(lab.cluster.bootstrap_servers, clock=clock) as client:
        await client.metadata()
        connection = await client.connection(leader.node_id)
        answer = asyncio.get_running_loop().create_task(
            connection.call(request, version, timeout_ms=2 * WAIT_MS), name="request"
        )
        await clock.sleep(1_000)
        assert not answer.done(), answer.result()
        done = what(lab.cluster, leader)
        if done is not None:
            await done
        begun_ms = clock.steady_ms()
        result = await answer
        assert clock.steady_ms() - begun_ms <= SOON_MS
        return result
