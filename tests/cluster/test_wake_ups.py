"""Whoever waits is answered as soon as something has changed that ends the wait, and not when the time is over.

Each case is a request that waits, something that happens, and the answer, in a cluster in virtual time. All that wait:

    Fetch                 high watermark, last stable offset, log start, deletion, leader, epoch, disk, session: here
    Produce, acks=-1      high watermark, ISR, min.insync.replicas, deletion, leader, disk: here
    DeleteRecords         every living follower has deleted, deletion, leader, and who lives: here
    Metadata, FindCoordinator, and CreateTopics of others    the topic is known here, or its time is over: here
    fetches of followers  test_follower_sessions.py
    JoinGroup, SyncGroup, heartbeats, commits                tests/groups
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from minibroker.broker.handlers.fetch_sessions import Session
from minibroker.client import Cluster as Client
from minibroker.cluster.cluster import Cluster
from minibroker.errors import Error, StorageError
from minibroker.log.batches import batches
from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.records import Record
from minibroker.log.validate import COORDINATOR
from minibroker.protocol.messages.delete_records import DeleteRecordsRequest
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.replication.network import CONTROLLER
from minibroker.replication.replica import Replica
from minibroker.simulation.disk import SimulatedStorage

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
    await cluster.waits.high_watermark(TOPIC, 0, leader.log.log_end_offset)


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


def break_disk(cluster: Cluster, leader: Replica, doing: str = "", times: int = 1) -> None:
    """Let the disk refuse steps on a log, of a broker that goes on with its other logs."""
    node = cluster.nodes[leader.node_id]
    node.when_disk_fails = lambda failure: None
    storage = node.directory.storage
    assert isinstance(storage, SimulatedStorage)
    path = f"{leader.log.directory}/{leader.log.active.base_offset:020}.log"
    storage.fail(doing=doing, path=path, times=times, written_bytes=3)


def fail_append(cluster: Cluster, leader: Replica) -> None:
    break_disk(cluster, leader, times=2)  # nor can it be taken back
    with pytest.raises(StorageError):
        append(leader, b"b")


def fail_flush(cluster: Cluster, leader: Replica) -> None:
    break_disk(cluster, leader, "sync")
    with pytest.raises(StorageError):
        leader.log.flush()


def fail_flush_of_ended_segment(cluster: Cluster, leader: Replica) -> None:
    break_disk(cluster, leader, "sync")
    leader.log.roll()
    assert leader.log.offline is not None


DISK_FAILS = {
    "disk fails an append and keeps half of it": fail_append,
    "disk fails a flush": fail_flush,
    "disk fails the flush of a segment that has ended": fail_flush_of_ended_segment,
}


def delete_records(cluster: Cluster, leader: Replica) -> None:
    leader.log.advance_log_start(leader.high_watermark)
    leader.log_start_moved("somebody asked for it")


def lower_min_in_sync(cluster: Cluster, leader: Replica) -> None:
    cluster.alter_topic(TOPIC, min_insync_replicas=1)


class Case(NamedTuple):
    what: Event
    error: int
    size: int = 0  # of the records that come
    factors: tuple[int, ...] = (1, 3)
    versions: tuple[int, ...] = (0, 3, 4, 12, 17)
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
    "leader moves, old client": Case(move_leader, Error.NOT_LEADER_OR_FOLLOWER, factors=(3,), versions=(0, 4, 9)),
    "leader moves": Case(move_leader, Error.FENCED_LEADER_EPOCH, factors=(3,), versions=(12, 17), names_epoch=True),
    "replica moves": Case(move_away, Error.NOT_LEADER_OR_FOLLOWER),
    "records deleted": Case(delete_records, Error.OFFSET_OUT_OF_RANGE, before=1, min_bytes=WAIT_MS),
}
for way, act in DISK_FAILS.items():
    FETCHES[way] = Case(act, Error.KAFKA_STORAGE_ERROR, versions=(12, 17), before=1, min_bytes=WAIT_MS)
    FETCHES[f"{way}, old client"] = Case(act, Error.NOT_LEADER_OR_FOLLOWER, versions=(4,), before=1, min_bytes=WAIT_MS)


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
        error, size_bytes = fetched(answer)
        assert error == case.error
        assert size_bytes == case.size or (version < 4 and bool(size_bytes) == bool(case.size))  # in an older format

    in_cluster(main)


@pytest.mark.parametrize("version", [12, 17])
@pytest.mark.parametrize("name", [name for name, case in FETCHES.items() if 12 in case.versions])
def test_a_fetch_session_that_waits_is_answered_when(name: str, version: int) -> None:
    case = FETCHES[name]

    async def main(lab: Lab) -> None:
        leader = await prepared(lab, case.factors[-1], case.before)
        epoch = leader.leader_epoch if case.names_epoch else -1
        request = fetch(
            lab, version, offset=case.offset, min_bytes=case.min_bytes, committed=case.committed, epoch=epoch
        )
        async with Client(lab.cluster.bootstrap_servers, clock=lab.world.clock) as client:
            await client.metadata()
            connection = await client.connection(leader.node_id)
            request.max_wait_ms, request.session_id, request.session_epoch = 0, 0, 0
            opened = await connection.call(request, version)
            request.max_wait_ms, request.session_id, request.session_epoch = WAIT_MS, opened.session_id, 1
            request.topics = []
        answer = await answered_after(lab, leader, request, version, case.what)
        assert fetched(answer) == (case.error, case.size)

    in_cluster(main)


def test_a_fetch_whose_session_goes_on_with_another_request_is_answered() -> None:
    async def main(lab: Lab) -> None:
        leader = await prepared(lab, 1)
        async with Client(lab.cluster.bootstrap_servers, clock=lab.world.clock) as client:
            await client.metadata()
            connection = await client.connection(leader.node_id)
            request = fetch(lab, 12)
            request.max_wait_ms, request.session_id, request.session_epoch = 0, 0, 0
            session_id = (await connection.call(request, 12)).session_id

            async def ask_again(_cluster: Cluster, _leader: Replica) -> None:
                again = FetchRequest(
                    replica_id=-1, max_wait_ms=0, min_bytes=1, session_id=session_id, session_epoch=2, topics=[]
                )
                await connection.call(again, 12)

            waits = FetchRequest(
                replica_id=-1, max_wait_ms=WAIT_MS, min_bytes=1, session_id=session_id, session_epoch=1, topics=[]
            )
            answer = await answered_after(lab, leader, waits, 12, ask_again)
            assert answer.error_code == Error.INVALID_FETCH_SESSION_EPOCH

            async def close(_cluster: Cluster, _leader: Replica) -> None:
                ends = FetchRequest(
                    replica_id=-1, max_wait_ms=0, min_bytes=1, session_id=session_id, session_epoch=-1, topics=[]
                )
                await connection.call(ends, 12)

            waits.session_epoch = 3
            answer = await answered_after(lab, leader, waits, 12, close)
            assert (answer.error_code, answer.responses) == (0, [])

    in_cluster(main)


@pytest.mark.parametrize("is_from_leader", [True, False])
def test_a_fetch_of_committed_records_is_answered_when_their_transaction_ends(is_from_leader: bool) -> None:
    ids: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
    open_batch = build_batch(2, [Record(None, b"a", (), 1_700_000_000_000)], base_sequence=0, transactional=True, **ids)

    async def commit(cluster: Cluster, _: Replica) -> None:
        leader = cluster.leader(TOPIC, 0)
        assert leader is not None
        append(leader, b"behind it")  # moves the high watermark, and not the last stable offset
        await lab_clock(cluster).sleep(1_000)
        marker = build_transaction_marker(offset=0, commit=True, timestamp=0, coordinator_epoch=0, **ids)
        leader.append(bytearray(marker), now_ms=1_700_000_000_000, steady_ms=0, origin=COORDINATOR)

    async def main(lab: Lab) -> None:
        leader = await prepared(lab, 3)
        verified = leader.log.producers.start_verification(7, 0, 0, 1_700_000_000_000)
        leader.append(bytearray(open_batch), now_ms=1_700_000_000_000, steady_ms=0, verification=verified)
        await lab.cluster.waits.high_watermark(TOPIC, 0, 1)
        follower = lab.cluster.replica(TOPIC, 0, next(each for each in leader.replicas if each != leader.node_id))
        asked = leader if is_from_leader else follower
        assert asked is not None
        # Only with what comes behind the transaction it is enough.
        request = fetch(lab, 12, committed=True, min_bytes=len(open_batch) + 1)
        answer = await answered_after(lab, asked, request, 12, commit)
        error, size_bytes = fetched(answer)
        assert error == 0
        assert size_bytes > len(open_batch) + len(batch(b"behind it"))

    in_cluster(main, racks=("a", "b", "c"))


def lab_clock(cluster: Cluster) -> Any:
    return cluster.clock


@pytest.mark.parametrize("what", ["a follower is fenced", "min.insync.replicas"])
def test_a_fetch_is_answered_when_the_high_watermark_rises_without_a_record(what: str) -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        configs = {"min.insync.replicas": "2"} if what == "min.insync.replicas" else {}
        leader = await prepared(lab, 3, configs=configs)
        others = [each for each in leader.replicas if each != leader.node_id]
        if configs:
            for broker in others:
                await cluster.kill(broker)
            await cluster.waits.isr(TOPIC, 0, [leader.node_id])
        else:
            cluster.pause(others[0])
        append(leader, b"a")

        async def happen(cluster: Cluster, leader: Replica) -> None:
            if configs:
                lower_min_in_sync(cluster, leader)
            else:
                await cluster.kill(others[0])

        answer = await answered_after(lab, leader, fetch(lab, 12), 12, happen)
        assert fetched(answer) == (0, ONE)

    in_cluster(main)


@pytest.mark.pure
@pytest.mark.parametrize("brokers", [1, 3])
def test_a_fetch_that_waits_is_woken_once_by_each_record(brokers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it may be read: not when it is appended, and by no follower but the last."""
    woken: list[int] = []
    wake = Session.wake

    def counting(session: Session) -> None:
        woken.append(session.session_id)
        wake(session)

    async def main(lab: Lab) -> None:
        leader = await prepared(lab, brokers)
        async with Client(lab.cluster.bootstrap_servers, clock=lab.world.clock) as client:
            await client.metadata()
            connection = await client.connection(leader.node_id)
            asking = connection.call(fetch(lab, 12, min_bytes=5 * ONE), 12)
            answer = asyncio.get_running_loop().create_task(asking, name="request")
            await lab.world.clock.sleep(1_000)
            monkeypatch.setattr(Session, "wake", counting)
            for number in range(1, 5):
                append(leader, b"a")
                await lab.cluster.waits.high_watermark(TOPIC, 0, number)
                await lab.world.clock.sleep(1_000)  # whatever else may wake it
                assert len(woken) == number
            append(leader, b"a")
            assert fetched(await answer) == (0, 5 * ONE)

    in_cluster(main, brokers=brokers)


