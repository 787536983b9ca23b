"""`minibroker offsets` and `minibroker configs` against a broker."""

from __future__ import annotations

import json

import pytest

from tests.cli.running import Shell


@pytest.fixture
def timed(shell: Shell) -> str:
    """A topic with two partitions; in the first are records of the seconds 1, 3 and 2 of a minute in 2023."""
    if "timed" not in shell.good("topics").lines:
        shell.good("topics", "--create", "timed", "-p", "2")
        records = "".join(f'{{"payload":"x","ts":170000000{second}000}}\n' for second in (1, 3, 2))
        shell.good("produce", "-t", "timed", "-p", "0", "-J", stdin=records.encode())
    return "timed"


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ("timed", "timed:0:3 timed:1:0"),
        ("--topic timed --time -1", "timed:0:3 timed:1:0"),
        ("-t timed -o earliest", "timed:0:0 timed:1:0"),
        ("-t timed --time -2", "timed:0:0 timed:1:0"),
        ("-t timed --time max-timestamp", "timed:0:1"),
        ("-t timed --time -3", "timed:0:1"),
        ("-t timed --time 1700000002000", "timed:0:1"),
        ("-t timed --time 2023-11-14T22:13:20", "timed:0:0"),
        ("-t timed --time 1800000000000", ""),
        ("-t timed -p 0 --time 1969-12-31T23:59:59.997", "timed:0:0"),  # -3 is no time, this is one
        ("-t timed --partitions 1", "timed:1:0"),
        ("-t timed -p 0,1", "timed:0:3 timed:1:0"),
        ("-t t.*d", "timed:0:3 timed:1:0"),
        ("--topic-partitions timed:0", "timed:0:3"),
        ("--topic-partitions timed:0-1", "timed:0:3"),
        ("--topic-partitions timed:1-,orders:-1", "timed:1:0 orders:0:0"),
        ("--topic-partitions timed", "timed:0:3 timed:1:0"),
    ],
)
def test_offsets_have_the_shape_of_kafkas(shell: Shell, timed: str, words: str, printed: str) -> None:
    assert " ".join(shell.good("offsets", *words.split()).lines) == printed


def test_all_topics_if_none_is_named(shell: Shell, timed: str) -> None:
    assert {"orders:0:0", "timed:0:3"} <= set(shell.good("offsets", "--exclude-internal-topics").lines)


def test_kcats_query(shell: Shell, timed: str) -> None:
    ran = shell.good("-Q", "-t", f"{timed}:0:1700000002000", "-t", f"{timed}:1:0")
    assert ran.lines == ["timed [0] offset 1", "timed [1] offset -1"]


def test_offsets_as_json(shell: Shell, timed: str) -> None:
    first, second = json.loads(shell.good("offsets", timed, "--time", "max-timestamp", "-J").text)
    assert (first["offset"], first["timestamp"]) == (1, 1_700_000_003_000)
    assert (second["partition"], second["offset"], second["timestamp"]) == (1, None, None)


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        ("missing", 1, "there is no topic 'missing'"),
        ("timed -p 7", 1, "no such partition"),
        ("timed -p x", 2, "say 3, 1-3"),
        ("timed --time soon", 2, "no date"),
        ("-t timed:0:1 -t timed", 2, "not both"),
        ("-t timed:x:1", 2, "topic:partition:timestamp"),
    ],
)
def test_what_cannot_be_found_is_said(shell: Shell, timed: str, words: str, status: int, reason: str) -> None:
    ran = shell("offsets", *words.split())
    assert (ran.status, ran.output) == (status, b"")
    assert reason in ran.errors


def test_a_setting_is_set_shown_and_taken_back(shell: Shell, topic: str) -> None:
    shown = f"Dynamic configs for topic {topic} are:"
    assert shell.good("configs", "-t", topic).lines == [shown]
    done = f"Completed updating config for topic {topic}."
    assert shell.good("configs", "-t", topic, "retention.ms=7").lines == [done]
    line = "  retention.ms=7 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=7}"
    assert shell.good("configs", "-t", topic).lines == [shown, line]
    assert shell.good("configs", "-t", topic, "retention.ms").lines[1:] == [line]
    assert shell.good("configs", "-t", topic, "retention.ms=").lines == [done]
    assert shell.good("configs", "-t", topic).lines == [shown]


def test_settings_in_kafkas_words(shell: Shell, topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    shell.good("configs", "--alter", *entity, "--add-config", "retention.ms=7,cleanup.policy=[compact,delete]")
    assert [line.split(" ")[2] for line in shell.good("configs", "--describe", *entity).lines[1:]] == [
        "cleanup.policy=compact,delete",
        "retention.ms=7",
    ]
    shell.good("configs", "--alter", *entity, "--delete-config", "retention.ms,cleanup.policy")
    assert len(shell.good("configs", "--describe", *entity).lines) == 1
    everything = shell.good("configs", "--describe", *entity, "--all").lines
    assert everything[0] == f"All configs for topic {topic} are:"
    assert len(everything) > 25


def test_settings_of_brokers(shell: Shell) -> None:
    shell.good("configs", "--broker", "1", "log.retention.ms=100000000")
    shell.good("configs", "--broker-defaults", "log.retention.bytes=1000000000")
    own = shell.good("configs", "--entity-type", "brokers", "--entity-name", "1").lines
    assert own[0] == "Dynamic configs for broker 1 are:"
    assert own[1].startswith("  log.retention.ms=100000000 ")
    defaults = shell.good("configs", "--entity-type", "brokers", "--entity-default").lines
    assert defaults[0] == "Default configs for brokers in the cluster are:"
    assert defaults[1].startswith("  log.retention.bytes=1000000000 ")
    assert shell.good("configs", "--entity-type", "brokers").lines == [*own, *defaults]


def test_settings_as_json(shell: Shell) -> None:
    (found,) = json.loads(shell.good("configs", "-t", "orders", "--all", "-J").text)
    assert (found["kind"], found["name"]) == ("topic", "orders")
    assert found["settings"]["cleanup.policy"] == {
        "value": "delete",
        "source": "DEFAULT_CONFIG",
        "read_only": False,
        "sensitive": False,
    }


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        ("", 2, "settings of what?"),
        ("-t orders --alter", 2, "--alter: what?"),
        ("-t orders retention.ms=1 segment.ms", 2, "not both"),
        ("-t orders retention.ms=1 --describe", 2, "which of them"),
        ("-t orders --add-config retention.ms", 2, "key=value"),
        ("-t orders no.such.thing", 2, "there is no setting no.such.thing"),
        ("-t orders no.such.thing=1", 1, "INVALID_CONFIG"),
        ("-t orders retention.ms=soon", 1, "INVALID_CONFIG"),
        ("-t missing", 1, "missing"),
        ("--broker one", 2, "brokers have numbers"),
        ("--entity-type groups", 2, "--entity-name"),
    ],
)
def test_settings_that_cannot_be(shell: Shell, words: str, status: int, reason: str) -> None:
    ran = shell("configs", *words.split())
    assert (ran.status, ran.output) == (status, b"")
    assert reason in ran.errors
