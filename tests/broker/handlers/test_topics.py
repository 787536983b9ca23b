"""Topics made, deleted and given more partitions: each succeeds or fails for itself."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.broker_parts import TOPICS_TOGETHER
from minibroker.broker.handlers import topics as handlers
from minibroker.errors import Error
from minibroker.protocol.messages.create_partitions import CreatePartitionsRequest
from minibroker.protocol.messages.create_topics import CreateTopicsRequest
from minibroker.protocol.messages.delete_topics import DeleteTopicsRequest
from tests.broker.virtual_broker import VirtualBroker, virtual_broker

NO_ID, OTHER_ID = bytes(16), bytes(15) + b"1"
OK = (Error.NONE, None)
New = CreateTopicsRequest.CreatableTopic
Told = dict[str | None, tuple[int, str | None]]


def new(
    name: str, partitions: int = 1, replication: int = 1, *, on: dict[int, list[int]] | None = None, **configs: str
) -> New:
    return New(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        assignments=[
            New.CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in (on or {}).items()
        ],
        configs=[New.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def create(broker: VirtualBroker, *topics: New, trial: bool = False, version: int = 7) -> dict[str, Any]:
    answer = broker.ask(CreateTopicsRequest(topics=list(topics), timeout_ms=1000, validate_only=trial), version)
    return {each.name: each for each in answer.topics}


def told(answers: dict[Any, Any]) -> Told:
    return {name: (each.error_code, each.error_message) for name, each in answers.items()}


def counts(broker: VirtualBroker) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in broker.node.image.topics.items()}


def test_topics_are_made_as_is_wished_or_as_the_broker_has_it() -> None:
    with virtual_broker({"num.partitions": 3}) as broker:
        found = create(
            broker,
            new("t", 2, retention_ms="1000"),
            new("default", -1, -1),
            new("assigned", -1, -1, on={1: [1], 0: [1]}),
        )
        assert told(found) == {"t": OK, "default": OK, "assigned": OK}
        assert counts(broker) == {"t": 2, "default": 3, "assigned": 2}
        assert {(each.num_partitions, each.replication_factor) for each in found.values()} == {(2, 1), (3, 1)}
        assert {name: each.topic_id for name, each in found.items()} == {
            name: topic.id for name, topic in broker.node.image.topics.items()
        }
        configs = {each.name: (each.value, each.config_source) for each in found["t"].configs}
        assert configs["retention.ms"] == ("1000", 1)
        assert len(configs) > 20
        assert not any(each.is_sensitive or each.read_only for each in found["t"].configs)
        assert set(broker.node.replicas) >= {("t", 0), ("t", 1)}, "they are open when that is answered"


def test_a_trial_answers_as_if_and_makes_nothing(broker: VirtualBroker) -> None:
    found = create(broker, new("t", 2, retention_ms="1000"), new("a/b"), trial=True)
    assert told(found)["t"] == OK
    assert (found["t"].num_partitions, found["t"].replication_factor) == (2, 1)
    assert {each.name: each.value for each in found["t"].configs}["retention.ms"] == "1000"
    assert found["a/b"].error_code == Error.INVALID_TOPIC_EXCEPTION
    assert counts(broker) == {}


def test_a_topic_fails_for_itself_and_a_name_that_comes_twice_in_all_places(broker: VirtualBroker) -> None:
    broker.node.create_topic("there", 1)
    found = create(broker, new("u", 2), new("twice"), new("there"), new("twice", 2), new("v", 0), new("w", 1, 2))
    codes = {name: each.error_code for name, each in found.items()}
    assert codes == {
        "u": Error.NONE,
        "twice": Error.INVALID_REQUEST,
        "there": Error.TOPIC_ALREADY_EXISTS,
        "v": Error.INVALID_PARTITIONS,
        "w": Error.INVALID_REPLICATION_FACTOR,
    }
    assert found["twice"].error_message == "Duplicate topic name."
    assert all(each.error_message for name, each in found.items() if name != "u")
    assert counts(broker) == {"there": 1, "u": 2}


def test_many_topics_are_made_in_shares_and_large_ones_in_pieces(broker: VirtualBroker) -> None:
    names = [f"t{index}" for index in range(2 * TOPICS_TOGETHER + 1)]
    found = create(broker, *map(new, names), new("large", handlers.AT_ONCE_MAX + 1))
    assert told(found) == dict.fromkeys((*names, "large"), OK)
    assert found["large"].num_partitions == handlers.AT_ONCE_MAX + 1
    assert counts(broker) == {**dict.fromkeys(names, 1), "large": handlers.AT_ONCE_MAX + 1}
    assert found["large"].topic_id == broker.node.image.topics["large"].id
    assert len(broker.node.replicas) == len(names) + handlers.AT_ONCE_MAX + 1


def test_a_large_topic_that_somebody_else_makes_first_is_refused(broker: VirtualBroker) -> None:
    count = handlers.AT_ONCE_MAX + 1
    first = broker.begin(CreateTopicsRequest(topics=[new("t", count)], timeout_ms=1000), 7)
    second = broker.begin(
        CreateTopicsRequest(topics=[new("t", count + 1)], timeout_ms=1000), 7, by=broker.connect().connection
    )
    answers = [broker.wait(each).topics[0] for each in (first, second)]
    assert sorted(each.error_code for each in answers) == [Error.NONE, Error.TOPIC_ALREADY_EXISTS]
    made = next(each for each in answers if not each.error_code)
    assert counts(broker) == {"t": made.num_partitions}


def test_more_partitions_than_a_request_may_have_are_refused_before_anything_is_made(
    broker: VirtualBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "RECORDS_MAX", 10)
    too_many = (Error.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    for wishes in (
        [new("t", 10), new("u", 1)],
        [new("t", 10), new("u", -1)],
        [new("t", -1, -1, on={index: [1] for index in range(11)})],
    ):
        assert told(create(broker, *wishes)) == {each.name: too_many for each in wishes}
    assert counts(broker) == {}
    assert told(create(broker, new("t", 9), new("u", 1), new("v", -7)))["t"] == OK
    assert counts(broker) == {"t": 9, "u": 1}


# Deleted


def delete(broker: VirtualBroker, *wanted: str | bytes | tuple[str | None, bytes], version: int = 6) -> list[Any]:
    State = DeleteTopicsRequest.DeleteTopicState
    if version < 6:
        request = DeleteTopicsRequest(topic_names=list(wanted), timeout_ms=1000)
    else:
        rows = [
            each if isinstance(each, tuple) else (None, each) if isinstance(each, bytes) else (each, NO_ID)
            for each in wanted
        ]
        request = DeleteTopicsRequest(topics=[State(name=name, topic_id=id_) for name, id_ in rows], timeout_ms=1000)
    return list(broker.ask(request, version).responses)


@pytest.mark.parametrize("version", [3, 5, 6])
def test_topics_are_deleted_by_name(broker: VirtualBroker, version: int) -> None:
    for name in "tuv":
        broker.node.create_topic(name, 1)
    answers = delete(broker, "t", "absent", "v", version=version)
    codes = [(each.name, each.error_code) for each in answers]
    assert codes == [("t", Error.NONE), ("absent", Error.UNKNOWN_TOPIC_OR_PARTITION), ("v", Error.NONE)]
    assert counts(broker) == {"u": 1}


def test_topics_are_deleted_by_id(broker: VirtualBroker) -> None:
    for name in "tu":
        broker.node.create_topic(name, 1)
    topic_id = broker.node.image.topics["t"].id
    found, unknown = delete(broker, topic_id, OTHER_ID)
    assert (found.error_code, found.name, found.topic_id) == (Error.NONE, "t", topic_id)
    assert (unknown.error_code, unknown.name, unknown.topic_id) == (Error.UNKNOWN_TOPIC_ID, None, OTHER_ID)
    assert counts(broker) == {"u": 1}


def test_what_names_a_topic_badly_deletes_none(broker: VirtualBroker) -> None:
    for name in "tu":
        broker.node.create_topic(name, 1)
    t, u = (broker.node.image.topics[name].id for name in "tu")
    invalid = Error.INVALID_REQUEST
    cases: list[tuple[list[Any], dict[tuple[str | None, bytes], str]]] = [
        ([(None, NO_ID)], {(None, NO_ID): "Neither topic name nor id were specified."}),
        ([("t", t)], {("t", t): "You may not specify both topic name and topic id."}),
        (["t", "t"], {("t", NO_ID): "Duplicate topic name."}),
        ([t, t], {(None, t): "Duplicate topic id."}),
        (["t", t], {("t", t): "The provided topic name maps to an ID that was already supplied."}),
        ([u, OTHER_ID, "u"], {("u", u): "The provided topic name maps to an ID that was already supplied."}),
    ]
    for wanted, expected in cases:
        answers = {(each.name, each.topic_id): each for each in delete(broker, *wanted) if each.topic_id != OTHER_ID}
        assert {key: (each.error_code, each.error_message) for key, each in answers.items()} == {
            key: (invalid, words) for key, words in expected.items()
        }, wanted
    assert counts(broker) == {"t": 1, "u": 1}


def test_deletion_can_be_disabled_and_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    with virtual_broker({"delete.topic.enable": False}) as broker:
        broker.node.create_topic("t", 1)
        (answer,) = delete(broker, "t")
        assert (answer.error_code, answer.error_message) == (
            Error.TOPIC_DELETION_DISABLED,
            "Topic deletion is disabled.",
        )
        monkeypatch.setattr(handlers, "RECORDS_MAX", 2)
        answers = delete(broker, "t", "t", "u")
        assert [(each.name, each.error_code) for each in answers] == [("t", Error.POLICY_VIOLATION), ("u", 44)]
        assert {each.error_message for each in answers} == {"Unable to perform excessively large batch operation."}
        assert delete(broker, "t", "u")[0].error_code == Error.TOPIC_DELETION_DISABLED
        assert counts(broker) == {"t": 1}


# Given more partitions


def extend(broker: VirtualBroker, *wanted: tuple[str, int, list[list[int]] | None], trial: bool = False) -> Told:
    Topic = CreatePartitionsRequest.CreatePartitionsTopic
    rows = [
        Topic(
            name=name,
            count=count,
            assignments=None
            if on is None
            else [Topic.CreatePartitionsAssignment(broker_ids=brokers) for brokers in on],
        )
        for name, count, on in wanted
    ]
    answer = broker.ask(CreatePartitionsRequest(topics=rows, timeout_ms=1000, validate_only=trial), 3)
    return {each.name: (each.error_code, each.error_message) for each in answer.results}


def test_topics_get_more_partitions(broker: VirtualBroker) -> None:
    for name in "tuv":
        broker.node.create_topic(name, 2)
    assert extend(broker, ("t", 3, None), trial=True) == {"t": OK}
    assert counts(broker)["t"] == 2
    assert extend(broker, ("t", 4, None), ("u", 3, [[1]])) == {"t": OK, "u": OK}
    assert counts(broker) == {"t": 4, "u": 3, "v": 2}
    assert {("t", 3), ("u", 2)} <= broker.node.replicas.keys(), "they are open when that is answered"
    found = extend(broker, ("t", 3, None), ("u", 4, [[7]]), ("absent", 2, None), ("v", 3, None), ("v", 4, None))
    assert {name: code for name, (code, _) in found.items()} == {
        "t": Error.INVALID_PARTITIONS,
        "u": Error.INVALID_REPLICA_ASSIGNMENT,
        "absent": Error.UNKNOWN_TOPIC_OR_PARTITION,
        "v": Error.INVALID_REQUEST,
    }
    assert found["absent"][1] is None
    assert found["t"][1]
    assert found["v"][1] == "Duplicate topic name."
    assert counts(broker) == {"t": 4, "u": 3, "v": 2}


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_a_topic_of_coordinators_keeps_its_partitions(broker: VirtualBroker, name: str) -> None:
    assert extend(broker, (name, 4, None))[name][0] == Error.UNKNOWN_TOPIC_OR_PARTITION
    broker.run(broker.node.create_topic, name, 3)
    for trial in (True, False):
        code, message = extend(broker, (name, 4, None), trial=trial)[name]
        assert code == Error.INVALID_PARTITIONS
        assert message is not None
        assert message.startswith(f"{name} keeps its partitions")
    assert counts(broker)[name] == 3


def test_no_more_partitions_are_added_than_a_request_may(
    broker: VirtualBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "tu":
        broker.node.create_topic(name, 2)
    monkeypatch.setattr(handlers, "RECORDS_MAX", 10)
    too_many = (Error.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
    assert extend(broker, ("t", 12, None), ("u", 3, None)) == {"t": too_many, "u": too_many}
    assert counts(broker) == {"t": 2, "u": 2}
    found = extend(broker, ("t", 12, None), ("u", 1, None), ("absent", 90, None))
    assert found["t"] == OK
    assert counts(broker) == {"t": 12, "u": 2}
