"""Settings of a broker that its groups follow; what the broker is told is what its clients see."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.errors import Error
from minibroker.protocol.messages.delete_topics import DeleteTopicsRequest
from minibroker.protocol.messages.join_group import JoinGroupRequest
from minibroker.protocol.messages.list_groups import ListGroupsRequest
from minibroker.stored.consumer_protocol import ConsumerProtocolSubscription
from tests.broker.setting_probes import Lab, laboratory
from tests.broker.test_settings_of_brokers import FAST, beat, find_coordinator
from tests.server.running import FedTransport, frame, records_of

JOIN = (11, 5)
PATTERN_KEY = (16).to_bytes(2, "big")  # with which the key of a row of __consumer_offsets begins


def joining(member: str = "", rebalance_ms: int = 60_000) -> JoinGroupRequest:
    metadata = b"\0\1" + ConsumerProtocolSubscription(topics=["t"]).encode(1)
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


class Asked:
    """A request to join of a member that has its id; how it is answered need not be waited for."""

    def __init__(self, lab: Lab, member: str, rebalance_ms: int):
        self.fed = FedTransport(lab.node)
        self.fed.feed(frame(joining(member, rebalance_ms), JOIN[1]))

    @property
    def answer(self) -> Any:
        return self.fed.answers(JOIN)[0][1] if self.fed.sent else None


async def has_coordinator(lab: Lab) -> None:
    await lab.create("t", {})
    await find_coordinator(lab.client)
    await lab.clock.settle()


async def join(lab: Lab, rebalance_ms: int = 60_000) -> Asked:
    """Get an id, and ask to join with it."""
    refused = await lab.client.ask(joining(rebalance_ms=rebalance_ms), JOIN[1])
    assert refused.error_code == Error.MEMBER_ID_REQUIRED
    asked = Asked(lab, refused.member_id, rebalance_ms)
    await lab.clock.settle()
    return asked


NO_DELAY = {"group.initial.rebalance.delay.ms": 0}
CLASSIC = {"offsets.topic.num.partitions": 1, **NO_DELAY}


@pytest.mark.setting("group.max.size")
@pytest.mark.parametrize("size_max", [1, 3])
async def test_a_classic_group_has_group_max_size_members_at_most(size_max: int) -> None:
    settings = {"offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 1000}
    async with laboratory(**settings, **{"group.max.size": size_max}) as lab:
        await has_coordinator(lab)
        members = [await join(lab) for _ in range(size_max)]
        refused = await lab.client.ask(joining(), JOIN[1])
        assert refused.error_code == Error.GROUP_MAX_SIZE_REACHED
        await lab.clock.advance(10_000, sessions=True)
        assert {each.answer.error_code for each in members} == {Error.NONE}


@pytest.mark.setting("group.initial.rebalance.delay.ms")
@pytest.mark.parametrize("delay_ms", [1700, 4100])
async def test_the_first_members_of_a_group_wait_for_others(delay_ms: int) -> None:
    """As long again if another has come meanwhile, and no longer than a rebalance may take."""
    settings = CLASSIC | {"group.initial.rebalance.delay.ms": delay_ms}
    async with laboratory(**settings) as lab:
        await has_coordinator(lab)
        first = await join(lab)
        await lab.clock.advance(delay_ms - 1, sessions=True)
        assert first.answer is None
        second = await join(lab)
        await lab.clock.advance(delay_ms, sessions=True)
        assert first.answer is None
        await lab.clock.advance(1, sessions=True)
        assert first.answer.generation_id == second.answer.generation_id == 1


@pytest.mark.setting("group.initial.rebalance.delay.ms")
@pytest.mark.parametrize("delay_ms", [1700, 4100])
async def test_the_first_members_of_a_group_wait_no_longer_than_a_rebalance_may_take(delay_ms: int) -> None:
    settings = CLASSIC | {"group.initial.rebalance.delay.ms": delay_ms}
    async with laboratory(**settings) as lab:
        await has_coordinator(lab)
        rebalance_ms, waited_ms = 5 * delay_ms // 2, 0  # two delays, and half of one
        first = await join(lab, rebalance_ms)
        while first.answer is None:
            await lab.clock.advance(100, sessions=True)
            waited_ms += 100
            assert waited_ms <= 10 * delay_ms
            await join(lab, rebalance_ms)
        assert rebalance_ms <= waited_ms < rebalance_ms + 100


@pytest.mark.setting("group.consumer.max.size")
@pytest.mark.parametrize("size_max", [1, 3])
async def test_a_consumer_group_has_group_consumer_max_size_members_at_most(size_max: int) -> None:
    async with laboratory(**FAST, **{"group.consumer.max.size": size_max}) as lab:
        await has_coordinator(lab)
        answers = [await beat(lab.client, f"m{number}", 0) for number in range(size_max + 1)]
        assert [each.error_code for each in answers] == [Error.NONE] * size_max + [Error.GROUP_MAX_SIZE_REACHED]


async def group_type(lab: Lab) -> str:
    (group,) = (await lab.client.ask(ListGroupsRequest(states_filter=[], types_filter=[]), 5)).groups
    return str(group.group_type)


@pytest.mark.setting("group.consumer.migration.policy")
@pytest.mark.parametrize("policy", ["disabled", "upgrade", "downgrade", "bidirectional"])
async def test_groups_change_their_protocol_as_the_policy_says(policy: str) -> None:
    async with laboratory(**FAST, **NO_DELAY, **{"group.consumer.migration.policy": policy}) as lab:
        await has_coordinator(lab)
        first = await join(lab)
        assert first.answer.error_code == Error.NONE
        upgraded = await beat(lab.client, "new", 0)
        is_upgraded = policy in ("upgrade", "bidirectional")
        assert (upgraded.error_code == Error.NONE) == is_upgraded
        assert (await group_type(lab)).lower() == ("consumer" if is_upgraded else "classic")
    async with laboratory(**FAST, **NO_DELAY, **{"group.consumer.migration.policy": policy}) as lab:
        await has_coordinator(lab)
        assert (await beat(lab.client, "new", 0)).error_code == Error.NONE
        asked = await lab.client.ask(joining(), JOIN[1])
        if policy == "disabled":
            assert asked.error_code == Error.INCONSISTENT_GROUP_PROTOCOL
            return
        second = Asked(lab, asked.member_id, 60_000)
        await lab.clock.settle()
        assert second.answer.error_code == Error.NONE
        assert (await beat(lab.client, "new", -1)).error_code == Error.NONE
        is_downgraded = policy in ("downgrade", "bidirectional")
        assert (await group_type(lab)).lower() == ("classic" if is_downgraded else "consumer")


def matches(lab: Lab) -> list[bytes]:
    """Return what has been written down of what a pattern matches."""
    return [record.value for record in records_of(lab.node, "__consumer_offsets") if record.key[:2] == PATTERN_KEY]


@pytest.mark.setting("group.consumer.regex.refresh.interval.ms")
@pytest.mark.parametrize("interval_ms", [20_000, 50_000])
async def test_what_a_pattern_matches_is_looked_up_again_after_the_refresh_interval(interval_ms: int) -> None:
    """A topic that goes is no reason to do so before."""
    async with laboratory(**FAST, **{"group.consumer.regex.refresh.interval.ms": interval_ms}) as lab:
        await lab.create("t2", {})
        await has_coordinator(lab)
        named = {"subscribed_topic_names": None, "subscribed_topic_regex": "t.*"}
        epoch = (await beat(lab.client, "a", 0, **named)).member_epoch
        await lab.clock.advance(1, sessions=True)
        assert [b"t2" in each for each in matches(lab)] == [True]
        gone = DeleteTopicsRequest.DeleteTopicState(name="t2", topic_id=bytes(16))
        await lab.client.ask(DeleteTopicsRequest(topics=[gone], timeout_ms=1000), 6)
        waited_ms = 0
        while len(matches(lab)) == 1:
            waited_ms += 500
            assert waited_ms <= 2 * interval_ms, "it is not looked up again"
            await lab.clock.advance(500, sessions=True)
            answer = await beat(lab.client, "a", epoch)
            assert answer.error_code == Error.NONE
            epoch = answer.member_epoch
            await lab.clock.settle()
        assert interval_ms < waited_ms <= interval_ms + 500
        assert b"t2" not in matches(lab)[-1]
