"""Members of classic groups: in, shared with others, fenced, out, in the oldest and the newest versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from minibroker import Broker
from minibroker.client import Cluster, SomeFailed
from minibroker.client.groups import Groups
from minibroker.client.membership import Membership, range_shares, roundrobin_shares
from minibroker.errors import Error, KafkaError

pytestmark = pytest.mark.outside

OLDEST = dict.fromkeys(("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetFetch", "FindCoordinator"), 0)
TWO = {"a": ["orders", "bills"], "b": ["orders"]}
TOPICS = {"orders": [0, 1, 2], "bills": [0, 1]}


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(topics=["orders:3"]) as broker:
        yield broker


async def has_to_join(member: Membership) -> None:
    while not member.must_join:
        await member.wait(60_000)


def test_ranges_are_cut_topic_by_topic() -> None:
    assert range_shares(TWO, TOPICS) == {
        "a": [("bills", 0), ("bills", 1), ("orders", 0), ("orders", 1)],
        "b": [("orders", 2)],
    }


def test_dealing_passes_over_who_does_not_want_a_topic() -> None:
    assert roundrobin_shares(TWO, TOPICS) == {
        "a": [("bills", 0), ("bills", 1), ("orders", 1)],
        "b": [("orders", 0), ("orders", 2)],
    }
    assert roundrobin_shares({"a": []}, TOPICS) == {"a": []}
    assert range_shares({"a": ["gone"]}, {}) == {"a": []}


@pytest.mark.parametrize("versions", [{}, OLDEST], ids=["newest", "oldest"])
async def test_two_members_share_and_who_leaves_hands_over(broker: Broker, versions: dict[str, int]) -> None:
    async with Cluster(broker.bootstrap_servers, max_versions=versions) as cluster:
        first = Membership(cluster, "g", ["orders"], heartbeat_ms=20)
        second = Membership(cluster, "g", ["orders"], heartbeat_ms=20)
        assert await first.join() == [("orders", 0), ("orders", 1), ("orders", 2)]
        joining = asyncio.create_task(second.join())
        await has_to_join(first)
        shares = [await first.join(), await joining]
        assert sorted(map(len, shares)) == [1, 2]
        assert sorted([*shares[0], *shares[1]]) == [("orders", 0), ("orders", 1), ("orders", 2)]
        await second.commit({shares[1][0]: 7})
        await second.close()
        await has_to_join(first)
        assert len(await first.join()) == 3
        await first.close()
        groups = Groups(cluster)
        assert [offset.offset for offset in (await groups.fetch_offsets(["g"]))["g"].values()] == [7]
        assert (await groups.describe_groups(["g"]))["g"].state == "Empty"


async def test_a_coordinator_that_is_none_yet_is_asked_again(broker: Broker) -> None:
    async with Cluster(broker.bootstrap_servers) as cluster, Membership(cluster, "g", ["orders"]) as member:
        for api in ("JoinGroup", "SyncGroup"):
            await broker.faults.aadd(api=api, error="COORDINATOR_LOAD_IN_PROGRESS", times=2)
        await broker.faults.aadd(api="SyncGroup", error="REBALANCE_IN_PROGRESS", nth=3)
        assert len(await member.join()) == 3


async def test_a_member_that_was_thrown_out_forgets_who_it_was(broker: Broker) -> None:
    async with (
        Cluster(broker.bootstrap_servers) as cluster,
        Membership(cluster, "g", ["orders"], heartbeat_ms=20) as member,
    ):
        await member.join()
        await broker.faults.aadd(api="Heartbeat", error="UNKNOWN_MEMBER_ID", times=1)
        await has_to_join(member)
        assert (member.id, member.generation) == ("", -1)


async def test_a_commit_of_the_past_is_refused_and_says_so(broker: Broker) -> None:
    async with Cluster(broker.bootstrap_servers) as cluster, Membership(cluster, "g", ["orders"]) as member:
        await member.join()
        member.generation -= 1
        with pytest.raises(SomeFailed) as refused:
            await member.commit({("orders", 0): 1})
        assert {error.code for error in refused.value.errors.values()} == {Error.ILLEGAL_GENERATION}
        assert member.must_join


async def test_an_error_of_heartbeats_that_will_not_pass_is_raised(broker: Broker) -> None:
    async with (
        Cluster(broker.bootstrap_servers) as cluster,
        Membership(cluster, "g", ["orders"], heartbeat_ms=20) as member,
    ):
        await member.join()
        await broker.faults.aadd(api="Heartbeat", error="GROUP_AUTHORIZATION_FAILED")
        with pytest.raises(KafkaError, match="group g"):
            await has_to_join(member)
        with pytest.raises(KafkaError):
            member.check()
