"""Groups and offsets as they are kept: written, read back by who coordinates next, expired, and as Kafka left them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from minibroker.broker.broker import Node
from minibroker.client.connection import Connection
from minibroker.clock.steered import SteeredClock
from minibroker.config import BrokerConfig
from minibroker.coordinator.hashing import java_hash, partition_of, signed
from minibroker.errors import Error, KafkaError
from minibroker.groups import OFFSETS_TOPIC
from minibroker.log.memory_storage import MemoryStorage
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
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest
from minibroker.protocol.messages.sync_group import SyncGroupRequest
from tests import goldens
from tests.cluster.virtual import Lab, in_cluster
from tests.metadata.nodes import golden_storage

pytestmark = pytest.mark.outside

if TYPE_CHECKING:
    from minibroker.log.storage import Storage

CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
CommitPartition = CommitTopic.OffsetCommitRequestPartition
FetchedGroup = OffsetFetchRequest.OffsetFetchRequestGroup
FetchedTopics = FetchedGroup.OffsetFetchRequestTopics


@pytest.mark.parametrize("row", goldens.table("hashes"), ids=lambda row: row["text"][:10])
def test_groups_fall_on_kafkas_partitions(row: dict[str, Any]) -> None:
    assert signed(java_hash(row["text"])) == row["javaHash"]
    assert partition_of(row["text"], 50) == row["coordinatorPartitionOf50"]


class Caller:
    """A client that says what the test wants."""

    def __init__(self, connection: Connection):
        self.call = connection.call

    async def find(self, group: str = "g") -> Any:
        return await self.call(FindCoordinatorRequest(key=group, key_type=0), 3)

    async def join(self, member_id: str = "", group: str = "g") -> Any:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"subscriptions")
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="test",
            protocols=[protocol],
        )
        return await self.call(request, 3)

    async def sync(self, member_id: str, generation: int, assignment: bytes, group: str = "g") -> Any:
        given = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
        request = SyncGroupRequest(group_id=group, generation_id=generation, member_id=member_id, assignments=[given])
        return await self.call(request, 3)

    async def beat(self, member_id: str, generation: int, group: str = "g") -> int:
        request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)
        return int((await self.call(request, 3)).error_code)

    async def commit(
        self,
        offset: int,
        *,
        topic: str = "t",
        group: str = "g",
        member_id: str = "",
        generation: int = -1,
        version: int = 8,
    ) -> int:
        partition = CommitPartition(partition_index=0, committed_offset=offset, committed_metadata=f"at {offset}")
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[CommitTopic(name=topic, partitions=[partition])],
        )
        return int((await self.call(request, version)).topics[0].partitions[0].error_code)

    async def committed(self, group: str = "g") -> dict[tuple[str, int], int]:
        answer = await self.call(OffsetFetchRequest(groups=[FetchedGroup(group_id=group, topics=None)]), 8)
        (found,) = answer.groups
        assert found.error_code == Error.NONE
        return {
            (topic.name, each.partition_index): each.committed_offset
            for topic in found.topics
            for each in topic.partitions
        }

    async def described(self, group: str = "g") -> Any:
        return (await self.call(DescribeGroupsRequest(groups=[group]), 5)).groups[0]

    async def groups(self) -> dict[str, str]:
        answer = await self.call(ListGroupsRequest(), 4)
        return {each.group_id: each.group_state for each in answer.groups}


@asynccontextmanager
async def serving(
    storage: Storage, *topics: str, clock: SteeredClock | None = None, **settings: object
) -> AsyncIterator[tuple[Node, Caller]]:
    """Serve a directory, with these topics if they are not there yet."""
    clock = clock or SteeredClock()
    given = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "connections_max_idle_ms": -1,
        "offsets_topic_num_partitions": 5,
        **settings,
    }
    node = Node(BrokerConfig.from_sources(given), storage, clock=clock, chance=Random(1))
    await node.start()
    try:
        for topic in topics:
            node.create_topic(topic, 2)
        host, _, port = node.bootstrap_servers.rpartition(":")
        async with await Connection.open(host, int(port)) as connection:
            yield node, Caller(connection)
    finally:
        await node.stop()


async def test_a_commit_survives_a_restart_and_the_last_one_counts() -> None:
    storage = MemoryStorage(int)
    async with serving(storage, "t") as (_, caller):
        await caller.find()
        assert [await caller.commit(offset) for offset in (3, 7, 5)] == [0, 0, 0]
        assert await caller.committed() == {("t", 0): 5}
    async with serving(storage) as (_, caller):
        assert await caller.committed() == {("t", 0): 5}
        assert await caller.groups() == {"g": "Empty"}


async def test_the_partition_of_a_group_is_opened_before_all_others() -> None:
    async with serving(MemoryStorage(int), "t", offsets_topic_num_partitions=500) as (node, caller):
        for group in ("g", "h"):
            assert (await caller.find(group)).error_code == Error.NONE
            assert len(node.replicas) < 300
            assert await caller.commit(1, group=group) == Error.NONE
        await node.partitions.settled()
        assert len(node.replicas) == 502
        assert await caller.committed("h") == {("t", 0): 1}


async def test_members_of_a_group_are_known_after_a_restart() -> None:
    storage = MemoryStorage(int)
    async with serving(storage, "t") as (_, caller):
        await caller.find()
        joined = await caller.join()
        synced = await caller.sync(joined.member_id, joined.generation_id, b"all")
        assert synced.assignment == b"all"
    clock = SteeredClock()
    clock.freeze()
    async with serving(storage, clock=clock) as (_, caller):
        described = await caller.described()
        (member,) = described.members
        assert (described.group_state, member.member_id, member.member_assignment) == (
            "Stable",
            joined.member_id,
            b"all",
        )
        assert await caller.beat(joined.member_id, joined.generation_id) == Error.NONE
        assert await caller.commit(1, member_id=joined.member_id, generation=joined.generation_id) == Error.NONE
        await clock.advance(9_999, sessions=True)
        assert await caller.groups() == {"g": "Stable"}
        await clock.advance(1, sessions=True)
        assert await caller.groups() == {"g": "Empty"}


async def test_a_clock_that_is_set_ends_no_session_and_lengthens_none() -> None:
    clock = SteeredClock()
    clock.freeze()
    async with serving(MemoryStorage(int), "t", clock=clock) as (_, caller):
        await caller.find()
        joined = await caller.join()
        await caller.sync(joined.member_id, joined.generation_id, b"")
        clock.jump("1h")
        assert await caller.beat(joined.member_id, joined.generation_id) == Error.NONE
        clock.jump("-2h")
        await clock.advance(9_999, sessions=True)
        assert await caller.groups() == {"g": "Stable"}
        await clock.advance(1, sessions=True)
        assert await caller.groups() == {"g": "Empty"}


async def test_offsets_of_an_empty_group_expire_and_take_it_with_them() -> None:
    clock = SteeredClock()
    clock.freeze()
    async with serving(MemoryStorage(clock.now_ms), "t", clock=clock, offsets_retention_minutes=60) as (_, caller):
        await caller.find()
        await caller.commit(1)
        await caller.find("used")
        joined = await caller.join(group="used")
        await caller.sync(joined.member_id, joined.generation_id, b"", group="used")
        await caller.commit(2, group="used", member_id=joined.member_id, generation=joined.generation_id)
        for _ in range(59 * 60 // 9):
            await clock.advance("9s", sessions=True)
            await caller.beat(joined.member_id, joined.generation_id, group="used")
        assert await caller.committed() == {("t", 0): 1}
        await clock.advance("11m", sessions=True)
        assert await caller.committed() == {}
        assert "g" not in await caller.groups()
        assert await caller.committed("used") == {("t", 0): 2}  # it emptied when its member fell silent, later
        await clock.advance("2h", sessions=True)
        assert await caller.groups() == {}


async def test_offsets_go_with_their_topic() -> None:
    storage = MemoryStorage(int)
    async with serving(storage, "t", "u") as (node, caller):
        await caller.find()
        await caller.commit(1)
        await caller.commit(2, topic="u")
        node.change(node.controller.delete_topic(name="t"))
        assert await caller.committed() == {("u", 0): 2}
    async with serving(storage, "t") as (_, caller):
        assert await caller.committed() == {("u", 0): 2}


async def test_a_group_is_deleted_with_its_offsets() -> None:
    storage = MemoryStorage(int)
    async with serving(storage, "t") as (_, caller):
        await caller.find()
        await caller.commit(1)
        answer = await caller.call(DeleteGroupsRequest(groups_names=["g", "nobody"]), 1)
        assert {each.group_id: each.error_code for each in answer.results} == {
            "g": Error.NONE,
            "nobody": Error.GROUP_ID_NOT_FOUND,
        }
        assert await caller.committed() == {}
    async with serving(storage) as (_, caller):
        assert await caller.groups() == {}
        assert await caller.committed() == {}


async def test_a_group_that_nobody_came_to_is_forgotten() -> None:
    """Asking for a member id makes a group; it goes with the last of those that were given out and not used."""
    clock = SteeredClock()
    clock.freeze()
    async with serving(MemoryStorage(clock.now_ms), "t", clock=clock) as (node, caller):
        await caller.find()
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"subscriptions")
        answers = [
            await caller.call(
                JoinGroupRequest(
                    group_id=group,
                    session_timeout_ms=10_000,
                    rebalance_timeout_ms=10_000,
                    member_id="",
                    protocol_type="test",
                    protocols=[protocol],
                ),
                4,
            )
            for group in ("left", "silent", "silent", "used")
        ]
        assert {answer.error_code for answer in answers} == {Error.MEMBER_ID_REQUIRED}
        refused = JoinGroupRequest(
            group_id="refused",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="test",
            protocols=[],
        )
        assert (await caller.call(refused, 4)).error_code == Error.INCONSISTENT_GROUP_PROTOCOL
        await caller.commit(1, group="used")
        assert set(await caller.groups()) == {"left", "silent", "used"}
        await caller.call(LeaveGroupRequest(group_id="left", member_id=answers[0].member_id), 2)
        assert set(await caller.groups()) == {"silent", "used"}
        await clock.advance(10_000, sessions=True)
        assert set(await caller.groups()) == {"used"}
        assert sum(led.replica.log.log_end_offset for led in node.groups.led()) == 1  # and nothing was written of it


async def test_many_commits_of_one_turn_are_few_batches() -> None:
    async with serving(MemoryStorage(int), "t", offsets_topic_num_partitions=1) as (node, caller):
        await caller.find()
        host, _, port = node.bootstrap_servers.rpartition(":")
        others = [Caller(await Connection.open(host, int(port))) for _ in range(5)]
        for number, other in enumerate(others):
            assert await other.commit(number, group=f"g{number}") == Error.NONE
        assert await caller.committed("g4") == {("t", 0): 4}
        for other in others:
            await other.call.__self__.close()  # type: ignore[attr-defined]


async def test_without_enough_replicas_nothing_is_committed() -> None:
    storage = MemoryStorage(int)
    async with serving(storage, "t") as (node, caller):
        await caller.find()
        for replica in node.replicas.values():
            if replica.topic == OFFSETS_TOPIC:
                replica.min_in_sync, replica.replicas = 2, (1, 2)
        assert await caller.commit(1) == Error.COORDINATOR_NOT_AVAILABLE
        assert await caller.committed() == {}


def meaning(name: str) -> dict[str, dict[tuple[str, int], int]]:
    """Return the offsets that Kafka's own reading of a directory leaves, by group: the last row of each key."""
    found: dict[str, dict[tuple[str, int], int]] = {}
    open_rows: list[tuple[int, str, tuple[str, int], int]] = []
    for partition, meant in goldens.log_meaning(name)["partitions"].items():
        if not partition.startswith(OFFSETS_TOPIC):
            continue
        for batch in (batch for segment in meant["segments"] for batch in segment["batches"]):
            for record in batch["records"]:
                key = bytes.fromhex(record["key"]["hex"])
                if batch["control"]:
                    commits = key[2:4] == b"\0\1"
                    for producer, group, place, offset in open_rows:
                        if producer == batch["producerId"] and commits:
                            found.setdefault(group, {})[place] = offset
                    open_rows = [row for row in open_rows if row[0] != batch["producerId"]]
                elif key[:2] == b"\0\1":
                    group, topic, number = _key_of(key)
                    value = record["value"]
                    if value is None:
                        found.get(group, {}).pop((topic, number), None)
                        continue
                    offset = int.from_bytes(bytes.fromhex(value["hex"])[2:10], "big")
                    if batch["transactional"]:
                        open_rows.append((batch["producerId"], group, (topic, number), offset))
                    else:
                        found.setdefault(group, {})[topic, number] = offset
    return {group: places for group, places in found.items() if places}


