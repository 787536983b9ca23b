"""Rows that cannot be written, and partitions that cannot be read: who suffers, what is lost, what is said."""

from __future__ import annotations

import asyncio
import errno
import itertools
from typing import Any

import pytest

from minibroker.client.connection import Connection, ConnectionLost
from minibroker.clock.steered import SteeredClock
from minibroker.errors import Error, KafkaError, StorageError
from minibroker.groups import OFFSETS_TOPIC
from minibroker.groups.consumer import ConsumerGroup
from minibroker.groups.offsets import commit_record
from minibroker.log.batches import batches
from minibroker.log.memory_storage import MemoryStorage
from minibroker.protocol.framing import encode_request
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from minibroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minibroker.protocol.messages.delete_groups import DeleteGroupsRequest
from minibroker.protocol.messages.describe_groups import DescribeGroupsRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.heartbeat import HeartbeatRequest
from minibroker.protocol.messages.join_group import JoinGroupRequest
from minibroker.protocol.messages.leave_group import LeaveGroupRequest
from minibroker.protocol.messages.list_groups import ListGroupsRequest
from minibroker.protocol.messages.offset_commit import OffsetCommitRequest
from minibroker.protocol.messages.offset_delete import OffsetDeleteRequest
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest
from minibroker.protocol.messages.sync_group import SyncGroupRequest
from minibroker.schema.varint import uvarint
from minibroker.schema.walk import walk
from minibroker.simulation.disk import FOREVER, SimulatedStorage
from tests.cluster.virtual import Lab, in_cluster
from tests.groups.test_offsets_partition import (
    Caller,
    CommitPartition,
    CommitTopic,
    FetchedGroup,
    FetchedTopics,
    serving,
)

pytestmark = pytest.mark.outside

PROTOCOL = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"subscriptions")
JOIN = JoinGroupRequest(
    group_id="long",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=30_000,
    member_id="",
    group_instance_id="instance",
    protocol_type="test",
    protocols=[PROTOCOL],
    reason="because",
)
ENTER = ConsumerGroupHeartbeatRequest(
    group_id="new",
    member_id="member",
    member_epoch=0,
    instance_id="instance",
    rack_id="rack",
    rebalance_timeout_ms=30_000,
    subscribed_topic_names=["t"],
    subscribed_topic_regex="t.*",
    server_assignor="uniform",
    topic_partitions=[],
)
COMMITTED = CommitTopic(
    name="t", partitions=[CommitPartition(partition_index=0, committed_offset=1, committed_metadata="m")]
)
DELETED = OffsetDeleteRequest.OffsetDeleteRequestTopic
REQUESTS: list[tuple[Request, int]] = [
    (FindCoordinatorRequest(key_type=0, coordinator_keys=["long"]), 6),
    (JOIN, 9),
    (SyncGroupRequest(group_id="long", generation_id=1, member_id="m", group_instance_id="i", protocol_type="test",
                      protocol_name="range", assignments=[
                          SyncGroupRequest.SyncGroupRequestAssignment(member_id="m", assignment=b"")]), 5),
    (HeartbeatRequest(group_id="long", generation_id=1, member_id="m", group_instance_id="i"), 4),
    (LeaveGroupRequest(group_id="long", members=[
        LeaveGroupRequest.MemberIdentity(member_id="m", group_instance_id="i", reason="because")]), 5),
    (OffsetCommitRequest(group_id="long", member_id="", topics=[COMMITTED]), 8),
    (OffsetCommitRequest(group_id="long", member_id="m", group_instance_id="i", topics=[COMMITTED]), 8),
    (OffsetFetchRequest(groups=[FetchedGroup(group_id="long", member_id="m", topics=[
        FetchedTopics(name="t", partition_indexes=[0])])]), 9),
    (DeleteGroupsRequest(groups_names=["gone"]), 2),
    (DescribeGroupsRequest(groups=["long"]), 6),
    (ListGroupsRequest(states_filter=["Stable"], types_filter=["classic"]), 5),
    (ENTER, 1),
    (ConsumerGroupDescribeRequest(group_ids=["new"], include_authorized_operations=False), 1),
]  # fmt: skip
LONGEST = 0x7FFF


