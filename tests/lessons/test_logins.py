"""Logins and access rules in lessons: what makes no sense is said, and a listener's arithmetic is that of clients."""

from __future__ import annotations

import pytest

from minibroker.client.security import Scram
from minibroker.lessons.commands import CommandError, parse_command
from minibroker.lessons.logins import _fields, _final_with
from minibroker.lessons.running import check, rehearse
from minibroker.lessons.scenario import parse_scenario

SECURED = "start 1 brokers users=admin:top,alice:secret authorizer"
PLAIN = "start 1 brokers"
WRONG = [
    ([PLAIN, "connect anna"], "ILLEGAL_SASL_STATE"),
    ([PLAIN, "log in alice"], "there is no user alice: start 1 brokers users=alice:secret"),
    ([PLAIN, "allow alice write orders"], "rules are made by the first user"),
    ([PLAIN, "who may alice write orders"], "this cluster asks nobody: start 1 brokers users=admin:top authorizer"),
    ([SECURED, "say first anna as alice"], "anna has no connection: connect anna"),
    ([SECURED, "connect anna", "say final anna with secret"], "anna has no challenge yet: say first anna as NAME"),
    ([SECURED, "connect anna", "check anna"], "anna has nothing to check"),
    ([SECURED, "connect anna", 'guess anna "x"'], "anna has not said enough"),
    ([SECURED, "take back alice write orders"], "there is no such rule"),
    ([SECURED, "connect anna", "say first anna as alice", "say first anna as alice"], "SASL_AUTHENTICATION_FAILED"),
]


@pytest.mark.outside
@pytest.mark.parametrize(("commands", "reason"), WRONG, ids=[commands[-1] for commands, _ in WRONG])
def test_what_makes_no_sense_is_said(commands: list[str], reason: str) -> None:
    scenario = parse_scenario("# x\n\n" + "\n".join(f"    {command}" for command in commands) + "\n")
    (failure,) = rehearse(scenario)[-1].failures
    assert reason in failure


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("start 1 brokers users=alice", "users are NAME:PASSWORD"),
        ("start 1 brokers users=alice:", "users are NAME:PASSWORD"),
        ("allow alice sing orders", "there is no operation 'sing'"),
        ("allow alice read queue:orders", "there is no resource 'queue'"),
        ("connect anna by=PLAIN", "it is one of SCRAM-SHA-256, SCRAM-SHA-512"),
        ("say final anna with secret nonce=none", "it is one of own, other"),
    ],
)
def test_what_is_no_command_is_said(line: str, reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        parse_command(line)


def test_who_listens_reckons_as_clients_do() -> None:
    scram = Scram("sha256", "alice", "secret", "mine")
    first, challenge = scram.first().decode(), "r=mineand more,s=c2FsdA==,i=4096"
    assert _final_with("sha256", first, challenge, "secret") == scram.final(challenge.encode()).decode()
    assert _fields(first) == {"n": "alice", "r": "mine"}


@pytest.mark.outside
def test_a_login_by_the_other_mechanism_and_after_a_failure() -> None:
    text = """# x

    start 1 brokers users=alice:secret
    connect anna by=SCRAM-SHA-512
    say first anna as alice
    say final anna with wrong
    connect anna by=SCRAM-SHA-512
    say first anna as alice
    say final anna with secret
    check anna
    guess anna "wrong" "secret"
    ----
    login b1 'alice' SCRAM-SHA-512 fails
    login b1 'alice' SCRAM-SHA-512 succeeds
    error: SASL_AUTHENTICATION_FAILED: *
    told: anna reckons the same v: *
    told: "wrong" does not fit
    told: "secret" fits: *
"""
    check(parse_scenario(text))
