"""Offsets that are committed or deleted by a long request: what is written was decided in the turn that writes it."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from minibroker.broker.broker import Node
from minibroker.broker.dispatch import Context
from minibroker.broker.handlers import group_offsets
from minibroker.broker.handlers.group_offsets import WRITTEN_TOGETHER
from minibroker.coordinator import log
from minibroker.errors import Error
from minibroker.groups import OFFSETS_TOPIC
from minibroker.groups.classic import ClassicGroup
from minibroker.protocol.messages.join_group import JoinGroupRequest
from minibroker.protocol.messages.leave_group import LeaveGroupRequest
from minibroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from minibroker.protocol.messages.offset_delete import OffsetDeleteRequest
from minibroker.protocol.messages.sync_group import SyncGroupRequest
from tests.server.running import Client, connected, running

pytestmark = pytest.mark.outside

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
WISHES = struct.pack(">hi", 0, 1) + struct.pack(">h", 1) + b"t" + struct.pack(">i", 0)
UNKNOWN = range(10_000, 11_000)  # partitions that are refused take their time, too


async def joined(client: Client) -> Any:
    """Be the only member, which reads the topic."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=WISHES)
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    found = await client.ask(join, 3)
    sync = SyncGroupRequest(group_id="g", generation_id=found.generation_id, member_id=found.member_id, assignments=[])
    assert (await client.ask(sync, 3)).error_code == Error.NONE
    return found


def commit_of(count: int, *, unknown: bool = True, **member: Any) -> OffsetCommitRequest:
    Topic = OffsetCommitRequest.OffsetCommitRequestTopic
    indexes = [*(UNKNOWN if unknown else ()), *range(count)]
    rows = [
        Topic.OffsetCommitRequestPartition(partition_index=index, committed_offset=7, committed_metadata="")
        for index in indexes
    ]
    return OffsetCommitRequest(group_id="g", topics=[Topic(name="t", partitions=rows)], **member)


def stored(node: Node) -> int:
    return len(node.groups.coordinator.find("g").shard.offsets.places("g"))


def codes(answer: Any) -> set[int]:
    """Return the errors of the partitions that there are."""
    return {
        each.error_code for topic in answer.topics for each in topic.partitions if each.partition_index not in UNKNOWN
    }


def begun(node: Node, work: Any, version: int) -> Any:
    """Return what waits for a request that takes several turns of the loop."""
    context = Context(node, SimpleNamespace(is_closing=False), version, "test")  # type: ignore[arg-type]
    found = node.shares.start(work(context))
    assert hasattr(found, "__await__")
    return found


@pytest.mark.parametrize("count", [1, 40, 90])
async def test_a_member_that_leaves_meanwhile_commits_nothing(count: int) -> None:
    async with running(SETTINGS) as node, connected(node) as client:
        node.create_topic("t", 100)
        node.create_topic(OFFSETS_TOPIC, 1)
        member = await joined(client)
        request = commit_of(count, member_id=member.member_id, generation_id_or_member_epoch=member.generation_id)
        waiting = begun(node, lambda context: group_offsets.offset_commit(request, context), 7)
        left = await client.ask(LeaveGroupRequest(group_id="g", member_id=member.member_id), 1)
        assert left.error_code == Error.NONE
        assert codes(await waiting) == {Error.UNKNOWN_MEMBER_ID}
        assert stored(node) == 0


@pytest.mark.parametrize("count", [1, 40, 90])
async def test_offsets_that_a_member_reads_from_meanwhile_are_not_deleted(count: int) -> None:
    Topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    async with running(SETTINGS) as node, connected(node) as client:
        node.create_topic("t", 100)
        node.create_topic(OFFSETS_TOPIC, 1)
        assert codes(await client.ask(commit_of(count, unknown=False), 8)) == {Error.NONE}
        rows = [Topic.OffsetDeleteRequestPartition(partition_index=index) for index in (*UNKNOWN, *range(count))]
        request = OffsetDeleteRequest(group_id="g", topics=[Topic(name="t", partitions=rows)])
        waiting = begun(node, lambda context: group_offsets.offset_delete(request, context), 0)
        await joined(client)
        assert codes(await waiting) == {Error.GROUP_SUBSCRIBED_TO_TOPIC}
        assert stored(node) == count


async def test_a_commit_that_waits_for_no_follower_is_answered_in_the_same_turn_of_the_loop() -> None:
    async with running(SETTINGS) as node, connected(node) as client:
        node.create_topic("t", 1)
        node.create_topic(OFFSETS_TOPIC, 1)
        member = await joined(client)
        request = commit_of(
            1, unknown=False, member_id=member.member_id, generation_id_or_member_epoch=member.generation_id
        )
        context = Context(node, SimpleNamespace(is_closing=False), 7, "test")  # type: ignore[arg-type]
        answer = node.shares.start(group_offsets.offset_commit(request, context))
        assert isinstance(answer, OffsetCommitResponse)
        assert codes(answer) == {Error.NONE}
        assert stored(node) == 1


@pytest.mark.parametrize("leaves", [False, True])
async def test_many_offsets_are_written_some_at_a_time_by_whoever_is_a_member_then(leaves: bool) -> None:
    count = 4 * WRITTEN_TOGETHER
    writes: list[int] = []
    async with running(SETTINGS) as node, connected(node) as client:
        node.create_topic("t", count)
        node.create_topic(OFFSETS_TOPIC, 1)
        member = await joined(client)
        led = node.groups.coordinator.find("g")
        group = led.shard.groups["g"]
        assert isinstance(group, ClassicGroup)
        end_offset = led.replica.log.log_end_offset

        def noted(_: int) -> None:
            writes.append(led.replica.log.log_end_offset - end_offset - sum(writes))
            if leaves and len(writes) == 2:
                group.leave(member.member_id, None)

        led.replica.waiters[noted] = None
        request = commit_of(
            count, unknown=False, member_id=member.member_id, generation_id_or_member_epoch=member.generation_id
        )
        found = codes(await client.ask(request, 7))
        assert found == ({Error.UNKNOWN_MEMBER_ID} if leaves else {Error.NONE})
        del led.replica.waiters[noted]
        assert writes == [WRITTEN_TOGETHER] * (2 if leaves else 4)
        assert stored(node) == sum(writes)


async def test_more_offsets_than_a_batch_may_have_are_refused_before_it_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 2 * WRITTEN_TOGETHER
    async with running(SETTINGS) as node, connected(node) as client:
        node.create_topic("t", count)
        node.create_topic(OFFSETS_TOPIC, 1, {"max.message.bytes": "10000"})
        monkeypatch.delattr(log, "own_batch")
        assert codes(await client.ask(commit_of(count, unknown=False), 8)) == {Error.UNKNOWN_SERVER_ERROR}
        assert stored(node) == 0
