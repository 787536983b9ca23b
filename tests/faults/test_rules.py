"""Rules: what they match, how they count, and what is refused when they are made."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from minibroker.errors import Error
from minibroker.faults import FaultError
from minibroker.faults.rules import ACTIONS, MATCHERS, Rule, values_from_text

PRODUCE, FETCH = 0, 1


@pytest.mark.parametrize("api", ["Produce", "produce", 0, "0"])
def test_an_api_is_named_or_numbered(api: object) -> None:
    assert Rule(api=api, delay_ms=1).api == PRODUCE


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [(7, (7,), (6, 8)), ("7", (7,), (6, 8)), ("3-7", (3, 7), (2, 8)), ("9+", (9, 99), (8,)), (None, (0, 99), ())],
)
def test_versions_are_one_or_a_range(text: object, inside: tuple[int, ...], outside: tuple[int, ...]) -> None:
    rule = Rule(version=text, delay_ms=1)
    assert all(rule.fits(PRODUCE, version, None) for version in inside)
    assert not any(rule.fits(PRODUCE, version, None) for version in outside)


def test_clients_and_topics_are_patterns() -> None:
    rule = Rule(api="Fetch", client_id="app-*", topic="orders.?", partition=2, delay_ms=1)
    assert rule.fits(FETCH, 0, "app-7")
    assert not rule.fits(FETCH, 0, "web-7")
    assert not rule.fits(FETCH, 0, None)
    assert not rule.fits(PRODUCE, 0, "app-7")
    assert rule.hits("orders.1", 2)
    assert not rule.hits("orders.1", 1)
    assert not rule.hits("orders", 2)


@pytest.mark.parametrize("error", [6, "6", "NOT_LEADER_OR_FOLLOWER", "not_leader_for_partition", Error(6)])
def test_an_error_is_named_or_numbered(error: object) -> None:
    assert Rule(error=error).error is Error.NOT_LEADER_OR_FOLLOWER


def struck(rule: Rule, count: int, chance: Random | None = None) -> list[int]:
    """Return which of so many requests a rule strikes, counted from 1."""
    chance = chance or Random(1)
    return [number for number in range(1, count + 1) if rule.fits(PRODUCE, 0, None) and rule.strikes(chance)]


def test_the_nth_request_alone_is_struck() -> None:
    rule = Rule(nth=3, delay_ms=1)
    assert struck(rule, 6) == [3]
    assert rule.is_spent


def test_a_rule_strikes_as_often_as_it_may() -> None:
    rule = Rule(times=2, delay_ms=1)
    assert struck(rule, 6) == [1, 2]
    assert (rule.match_count, rule.strike_count, rule.is_spent) == (2, 2, True)


def test_a_probability_is_kept_by_the_chance_that_is_handed_in() -> None:
    first, again = (struck(Rule(probability=0.25, delay_ms=1), 1000, Random(5)) for _ in range(2))
    assert first == again
    assert 200 < len(first) < 300
    assert not struck(Rule(probability=0, delay_ms=1), 100)


def test_times_count_strikes_and_not_matches() -> None:
    rule = Rule(probability=0.5, times=3, delay_ms=1)
    assert len(struck(rule, 100)) == 3
    assert rule.match_count > 3


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "a rule does something"),
    ({"api": "Produce"}, "a rule does something"),
    ({"after": True}, "a rule does something"),
    ({"api": "Prodce", "delay_ms": 1}, "did you mean Produce"),
    ({"api": True, "delay_ms": 1}, "there is no API True"),
    ({"colour": 1, "delay_ms": 1}, "a rule knows api, version"),
    ({"error": "NO_SUCH_ERROR"}, "no error of Kafka"),
    ({"error": "NONE"}, "no error of Kafka"),
    ({"error": True}, "no error of Kafka"),
    ({"error": 12345}, "no error of Kafka"),
    ({"delay_ms": -1}, "no whole number"),
    ({"delay_ms": 1.5}, "no whole number"),
    ({"delay_ms": True}, "no whole number"),
    ({"version": "7-3", "delay_ms": 1}, "no version"),
    ({"version": "x", "delay_ms": 1}, "no version"),
    ({"topic": "", "delay_ms": 1}, "no name"),
    ({"topic": 5, "delay_ms": 1}, "no name"),
    ({"probability": 2, "delay_ms": 1}, "no probability"),
    ({"probability": "nan", "delay_ms": 1}, "no probability"),
    ({"nth": 0, "delay_ms": 1}, "no whole number"),
    ({"nth": 2, "times": 2, "delay_ms": 1}, "exclude each other"),
    ({"error": 6, "drop_request": True}, "exclude each other"),
    ({"close": "before", "truncate": 4}, "exclude each other"),
    ({"close": "now"}, "'before'"),
    ({"delay_ms": 5, "after": True}, "belongs to an error"),
    ({"delay_ms": 5, "drop_response": True}, "never comes"),
    ({"throttle_ms": 5, "close": "after"}, "needs no throttling"),
    ({"topic": "orders", "error": 6}, "needs an api"),
    ({"api": "InitProducerId", "topic": "orders", "error": 6}, "has no topics"),
    ({"api": "FindCoordinator", "topic": "orders", "delay_ms": 6}, "has no topics"),
    ({"api": "Metadata", "partition": 1, "error": 6}, "speaks of whole topics"),
    ({"api": "Fetch", "topic": "orders", "error": "FETCH_SESSION_ID_NOT_FOUND"}, "about a whole fetch"),
]


@pytest.mark.parametrize(("wanted", "reason"), REFUSED, ids=[str(wanted) for wanted, _ in REFUSED])
def test_what_makes_no_sense_is_refused_with_a_reason(wanted: dict[str, Any], reason: str) -> None:
    with pytest.raises(FaultError, match=reason):
        Rule(**wanted)


def test_a_rule_says_what_it_was_made_of() -> None:
    rule = Rule(error="6", api=1, version="3-7", topic="orders", times="2", after="true", drop_request=False)
    assert rule.as_json() == {
        "id": 0,
        "api": "Fetch",
        "version": "3-7",
        "topic": "orders",
        "times": 2,
        "error": "NOT_LEADER_OR_FOLLOWER",
        "after": True,
        "matches": 0,
        "strikes": 0,
    }
    assert (rule.where, rule.action) == (
        "api=Fetch version=3-7 topic=orders times=2",
        "error=NOT_LEADER_OR_FOLLOWER after",
    )


def test_a_rule_fits_into_a_line_of_text() -> None:
    values = values_from_text("api=Produce, error=NOT_LEADER_OR_FOLLOWER,nth=3,after")
    assert Rule(**values).as_json()["after"] is True
    assert Rule(**values_from_text("drop-response")).drop_response


def test_every_matcher_and_action_is_in_the_docs() -> None:
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs/faults.md").read_text(encoding="utf-8")
    assert not [name for name in (*MATCHERS, *ACTIONS) if f"| `{name}`" not in page]