def test_a_fetch_whose_time_is_over_gives_what_was_cleaned_meanwhile() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        leader = await prepared(lab, 1, configs={"cleanup.policy": "compact"})
        for value in (b"old", b"new"):
            data = build_batch(2, [Record(b"key", value, (), 1_700_000_000_000)])
            leader.append(bytearray(data), now_ms=1_700_000_000_000, steady_ms=0)
        request = fetch(lab, 12, min_bytes=100_000)
        request.max_wait_ms = 5_000
        async with Client(cluster.bootstrap_servers, clock=lab.world.clock) as client:
            await client.metadata()
            connection = await client.connection(leader.node_id)
            answer = asyncio.get_running_loop().create_task(connection.call(request, 12), name="request")
            await lab.world.clock.sleep(1_000)
            segment = leader.log.active
            await cluster.cleaning.roll_now()
            await cluster.cleaning.compact_now()
            assert segment not in leader.log.segments
            (row,) = (await answer).responses[0].partitions
        (only,) = batches(row.records)
        assert [record.value for record in only.records()] == [b"new"]

    in_cluster(main)


@pytest.mark.parametrize("what", ["append", "delete"])
def test_a_fetch_from_a_follower_is_answered_when(what: str) -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        leader = await prepared(lab, 3)
        follower = cluster.replica(TOPIC, 0, next(each for each in leader.replicas if each != leader.node_id))
        assert follower is not None
        answer = await answered_after(
            lab, follower, fetch(lab, 12), 12, lambda cluster, _: FETCHES[what].what(cluster, leader)
        )
        assert fetched(answer) == (FETCHES[what].error, FETCHES[what].size)

    in_cluster(main, racks=("a", "b", "c"))


