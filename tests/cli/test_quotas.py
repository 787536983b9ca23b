"""`minibroker quotas` against a broker: limits are set, shown and taken back, and it is said which of them holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from minibroker.cli.connect import Refused
from minibroker.cli.quota_words import readable, value_of
from tests.cli.running import Shell

PRODUCER, MUTATIONS, PERCENT = "producer_byte_rate", "controller_mutation_rate", "request_percentage"
VALUES = [  # as typed, what it comes to, as shown
    (PRODUCER, "1048576", 1048576.0, "1 MiB/s"),
    (PRODUCER, "1MB/s", 1e6, "1 MB/s"),
    (PRODUCER, "1.5 KiB", 1536.0, "1.5 KiB/s"),
    (PRODUCER, "64MB", 64e6, "64 MB/s"),
    (PRODUCER, "700B/s", 700.0, "700 B/s"),
    (PRODUCER, "123456789", 123456789.0, "about 123.5 MB/s"),
    (PERCENT, "50.5%", 50.5, "50.5 %"),
    (PERCENT, "200", 200.0, "200 %"),
    (MUTATIONS, "2.5/s", 2.5, "2.5 partitions/s"),
    ("connection_creation_rate", "7", 7.0, "7 connections/s"),
]


@pytest.mark.parametrize(("key", "typed", "value", "shown"), VALUES)
def test_limits_are_typed_and_shown_with_units(key: str, typed: str, value: float, shown: str) -> None:
    assert value_of(key, typed) == value
    assert readable(key, value) == shown


@pytest.mark.parametrize("text", ["", "fast", "-1", "1mb", "1Mb/s", "50%", "1e6", "nan", "1 MB/h"])
def test_a_limit_that_may_mean_something_else_is_refused(text: str) -> None:
    with pytest.raises(Refused, match=r"say 1048576, 1MB/s or 1MiB/s"):
        value_of(PRODUCER, text)


@pytest.fixture
def quotas(shell: Shell) -> Iterator[Shell]:
    """A broker on which nobody is limited, also afterwards."""
    yield shell
    for each in json.loads(shell.good("quotas", "-J").text):
        words = []
        for kind, name in each["entity"].items():
            words += [f"--{kind.removesuffix('-id')}-default"] if name is None else [f"--{kind}", name]
        shell.good("quotas", "remove", *words)


def good(shell: Shell, line: str) -> list[str]:
    return shell.good("quotas", *line.split()).lines


def test_limits_are_set_listed_and_removed(quotas: Shell) -> None:
    assert good(quotas, "") == ["no limits"]
    assert good(quotas, "set --user alice producer_byte_rate=1MB/s request_percentage=50%") == [
        "user alice: producer_byte_rate=1000000 (1 MB/s)",
        "user alice: request_percentage=50 (50 %)",
    ]
    good(quotas, "producer_byte_rate=200kB --user alice --client-default")
    good(quotas, "set --client-id app controller_mutation_rate=2.5")
    good(quotas, "set --ip-default connection_creation_rate=70/s")
    assert good(quotas, "list") == [
        "WHOM                          LIMIT                        MEANS",
        "user alice, default client-id producer_byte_rate=200000    200 kB/s",
        "user alice                    producer_byte_rate=1000000   1 MB/s",
        "user alice                    request_percentage=50        50 %",
        "client-id app                 controller_mutation_rate=2.5 2.5 partitions/s",
        "default ip                    connection_creation_rate=70  70 connections/s",
    ]
    assert good(quotas, "--ip-default")[1:] == ["default ip connection_creation_rate=70 70 connections/s"]
    assert good(quotas, "remove --user alice request_percentage") == ["user alice: request_percentage removed"]
    assert good(quotas, "remove --user alice") == ["user alice: producer_byte_rate removed"]
    assert good(quotas, "--user alice")[1:] == ["user alice, default client-id producer_byte_rate=200000 200 kB/s"]


def test_limits_in_kafkas_words(quotas: Shell) -> None:
    both = "--entity-type users --entity-name alice --entity-type clients --entity-default"
    good(quotas, f"--alter {both} --add-config producer_byte_rate=1000,consumer_byte_rate=2000")
    assert json.loads(quotas.good("quotas", "--describe", *both.split(), "-J").text) == [
        {
            "entity": {"client-id": None, "user": "alice"},
            "limits": {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0},
        }
    ]
    good(quotas, f"--alter {both} --add-config producer_byte_rate=3000 --delete-config consumer_byte_rate")
    assert good(quotas, "")[1:] == ["user alice, default client-id producer_byte_rate=3000 3 kB/s"]
    good(quotas, "--alter --entity-type ips --entity-name 10.0.0.7 --add-config connection_creation_rate=5")
    assert good(quotas, "--describe --entity-type ips") == good(quotas, "--describe --ip 10.0.0.7")
    assert good(quotas, "--describe --entity-type clients")[1:] == [
        "user alice, default client-id producer_byte_rate=3000 3 kB/s"
    ]
    of_alice = "--describe --entity-type users --entity-name alice --entity-type clients"
    assert len(good(quotas, of_alice)) == 2
    assert good(quotas, "--describe --entity-type users --entity-name bob --entity-type clients") == ["no limits"]
    assert good(quotas, "--describe --ip 10.0.0.7")[1:] == ["ip 10.0.0.7 connection_creation_rate=5 5 connections/s"]


def test_it_is_said_which_limit_holds_and_which_are_passed_over(quotas: Shell) -> None:
    good(quotas, "set --user alice producer_byte_rate=1MB/s")
    good(quotas, "set --user-default producer_byte_rate=3MB/s")
    good(quotas, "set --client-default producer_byte_rate=2MB/s")
    assert good(quotas, "why --user alice --client-id app") == [
        "For user alice, client-id app:",
        "producer_byte_rate: 1 MB/s, for all clients of user alice together",
        "  1. user alice, client-id app                no limit",
        "  2. user alice, default client-id            no limit",
        "  3. user alice                               1 MB/s  holds",
        "  4. default user, client-id app              no limit",
        "  5. default user, default client-id          no limit",
        "  6. default user                             3 MB/s  passed over",
        "  7. client-id app                            no limit",
        "  8. default client-id                        2 MB/s  passed over",
        "consumer_byte_rate: no limit",
        "request_percentage: no limit",
        "controller_mutation_rate: no limit",
    ]


def why(shell: Shell, line: str) -> Any:
    found = json.loads(shell.good("quotas", "why", *line.split(), "-J").text)[0]
    return found["value"], found["entity"], found["shared_by"]


def test_who_shares_a_limit(quotas: Shell) -> None:
    good(quotas, "set --client-default producer_byte_rate=1")
    assert why(quotas, "--client-id app") == (1, {"client-id": None}, {"client-id": "app"})
    assert why(quotas, "--user alice") == (None, None, {})  # without a client id
    good(quotas, "set --user-default producer_byte_rate=2")
    assert why(quotas, "--client-id app") == (2, {"user": None}, {"user": "ANONYMOUS"})
    assert why(quotas, "--user alice") == (2, {"user": None}, {"user": "alice"})
    good(quotas, "set --user-default --client-id app producer_byte_rate=3")
    both = {"user": "alice", "client-id": "app"}
    assert why(quotas, "--user alice --client-id app") == (3, {"user": None, "client-id": "app"}, both)
    good(quotas, "set --ip-default connection_creation_rate=4")
    good(quotas, "set --ip 10.0.0.7 connection_creation_rate=5")
    assert why(quotas, "--ip 10.0.0.7") == (5, {"ip": "10.0.0.7"}, {"ip": "10.0.0.7"})
    assert why(quotas, "--ip 10.0.0.8") == (4, {"ip": None}, {"ip": "10.0.0.8"})


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        ("alice", 2, "alice: what of it? list, set, remove, why"),
        ("set producer_byte_rate=1", 2, "set: whom? --user"),
        ("set --user alice", 2, "set: what? KEY=VALUE, where KEY is one of producer_byte_rate"),
        ("set --user alice producer_byte_rate", 2, "to what? KEY=VALUE; remove producer_byte_rate takes it back"),
        ("set --user alice producer_byte_rat=1", 2, "did you mean producer_byte_rate?"),
        ("set --user alice producer_byte_rate=1 producer_byte_rate=2", 2, "is set twice"),
        ("set --user alice connection_creation_rate=1", 2, "user alice: connection_creation_rate is no limit of that"),
        ("set --ip 10.0.0.1 producer_byte_rate=1", 2, "there are connection_creation_rate"),
        ("set --user alice producer_byte_rate=0", 1, "Quota producer_byte_rate must be greater than 0"),
        ("set --user alice producer_byte_rate=1.5", 1, "producer_byte_rate cannot be a fractional value."),
        ("set --ip nowhere connection_creation_rate=1", 1, "nowhere is not a valid IP"),
        ("set --user alice --user-default producer_byte_rate=1", 2, "user is named twice"),
        ("set --user alice --ip 10.0.0.1 producer_byte_rate=1", 2, "for no user and no client id"),
        ("--user alice --entity-type users --entity-name bob", 2, "user is named twice"),
        ("--describe --entity-name x", 2, "each --entity-type has its --entity-name, or --entity-default"),
        (
            "--entity-type users --add-config producer_byte_rate=1",
            2,
            "each --entity-type has its --entity-name, or --entity-default",
        ),
        ("--alter --user alice", 2, "--alter: what?"),
        ("--describe --user alice producer_byte_rate=1", 2, "which of them?"),
        ("set --add-config producer_byte_rate=1 --user alice", 2, "stand alone, or with --alter"),
        ("list producer_byte_rate", 2, "list takes no producer_byte_rate"),
        ("remove --user alice", 1, "user alice has no limit; minibroker quotas shows what there is"),
        ("remove --user alice producer_byte_rate", 1, "user alice has no producer_byte_rate"),
        ("why --user-default", 2, "of one client, not of a default"),
        ("why --ip nowhere", 2, "say an address, such as 10.0.0.7"),
    ],
)
def test_what_cannot_be_is_said(quotas: Shell, words: str, status: int, reason: str) -> None:
    ran = quotas("quotas", *words.split())
    assert (ran.status, ran.output) == (status, b"")
    assert reason in ran.errors
    assert ran.errors.count("\n") == 1
