"""Members of both protocols in one group, and groups that change their protocol, against Kafka's own classes."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.errors import Error, KafkaError
from minibroker.groups import classic_members_in_consumer_group as classic_in_consumer
from minibroker.groups import migration
from minibroker.groups.classic import ClassicGroup
from minibroker.groups.classic_members import Member as ClassicMember
from minibroker.groups.consumer import ConsumerGroup
from minibroker.groups.records import decode, encode
from minibroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minibroker.protocol.messages.join_group import JoinGroupResponse
from minibroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from minibroker.stored.consumer_protocol import ConsumerProtocolSubscription
from minibroker.stored.group_offsets import GroupMetadataKey, GroupMetadataValue
from tests.groups.goldens import golden
from tests.groups.played import GROUP, Player, Settings, comparable
from tests.groups.test_consumer import Cluster, refusal


@pytest.mark.parametrize("script", golden("migrations")["classic members"], ids=lambda script: f"{len(script)} steps")
def test_classic_members_are_served_and_left_with_a_classic_group_as_in_kafka(script: list[Any]) -> None:
    player = Player()
    for number, (step, theirs) in enumerate(script):
        ours = player.play(step)
        assert comparable(step, ours) == comparable(step, theirs), f"step {number}: {step}"


@pytest.mark.parametrize("script", golden("migrations")["upgrades"], ids=lambda script: script[-1][1].get("message"))
def test_a_classic_group_is_upgraded_as_in_kafka(script: list[Any]) -> None:
    *before, (step, theirs) = script
    player = Player()
    stored: GroupMetadataValue | None = None
    for earlier, outcome in before:
        if earlier["op"] != "request":
            player.play(earlier)
        for batch in outcome["rows"]:
            for row in batch:
                found = decode(*(None if part is None else bytes.fromhex(part) for part in row))
                assert found is not None
                assert isinstance(found[1], GroupMetadataValue)
                stored = found[1]
    assert stored is not None
    policy = before[0][0]["settings"].get("group.consumer.migration.policy", "bidirectional")
    player.settings = Settings(**{"consumer.assignment.interval.ms": 0, "group.consumer.migration.policy": policy})
    classic = ClassicGroup(GROUP, player.settings, lambda rows, done: None, lambda: 1000)
    classic.restore(stored, 1000)
    kept: Any = {"topics": player.topics, "config": player.settings, "now_ms": player.now_ms}
    ours: dict[str, Any] = {"rows": []}
    try:
        rows, player.group = ConsumerGroup.upgraded(classic, **kept)
        ours = player.play(step)
        ours["rows"][0][:0] = [[part if part is None else part.hex() for part in encode(row)] for row in rows]
    except KafkaError as error:
        ours |= {"error": int(error.code), "message": error.message}
    assert comparable(step, ours) == comparable(step, theirs)


def joining(member_id: str, instance_id: str | None = None, protocol: str = "range") -> ClassicMember:
    metadata = b"\0\1" + ConsumerProtocolSubscription(topics=["t"]).encode(1)
    return ClassicMember(
        member_id,
        instance_id,
        client_id="client",
        client_host="/127.0.0.1",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        protocol_type="consumer",
        protocols=[(protocol, metadata)],
    )


def join(
    cluster: Cluster, new: ClassicMember, *, has_id: bool = True, needs_id_first: bool = False
) -> JoinGroupResponse:
    rows, joined = classic_in_consumer.join(
        cluster.group,
        new,
        has_id=has_id,
        needs_id_first=needs_id_first,
        now_ms=cluster.now_ms,
        topics=cluster.topics,
        config=cluster.settings,
    )
    if cluster.group.becomes is None:
        cluster.take(rows)
    cluster.rows = rows
    return joined


def sync(cluster: Cluster, member_id: str, generation: int) -> SyncGroupResponse:
    request = SyncGroupRequest(
        group_id=GROUP,
        member_id=member_id,
        generation_id=generation,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    )
    return classic_in_consumer.sync(cluster.group, request, now_ms=cluster.now_ms, topics=cluster.topics)


def beat(cluster: Cluster, member_id: str, generation: int) -> Error:
    return classic_in_consumer.heartbeat(cluster.group, member_id, None, generation, cluster.now_ms)


def test_a_classic_member_gets_partitions_that_a_consumer_member_gave_up() -> None:
    cluster = Cluster()
    cluster.beat("a", 0)
    assert join(cluster, joining("x"), has_id=False, needs_id_first=True).error_code is Error.MEMBER_ID_REQUIRED
    joined = join(cluster, joining("x"))
    assert (joined.generation_id, joined.protocol_name, joined.leader, joined.members) == (3, "range", "", [])
    assert sync(cluster, "x", 3).assignment == b"\0\1" + bytes(4) + b"\xff\xff\xff\xff"
    assert beat(cluster, "x", 3) == Error.NONE  # what it is to get is not free
    cluster.beat("a", 2, [0, 1, 2])
    cluster.beat("a", 2, [0, 1])
    assert beat(cluster, "x", 3) is Error.REBALANCE_IN_PROGRESS
    joined = join(cluster, joining("x"))
    assert sync(cluster, "x", joined.generation_id).assignment.endswith(b"\0\1t\0\0\0\1\0\0\0\2\xff\xff\xff\xff")
    assert refusal(lambda: beat(cluster, "x", 9))[0] is Error.ILLEGAL_GENERATION
    assert refusal(lambda: beat(cluster, "a", 3))[0] is Error.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_does_not_come_back_to_join_is_thrown_out() -> None:
    cluster = Cluster()
    cluster.beat("a", 0)
    cluster.beat("b", 0)
    join(cluster, joining("x"))
    sync(cluster, "x", cluster.group.state.members["x"].epoch)
    cluster.set_partitions(9)
    cluster.beat("a", cluster.group.state.members["a"].epoch, [0, 1, 2])
    for _ in range(4):
        assert beat(cluster, "x", 4) is Error.REBALANCE_IN_PROGRESS
        cluster.now_ms += 5_000
        if cluster.now_ms < 1_020_000:
            cluster.expire()
            assert "x" in cluster.group.state.members
    cluster.expire()
    assert "x" not in cluster.group.state.members


def test_members_without_a_protocol_in_common_do_not_get_in() -> None:
    cluster = Cluster()
    cluster.beat("a", 0)
    join(cluster, joining("x"))
    words = "Member y's protocols are not supported."
    assert refusal(lambda: join(cluster, joining("y", protocol="mine"))) == (Error.INCONSISTENT_GROUP_PROTOCOL, words)
    cluster.settings = Settings(**{"group.consumer.migration.policy": "disabled"})
    assert refusal(lambda: join(cluster, joining("z")))[0] is Error.INCONSISTENT_GROUP_PROTOCOL


def made(cluster: Cluster) -> ClassicGroup:
    assert cluster.group.becomes is not None
    settings = Settings(**{"group.initial.rebalance.delay.ms": 0})
    return migration.classic_group(
        cluster.group.becomes,
        lambda: ClassicGroup(GROUP, settings, lambda rows, done: None, lambda: cluster.now_ms),
        cluster.now_ms,
    )


def test_the_last_consumer_member_leaves_a_classic_group_behind_that_shares_out_anew() -> None:
    cluster = Cluster()
    cluster.beat("a", 0)
    join(cluster, joining("x"))
    rows, _ = cluster.group.heartbeat(
        ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=-1),
        version=1,
        client_id="client",
        client_host="/127.0.0.1",
        now_ms=cluster.now_ms,
        topics=cluster.topics,
        config=cluster.settings,
        new_member_id=str,
    )
    key, value = rows[-1]
    assert isinstance(key, GroupMetadataKey)
    assert isinstance(value, GroupMetadataValue)
    assert all(tombstone is None for _, tombstone in rows[:-1])
    group = made(cluster)
    assert (group.state.name, group.generation, [member.id for member in group.members]) == (
        "PreparingRebalance",
        3,
        ["x"],
    )


@pytest.mark.parametrize(
    ("policy", "is_downgraded"), [("downgrade", True), ("Bidirectional", True), ("upgrade", False)]
)
def test_the_policy_decides_whether_a_group_is_downgraded(policy: str, is_downgraded: bool) -> None:
    cluster = Cluster(**{"group.consumer.migration.policy": policy})
    cluster.beat("a", 0)
    join(cluster, joining("x"))
    gone = [cluster.group.state.members["a"]]
    cluster.group.remove(gone, cluster.topics, cluster.settings, cluster.now_ms)
    assert (cluster.group.becomes is not None) == is_downgraded


def test_a_static_member_that_returns_with_the_classic_protocol_keeps_what_it_had() -> None:
    cluster = Cluster()
    cluster.beat("a", 0, instance_id="i")
    joined = join(cluster, joining("x", "i"), has_id=False)
    assert (joined.error_code, joined.member_id, joined.generation_id) == (Error.NONE, "x", 2)
    group = made(cluster)
    member = group.members.get("x")
    assert (group.state.name, member is not None and member.assignment[-20:-4]) == (
        "Stable",
        (3).to_bytes(4, "big") + bytes(4) + (1).to_bytes(4, "big") + (2).to_bytes(4, "big"),
    )
    removed = [key for key, value in cluster.rows if value is None]
    assert {getattr(key, "member_id", "x") for key in removed[-6:]} == {"x"}