# Acks


def produce(lab: Lab, acks: int = -1) -> ProduceRequest:
    Topic = ProduceRequest.TopicProduceData
    rows = [Topic.PartitionProduceData(index=0, records=batch(b"a"))]
    return ProduceRequest(acks=acks, timeout_ms=WAIT_MS, topic_data=[Topic(name=TOPIC, partition_data=rows)])


class Held(NamedTuple):
    """Something that waits for a follower which hangs, and what comes of it."""

    what: Callable[[Cluster, Replica, int], Awaitable[None] | None]  # it is told which follower hangs
    error: int


def resume(cluster: Cluster, leader: Replica, hanging: int) -> None:
    cluster.resume(hanging)


async def kill(cluster: Cluster, leader: Replica, hanging: int) -> None:
    await cluster.kill(hanging)


def move_to_third(cluster: Cluster, leader: Replica, hanging: int) -> None:
    cluster.move_leader(TOPIC, 0, next(each for each in leader.replicas if each not in (leader.node_id, hanging)))


ENDINGS = {
    "follower goes on": Held(resume, 0),
    "follower dies": Held(kill, 0),
    "delete": Held(lambda cluster, leader, _: delete_topic(cluster, leader), Error.UNKNOWN_TOPIC_OR_PARTITION),
    "leader moves": Held(move_to_third, Error.NOT_LEADER_OR_FOLLOWER),
}
for way, act in DISK_FAILS.items():
    ENDINGS[way] = Held(lambda cluster, leader, _, act=act: act(cluster, leader), Error.KAFKA_STORAGE_ERROR)  # type: ignore[misc]


