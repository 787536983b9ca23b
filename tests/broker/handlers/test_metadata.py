"""Metadata: by name, by id, all of them; topics that are made when they are asked for; pages."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.errors import Error
from minibroker.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from tests.broker.virtual_broker import VirtualBroker, virtual_broker

NEWEST, NO_ID = 13, bytes(16)
NOT_ASKED = -(1 << 31)
Topic = MetadataRequest.MetadataRequestTopic


def ask(
    broker: VirtualBroker, *names: str | bytes | None, version: int = NEWEST, creates: bool = False, **more: bool
) -> Any:
    """Ask for topics by their names, or by their ids; None: for one that has neither."""
    topics = [Topic(name=None, topic_id=each) if isinstance(each, bytes) else Topic(name=each) for each in names]
    return broker.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=creates, **more), version)


def told(answer: Any) -> list[tuple[int, str | None, int]]:
    return [(topic.error_code, topic.name, len(topic.partitions)) for topic in answer.topics]


@pytest.mark.parametrize("version", range(NEWEST + 1))
def test_a_topic_is_made_when_it_is_asked_for_unless_the_client_forbids_it(broker: VirtualBroker, version: int) -> None:
    if version >= 4:
        assert told(ask(broker, "t", version=version)) == [(Error.UNKNOWN_TOPIC_OR_PARTITION, "t", 0)]
        assert not broker.node.image.topics
    assert told(ask(broker, "t", version=version, creates=version >= 4)) == [(Error.NONE, "t", 1)]
    assert ("t", 0) in broker.node.replicas


def test_no_topic_is_made_that_cannot_be_or_if_the_broker_forbids_it(broker: VirtualBroker) -> None:
    assert told(ask(broker, "a/b", creates=True)) == [(Error.INVALID_TOPIC_EXCEPTION, "a/b", 0)]
    with virtual_broker({"auto.create.topics.enable": False}) as other:
        assert told(ask(other, "t", creates=True)) == [(Error.UNKNOWN_TOPIC_OR_PARTITION, "t", 0)]
    # Where one is asked for by its id, names are not looked at.
    unknown = bytes(15) + b"1"
    assert told(ask(broker, "t", unknown, creates=True)) == [(Error.UNKNOWN_TOPIC_ID, None, 0)]
    assert not broker.node.image.topics


def test_all_topics_are_described_to_who_names_none(broker: VirtualBroker) -> None:
    broker.node.create_topic("t", 2)
    broker.node.create_topic("u", 1)
    both = [(Error.NONE, "t", 2), (Error.NONE, "u", 1)]
    assert told(broker.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), NEWEST)) == both
    assert told(broker.ask(MetadataRequest(topics=[]), 0)) == both
    for version in (1, NEWEST):
        assert told(ask(broker, version=version)) == []


def test_the_brokers_the_cluster_and_its_controller_are_named(broker: VirtualBroker) -> None:
    answer = ask(broker)
    assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [(1, *broker.connection.local_address)]
    assert (answer.cluster_id, answer.controller_id) == (broker.node.cluster_id, 1)


def test_what_may_be_done_is_told_who_asks(broker: VirtualBroker) -> None:
    broker.node.create_topic("t", 1)
    of_topics = sum(1 << each for each in (3, 4, 5, 6, 7, 8, 10, 11))
    of_clusters = sum(1 << each for each in (5, 7, 8, 9, 10, 11, 12))
    for topic in (False, True):
        answer = ask(broker, "t", include_topic_authorized_operations=topic)
        assert answer.topics[0].topic_authorized_operations == (of_topics if topic else NOT_ASKED)
        found = ask(
            broker,
            "t",
            version=10,
            include_cluster_authorized_operations=topic,
            include_topic_authorized_operations=not topic,
        )
        assert found.cluster_authorized_operations == (of_clusters if topic else NOT_ASKED)
        everything = broker.ask(MetadataRequest(topics=None, include_topic_authorized_operations=topic), NEWEST)
        assert everything.topics[0].topic_authorized_operations == (of_topics if topic else NOT_ASKED)


def test_topics_are_found_by_their_ids(broker: VirtualBroker) -> None:
    broker.node.create_topic("t", 2)
    topic_id = broker.node.image.topics["t"].id
    answer = ask(broker, topic_id, topic_id, bytes(15) + b"1")
    assert told(answer) == [(Error.NONE, "t", 2), (Error.UNKNOWN_TOPIC_ID, None, 0)]
    assert [topic.topic_id for topic in answer.topics] == [topic_id, bytes(15) + b"1"]
    assert told(ask(broker, "t", "t", "u")) == [(Error.NONE, "t", 2), (Error.UNKNOWN_TOPIC_OR_PARTITION, "u", 0)]
    named = broker.ask(MetadataRequest(topics=[Topic(name="t", topic_id=topic_id)]), NEWEST)
    assert told(named) == [(Error.NONE, "t", 2)]


@pytest.mark.parametrize("version", [10, 11])
def test_two_versions_have_ids_and_may_not_use_them(broker: VirtualBroker, version: int) -> None:
    broker.node.create_topic("t", 2)
    for topic in (Topic(name=None), Topic(name="t", topic_id=broker.node.image.topics["t"].id)):
        answer = broker.ask(MetadataRequest(topics=[Topic(name="u"), topic]), version)
        assert [each.error_code for each in answer.topics] == [Error.INVALID_REQUEST] * 2
        assert not answer.brokers
    assert told(ask(broker, "t", version=version)) == [(Error.NONE, "t", 2)]


def test_a_topic_without_name_and_id_makes_no_sense(broker: VirtualBroker) -> None:
    broker.node.create_topic("t", 2)
    answer = ask(broker, "t", None)
    assert answer.error_code == Error.UNKNOWN_SERVER_ERROR
    assert [(each.error_code, each.name) for each in answer.topics] == [(Error.UNKNOWN_SERVER_ERROR, "t"), (-1, "")]
    assert not answer.brokers


def test_internal_topics_are_said_to_be_so(broker: VirtualBroker) -> None:
    broker.run(broker.node.create_topic, "__consumer_offsets", 1)
    answer = ask(broker, "__consumer_offsets", "__transaction_state", "t")
    assert [topic.is_internal for topic in answer.topics] == [True, True, False]
    (page,) = pages(broker, "__consumer_offsets").topics
    assert page.is_internal


def test_partitions_without_a_leader_say_so(broker: VirtualBroker) -> None:
    broker.node.create_topic("t", 2)
    first, second = broker.node.image.topics["t"].partitions
    first.leader, first.replicas, first.isr = -1, [2, 1], [2]
    second.replicas = [1, 2]
    for version in (0, 1, NEWEST):
        answer = ask(broker, "t", version=version)
        told = sorted((each.partition_index, each.error_code, each.leader_id) for each in answer.topics[0].partitions)
        second_code = Error.NONE if version else Error.REPLICA_NOT_AVAILABLE
        assert told == [(0, Error.LEADER_NOT_AVAILABLE, -1), (1, second_code, 1)]
    row = answer.topics[0].partitions[0]
    assert (row.replica_nodes, row.isr_nodes, row.offline_replicas) == ([2, 1], [2], [2])
    rows = pages(broker, "t").topics[0].partitions
    assert [(each.error_code, each.leader_id) for each in rows] == [(Error.LEADER_NOT_AVAILABLE, -1), (Error.NONE, 1)]
    assert (rows[0].replica_nodes, rows[0].isr_nodes, rows[0].offline_replicas) == ([2, 1], [2], [2])
    first.leader, first.replicas, first.isr, second.replicas = 1, [1], [1], [1]


# Pages


def pages(broker: VirtualBroker, *names: str, cursor: tuple[str, int] | None = None, limit: int = 2000) -> Any:
    Request = DescribeTopicPartitionsRequest
    request = Request(
        topics=[Request.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Request.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return broker.ask(request, 0)


def shown(answer: Any) -> list[tuple[str, list[int]]]:
    return [(topic.name, [row.partition_index for row in topic.partitions]) for topic in answer.topics]


def place(answer: Any) -> tuple[str, int] | None:
    return None if answer.next_cursor is None else (answer.next_cursor.topic_name, answer.next_cursor.partition_index)


@pytest.fixture
def filled(broker: VirtualBroker) -> VirtualBroker:
    for name, count in (("v", 1), ("t", 3), ("u", 2)):
        broker.node.create_topic(name, count)
    return broker


@pytest.mark.parametrize("limit", range(8))
def test_pages_lead_through_all_partitions_in_the_order_of_names(filled: VirtualBroker, limit: int) -> None:
    found, sizes, cursor = [], [], None
    for _ in range(20):
        answer = pages(filled, cursor=cursor, limit=limit)
        assert all(indexes for _, indexes in shown(answer)), "a topic that has no room is not named"
        rows = [(name, index) for name, indexes in shown(answer) for index in indexes]
        found += rows
        sizes.append(len(rows))
        cursor = place(answer)
        if cursor is None:
            break
        assert cursor not in found
    assert found == [("t", 0), ("t", 1), ("t", 2), ("u", 0), ("u", 1), ("v", 0)]
    assert max(sizes) == min(max(limit, 1), 6)
    assert all(size == max(sizes) for size in sizes[:-1])


def test_a_page_begins_at_the_cursor(filled: VirtualBroker) -> None:
    assert shown(pages(filled, cursor=("t", 2))) == [("t", [2]), ("u", [0, 1]), ("v", [0])]
    assert shown(pages(filled, cursor=("u", 1))) == [("u", [1]), ("v", [0])]
    assert shown(pages(filled, "u", "t", cursor=("u", 0))) == [("u", [0, 1])]
    assert shown(pages(filled, cursor=("tt", 1))) == [("u", [0, 1]), ("v", [0])], "that topic has gone meanwhile"
    assert shown(pages(filled, cursor=("w", 1))) == []
    assert shown(pages(filled, cursor=("t", 3))) == [("t", []), ("u", [0, 1]), ("v", [0])]


def test_topics_are_paged_once_and_unknown_ones_take_no_room(filled: VirtualBroker) -> None:
    answer = pages(filled, "v", "absent", "v", limit=1)
    assert shown(answer) == [("absent", []), ("v", [0])]
    assert [each.error_code for each in answer.topics] == [Error.UNKNOWN_TOPIC_OR_PARTITION, Error.NONE]
    assert place(answer) is None
    with_ids = pages(filled, "v").topics[0]
    assert with_ids.topic_id == filled.node.image.topics["v"].id
    allowed = {each.topic_authorized_operations for each in answer.topics}
    assert allowed == {sum(1 << each for each in (3, 4, 5, 6, 7, 8, 10, 11))}


def test_a_page_has_no_more_than_the_broker_allows() -> None:
    with virtual_broker({"max.request.partition.size.limit": 2}) as broker:
        broker.node.create_topic("t", 3)
        answer = pages(broker)
        assert (shown(answer), place(answer)) == ([("t", [0, 1])], ("t", 2))


def test_pages_that_make_no_sense_are_refused(filled: VirtualBroker) -> None:
    for names, cursor, code in (
        (("t", "a/b"), None, Error.UNKNOWN_SERVER_ERROR),
        (("t",), ("t", -1), Error.INVALID_REQUEST),
        (("t",), ("u", 0), Error.INVALID_REQUEST),
    ):
        answer = pages(filled, *names, cursor=cursor)
        assert [(each.name, each.error_code, each.partitions) for each in answer.topics] == [
            (name, code, []) for name in names
        ]
