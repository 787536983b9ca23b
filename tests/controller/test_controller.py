"""Wishes to the controller: what they become, and which error of Kafka's they get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from minibroker.controller.controller import Controller
from minibroker.errors import Error, KafkaError
from minibroker.metadata.features import ELR_VERSION
from tests.metadata.nodes import LoneNode, memory

# What brokers 3.9 and 4.4 said of the same (golden/sessions), and Kafka's sources where they were not asked.
REFUSED: list[tuple[dict[str, Any], Error, str]] = [
    ({"name": "plain"}, Error.TOPIC_ALREADY_EXISTS, "Topic 'plain' already exists."),
    (
        {"name": "made_x"},
        Error.INVALID_TOPIC_EXCEPTION,
        "Topic 'made_x' collides with existing topic: made.x",
    ),
    ({"name": ".."}, Error.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '..' is not allowed"),
    ({"name": ""}, Error.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed"),
    (
        {"name": "a b"},
        Error.INVALID_TOPIC_EXCEPTION,
        "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
    ),
    (
        {"name": "n" * 250},
        Error.INVALID_TOPIC_EXCEPTION,
        f"Topic name is invalid: the length of '{'n' * 250}' is longer than the max allowed length 249",
    ),
    (
        {"partitions": 0},
        Error.INVALID_PARTITIONS,
        "Number of partitions was set to an invalid non-positive value.",
    ),
    (
        {"replication_factor": 0},
        Error.INVALID_REPLICATION_FACTOR,
        "Replication factor must be larger than 0, or -1 to use the default value.",
    ),
    (
        {"replication_factor": 3},
        Error.INVALID_REPLICATION_FACTOR,
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because "
        "only 1 broker(s) are registered or some brokers have all their log directories cordoned.",
    ),
    (
        {"partitions": 1 << 30},
        Error.POLICY_VIOLATION,
        "Unable to perform excessively large batch operation.",
    ),
    (
        {"partitions": -1, "replication_factor": -1, "assignments": [(0, [1]), (2, [1])]},
        Error.INVALID_REPLICA_ASSIGNMENT,
        "partitions should be a consecutive 0-based integer sequence",
    ),
    (
        {"partitions": -1, "replication_factor": -1, "assignments": [(0, [7])]},
        Error.INVALID_REPLICA_ASSIGNMENT,
        "The manual partition assignment includes broker 7, but no such broker is registered.",
    ),
    (
        {"partitions": -1, "replication_factor": -1, "assignments": [(0, [1, 1])]},
        Error.INVALID_REPLICA_ASSIGNMENT,
        "The manual partition assignment includes the broker 1 more than once.",
    ),
    (
        {"partitions": -1, "replication_factor": -1, "assignments": [(0, [])]},
        Error.INVALID_REPLICA_ASSIGNMENT,
        "The manual partition assignment includes an empty replica list.",
    ),
    (
        {"assignments": [(0, [1])]},
        Error.INVALID_REQUEST,
        "A manual partition assignment was specified, but replication factor was not set to -1.",
    ),
    (
        {"configs": {"a": None, "b": None}},
        Error.INVALID_CONFIG,
        "Null value not supported for topic configs: a,b",
    ),
]


@pytest.fixture
def node() -> LoneNode:
    made = LoneNode(memory())
    made.create("plain", 2)
    made.create("made.x")
    return made


def refusal(call: Any, *arguments: Any, **more: Any) -> tuple[Error, str]:
    with pytest.raises(KafkaError) as caught:
        call(*arguments, **more)
    return caught.value.code, caught.value.message


@pytest.mark.parametrize(("asked", "code", "message"), REFUSED)
def test_a_topic_that_cannot_be_is_refused_in_kafkas_words(
    node: LoneNode, asked: dict[str, Any], code: Error, message: str
) -> None:
    wish = {"name": "new", "partitions": 1, "replication_factor": 1, **asked}
    before = node.log.log_end_offset
    assert refusal(node.controller.create_topic, **wish) == (code, message)
    assert node.log.log_end_offset == before


def test_a_topic_takes_the_defaults_where_it_is_told_to(node: LoneNode) -> None:
    records = node.controller.create_topic("d", partitions=-1, replication_factor=-1, default_partitions=4)
    assert "d" not in node.image.topics  # nothing happens before the records are appended
    node.append(records)
    assert [each.replicas for each in node.image.topics["d"].partitions] == [[1]] * 4
    assert [each.leader for each in node.image.topics["d"].partitions] == [1] * 4


def test_replicas_can_be_assigned(node: LoneNode) -> None:
    node.append(
        node.controller.create_topic(
            "a", partitions=-1, replication_factor=-1, assignments=[(1, [1]), (0, [1])], configs={"x": "1"}
        )
    )
    assert [each.isr for each in node.image.topics["a"].partitions] == [[1], [1]]
    assert node.image.topic_configs("a") == {"x": "1"}


def test_settings_are_looked_at_as_a_whole_before_anything_is_written(node: LoneNode) -> None:
    seen = []

    def check(kind: int, name: str, configs: Mapping[str, str]) -> None:
        seen.append((kind, name, dict(configs)))
        if "bad" in configs:
            raise KafkaError(Error.INVALID_CONFIG, "Unknown topic config name: bad")

    node.controller.check_configs = check
    assert refusal(node.controller.create_topic, "a", partitions=1, replication_factor=1, configs={"bad": "1"}) == (
        Error.INVALID_CONFIG,
        "Unknown topic config name: bad",
    )
    node.create("b", configs={"one": "1"})
    node.append(node.controller.alter_configs(2, "b", {"two": "2"}))
    node.append(node.controller.alter_configs(2, "b", {"one": None}))
    assert seen[1:] == [(2, "b", {"one": "1"}), (2, "b", {"one": "1", "two": "2"}), (2, "b", {"two": "2"})]
    node.append(node.controller.alter_configs(2, "b", {"two": None, "three": "3"}))
    assert node.image.topic_configs("b") == {"three": "3"}
    assert node.controller.alter_configs(2, "b", {"three": "3"}) == []
    assert refusal(node.controller.alter_configs, 2, "no-such", {"a": "1"}) == (
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        "The topic 'no-such' does not exist.",
    )


def test_min_insync_replicas_of_brokers_is_guarded_where_it_decides_who_may_lead(node: LoneNode) -> None:
    alter = node.controller.alter_configs
    assert node.image.features[ELR_VERSION]
    assert refusal(alter, 4, "1", {"min.insync.replicas": "2"})[0] is Error.INVALID_CONFIG
    assert refusal(alter, 4, "", {"min.insync.replicas": None})[0] is Error.INVALID_CONFIG
    node.append(alter(4, "", {"min.insync.replicas": "2"}))
    assert len(alter(4, "1", {"log.cleaner.threads": "2"})) == 1
    assert refusal(alter, 4, "9", {"log.cleaner.threads": "2"}) == (
        Error.BROKER_ID_NOT_REGISTERED,
        "No broker with id 9 found.",
    )


def test_a_topic_goes_with_its_settings_by_name_or_id(node: LoneNode) -> None:
    node.create("a", configs={"x": "1"})
    topic_id = node.image.topics["a"].id
    node.append(node.controller.delete_topic(topic_id=topic_id))
    assert ("a" in node.image.topics, node.image.topic_configs("a")) == (False, {})
    assert refusal(node.controller.delete_topic, topic_id=topic_id)[0] is Error.UNKNOWN_TOPIC_ID
    assert refusal(node.controller.delete_topic, name="a")[0] is Error.UNKNOWN_TOPIC_OR_PARTITION
    node.create("a")
    assert node.image.topics["a"].id != topic_id


def test_partitions_can_only_become_more(node: LoneNode) -> None:
    create = node.controller.create_partitions
    assert refusal(create, "plain", 1) == (
        Error.INVALID_PARTITIONS,
        "The topic plain currently has 2 partition(s); 1 would not be an increase.",
    )
    assert refusal(create, "plain", 2) == (Error.INVALID_PARTITIONS, "Topic already has 2 partition(s).")
    assert refusal(create, "nope", 2)[0] is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(create, "plain", 4, [[1]])[0] is Error.INVALID_REPLICA_ASSIGNMENT
    assert refusal(create, "plain", 3, [[2]])[0] is Error.INVALID_REPLICA_ASSIGNMENT
    node.append(create("plain", 3, [[1]]))
    node.append(create("plain", 5))
    assert [each.id for each in node.image.topics["plain"].partitions] == [0, 1, 2, 3, 4]


def test_producer_ids_come_in_blocks_of_a_thousand(node: LoneNode) -> None:
    epoch = node.image.brokers[1].broker_epoch
    for first in (0, 1000, 2000):
        records, begins, count = node.controller.allocate_producer_ids(1, epoch)
        node.append(records)
        assert (begins, count) == (first, 1000)
    assert refusal(node.controller.allocate_producer_ids, 1, epoch - 1)[0] is Error.STALE_BROKER_EPOCH
    assert refusal(node.controller.allocate_producer_ids, 2, 0)[0] is Error.BROKER_ID_NOT_REGISTERED


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (("group.version", 2, 1), "Local controller 1 only supports versions 0-1"),
        (("nope", 1, 1), "Local controller 1 does not support this feature."),
        (("group.version", -1, 1), "A feature version cannot be less than 0."),
        (("group.version", 1, 4), "The controller does not support the given upgrade type."),
        (
            ("group.version", 0, 1),
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        ),
    ],
)
def test_features_move_only_where_they_can(node: LoneNode, update: tuple[str, int, int], reason: str) -> None:
    assert refusal(node.controller.update_features, [update]) == (
        Error.INVALID_UPDATE_VERSION,
        f"Invalid update version {update[1]} for feature {update[0]}. {reason}",
    )
    node.append(node.controller.update_features([("group.version", 0, 2)]))
    assert "group.version" not in node.image.features


def test_three_brokers_share_the_work() -> None:
    node = LoneNode(memory())
    for broker in (2, 3):
        join(node, broker)
    node.append(node.controller.create_topic("a", partitions=3, replication_factor=2))
    assert [each.replicas for each in node.image.topics["a"].partitions] == [[1, 2], [2, 3], [3, 1]]
    assert isinstance(node.controller, Controller)


def join(node: LoneNode, broker: int) -> None:
    from minibroker.controller import brokers

    for records in brokers.starting(
        node.controller,
        broker,
        next_offset=lambda: node.log.log_end_offset,
        incarnation_id=bytes([broker]) * 16,
        endpoints=[("PLAINTEXT", "127.0.0.1", 9092 + broker, "PLAINTEXT")],
        log_dirs=[bytes([broker]) * 16],
    ):
        node.append(records)