def _key_of(key: bytes) -> tuple[str, str, int]:
    texts: list[str] = []
    position = 2
    for _ in range(2):
        size = int.from_bytes(key[position : position + 2], "big")
        texts.append(key[position + 2 : position + 2 + size].decode())
        position += 2 + size
    return texts[0], texts[1], int.from_bytes(key[position:], "big")


@pytest.mark.parametrize("name", ["kraft39-1-before-clean", "kraft39-2-after-clean", "kraft39-3-killed", "kraft44-1"])
async def test_what_kafka_has_kept_is_found(name: str) -> None:
    storage = golden_storage(name)
    clock = SteeredClock(1_795_260_000_000)
    expected = meaning(name)
    assert expected, "there is something to find"
    async with serving(storage, clock=clock) as (_, caller):
        clock.freeze()
        found = {group: places for group in await caller.groups() if (places := await caller.committed(group))}
        assert {group: found.get(group) for group in expected} == expected
        assert found == expected


class TestCluster:
    def test_an_offset_outlives_its_coordinator(self) -> None:
        async def main(lab: Lab) -> None:
            cluster = lab.cluster
            cluster.create_topic("t", 1)
            await cluster.waits.in_sync()
            leader = await self.coordinator(lab)
            async with await self.connected(lab, leader) as connection:
                caller = Caller(connection)
                assert await caller.commit(42) == Error.NONE
            await cluster.kill(leader)
            partition = partition_of("g", 3)
            await cluster.waits.leader(OFFSETS_TOPIC, partition, other_than=leader)
            other = await self.coordinator(lab)
            assert other != leader
            async with await self.connected(lab, other) as connection:
                assert await Caller(connection).committed() == {("t", 0): 42}
                assert await Caller(connection).groups() == {"g": "Empty"}
            await cluster.start(leader)
            await cluster.waits.in_sync()

        in_cluster(main, settings={"offsets.topic.num.partitions": "3"})

    def test_a_commit_that_is_not_on_all_replicas_in_sync_does_not_count_yet(self) -> None:
        async def main(lab: Lab) -> None:
            cluster = lab.cluster
            cluster.create_topic("t", 1)
            await cluster.waits.in_sync()
            leader = await self.coordinator(lab)
            await cluster.waits.in_sync()
            cluster.steps.hold("fetch")
            async with await self.connected(lab, leader) as connection, await self.connected(lab, leader) as second:
                committing = lab.world.loop.create_task(Caller(connection).commit(42))
                await lab.world.clock.sleep(50)
                assert not committing.done()
                assert await Caller(second).committed() == {}
                cluster.steps.release()
                assert await committing == Error.NONE
                assert await Caller(second).committed() == {("t", 0): 42}
            await cluster.waits.in_sync()

        in_cluster(main, settings={"offsets.topic.num.partitions": "3"})

    def test_each_commit_that_waits_in_vain_is_told_so_when_its_own_time_is_over(self) -> None:
        async def main(lab: Lab) -> None:
            cluster, sleep = lab.cluster, lab.world.clock.sleep
            cluster.create_topic("t", 1)
            await cluster.waits.in_sync()
            leader = await self.coordinator(lab)
            await cluster.waits.in_sync()
            cluster.steps.hold("fetch")
            async with await self.connected(lab, leader) as connection, await self.connected(lab, leader) as second:
                early = lab.world.loop.create_task(Caller(connection).commit(1))
                await sleep(2000)
                late = lab.world.loop.create_task(Caller(second).commit(2))
                assert await early == Error.COORDINATOR_NOT_AVAILABLE
                await sleep(1000)
                assert not late.done()
                await sleep(1500)
                assert late.done()
                assert await late == Error.COORDINATOR_NOT_AVAILABLE
            cluster.steps.release()
            await cluster.waits.in_sync()

        in_cluster(main, settings={"offsets.topic.num.partitions": "3", "offsets.commit.timeout.ms": "5000"})

    def test_a_member_is_seen_when_its_rows_are_on_all_replicas_in_sync(self) -> None:
        async def main(lab: Lab) -> None:
            cluster = lab.cluster
            cluster.create_topic("t", 1)
            await cluster.waits.in_sync()
            leader = await self.coordinator(lab)
            await cluster.waits.in_sync()
            enter = ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="member",
                member_epoch=0,
                rebalance_timeout_ms=30_000,
                subscribed_topic_names=["t"],
                topic_partitions=[],
            )
            describe = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
            cluster.steps.hold("fetch")
            async with await self.connected(lab, leader) as connection, await self.connected(lab, leader) as second:
                entering = lab.world.loop.create_task(connection.call(enter, 1))
                await lab.world.clock.sleep(50)
                describing = lab.world.loop.create_task(second.call(describe, 1))
                await lab.world.clock.sleep(50)
                assert not entering.done()
                assert not describing.done()
                cluster.steps.release()
                assert (await entering).error_code == Error.NONE
                (group,) = (await describing).groups
                assert [member.member_id for member in group.members] == ["member"]
            await cluster.waits.in_sync()

        in_cluster(main, settings={"offsets.topic.num.partitions": "3"})

    @staticmethod
    async def connected(lab: Lab, broker: int) -> Connection:
        host, _, port = lab.cluster.nodes[broker].bootstrap_servers.rpartition(":")
        return await Connection.open(host, int(port), clock=lab.world.clock)

    async def coordinator(self, lab: Lab) -> int:
        """Return who coordinates the group; the topic is made at the first question."""
        running: Sequence[int] = [each for each in lab.cluster.broker_ids if lab.cluster.states[each] == "running"]
        async with await self.connected(lab, running[0]) as connection:
            answer = await Caller(connection).find()
            assert answer.error_code == Error.NONE
            return int(answer.node_id)


async def test_the_first_consumer_group_raises_the_feature_level_that_its_records_need() -> None:
    enter = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="member",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    async with serving(MemoryStorage(int), "t") as (node, caller):
        await caller.find()
        await caller.commit(1)
        assert node.image.features.get("group.version", 0) == 0
        assert (await caller.call(enter, 1)).error_code == Error.NONE
        assert node.image.features["group.version"] == 1


async def test_who_has_stopped_coordinates_nothing_again() -> None:
    async with serving(MemoryStorage(int), "t") as (node, caller):
        await caller.find()
        await caller.commit(1)
    # A request that comes late must not begin it anew: another life of the broker may have the directory by now.
    with pytest.raises(KafkaError) as refused:
        _ = node.groups.coordinator
    assert refused.value.code == Error.NOT_COORDINATOR
    assert not list(node.groups.led())