@pytest.mark.parametrize("name", ENDINGS)
def test_acks_of_all_are_decided_when(name: str) -> None:
    async def main(lab: Lab) -> None:
        leader, hanging = await hang_one(lab)
        happen = ENDINGS[name].what
        answer = await answered_after(
            lab, leader, produce(lab), 9, lambda cluster, leader: happen(cluster, leader, hanging)
        )
        (row,) = answer.responses[0].partition_responses
        assert row.error_code == ENDINGS[name].error

    in_cluster(main)


def test_acks_of_all_are_decided_when_fewer_have_to_be_in_sync() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        leader, hanging = await hang_one(lab, configs={"min.insync.replicas": "3"})
        clock = lab.world.clock

        async def kill_and_lower(cluster: Cluster, leader: Replica) -> None:
            await cluster.kill(hanging)
            await clock.sleep(5_000)  # too few are in sync: nothing is committed
            lower_min_in_sync(cluster, leader)

        answer = await answered_after(lab, leader, produce(lab), 9, kill_and_lower)
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert cluster.partition(TOPIC, 0).leader == leader.node_id

    in_cluster(main)


def test_what_all_replicas_had_is_a_success_though_the_leader_moves_before_the_answer_leaves() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, assignments=[[1, 2], [1, 3]])
        await cluster.waits.in_sync()
        cluster.pause(3)
        request = produce(lab)
        Topic = ProduceRequest.TopicProduceData
        request.topic_data[0].partition_data.append(Topic.PartitionProduceData(index=1, records=batch(b"b")))
        leader = cluster.leader(TOPIC, 0)
        assert leader is not None

        async def move_and_delete(cluster: Cluster, leader: Replica) -> None:
            cluster.move_leader(TOPIC, 0, 2)
            await cluster.waits.leader(TOPIC, 0, 2)
            await cluster.kill(3)

        answer = await answered_after(lab, leader, request, 9, move_and_delete)
        assert [row.error_code for row in answer.responses[0].partition_responses] == [0, 0]

    in_cluster(main)


