"""Settings of a broker alone: its chores, its cleaner, its groups, its sockets; each seen from outside.

What a setting sets a time for is seen by a clock that is moved: not before, and then.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from minibroker.errors import Error, KafkaError
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minibroker.protocol.messages.delete_topics import DeleteTopicsRequest
from minibroker.protocol.messages.describe_cluster import DescribeClusterRequest
from minibroker.protocol.messages.describe_producers import DescribeProducersRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.join_group import JoinGroupRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.offset_commit import OffsetCommitRequest
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.broker.running import running_node
from tests.broker.setting_probes import BROKER, GROUP, TOPIC, Lab, alter, laboratory
from tests.server.running import Client, connected, running, turns

MINUTE_MS = 60_000


async def passed_until(lab: Lab, is_so: Callable[[], bool] | Callable[[], Awaitable[bool]], step_ms: int) -> int:
    """Move the clock by steps until something is so; return for how long."""
    begun_ms = lab.clock.now_ms()
    while True:
        found = is_so()
        if found if isinstance(found, bool) else await found:
            return lab.clock.now_ms() - begun_ms
        assert lab.clock.now_ms() - begun_ms < 240 * step_ms, "it does not come"
        await lab.pass_time(step_ms)


# Its chores


@pytest.mark.setting("log.initial.task.delay.ms", "log.retention.check.interval.ms")
@pytest.mark.parametrize(("first_ms", "interval_ms"), [(2000, 7000), (9000, 3000)])
async def test_retention_looks_first_after_one_setting_and_then_as_often_as_another_says(
    first_ms: int, interval_ms: int
) -> None:
    settings = {"log.initial.task.delay.ms": first_ms, "log.retention.check.interval.ms": interval_ms}
    async with laboratory(**settings) as lab:
        await lab.create("t", {"retention.ms": "1"})
        for expected_ms in (first_ms, interval_ms, interval_ms):
            await lab.begin_segment("t")
            before = lab.bases("t")
            assert await passed_until(lab, lambda: lab.bases("t")[0] > before[0], 500) == expected_ms  # noqa: B023


@pytest.mark.setting("log.cleaner.backoff.ms")
async def test_the_cleaner_looks_every_log_cleaner_backoff_ms_also_when_that_is_altered() -> None:
    async with laboratory(**{"log.cleaner.backoff.ms": 3000}) as lab:
        await lab.create("t", {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})

        async def pass_is_over() -> int:
            """Write something that is dirty; return how long the cleaner takes to see it."""
            await lab.written("t", key=b"k")
            await lab.begin_segment("t")
            return await passed_until(
                lab,
                lambda: lab.storage.exists("cleaner-offset-checkpoint") and lab.cleaned_to("t") == lab.bases("t")[-1],
                500,
            )

        assert [await pass_is_over() for _ in range(3)] == [3000] * 3
        assert await alter(lab.client, BROKER, "", {"log.cleaner.backoff.ms": "8000"}) is None
        await pass_is_over()  # that one was due before
        assert [await pass_is_over() for _ in range(2)] == [8000] * 2


@pytest.mark.setting("log.cleaner.io.buffer.load.factor")
async def test_the_map_of_the_cleaner_is_as_full_as_log_cleaner_io_buffer_load_factor_lets_it() -> None:
    """The emptier it must stay, the more passes a log takes: one for as many keys as there is room for."""
    passes = {}
    for factor in ("0.9", "0.3"):
        settings = {"log.cleaner.dedupe.buffer.size": 3000, "log.cleaner.io.buffer.load.factor": factor}
        async with laboratory(**settings) as lab:
            await lab.create("t", {"cleanup.policy": "compact"})
            for each in range(90):
                await lab.written("t", key=b"%d" % (each % 45))
                if each % 10 == 9:
                    await lab.node.cleaning.roll_now("t")
            await lab.begin_segment("t")
            (row,) = await lab.node.cleaning.compact_now("t")
            passes[factor] = row.passes
            assert len(await lab.keys("t")) == 46  # and that of the new segment
    assert 1 < passes["0.9"] < passes["0.3"], passes


@pytest.mark.setting("producer.id.expiration.ms")
async def test_producers_are_forgotten_after_producer_id_expiration_ms_also_when_it_is_altered() -> None:
    async with laboratory(**{"producer.id.expiration.ms": 30 * MINUTE_MS}) as lab:
        await lab.create("t", {})

        async def is_forgotten() -> bool:
            Topic = DescribeProducersRequest.TopicRequest
            asked = DescribeProducersRequest(topics=[Topic(name="t", partition_indexes=[0])])
            return not (await lab.client.ask(asked, 0)).topics[0].partitions[0].active_producers

        for minutes in (30, 90):
            assert await alter(lab.client, BROKER, "", {"producer.id.expiration.ms": str(minutes * MINUTE_MS)}) is None
            record = Record(b"k", b"", (), lab.clock.now_ms())
            data = build_batch(2, [record], producer_id=minutes, producer_epoch=0, base_sequence=0)
            assert await lab.send("t", data) is Error.NONE
            passed_ms = await passed_until(lab, is_forgotten, MINUTE_MS)
            assert minutes * MINUTE_MS <= passed_ms <= (minutes + 10) * MINUTE_MS  # it is looked every ten minutes


async def test_verifications_without_a_producer_are_forgotten_after_producer_id_expiration_ms() -> None:
    async with laboratory(**{"producer.id.expiration.ms": 30 * MINUTE_MS}) as lab:
        await lab.create("t", {})
        producers = lab.node.replicas["t", 0].log.producers
        assert producers.start_verification(7, 0, 0, lab.clock.now_ms()) is not None
        passed_ms = await passed_until(lab, lambda: not producers.verifications, MINUTE_MS)
        assert 30 * MINUTE_MS <= passed_ms <= 40 * MINUTE_MS  # it is looked every ten minutes


@pytest.mark.setting("transaction.partition.verification.enable")
async def test_transactions_are_verified_as_long_as_transaction_partition_verification_enable_says() -> None:
    name = "transaction.partition.verification.enable"
    async with laboratory() as lab:
        await lab.create("t", {})

        def append(producer_id: int) -> None:
            record = Record(b"k", b"", (), lab.clock.now_ms())
            ids = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
            data = build_batch(2, [record], transactional=True, **ids)
            lab.node.replicas["t", 0].append(bytearray(data), now_ms=lab.clock.now_ms(), steady_ms=0)

        for producer_id, is_on in enumerate(("true", "false", "true")):
            assert await alter(lab.client, BROKER, "", {name: is_on}) is None
            if is_on == "false":
                append(producer_id)
            else:
                with pytest.raises(KafkaError, match="not part of an open transaction"):
                    append(producer_id)


@pytest.mark.slow
@pytest.mark.setting("metadata.log.segment.bytes")
async def test_a_segment_of_the_metadata_log_is_as_large_as_metadata_log_segment_bytes_says() -> None:
    size_bytes = 8 << 20  # the least it may be
    async with running_node(**{"metadata.log.segment.bytes": size_bytes}) as node, connected(node) as client:
        node.create_topic("t")
        for count in range(300):
            text = f"{count}:1" + ",1:1" * 8000
            assert await alter(client, TOPIC, "t", {"leader.replication.throttled.replicas": text}) is None
        names = [name for name in node.storage.list("__cluster_metadata-0") if name.endswith(".log")]
        assert len(names) == 2
        assert size_bytes - 33_000 < node.storage.size_bytes(f"__cluster_metadata-0/{names[0]}") <= size_bytes


@pytest.mark.setting("broker.id", "node.id")
@pytest.mark.parametrize("name", ["broker.id", "node.id"])
async def test_clients_and_the_directory_are_told_the_id(name: str) -> None:
    async with running_node(**{name: 7}) as node, connected(node) as client:
        asked = DescribeClusterRequest(include_cluster_authorized_operations=False)
        assert [broker.broker_id for broker in (await client.ask(asked, 0)).brokers] == [7]
        file = node.storage.open("meta.properties")
        assert "node.id=7" in file.read_at(0, file.size_bytes).decode().split()
        file.close()


# Its topics


@pytest.mark.setting("delete.topic.enable")
@pytest.mark.parametrize("is_on", [True, False])
async def test_topics_are_deleted_if_delete_topic_enable_says_so(is_on: bool) -> None:
    async with running_node(**{"delete.topic.enable": is_on}) as node, connected(node) as client:
        node.create_topic("t")
        answer = await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        assert answer.responses[0].error_code == (Error.NONE if is_on else Error.TOPIC_DELETION_DISABLED)
        assert ("t" in node.image.topics) != is_on


@pytest.mark.setting("auto.create.topics.enable", "num.partitions")
@pytest.mark.parametrize("is_on", [True, False])
async def test_topics_are_made_when_they_are_asked_for_if_auto_create_topics_enable_says_so(is_on: bool) -> None:
    settings = {"auto.create.topics.enable": is_on, "num.partitions": 3}
    async with running_node(**settings) as node, connected(node) as client:
        asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
        await client.ask(asked, 8)
        await turns()
        (topic,) = (await client.ask(asked, 8)).topics
        assert len(topic.partitions) == (3 if is_on else 0)
        assert (topic.error_code == Error.NONE) == is_on


# Its groups


async def commit(client: Client, offset: int, topic: str = "t") -> Error:
    Topic = OffsetCommitRequest.OffsetCommitRequestTopic
    row = Topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    answer = await client.ask(OffsetCommitRequest(group_id="g", topics=[Topic(name=topic, partitions=[row])]), 8)
    return Error(answer.topics[0].partitions[0].error_code)


async def find_coordinator(client: Client) -> None:
    await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)


@pytest.mark.setting("offsets.retention.minutes", "offsets.retention.check.interval.ms")
@pytest.mark.parametrize(("minutes", "check_ms"), [(30, 7 * MINUTE_MS), (45, 13 * MINUTE_MS)])
async def test_offsets_are_kept_for_offsets_retention_minutes_and_until_the_next_look(
    minutes: int, check_ms: int
) -> None:
    settings = {"offsets.retention.minutes": minutes, "offsets.retention.check.interval.ms": check_ms}
    async with laboratory(**settings, **{"offsets.topic.num.partitions": 1}) as lab:
        await lab.create("t", {})
        await find_coordinator(lab.client)
        await lab.clock.settle()
        assert await commit(lab.client, 1) is Error.NONE

        async def is_gone() -> bool:
            Group = OffsetFetchRequest.OffsetFetchRequestGroup
            asked = OffsetFetchRequest(groups=[Group(group_id="g", topics=None)])
            return not (await lab.client.ask(asked, 8)).groups[0].topics

        looks = -(-minutes * MINUTE_MS // check_ms)  # from the start on
        assert await passed_until(lab, is_gone, MINUTE_MS) == looks * check_ms


@pytest.mark.setting("group.min.session.timeout.ms", "group.max.session.timeout.ms")
async def test_a_session_of_a_classic_group_is_bounded() -> None:
    settings = {"group.max.session.timeout.ms": 7000, "group.min.session.timeout.ms": 3000}
    async with running_node(**settings) as node, connected(node) as client:
        await find_coordinator(client)
        for timeout_ms in (2999, 3000, 7000, 7001):
            asked = JoinGroupRequest(
                group_id="g",
                session_timeout_ms=timeout_ms,
                rebalance_timeout_ms=1000,
                member_id="",
                protocol_type="consumer",
                protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
            )
            expected = Error.MEMBER_ID_REQUIRED if timeout_ms in (3000, 7000) else Error.INVALID_SESSION_TIMEOUT
            assert (await client.ask(asked, 5)).error_code == expected


async def beat(client: Client, member: str, epoch: int, **named: Any) -> Any:
    first = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    asked = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=member, member_epoch=epoch, **((first if epoch == 0 else {}) | named)
    )
    return await client.ask(asked, 1)


FAST = {
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.consumer.min.session.timeout.ms": 1000,
    "offsets.topic.num.partitions": 1,
}


@pytest.mark.setting("group.consumer.heartbeat.interval.ms", "consumer.heartbeat.interval.ms")
async def test_members_are_told_the_heartbeat_interval_of_the_broker_or_their_group() -> None:
    async with laboratory(**FAST) as lab:
        await lab.create("t", {})
        await find_coordinator(lab.client)
        await lab.clock.settle()
        joined = await beat(lab.client, "a", 0)
        assert joined.heartbeat_interval_ms == 300
        assert await alter(lab.client, GROUP, "g", {"consumer.heartbeat.interval.ms": "400"}) is None
        assert (await beat(lab.client, "a", joined.member_epoch)).heartbeat_interval_ms == 400


@pytest.mark.setting("group.consumer.session.timeout.ms", "consumer.session.timeout.ms")
@pytest.mark.parametrize("of_group", [False, True])
async def test_a_member_is_silent_for_the_session_of_the_broker_or_its_group_at_most(of_group: bool) -> None:
    async with laboratory(**FAST, **{"group.consumer.session.timeout.ms": 4000}) as lab:
        await lab.create("t", {})
        await find_coordinator(lab.client)
        await lab.clock.settle()
        if of_group:
            assert await alter(lab.client, GROUP, "g", {"consumer.session.timeout.ms": "9000"}) is None
        joined = await beat(lab.client, "a", 0)
        await lab.clock.advance((9000 if of_group else 4000) - 1, sessions=True)
        joined = await beat(lab.client, "a", joined.member_epoch)
        assert joined.error_code == Error.NONE
        await lab.clock.advance(9000 if of_group else 4000, sessions=True)
        assert (await beat(lab.client, "a", joined.member_epoch)).error_code == Error.UNKNOWN_MEMBER_ID


@pytest.mark.setting("group.consumer.assignment.interval.ms", "consumer.assignment.interval.ms")
@pytest.mark.parametrize("of_group", [False, True])
async def test_assignments_keep_the_distance_of_the_broker_or_their_group(of_group: bool) -> None:
    async with laboratory(**FAST, **{"group.consumer.assignment.interval.ms": 2000}) as lab:
        await lab.create("t", {})
        await find_coordinator(lab.client)
        await lab.clock.settle()
        if of_group:
            assert await alter(lab.client, GROUP, "g", {"consumer.assignment.interval.ms": "6000"}) is None
        first = (await beat(lab.client, "a", 0)).member_epoch
        second = (await beat(lab.client, "b", 0)).member_epoch
        interval_ms = 6000 if of_group else 2000
        await lab.pass_time(interval_ms - 1)
        assert (await beat(lab.client, "b", second)).member_epoch == second
        await lab.pass_time(1)
        assert (await beat(lab.client, "b", second)).member_epoch > max(first, second)


@pytest.mark.setting("group.consumer.assignors")
async def test_members_may_ask_for_the_assignors_of_group_consumer_assignors() -> None:
    async with laboratory(**FAST, **{"group.consumer.assignors": "range"}) as lab:
        await lab.create("t", {})
        await find_coordinator(lab.client)
        await lab.clock.settle()
        refused = await beat(lab.client, "a", 0, server_assignor="uniform")
        assert refused.error_code == Error.UNSUPPORTED_ASSIGNOR
        assert (await beat(lab.client, "a", 0, server_assignor="range")).error_code == Error.NONE


# Its sockets


@pytest.mark.setting("socket.listen.backlog.size")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="how many wait is the system's affair")
async def test_as_many_connections_wait_to_be_accepted_as_socket_listen_backlog_size_says() -> None:
    waiting = {}
    for backlog in (3, 7):
        async with running({"socket.listen.backlog.size": backlog}) as node:
            clients = [socket.socket() for _ in range(12)]
            for client in clients:  # nothing is accepted meanwhile: the loop has no turn
                client.setblocking(False)
                client.connect_ex(("127.0.0.1", node.servers[0].port))
            waiting[backlog] = sum(is_connected(client) for client in clients)
            for client in clients:
                client.close()
            await turns(20)
    assert waiting == {3: 4, 7: 8}  # Linux lets one more wait


def is_connected(client: socket.socket) -> bool:
    try:
        client.getpeername()
    except OSError:
        return False
    return True
