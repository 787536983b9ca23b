"""Offsets of groups: committed, fetched and deleted, in each of their ages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from minibroker.errors import Error
from minibroker.groups.offsets import commit_record
from minibroker.protocol.messages.offset_delete import OffsetDeleteRequest
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.broker.handlers.members import (
    MEMBER_ID,
    UNKNOWN_ID,
    beat,
    commit,
    commit_request,
    committed,
    coordinator,
    stable,
)
from tests.broker.virtual_broker import VirtualBroker

OK, UNKNOWN = Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION
NEWEST = 10
IDS_SINCE, BATCHES_SINCE, TOP_LEVEL_ERROR_SINCE = 10, 8, 2
Rows = list[tuple[str, int, int]]


@pytest.fixture
def broker() -> Iterator[VirtualBroker]:
    with started() as broker:
        yield broker


@contextmanager
def started(as_version: str | None = None) -> Iterator[VirtualBroker]:
    with coordinator(as_version=as_version) as broker:
        broker.node.create_topic("orders", 3)
        broker.node.create_topic("other", 1)
        yield broker


def topic_id(broker: VirtualBroker, name: str) -> bytes:
    found: bytes = broker.node.image.topics[name].id
    return found


def fetch(
    broker: VirtualBroker,
    wanted: dict[str | bytes, list[int]] | None,
    group: str = "g",
    *,
    version: int = 9,
    stable_only: bool = False,
    **member: Any,
) -> tuple[int, dict[tuple[str | bytes, int], tuple[int, int, str | None]]]:
    """Return the error of a group, and offset, error and metadata of each partition."""
    if version >= BATCHES_SINCE:
        Group = OffsetFetchRequest.OffsetFetchRequestGroup
        Topic = Group.OffsetFetchRequestTopics
        topics = None
        if wanted is not None:
            topics = [
                Topic(partition_indexes=rows, **({"topic_id": key} if isinstance(key, bytes) else {"name": key}))
                for key, rows in wanted.items()
            ]
        groups = [Group(group_id=group, topics=topics, **member)]
        (found,) = broker.ask(OffsetFetchRequest(groups=groups, require_stable=stable_only), version).groups
        assert found.group_id == group
    else:
        Old = OffsetFetchRequest.OffsetFetchRequestTopic
        old = None if wanted is None else [Old(name=str(key), partition_indexes=rows) for key, rows in wanted.items()]
        found = broker.ask(OffsetFetchRequest(group_id=group, topics=old, require_stable=stable_only), version)
    rows: dict[tuple[str | bytes, int], tuple[int, int, str | None]] = {}
    for topic in found.topics:
        for each in topic.partitions:
            key = topic.topic_id if version >= IDS_SINCE else topic.name
            rows[key, each.partition_index] = each.committed_offset, each.error_code, each.metadata
    return found.error_code, rows


NOTHING = (-1, OK, "")


@pytest.mark.parametrize("version", range(NEWEST + 1))
def test_what_is_committed_is_fetched_in_every_version(broker: VirtualBroker, version: int) -> None:
    if version < IDS_SINCE:
        names: dict[str | bytes, dict[int, int]] = {"orders": {0: 5, 2: 7}, "absent": {0: 1}}
        expected = [("orders", 0, OK), ("orders", 2, OK), ("absent", 0, UNKNOWN)]
    else:
        names = {topic_id(broker, "orders"): {0: 5, 2: 7}, UNKNOWN_ID: {0: 1}}
        expected = [("", 0, OK), ("", 2, OK), ("", 0, Error.UNKNOWN_TOPIC_ID)]
    answer = broker.ask(commit_request(names, metadata="note"), version)
    assert sorted(committed(answer)) == sorted(expected)
    if version >= IDS_SINCE:
        assert {topic.topic_id for topic in answer.topics} == names.keys()
    key: str | bytes = "orders" if version < IDS_SINCE else topic_id(broker, "orders")
    error, rows = fetch(broker, {key: [0, 1, 2]}, version=version)
    assert error == OK
    note, absent = ("", (-1, UNKNOWN, "")) if version == 0 else ("note", NOTHING)
    assert rows == {(key, 0): (5, OK, note), (key, 1): absent, (key, 2): (7, OK, note)}


def test_version_0_is_refused_by_brokers_that_have_no_zookeeper() -> None:
    refused = Error.UNSUPPORTED_VERSION
    with started("3.9") as broker:
        assert committed(broker.ask(commit_request({"absent": {0: 1}}), 0)) == [("absent", 0, UNKNOWN)]
        mixed = committed(broker.ask(commit_request({"orders": {0: 5}, "absent": {0: 1}}), 0))
        assert sorted(mixed) == [("absent", 0, refused), ("orders", 0, refused)]
        commit(broker, {"orders": {0: 5}})
        nothing = (-1, refused, "")
        assert fetch(broker, {"orders": [0, 1]}, version=0)[1] == {("orders", 0): nothing, ("orders", 1): nothing}
        assert fetch(broker, {"orders": [0, 1]}, version=1)[1] == {("orders", 0): (5, OK, ""), ("orders", 1): NOTHING}
    with started("2.8") as broker:
        assert committed(broker.ask(commit_request({"orders": {0: 5}, "absent": {0: 1}}), 0)) == [
            ("orders", 0, OK),
            ("absent", 0, UNKNOWN),
        ]


def test_a_group_that_is_being_read_is_told_in_each_partition_by_the_oldest(broker: VirtualBroker) -> None:
    loading = Error.COORDINATOR_LOAD_IN_PROGRESS
    for each in broker.node.groups.led():
        each.log.is_loading = True
    for version in range(NEWEST + 1):
        key: str | bytes = "orders" if version < IDS_SINCE else topic_id(broker, "orders")
        error, rows = fetch(broker, {key: [0, 1]}, version=version)
        if version < TOP_LEVEL_ERROR_SINCE:
            assert (error, {row[:2] for row in rows.values()}, len(rows)) == (OK, {(-1, loading)}, 2)
        else:
            assert (error, rows) == (loading, {})
        refused = committed(broker.ask(commit_request({key: {0: 1, 1: 1}}), version))
        assert [(index, code) for _, index, code in refused] == [(0, loading), (1, loading)]
    for each in broker.node.groups.led():
        each.log.is_loading = False


def test_everything_that_was_committed_is_fetched_without_names(broker: VirtualBroker) -> None:
    commit(broker, {"orders": {0: 5, 2: 7}, "other": {0: 1}})
    by_name = {("orders", 0): 5, ("orders", 2): 7, ("other", 0): 1}
    for version in (2, 7, 8, 9):
        assert {key: row[0] for key, row in fetch(broker, None, version=version)[1].items()} == by_name
    by_id = {(topic_id(broker, str(name)), index): offset for (name, index), offset in by_name.items()}
    assert {key: row[0] for key, row in fetch(broker, None, version=10)[1].items()} == by_id
    assert fetch(broker, None, "absent") == (OK, {})
    assert fetch(broker, {}) == (OK, {})
    assert fetch(broker, {"absent": [0]})[1] == {("absent", 0): NOTHING}
    assert fetch(broker, {UNKNOWN_ID: [0]}, version=10)[1] == {(UNKNOWN_ID, 0): (-1, Error.UNKNOWN_TOPIC_ID, "")}


def test_an_offset_of_a_topic_that_had_the_name_before_is_none(broker: VirtualBroker) -> None:
    commit(broker, {"orders": {0: 5}})
    shard = broker.node.groups.coordinator.find("g").shard
    found = shard.offsets.find("g", "orders", 0)
    assert found.topic_id == topic_id(broker, "orders")
    topic = broker.node.image.topics["orders"]
    before, topic.id = topic.id, UNKNOWN_ID
    assert fetch(broker, {"orders": [0]})[1] == {("orders", 0): NOTHING}
    assert fetch(broker, None)[1] == {("orders", 0): NOTHING}
    topic.id = before
    assert fetch(broker, {"orders": [0]})[1] == {("orders", 0): (5, OK, "")}


def test_what_is_named_twice_counts_once_for_old_brokers() -> None:
    for release, merges in (("3.9", True), ("4.4", False)):
        with started(release) as broker:
            request = commit_request({"orders": {0: 5}})
            request.topics = [request.topics[0], commit_request({"orders": {0: 6, 1: 7}}).topics[0]]
            rows = committed(broker.ask(request, 8))
            assert len(rows) == (2 if merges else 3)
            assert fetch(broker, {"orders": [0, 1]})[1] == {("orders", 0): (6, OK, ""), ("orders", 1): (7, OK, "")}
            Group = OffsetFetchRequest.OffsetFetchRequestGroup
            topics = [Group.OffsetFetchRequestTopics(name="orders", partition_indexes=each) for each in ([0, 0], [])]
            answer = broker.ask(OffsetFetchRequest(groups=[Group(group_id="g", topics=topics)]), 9).groups[0]
            counts = [len(topic.partitions) for topic in answer.topics]
            assert counts == ([1] if merges else [2, 0])


@pytest.mark.parametrize(("release", "order"), [("2.8", [0, 7, 1]), ("4.4", [7, 0, 1])])
def test_errors_stand_first_in_newer_answers(release: str, order: list[int]) -> None:
    with started(release) as broker:
        rows = committed(broker.ask(commit_request({"orders": {0: 5, 7: 5, 1: 5}}), 6))
        assert [index for _, index, _ in rows] == order
        rows = committed(broker.ask(commit_request({"orders": {0: 5}, "absent": {0: 5}}), 6))
        assert [name for name, *_ in rows] == (["orders", "absent"] if release == "2.8" else ["absent", "orders"])


def test_a_commit_that_does_not_fit_is_refused_for_its_partition(broker: VirtualBroker) -> None:
    longest = broker.node.config["offset.metadata.max.bytes"]
    cases: list[tuple[dict[str | bytes, dict[int, int]], str | None, Rows]] = [
        ({"orders": {3: 5}}, "", [("orders", 3, UNKNOWN)]),
        ({"orders": {-1: 5}}, "", [("orders", -1, UNKNOWN)]),
        ({"orders": {0: 5}}, "m" * longest, [("orders", 0, OK)]),
        ({"orders": {1: 5}}, "m" * (longest + 1), [("orders", 1, Error.OFFSET_METADATA_TOO_LARGE)]),
        ({"orders": {1: 5}}, None, [("orders", 1, OK)]),
    ]
    for wanted, metadata, expected in cases:
        assert committed(broker.ask(commit_request(wanted, metadata=metadata), 8)) == expected
    assert fetch(broker, {"orders": [0, 1]})[1] == {("orders", 0): (5, OK, "m" * longest), ("orders", 1): (5, OK, "")}
    assert committed(broker.ask(commit_request({}), 8)) == []


def test_when_an_offset_was_committed_and_when_it_goes_are_written_down(broker: VirtualBroker) -> None:
    now_ms = broker.node.clock.now_ms()
    broker.ask(commit_request({"orders": {0: 5}}, retention_time_ms=1_000), 3)
    broker.ask(commit_request({"orders": {1: 5}}), 3)
    request = commit_request({"orders": {2: 5}})
    request.topics[0].partitions[0].commit_timestamp = 17
    broker.ask(request, 1)
    offsets = broker.node.groups.coordinator.find("g").shard.offsets
    found = [offsets.find("g", "orders", index) for index in range(3)]
    assert [each.commit_timestamp - now_ms for each in found[:2]] == [0, 0]
    assert [each.expire_timestamp for each in found] == [found[0].commit_timestamp + 1_000, -1, -1]
    assert found[2].commit_timestamp == 17


def test_only_members_of_the_right_generation_commit(broker: VirtualBroker) -> None:
    joined = stable(broker)

    def code(group: str = "g", version: int = 9, **more: Any) -> int:
        ((_, _, found),) = committed(broker.ask(commit_request({"orders": {0: 5}}, group, **more), version))
        return found

    assert code(epoch=joined.generation_id, member_id=joined.member_id) == OK
    assert code(epoch=7, member_id=joined.member_id) == Error.ILLEGAL_GENERATION
    assert code(epoch=joined.generation_id, member_id="absent") == Error.UNKNOWN_MEMBER_ID
    assert code() == Error.UNKNOWN_MEMBER_ID
    for version, expected in ((8, Error.ILLEGAL_GENERATION), (9, Error.GROUP_ID_NOT_FOUND)):
        assert code("absent", version, epoch=1, member_id="m") == expected
    assert broker.node.groups.coordinator.find("absent").shard.find("absent") is None
    assert code("absent") == OK, "who is no member makes a group by the commit"
    with started("3.9") as old:
        ((_, _, found),) = committed(old.ask(commit_request({"orders": {0: 5}}, epoch=1, member_id="m"), 9))
        assert found == Error.ILLEGAL_GENERATION


def test_members_of_consumer_groups_commit_and_fetch_in_their_epoch(broker: VirtualBroker) -> None:
    epoch = beat(broker, 0).member_epoch

    def code(epoch: int, member_id: str = MEMBER_ID, version: int = 9) -> int:
        request = commit_request({"orders": {0: 5}}, epoch=epoch, member_id=member_id)
        ((_, _, found),) = committed(broker.ask(request, version))
        return found

    assert code(epoch) == OK
    assert code(epoch + 1) == Error.STALE_MEMBER_EPOCH
    assert code(epoch, "absent") == Error.UNKNOWN_MEMBER_ID
    for member, expected in (
        ({}, OK),
        ({"member_id": MEMBER_ID, "member_epoch": epoch}, OK),
        ({"member_id": MEMBER_ID, "member_epoch": epoch + 1}, Error.STALE_MEMBER_EPOCH),
        ({"member_id": "absent", "member_epoch": epoch}, Error.UNKNOWN_MEMBER_ID),
    ):
        error, rows = fetch(broker, {"orders": [0]}, **member)
        assert (error, rows) == (expected, {} if expected else {("orders", 0): (5, OK, "")})


def test_an_offset_of_an_open_transaction_is_unstable(broker: VirtualBroker) -> None:
    commit(broker, {"orders": {0: 5, 1: 6}})
    offsets = broker.node.groups.coordinator.find("g").shard.offsets
    key, value = commit_record(
        "g", "orders", 0, 9, leader_epoch=-1, metadata="", commit_timestamp=0, topic_id=bytes(16)
    )
    offsets.append(key, value, producer_id=1)  # type: ignore[arg-type]
    unstable = (-1, Error.UNSTABLE_OFFSET_COMMIT, "")
    for version in (7, 9):
        assert fetch(broker, {"orders": [0, 1]}, version=version, stable_only=True)[1] == {
            ("orders", 0): unstable,
            ("orders", 1): (6, OK, ""),
        }
        assert fetch(broker, {"orders": [0]}, version=version)[1] == {("orders", 0): (5, OK, "")}


# Deleted


def delete(broker: VirtualBroker, wanted: dict[str, list[int]], group: str = "g") -> tuple[int, Rows]:
    Topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    topics = [
        Topic(name=name, partitions=[Topic.OffsetDeleteRequestPartition(partition_index=index) for index in rows])
        for name, rows in wanted.items()
    ]
    answer = broker.ask(OffsetDeleteRequest(group_id=group, topics=topics), 0)
    return answer.error_code, committed(answer)


def left(broker: VirtualBroker) -> set[tuple[str, int]]:
    return {(str(name), index) for name, index in fetch(broker, None)[1]}


def test_offsets_are_deleted_one_by_one(broker: VirtualBroker) -> None:
    commit(broker, {"orders": {0: 5, 1: 6}, "other": {0: 7}})
    error, rows = delete(broker, {"orders": [0, 2, 9, -1], "absent": [0]})
    assert (error, rows) == (
        OK,
        [("orders", 0, OK), ("orders", 2, OK), ("orders", 9, UNKNOWN), ("orders", -1, UNKNOWN), ("absent", 0, UNKNOWN)],
    )
    assert left(broker) == {("orders", 1), ("other", 0)}
    for group, code in (("", Error.INVALID_GROUP_ID), ("absent", Error.GROUP_ID_NOT_FOUND)):
        assert delete(broker, {"orders": [0]}, group) == (code, [])
    assert delete(broker, {}) == (OK, [])
    assert delete(broker, {"orders": []}) == (OK, [])


@pytest.mark.parametrize(("release", "stays"), [("3.9", False), ("4.4", True)])
def test_a_group_once_went_with_its_last_offset(release: str, stays: bool) -> None:
    with started(release) as broker:
        commit(broker, {"orders": {0: 5, 1: 6}})
        shard = broker.node.groups.coordinator.find("g").shard
        assert delete(broker, {"orders": [0, 0, 2]})[1] == [("orders", 0, OK)] * (2 if stays else 1) + [
            ("orders", 2, OK)
        ]
        assert left(broker) == {("orders", 1)}
        assert shard.find("g") is not None
        assert delete(broker, {"orders": [1]}) == (OK, [("orders", 1, OK)])
        assert left(broker) == set()
        assert (shard.find("g") is not None) == stays


def test_offsets_of_topics_that_members_read_stay(broker: VirtualBroker) -> None:
    epoch = beat(broker, 0).member_epoch
    request = commit_request({"orders": {0: 5}, "other": {0: 5}}, epoch=epoch, member_id=MEMBER_ID)
    broker.ask(request, 9)
    error, rows = delete(broker, {"orders": [0], "other": [0]})
    assert (error, rows) == (OK, [("orders", 0, Error.GROUP_SUBSCRIBED_TO_TOPIC), ("other", 0, OK)])
    assert left(broker) == {("orders", 0)}
    stable(broker, "connect", protocol_type="connect")
    assert delete(broker, {"orders": [0]}, "connect")[0] == Error.NON_EMPTY_GROUP
