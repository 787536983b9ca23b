"""The states of a login: the pairs of the table, and that every other one fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minibroker.security import sasl
from minibroker.security.principal import Principal
from minibroker.security.sasl import MOVES, Exchange, IllegalState, Mechanism, Refusal, Session


class Any(Exchange):
    """Takes a name for a proof."""

    def respond(self, token: bytes) -> bytes:
        if token == b"more":
            return b"and?"
        if not token:
            raise Refusal("nothing given")
        self.name, self.is_complete = token.decode(), True
        return b"welcome"


def session(lifetime_ms: int = 1000) -> Session:
    return Session({"ANY": Mechanism(Any, lifetime_ms), "OTHER": Mechanism(Any, lifetime_ms)})


def respond(to: Session, token: bytes, at_ms: int = 0) -> tuple[bytes, int]:
    return to.respond(token, now_ms=at_ms, elapsed_ms=at_ms)


EVENTS: dict[str, Callable[[Session], object]] = {
    "versions": lambda each: each.answered_versions(),
    "mechanism": lambda each: each.choose("ANY", 1),
    "token": lambda each: respond(each, b"more"),
    "last token": lambda each: respond(each, b"alice"),
}
ALL_EVENTS = {**EVENTS, "again": lambda each: each.may_begin_again(10_000)}
WAYS = {
    sasl.FIRST: (),
    sasl.VERSIONS: ("versions",),
    sasl.TOKENS: ("mechanism", "token"),
    sasl.COMPLETE: ("mechanism", "last token"),
    sasl.AGAIN: ("mechanism", "last token", "again"),
}


@pytest.mark.parametrize("state", WAYS)
@pytest.mark.parametrize("event", EVENTS)
def test_what_the_table_has_not_fails_for_good(state: str, event: str) -> None:
    one = session()
    for each in WAYS[state]:
        ALL_EVENTS[each](one)
    assert one.state == state
    after = MOVES.get((state, event))
    if after is not None:
        EVENTS[event](one)
        assert one.state == after
        return
    with pytest.raises(IllegalState):
        EVENTS[event](one)
    assert one.state == sasl.FAILED
    for each in EVENTS.values():
        with pytest.raises(IllegalState):
            each(one)


def test_who_logs_in_again_stays_who_he_is() -> None:
    one = session()
    one.choose("ANY", 1)
    respond(one, b"alice")
    assert one.may_begin_again(500)
    one.choose("ANY", 1)
    with pytest.raises(Refusal) as refused:
        respond(one, b"bob", 500)
    assert refused.value.told == ("Cannot change principals during re-authentication from User.alice: User.bob")
    assert one.principal == Principal("User", "alice")
    assert not one.is_complete


def test_nobody_logs_in_again_within_a_second_or_where_a_session_has_no_end() -> None:
    one = session()
    one.choose("ANY", 1)
    respond(one, b"alice", 100)
    assert one.may_begin_again(200)
    one.choose("ANY", 1)
    respond(one, b"alice", 200)
    assert not one.may_begin_again(1199)
    assert one.is_complete
    assert one.may_begin_again(1200)
    endless = session(0)
    endless.choose("ANY", 1)
    respond(endless, b"alice")
    assert not endless.may_begin_again(10_000)


def test_a_session_lasts_as_long_as_settings_and_credential_say() -> None:
    class Short(Any):
        expires_ms = 1300

    for lifetime_ms, expected in ((1000, 300), (200, 200), (0, 300)):
        one = Session({"ANY": Mechanism(Short, lifetime_ms)})
        one.choose("ANY", 1)
        assert one.respond(b"alice", now_ms=1000, elapsed_ms=50) == (b"welcome", expected)
        assert not one.has_expired(50 + expected)
        assert one.has_expired(51 + expected)


def test_a_credential_that_is_over_makes_a_session_that_is() -> None:
    class Over(Any):
        expires_ms = 900

    one = Session({"ANY": Mechanism(Over, 0)})
    one.choose("ANY", 1)
    assert one.respond(b"alice", now_ms=1000, elapsed_ms=50) == (b"welcome", 0)
    assert one.has_expired(51)


def test_a_name_is_shown_on_one_line_and_no_longer_than_a_name_is() -> None:
    assert sasl.shown_name("a\nb") == r"'a\nb'"
    assert len(sasl.shown_name("x" * 1000)) < 90