def strings_of(request: Request, version: int) -> list[tuple[str, int, int]]:
    """Return path, start and end of each string of a request's bytes."""
    leaves, _ = walk(type(request), request.encode(version), version)
    return [(leaf.path, leaf.start, leaf.end) for leaf in leaves if leaf.type.startswith("String")]


FIELDS = [
    pytest.param(request, version, start, end, id=path)
    for request, version in REQUESTS
    for path, start, end in strings_of(request, version)
]


def frame_of(request: Request, version: int, start: int, end: int, size: int) -> bytes:
    """Return the frame of a request with another string in one place."""
    whole = b"".join(encode_request(request, version, 1, "client"))
    body = len(whole) - len(request.encode(version))
    changed = whole[4 : body + start] + uvarint(size + 1) + b"x" * size + whole[body + end :]
    return len(changed).to_bytes(4, "big") + changed


@pytest.mark.parametrize(("request_", "version", "start", "end"), FIELDS)
async def test_a_string_of_any_length_hurts_nobody_else(
    request_: Request, version: int, start: int, end: int, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = MemoryStorage(int)
    async with serving(storage, "t", offsets_topic_num_partitions=1) as (node, caller):
        await caller.find()
        host, _, port = node.bootstrap_servers.rpartition(":")
        for number, size in enumerate((LONGEST, LONGEST + 1, 0x10000)):
            async with await Connection.open(host, int(port)) as connection:
                # In one turn of the loop, so that their rows would go into one batch.
                asked = asyncio.ensure_future(connection.call_raw(frame_of(request_, version, start, end, size)))
                assert await caller.commit(number, group="innocent") == Error.NONE
                if size == LONGEST:
                    assert await asked
                else:
                    with pytest.raises(ConnectionLost):
                        await asked
        before = await caller.groups()
    async with serving(storage, offsets_topic_num_partitions=1) as (_, caller):
        assert await caller.committed("innocent") == {("t", 0): 2}
        after = await caller.groups()
        assert after.items() <= before.items()
        assert {group for group, state in before.items() if state == "Stable"} <= after.keys()
    assert "cannot be read" not in capsys.readouterr().err


async def test_a_member_with_the_longest_names_is_there_after_a_restart() -> None:
    storage = MemoryStorage(int)
    join = JoinGroupRequest(
        group_id="x" * LONGEST,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        group_instance_id="x" * (LONGEST - 37),
        protocol_type="x" * LONGEST,
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="x" * LONGEST, metadata=b"subscriptions")],
    )
    async with serving(storage, "t", offsets_topic_num_partitions=1) as (_, caller):
        await caller.find()
        for name in ("x" * LONGEST, "x" * (LONGEST - 36)):
            too_long = JoinGroupRequest(**{**join.to_dict(), "group_instance_id": name, "protocols": [PROTOCOL]})
            assert (await caller.call(too_long, 9)).error_code == Error.INVALID_REQUEST
        joined = await caller.call(join, 9)
        assert joined.error_code == Error.NONE
        sync = SyncGroupRequest(
            group_id=join.group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=join.group_instance_id,
            protocol_type=join.protocol_type,
            protocol_name=join.protocols[0].name,
            assignments=[SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")],
        )
        assert (await caller.call(sync, 5)).error_code == Error.NONE
    async with serving(storage, offsets_topic_num_partitions=1) as (_, caller):
        described = await caller.described(join.group_id)
        assert (described.group_state, described.members[0].member_id) == ("Stable", joined.member_id)


async def test_one_who_fails_when_it_is_told_keeps_nobody_from_an_answer() -> None:
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
    async with serving(MemoryStorage(int), "t", offsets_topic_num_partitions=1) as (node, caller):
        await caller.find()
        await caller.commit(1)
        (led,) = node.groups.led()

        def fail(error: Error) -> None:
            raise ZeroDivisionError

        told: list[Error] = []
        for done in (fail, told.append, fail, told.append):
            led.write("g", [], done)
        assert await caller.commit(2) == Error.NONE
        assert told == [Error.NONE, Error.NONE]
        assert [type(each["exception"]) for each in failures] == [ZeroDivisionError] * 2


@pytest.mark.setting("group.coordinator.rebalance.protocols")
async def test_the_consumer_protocol_can_be_switched_off() -> None:
    async with serving(MemoryStorage(int), "t", group_coordinator_rebalance_protocols="classic") as (_, caller):
        await caller.find("new")
        assert (await caller.call(ENTER, 1)).error_code == Error.UNSUPPORTED_VERSION
        asked = ConsumerGroupDescribeRequest(group_ids=["new"], include_authorized_operations=False)
        assert (await caller.call(asked, 1)).groups[0].error_code == Error.UNSUPPORTED_VERSION
        assert (await caller.join(group="new")).error_code == Error.NONE


# More than one batch can hold


MANY = 40  # groups, of so many offsets each
SMALL = {"message_max_bytes": 1500, "offsets_topic_num_partitions": 1}


async def commit_many(caller: Caller) -> None:
    await caller.find()
    for number in range(MANY):
        for part in range(3):
            topics = [
                CommitTopic(name=f"t{part}", partitions=[
                    CommitPartition(partition_index=index, committed_offset=7, committed_metadata="")
                    for index in range(2)
                ])
            ]  # fmt: skip
            answer = await caller.call(OffsetCommitRequest(group_id=f"g{number}", topics=topics), 8)
            assert {each.error_code for each in answer.topics[0].partitions} == {Error.NONE}


async def left(caller: Caller) -> int:
    return sum([len(await caller.committed(f"g{number}")) for number in range(MANY)])


async def test_the_offsets_of_a_topic_go_with_it_however_many_there_are() -> None:
    storage = MemoryStorage(int)
    async with serving(storage, "t0", "t1", "t2", **SMALL) as (node, caller):
        await commit_many(caller)
        node.change(node.controller.delete_topic(name="t0"))
        node.create_topic("t0", 2)
        assert await left(caller) == MANY * 4
    async with serving(storage, **SMALL) as (_, caller):
        assert await left(caller) == MANY * 4


async def test_offsets_expire_with_their_groups_however_many_there_are() -> None:
    clock = SteeredClock()
    clock.freeze()
    storage = MemoryStorage(clock.now_ms)
    async with serving(storage, "t0", "t1", "t2", clock=clock, offsets_retention_minutes=60, **SMALL) as (_, caller):
        await commit_many(caller)
        await clock.advance("71m", sessions=True)
        assert await left(caller) == 0
        assert await caller.groups() == {}
    async with serving(storage, clock=clock, **SMALL) as (_, caller):
        assert await left(caller) == 0
        assert await caller.groups() == {}


async def test_groups_are_deleted_however_many_offsets_they_have() -> None:
    storage = MemoryStorage(int)
    async with serving(storage, *(f"t{number}" for number in range(100)), **SMALL) as (_, caller):
        await caller.find()
        for number in range(100):
            assert await caller.commit(7, topic=f"t{number}") == Error.NONE
        answer = await caller.call(DeleteGroupsRequest(groups_names=["g"]), 1)
        assert answer.results[0].error_code == Error.NONE
        assert await caller.committed() == {}
        assert await caller.groups() == {}
    async with serving(storage, **SMALL) as (_, caller):
        assert await caller.committed() == {}
        assert await caller.groups() == {}


async def test_what_could_not_be_deleted_is_deleted_later() -> None:
    clock = SteeredClock()
    clock.freeze()
    async with serving(
        MemoryStorage(clock.now_ms), "t", "u", clock=clock, offsets_retention_minutes=60, offsets_topic_num_partitions=1
    ) as (node, caller):
        await caller.find()
        assert [await caller.commit(1), await caller.commit(1, topic="u")] == [Error.NONE] * 2
        replica = node.replicas[OFFSETS_TOPIC, 0]
        replica.min_in_sync, replica.replicas = 2, (1, 2)
        answer = await caller.call(DeleteGroupsRequest(groups_names=["g"]), 1)
        assert answer.results[0].error_code == Error.COORDINATOR_NOT_AVAILABLE
        node.change(node.controller.delete_topic(name="t"))
        await clock.advance("30m", sessions=True)
        assert await caller.groups() == {"g": "Empty"}
        assert len(await caller.committed()) == 2
        replica.min_in_sync, replica.replicas = 1, (1,)
        await clock.advance("1m", sessions=True)
        assert await caller.committed() == {("u", 0): 1}
        replica.min_in_sync, replica.replicas = 2, (1, 2)
        await clock.advance("60m", sessions=True)
        assert await caller.groups() == {"g": "Empty"}
        assert await caller.committed() == {("u", 0): 1}
        replica.min_in_sync, replica.replicas = 1, (1,)
        await clock.advance("11m", sessions=True)
        assert await caller.groups() == {}
        assert await caller.committed() == {}


def refuse_appends(storage: MemoryStorage, times: int = 1_000) -> None:
    left = itertools.repeat(None, times)

    def full(doing: str, path: str) -> None:
        if path == LOG and next(left, True) is None:
            raise OSError(errno.ENOSPC, "No space left on device")

    storage.trouble = full


@pytest.mark.parametrize("before", [None, 5])
async def test_a_commit_that_the_disk_refuses_counts_for_nobody(before: int | None) -> None:
    """Neither for who asks nor for who decides."""
    storage = MemoryStorage(int)
    async with serving(storage, "t", offsets_topic_num_partitions=1) as (node, caller):
        await caller.find()
        if before is not None:
            assert await caller.commit(before) == Error.NONE
        refuse_appends(storage)
        assert await caller.commit(7) != Error.NONE
        storage.trouble = None
        (led,) = node.groups.led()
        latest = {place: stored.value.offset for place, stored in led.shard.offsets.latest("g").items() if stored.value}
        assert latest == await caller.committed() == ({} if before is None else {("t", 0): before})


async def test_rows_that_no_batch_can_hold_are_refused_before_anything_is_made_of_them() -> None:
    async with serving(MemoryStorage(int), "t", **SMALL) as (node, caller):
        await caller.find()
        assert await caller.commit(1) == Error.NONE
        (led,) = node.groups.led()
        end, told = node.replicas[OFFSETS_TOPIC, 0].log.log_end_offset, list[Error]()
        row = commit_record(
            "h", "t", 0, 2, leader_epoch=-1, metadata="x" * 2000, commit_timestamp=0, topic_id=bytes(16)
        )
        small = commit_record("h", "t", 0, 1, leader_epoch=-1, metadata="", commit_timestamp=0, topic_id=bytes(16))
        led.write("h", [small], lambda error: None)
        led.write("h", [row], told.append)
        # Known in the same turn, and what came before is in the log.
        assert len(told) == 1
        assert told[0] != Error.NONE
        assert node.replicas[OFFSETS_TOPIC, 0].log.log_end_offset == end + 1
        found = led.shard.offsets.latest("h")["t", 0].value
        assert found is not None
        assert found.offset == 1


async def test_rows_too_large_for_a_batch_are_refused_when_what_came_before_has_ended_the_coordinator() -> None:
    """Or they would be in the log, and whoever coordinates now would know nothing of them."""
    storage = MemoryStorage(int)
    async with serving(storage, "t", offsets_topic_num_partitions=1) as (node, caller):
        await caller.find("new")
        assert (await caller.call(ENTER, 1)).error_code == Error.NONE
        (led,) = node.groups.led()
        group = led.shard.groups["new"]
        assert isinstance(group, ConsumerGroup)
        end, told = node.replicas[OFFSETS_TOPIC, 0].log.log_end_offset, list[Error]()
        rows = [
            commit_record(
                "h", "t", number, 2, leader_epoch=-1, metadata="x" * 30_000, commit_timestamp=0, topic_id=bytes(16)
            )
            for number in range(20)
        ]
        refuse_appends(storage, times=1)
        # What a consumer group has taken and the disk has not: all groups are read again.
        led.end_consumer_group(group)
        led.write("h", rows, told.append)
        assert told == [Error.NOT_COORDINATOR]
        assert led.log.is_closed
        assert node.replicas[OFFSETS_TOPIC, 0].log.log_end_offset == end
        assert await caller.committed("h") == {}
        assert "new" in await caller.groups()


async def test_groups_of_a_log_that_is_offline_are_not_answered_for() -> None:
    async with serving(MemoryStorage(int), "t", offsets_topic_num_partitions=1) as (node, caller):
        await caller.find()
        assert await caller.commit(1) == Error.NONE
        node.replicas[OFFSETS_TOPIC, 0].log.fail(StorageError("no disk"))
        assert await fetch_codes(caller, "g") == {"g": Error.NOT_COORDINATOR}


async def test_a_coordinator_of_an_older_epoch_writes_nothing() -> None:
    async with serving(MemoryStorage(int), "t", offsets_topic_num_partitions=1) as (node, caller):
        await caller.find()
        assert await caller.commit(1) == Error.NONE
        (led,) = node.groups.led()
        replica, told = node.replicas[OFFSETS_TOPIC, 0], list[Error]()
        row = commit_record("g", "t", 0, 2, leader_epoch=-1, metadata="", commit_timestamp=0, topic_id=bytes(16))
        led.write("g", [row], told.append)
        end = replica.log.log_end_offset
        # It leads again, in another epoch, and this one has not heard of it yet.
        replica.lead(replica.leader_epoch + 1)
        led.log.flush()
        assert (told, replica.log.log_end_offset) == ([Error.NOT_COORDINATOR], end)
        node.groups.coordinator.follow()
        assert await caller.committed() == {("t", 0): 1}


# What cannot be read


async def fetch_codes(caller: Caller, *groups: str) -> dict[str, int]:
    wanted = [FetchedGroup(group_id=group, topics=None) for group in groups]
    answer = await caller.call(OffsetFetchRequest(groups=wanted), 8)
    return {each.group_id: each.error_code for each in answer.groups}


COMMITS = 6
LOG = f"{OFFSETS_TOPIC}-0/00000000000000000000.log"


@pytest.mark.parametrize("damaged", range(COMMITS))
async def test_a_partition_with_a_damaged_record_is_not_coordinated(
    damaged: int, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = SimulatedStorage(int)
    groups = [f"g{number}" for number in range(COMMITS)]
    async with serving(storage, "t", offsets_topic_num_partitions=1) as (node, caller):
        await caller.find()
        for number, group in enumerate(groups):
            assert await caller.commit(number, group=group) == Error.NONE
        view = memoryview(storage.open(LOG).read_at(0, node.replicas[OFFSETS_TOPIC, 0].log.size_bytes))
        places = [batch.position for batch in batches(view)]
        assert len(places) == COMMITS
    storage.flip(LOG, places[damaged] + 80, 0)
    async with serving(storage, offsets_topic_num_partitions=1) as (node, caller):
        end = node.replicas[OFFSETS_TOPIC, 0].log.log_end_offset
        assert await fetch_codes(caller, *groups) == dict.fromkeys(groups, Error.NOT_COORDINATOR)
        assert await caller.commit(100, group=groups[0]) == Error.NOT_COORDINATOR
        assert (await caller.join(group=groups[0])).error_code == Error.NOT_COORDINATOR
        node.create_topic("u", 1)  # whatever else changes, it stays so
        assert await fetch_codes(caller, *groups) == dict.fromkeys(groups, Error.NOT_COORDINATOR)
        assert node.replicas[OFFSETS_TOPIC, 0].log.log_end_offset == end
    said = capsys.readouterr().err
    assert said.count("cannot be read") == 1
    assert "move the directory away" in said
    storage.flip(LOG, places[damaged] + 80, 0)
    async with serving(storage, offsets_topic_num_partitions=1) as (_, caller):
        found = {group: await caller.committed(group) for group in groups}
        assert found == {group: {("t", 0): number} for number, group in enumerate(groups)}


async def test_a_damaged_partition_that_is_moved_away_is_begun_anew() -> None:
    """docs/groups.md says so."""
    storage = SimulatedStorage(int)
    async with serving(storage, "t", offsets_topic_num_partitions=1) as (_, caller):
        await caller.find()
        assert await caller.commit(42) == Error.NONE
    storage.flip(LOG, 80, 0)
    async with serving(storage, offsets_topic_num_partitions=1) as (_, caller):
        assert await fetch_codes(caller, "g") == {"g": Error.NOT_COORDINATOR}
    storage.rename(f"{OFFSETS_TOPIC}-0", "away")
    for offset in (1, 2):
        async with serving(storage, offsets_topic_num_partitions=1) as (_, caller):
            assert await caller.committed() == ({} if offset == 1 else {("t", 0): 1})
            assert await caller.commit(offset) == Error.NONE


async def test_a_disk_that_fails_for_good_tells_nobody_that_nothing_was_committed() -> None:
    storage = SimulatedStorage(int)
    async with serving(storage, "t", offsets_topic_num_partitions=1) as (_, caller):
        await caller.find()
        assert await caller.commit(42) == Error.NONE
        storage.fail(errno.EIO, times=FOREVER, path=LOG)
        # A row of a consumer group: when it cannot be written the groups are read again.
        entered = await caller.call(ENTER, 1)
        assert entered.error_code in (Error.NOT_COORDINATOR, Error.KAFKA_STORAGE_ERROR)
        assert await fetch_codes(caller, "g") in ({"g": Error.NONE}, {"g": Error.NOT_COORDINATOR})
        if await fetch_codes(caller, "g") == {"g": Error.NONE}:
            assert await caller.committed() == {("t", 0): 42}
        storage.heal()


async def test_groups_are_read_when_the_disk_can_be_read_again(capsys: pytest.CaptureFixture[str]) -> None:
    storage = SimulatedStorage(int)
    clock = SteeredClock()
    clock.freeze()
    async with serving(storage, "t", clock=clock, offsets_topic_num_partitions=1) as (_, caller):
        await caller.find()
        assert await caller.commit(42) == Error.NONE
    async with serving(storage, clock=clock, offsets_topic_num_partitions=1) as (node, caller):
        (led,) = node.groups.led()
        storage.fail(errno.EIO, times=FOREVER, doing="read", path=LOG)
        led._begin_again()
        assert await fetch_codes(caller, "g") == {"g": Error.NOT_COORDINATOR}
        await clock.advance("10s", sessions=True)
        assert await fetch_codes(caller, "g") == {"g": Error.NOT_COORDINATOR}
        storage.heal()
        await clock.advance("1s", sessions=True)
        assert await caller.committed() == {("t", 0): 42}
    said = capsys.readouterr().err
    assert said.count("cannot be read") == 1
    assert said.count("have been read") == 1


# Too few replicas


def test_a_new_coordinator_answers_for_groups_whose_rows_are_all_committed() -> None:
    """The rows of one group are above the high watermark, and stay so for as long as too few replicas are in sync."""

    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic("t", 1)
        await cluster.waits.in_sync()

        async def connect() -> Connection:
            leader = cluster.controller.image.topics[OFFSETS_TOPIC].partitions[0].leader
            host, _, port = cluster.nodes[leader].bootstrap_servers.rpartition(":")
            return await Connection.open(host, int(port), clock=lab.world.clock)

        host, _, port = cluster.nodes[1].bootstrap_servers.rpartition(":")
        async with await Connection.open(host, int(port), clock=lab.world.clock) as connection:
            await Caller(connection).find()
        await cluster.waits.in_sync()
        async with await connect() as connection, await connect() as second:
            assert await Caller(connection).commit(1, group="safe") == Error.NONE
            assert await Caller(connection).commit(1, group="unsafe") == Error.NONE
            await lab.world.clock.sleep(1000)
            leader = cluster.controller.image.topics[OFFSETS_TOPIC].partitions[0].leader
            follower, other = (each for each in cluster.broker_ids if each != leader)
            cluster.steps.hold("fetch", broker=other)
            late = lab.world.loop.create_task(Caller(second).commit(2, group="unsafe"))
            await lab.world.clock.sleep(100)
            assert not late.done()
            await cluster.kill(other)
            await cluster.kill(leader)
            with pytest.raises(KafkaError):
                await late
        cluster.steps.release()
        await cluster.waits.leader(OFFSETS_TOPIC, 0, other_than=leader)
        await lab.world.clock.sleep(1000)
        async with await connect() as connection:
            caller = Caller(connection)
            replica = cluster.nodes[follower].replicas[OFFSETS_TOPIC, 0]
            assert (replica.high_watermark, replica.log.log_end_offset) == (2, 3)
            assert await caller.committed("safe") == {("t", 0): 1}
            assert await fetch_codes(caller, "unsafe") == {"unsafe": Error.COORDINATOR_LOAD_IN_PROGRESS}
            assert await caller.commit(5, group="safe") == Error.COORDINATOR_NOT_AVAILABLE
            assert await caller.groups() == {"safe": "Empty", "unsafe": "Empty"}
        await cluster.start(leader)
        await cluster.start(other)
        await cluster.waits.in_sync()
        async with await connect() as connection:
            assert await Caller(connection).committed("unsafe") == {("t", 0): 2}

    in_cluster(main, settings={"offsets.topic.num.partitions": "1", "min.insync.replicas": "2"})