# Deletions of records


def delete_all(lab: Lab) -> DeleteRecordsRequest:
    Topic = DeleteRecordsRequest.DeleteRecordsTopic
    rows = [Topic.DeleteRecordsPartition(partition_index=0, offset=-1)]
    return DeleteRecordsRequest(timeout_ms=WAIT_MS, topics=[Topic(name=TOPIC, partitions=rows)])


@pytest.mark.parametrize("name", ENDINGS)
def test_a_deletion_of_records_is_over_when(name: str) -> None:
    async def main(lab: Lab) -> None:
        leader, hanging = await hang_one(lab, count=1)
        happen = ENDINGS[name].what
        answer = await answered_after(
            lab, leader, delete_all(lab), 2, lambda cluster, leader: happen(cluster, leader, hanging)
        )
        (row,) = answer.topics[0].partitions
        assert row.error_code == ENDINGS[name].error
        assert row.low_watermark == (-1 if row.error_code else 1)

    in_cluster(main)


def test_a_deletion_of_records_waits_no_more_for_a_follower_out_of_sync_that_dies() -> None:
    async def main(lab: Lab) -> None:
        leader, hanging = await hang_one(lab, count=1, lives=True)
        append(leader, b"one that it does not get")
        await lab.cluster.waits.isr(TOPIC, 0, [each for each in leader.replicas if each != hanging], timeout=100)
        answer = await answered_after(lab, leader, delete_all(lab), 2, lambda cluster, _: cluster.kill(hanging))
        (row,) = answer.topics[0].partitions
        assert (row.error_code, row.low_watermark) == (0, 2)

    in_cluster(main)


# Topics that are made because somebody asks for them


def test_who_waits_for_a_topic_that_is_made_and_deleted_again_is_answered() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        await lab.world.clock.sleep(1_000)
        cluster.links.delay(CONTROLLER, 1, 200, one_way=True)  # so that both changes come in one answer
        async with Client(cluster.bootstrap_servers, clock=lab.world.clock, timeout_ms=WAIT_MS) as client:
            connection = await client.connection(1)
            topics = [MetadataRequest.MetadataRequestTopic(name="made")]
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
            cluster.create_topic("before", 1, 1)
            await lab.world.clock.sleep(10)
            answer = asyncio.get_running_loop().create_task(connection.call(request, 9), name="request")
            await lab.world.clock.sleep(20)
            assert "made" in cluster.controller.image.topics
            cluster.delete_topic("made")
            found = await answer
        assert found.topics[0].error_code in (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.LEADER_NOT_AVAILABLE)

    in_cluster(main)


# Helpers


async def hang_one(
    lab: Lab, count: int = 0, configs: dict[str, str] | None = None, *, lives: bool = False
) -> tuple[Replica, int]:
    """Make the topic with three replicas, and let one of the followers hang; return the leader and that one.

    lives: its fetches alone do not get through, its heartbeats do.
    """
    leader = await prepared(lab, 3, count, configs)
    hanging = next(each for each in leader.replicas if each != leader.node_id)
    if lives:
        lab.cluster.links.cut(leader.node_id, hanging)
    else:
        lab.cluster.pause(hanging)
    return leader, hanging


async def prepared(lab: Lab, factor: int, count: int = 0, configs: dict[str, str] | None = None) -> Replica:
    """Make the topic, with some records that everybody has; return its leader."""
    cluster = lab.cluster
    cluster.create_topic(TOPIC, 1, factor, **(configs or {}))
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
