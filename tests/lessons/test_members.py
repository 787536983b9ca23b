"""The members of a lesson's groups: what they share out, and what they do when things go otherwise."""

from __future__ import annotations

import pytest

from minibroker.lessons.running import check
from minibroker.lessons.scenario import parse_scenario
from minibroker.lessons.sharing import (
    assignment_bytes,
    read_assignment,
    read_subscription,
    share_in_ranges,
    share_keeping,
    subscription_bytes,
)
from minibroker.stored.consumer_protocol import ConsumerProtocolSubscription

Place = tuple[str, int]


def wish(*topics: str, owned: list[Place] | None = None) -> ConsumerProtocolSubscription:
    return read_subscription(subscription_bytes(list(topics), owned or [], 1))


def test_members_read_what_members_write() -> None:
    found = wish("a", "b", owned=[("b", 2), ("a", 0), ("b", 1)])
    assert found.topics == ["a", "b"]
    assert found.generation_id == 1
    assert [(each.topic, each.partitions) for each in found.owned_partitions] == [("a", [0]), ("b", [1, 2])]
    assert read_assignment(assignment_bytes([("b", 1), ("a", 3)])) == [("a", 3), ("b", 1)]
    assert read_assignment(b"") == []


def test_ranges_are_cut_topic_by_topic() -> None:
    parts = share_in_ranges({"y": wish("a", "b"), "x": wish("a"), "z": wish("a")}, {"a": 4, "b": 2})
    assert parts == {"x": [("a", 0), ("a", 1)], "y": [("a", 2), ("b", 0), ("b", 1)], "z": [("a", 3)]}


def test_what_somebody_has_is_given_to_nobody_else_before_it_has_been_given_up() -> None:
    everything = [("a", number) for number in range(5)]
    first = share_keeping({"x": wish("a", owned=everything), "y": wish("a")}, {"a": 5})
    assert first == {"x": everything[:3], "y": []}
    second = share_keeping({"x": wish("a", owned=first["x"]), "y": wish("a")}, {"a": 5})
    assert second == {"x": everything[:3], "y": everything[3:]}
    third = share_keeping({"z": wish("a"), "y": wish("a", owned=second["y"])}, {"a": 5})  # x has gone
    assert {member: len(places) for member, places in third.items()} == {"y": 3, "z": 2}
    assert sorted(third["y"] + third["z"]) == everything
    assert set(second["y"]) < set(third["y"])


START = """# Made up

    start 3 brokers
    topic orders partitions=2 replicas=1,2,3/2,3,1

"""


def played(step: str) -> None:
    check(parse_scenario(START + "\n".join(f"    {line}" for line in step.splitlines()), "made.txt"))


@pytest.mark.outside
def test_a_member_waits_for_one_thing_at_a_time() -> None:
    played(
        "join readers as anna topics=orders\njoin readers as ben topics=orders\nsync ben\n----\n"
        "told: anna is in generation 1, and leads anna\nerror: ben waits for the answer to its join"
    )


@pytest.mark.outside
def test_an_assignment_that_comes_when_another_rebalance_has_begun_is_none() -> None:
    played(
        "join readers as anna topics=orders\njoin readers as ben topics=orders\nsync anna\njoin readers as anna\n"
        "sync ben\nsync anna\nwait group readers 2\n----\n"
        "told: anna hears REBALANCE_IN_PROGRESS\ntold: ben has orders-1\n"
        "state: group readers state=Stable epoch=2 anna=orders-0 ben=orders-1"
    )


@pytest.mark.outside
def test_who_waits_is_told_when_the_coordinator_is_gone() -> None:
    played(
        "join readers as anna topics=orders\njoin readers as ben topics=orders\nkill 1\nkill 2\nkill 3\n----\n"
        "told: ben is told *\nstate: b1 killed"
    )
