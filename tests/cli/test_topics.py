"""`minibroker topics` and `-L` against a broker, with the spellings of kafka-topics.sh and kcat."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.running import Shell


def test_topics_are_listed_by_name(shell: Shell, topic: str) -> None:
    assert {"orders", topic} <= set(shell.good("topics").lines)
    assert shell.good("topics", "--list").lines == sorted(shell.good("topics").lines)
    assert topic in json.loads(shell.good("topics", "--list", "-J").text)


def test_a_description_has_the_shape_of_kafkas(shell: Shell) -> None:
    head, *rows = shell.good("topics", "--describe", "--topic", "orders").lines
    assert re.fullmatch(
        r"Topic: orders\tTopicId: [\w-]{22}\tPartitionCount: 3\tReplicationFactor: 1\tConfigs: .*", head
    )
    assert rows == [
        f"\tTopic: orders\tPartition: {index}\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: "
        for index in range(3)
    ]


@pytest.mark.parametrize(
    "words", [("--describe", "-t", "orders"), ("--describe", "orders"), ("orders",), ("--topic", "orders")]
)
def test_a_description_may_be_asked_for_in_many_ways(shell: Shell, words: tuple[str, ...]) -> None:
    assert shell.good("topics", *words).text == shell.good("topics", "--describe", "--topic", "orders").text


def test_a_description_as_json(shell: Shell) -> None:
    (found,) = json.loads(shell.good("topics", "orders", "--json").text)
    assert (found["topic"], found["replication_factor"]) == ("orders", 1)
    assert found["partitions"][2] == {"partition": 2, "leader": 1, "replicas": [1], "isr": [1]}


def test_a_topic_is_created_changed_and_deleted(shell: Shell) -> None:
    created = shell.good(
        *("topics", "--create", "--topic", "life", "--partitions", "2", "--replication-factor", "1"),
        *("--config", "cleanup.policy=compact", "--config", "retention.ms=5"),
    )
    assert created.lines == ["Created topic life."]
    head = shell.good("topics", "life").lines[0]
    assert "PartitionCount: 2" in head
    assert "cleanup.policy=compact" in head
    assert "retention.ms=5" in head
    assert shell.good("topics", "--alter", "--topic", "life", "--partitions", "5").lines == ["Altered topic life."]
    assert len(shell.good("topics", "life").lines) == 6
    assert shell.good("topics", "--delete", "--topic", "life").lines == ["Deleted topic life."]
    assert "life" not in shell.good("topics").lines


def test_several_topics_at_once(shell: Shell) -> None:
    assert shell.good("topics", "--create", "many-a,many-b", "-t", "many-c").text.count("Created") == 3
    assert shell.good("topics", "--list", "many-.*").lines == ["many-a", "many-b", "many-c"]
    assert json.loads(shell.good("topics", "--delete", "many-.*", "-J").text)["deleted"] == [
        "many-a",
        "many-b",
        "many-c",
    ]


def test_a_topic_that_exists_is_a_failure_unless_said_otherwise(shell: Shell) -> None:
    ran = shell("topics", "--create", "orders", "fresh")
    assert ran.status == 1
    assert ran.lines == ["Created topic fresh."]
    assert "orders: TOPIC_ALREADY_EXISTS" in ran.errors
    assert "--if-not-exists" in ran.errors
    assert shell.good("topics", "--create", "--if-not-exists", "--topic", "orders").lines == []


@pytest.mark.parametrize("verb", ["--describe", "--delete", "--alter"])
def test_a_topic_that_is_missing_is_a_failure_unless_said_otherwise(shell: Shell, verb: str) -> None:
    words = ("topics", verb, "--topic", "missing", *(("--partitions", "2") if verb == "--alter" else ()))
    ran = shell(*words)
    assert ran.status == 1
    assert "there is no topic 'missing'; minibroker topics --list" in ran.errors
    assert shell.good(*words, "--if-exists").lines == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--create",), "which topic?"),
        (("--alter", "orders"), "--partitions N"),
        (("--alter", "orders", "--config", "a=b"), "minibroker configs"),
        (("--create", "x", "--config", "nonsense"), "key=value"),
        (("--create", "x", "--replica-assignment", "a:b"), "two partitions on brokers"),
        (("--describe", "["), "no regular expression"),
        (("--list", "--create"), "not allowed with"),
    ],
)
def test_what_makes_no_sense_is_refused_with_advice(shell: Shell, words: tuple[str, ...], reason: str) -> None:
    ran = shell("topics", *words)
    assert (ran.status, ran.output) == (2, b"")
    assert reason in ran.errors


def test_the_brokers_reason_is_told(shell: Shell) -> None:
    assert "INVALID_REPLICATION_FACTOR" in shell("topics", "--create", "x", "--replication-factor", "3").errors
    assert "INVALID_CONFIG" in shell("topics", "--create", "x", "--config", "retention.ms=soon").errors
    fewer = shell("topics", "--alter", "orders", "-p", "1")
    assert fewer.status == 1
    assert "INVALID_PARTITIONS" in fewer.errors


def test_replicas_may_be_placed(shell: Shell) -> None:
    shell.good("topics", "--create", "placed", "--replica-assignment", "1,1")
    assert len(shell.good("topics", "placed").lines) == 3


def test_only_what_has_troubles_or_overrides(shell: Shell, topic: str) -> None:
    assert shell.good("topics", "--describe", "--under-replicated-partitions").lines == []
    assert shell.good("topics", "--describe", "--unavailable-partitions").lines == []
    assert all(
        line.startswith("Topic: ") for line in shell.good("topics", "--describe", "--topics-with-overrides").lines
    )


def test_metadata_has_the_shape_of_kcats(shell: Shell) -> None:
    assert shell.good("-L", "-t", "orders").lines == [
        f"Metadata for orders (from broker 1: {shell.address}/1):",
        " 1 brokers:",
        f"  broker 1 at {shell.address} (controller)",
        " 1 topics:",
        '  topic "orders" with 3 partitions:',
        *(f"    partition {index}, leader 1, replicas: 1, isrs: 1" for index in range(3)),
    ]
    assert shell.good("-L", "-b", shell.address).lines[0].startswith("Metadata for all topics (from broker 1: ")


def test_metadata_as_kcats_json(shell: Shell) -> None:
    found = json.loads(shell.good("metadata", "-t", "orders", "-J").text)
    assert found["originating_broker"] == {"id": 1, "name": f"{shell.address}/1"}
    assert found["query"] == {"topic": "orders"}
    assert found["brokers"] == [{"id": 1, "name": shell.address}]
    first = {"partition": 0, "leader": 1, "replicas": [{"id": 1}], "isrs": [{"id": 1}]}
    assert found["topics"][0]["partitions"][0] == first


def test_metadata_of_a_topic_that_is_missing(shell: Shell) -> None:
    ran = shell("-L", "-t", "missing")
    assert ran.status == 1
    assert ran.lines[-1] == '  topic "missing" with 0 partitions: UNKNOWN_TOPIC_OR_PARTITION'
