"""Fetch sessions have room for so many partitions in all, whoever opens them."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.handlers import fetch_sessions
from minibroker.broker.handlers.fetch_sessions import EVICTION_MS, FetchSessions
from minibroker.errors import Error, KafkaError

VERSION = 12


def wanted(*names: str) -> dict[Any, Any]:
    return {(name, bytes(16), 0): object() for name in names}


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> FetchSessions:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 10)
    numbers = iter(range(1, 1000))
    return FetchSessions(1000, lambda: next(numbers))


def test_a_session_that_has_no_room_is_not_opened(sessions: FetchSessions) -> None:
    first = sessions.open(wanted(*"abcdefgh"), False, 0)
    assert first is not None
    assert sessions.open(wanted(*"abc"), False, 0) is None
    assert sessions.open(wanted("a", "b"), False, 0) is not None
    assert sessions.partition_count == 10


def test_room_is_made_by_sessions_that_nobody_uses(sessions: FetchSessions) -> None:
    for name in "abcdefghij":
        sessions.open(wanted(name), False, 0)
    assert sessions.open(wanted(*"klmno"), False, EVICTION_MS + 1) is not None
    assert (len(sessions), sessions.partition_count) == (6, 10)


def test_a_session_that_outgrows_the_room_ends(sessions: FetchSessions) -> None:
    session = sessions.open(wanted("a"), False, 0)
    assert session is not None
    with pytest.raises(KafkaError) as refused:
        sessions.resume(session.session_id, 1, VERSION, wanted(*"bcdefghijk"), [], 0)
    assert refused.value.code == Error.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions), sessions.partition_count) == (0, 0)


def test_what_is_forgotten_leaves_room(sessions: FetchSessions) -> None:
    session = sessions.open(wanted(*"abcdefgh"), False, 0)
    assert session is not None
    sessions.resume(session.session_id, 1, VERSION, {}, list(wanted(*"abcdef")), 0)
    assert sessions.partition_count == 2
    sessions.resume(session.session_id, 2, VERSION, {}, list(wanted("g", "h")), 0)
    assert (len(sessions), sessions.partition_count) == (0, 0)


def test_where_all_room_is_taken_a_session_that_does_not_grow_goes_on(sessions: FetchSessions) -> None:
    session = sessions.open(wanted(*"abcdefghij"), False, 0)
    assert session is not None
    sessions.partition_count += 1  # as while the room was larger
    assert sessions.resume(session.session_id, 1, VERSION, wanted("a"), [], 0) is session
