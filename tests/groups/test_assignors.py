"""The assignors against Kafka's, and what must hold of any assignment."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibroker.coordinator.hashing import as_copied, as_filled, as_sized, as_timeline, java_hash
from minibroker.groups.assignors import ASSIGNORS, Subscriber
from minibroker.groups.topics import xxh3
from tests.groups.goldens import golden


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_shares_are_those_of_kafka() -> None:
    for call, shares in golden("assignments"):
        members = {member["id"]: member for member in call["members"]}
        assert shares == shares_of(call, members), call


def shares_of(call: dict[str, Any], members: dict[str, Any]) -> dict[str, dict[str, list[int]]]:
    counts = {bytes.fromhex(topic): count for topic, count in call["counts"].items()}
    subscriptions = {}
    for member_id in as_filled(members):
        member = members[member_id]
        held = {bytes.fromhex(topic): partitions for topic, partitions in member["held"].items()}
        topics = as_copied(bytes.fromhex(topic) for topic in member["topics"])
        subscriptions[member_id] = Subscriber(member["instance"], topics, held)
    is_held = {(topic, part) for wish in subscriptions.values() for topic, parts in wish.held.items() for part in parts}
    shares = ASSIGNORS[call["assignor"]](subscriptions, counts, lambda *partition: partition in is_held, call["alike"])
    return {
        member_id: {topic.hex(): sorted(partitions) for topic, partitions in share.items()}
        for member_id, share in shares.items()
        if share
    }


WISHES = st.lists(st.sets(st.integers(0, 4)), min_size=1, max_size=7)
COUNTS = st.lists(st.integers(1, 9), min_size=5, max_size=5)


@given(WISHES, COUNTS, st.sampled_from(sorted(ASSIGNORS)), st.data())
@settings(max_examples=150, deadline=None)
def test_each_wanted_partition_goes_to_one_member_that_wants_it(
    subscriptions: list[set[int]], counts: list[int], assignor: str, data: st.DataObject
) -> None:
    partitions = {topic_id(topic): count for topic, count in enumerate(counts)}
    held: dict[str, Any] = {}
    for wanted in (subscriptions, data.draw(st.permutations(subscriptions)), subscriptions[:-1] or subscriptions):
        members = {
            f"m{place}": Subscriber(None, [topic_id(topic) for topic in sorted(topics)], held.get(f"m{place}", {}))
            for place, topics in enumerate(wanted)
        }
        is_alike = len({tuple(wish.topic_ids) for wish in members.values()}) == 1
        is_held = {(topic, part) for wish in members.values() for topic, parts in wish.held.items() for part in parts}
        held = ASSIGNORS[assignor](members, partitions, lambda *place, held=is_held: place in held, is_alike)
        given_out = [(topic, part) for share in held.values() for topic, parts in share.items() for part in parts]
        wanted_ids = {topic for each in members.values() for topic in each.topic_ids}
        assert sorted(given_out) == sorted((topic, part) for topic in wanted_ids for part in range(partitions[topic]))
        for member_id, share in held.items():
            assert share.keys() <= set(members[member_id].topic_ids)
        if is_alike and assignor == "uniform" and wanted_ids:
            sizes = [sum(map(len, held.get(member_id, {}).values())) for member_id in members]
            assert max(sizes) - min(sizes) <= 1


def test_uniform_moves_nothing_when_nothing_has_changed_and_little_when_one_joins() -> None:
    counts = {topic_id(1): 6, topic_id(2): 6}
    held: dict[str, Any] = {}
    for members in (["a", "b"], ["a", "b"], ["a", "b", "c"]):
        subscriptions = {member: Subscriber(None, list(counts), held.get(member, {})) for member in members}
        taken = {(topic, part) for each in subscriptions.values() for topic in each.held for part in each.held[topic]}
        before, held = (
            held,
            ASSIGNORS["uniform"](subscriptions, counts, lambda *place, taken=taken: place in taken, True),
        )
        if members == ["a", "b"] and before:
            assert held == before
    assert sum(map(len, held["c"].values())) == 4
    for member in ("a", "b"):
        assert all(set(parts) <= set(before[member][topic]) for topic, parts in held[member].items())


def test_range_gives_a_member_the_same_numbers_in_all_topics() -> None:
    counts = {topic_id(1): 5, topic_id(2): 5}
    subscriptions = {
        "b": Subscriber(None, list(counts), {}),
        "a": Subscriber(None, list(counts), {}),
        "c": Subscriber("0", list(counts), {}),
    }
    shares = ASSIGNORS["range"](subscriptions, counts, lambda *_: False, True)
    assert shares["c"] == {key: [0, 1] for key in counts}  # an instance id comes before all member ids
    assert shares["a"] == {key: [2, 3] for key in counts}
    assert shares["b"] == {key: [4] for key in counts}


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("", 0),
        ("range", 108280125),
        ("consümer-1", 3698696179),
        (7, 7),
        (bytes.fromhex("1234567890abcdeffedcba0987654321"), 4213596863),
    ],
)
def test_hash_codes_are_those_of_java(key: str | bytes | int, code: int) -> None:
    assert java_hash(key) == code


def test_tables_hand_out_their_keys_in_the_order_of_java() -> None:
    assert as_copied(["c", "orders-2", "zz.top"]) == ["c", "orders-2", "zz.top"]
    ids = [
        bytes.fromhex(text)
        for text in (
            "7da08ee85d62881d4659f8e12e6b7d51",
            "dd7112add0a85d1154b30e5e594d3663",
            "becdba9dca2090322e88f56db9ac4a3d",
        )
    ]
    assert as_filled(ids) == ids
    assert as_sized([], ids) == [ids[0], ids[2], ids[1]]  # the last two share a slot
    assert as_timeline(["range", "uniform"]) == ["uniform", "range"]
    assert as_copied([33, 1, 17, 0]) == [0, 33, 1, 17]


def test_xxh3_is_that_of_kafka() -> None:
    for data, expected in golden("xxh3"):
        assert xxh3(bytes.fromhex(data)) == expected % (1 << 64), len(data) // 2
