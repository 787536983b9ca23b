"""`minibroker faults` and `serve --fault`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cli.running import Shell, broker_running


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    with broker_running(
        "--topic", "orders", "--fault", "api=ListOffsets,error=NOT_LEADER_OR_FOLLOWER,nth=3"
    ) as address:
        yield Shell(address)


def test_a_fault_of_serve_is_there_from_the_start(shell: Shell) -> None:
    (line,) = shell.good("faults").lines
    assert line == "rule 1: api=ListOffsets nth=3 error=NOT_LEADER_OR_FOLLOWER (matched 0, struck 0)"


def test_rules_and_toxics_come_and_go(shell: Shell) -> None:
    words = ["add", "--api", "Fetch", "--delay-ms", "5", "--client-id", "app-*", "--after", "--error", "6"]
    assert shell.good("faults", *words).lines == [
        "rule 2 is set: api=Fetch client_id=app-* delay_ms=5 error=NOT_LEADER_OR_FOLLOWER after"
    ]
    words = ["add", "--toxic", "latency", "--set", "latency=1", "--set", "jitter=1"]
    words += ["--stream", "upstream", "--toxicity", "0.5", "--name", "slow"]
    assert shell.good("faults", *words).lines == ["toxic slow is set: latency upstream latency=1 jitter=1 toxicity=0.5"]
    rows = json.loads(shell.good("faults", "list", "-J").text)
    assert [row.get("id", row.get("name")) for row in rows] == [1, 2, "slow"]
    assert [line.split(":")[0] for line in shell.good("faults", "remove", "2", "slow").lines] == [
        "rule 2 is removed",
        "toxic slow is removed",
    ]
    assert shell.good("faults", "clear").lines == ["nothing is left"]
    assert shell.good("faults").lines == []


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        ("add --api Fetsh --error 6", 1, "did you mean Fetch?"),
        ("add", 1, "a rule does something"),
        ("add --toxic smell", 1, "there is no toxic 'smell'"),
        ("add --toxic latency --set latency", 2, "name=number"),
        ("add --toxic latency --error 6", 2, "not both"),
        ("add --stream upstream", 2, "--toxic says which"),
        ("remove", 2, "say which"),
        ("remove 99", 1, "there is no rule 99"),
        ("clear 99", 2, "only `remove`"),
        ("list --api Fetch", 2, "for `add`"),
        ("-b 127.0.0.1:1", 1, "is the broker running? `minibroker serve` starts one"),
    ],
)
def test_what_makes_no_sense_is_said(shell: Shell, words: str, status: int, reason: str) -> None:
    ran = shell("faults", *words.split())
    assert (ran.status, ran.output) == (status, b"")
    assert reason in ran.errors


def test_a_fault_that_cannot_be_keeps_a_broker_from_starting() -> None:
    ran = Shell("")("serve", "--memory", "--port", "0", "--fault", "api=Produce")
    assert ran.status == 2
    assert "a rule does something" in ran.errors
