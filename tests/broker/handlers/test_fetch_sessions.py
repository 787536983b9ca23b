"""Fetch sessions have room for so many partitions in all, whoever opens them."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.handlers import fetch_sessions
from minibroker.broker.handlers.fetch_sessions import EPOCH_MAX, EVICTION_MS, FetchSessions
from minibroker.errors import Error, KafkaError
from minibroker.protocol.messages.fetch import FetchResponse

VERSION = 12
PartitionResponse = FetchResponse.FetchableTopicResponse.PartitionData


def wanted(*names: str) -> dict[Any, Any]:
    return {(name, bytes(16), 0): object() for name in names}


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> FetchSessions:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 10)
    numbers = iter(range(1, 1000))
    return FetchSessions(1000, lambda: next(numbers))


@pytest.mark.pure
def test_a_session_that_has_no_room_is_not_opened(sessions: FetchSessions) -> None:
    first = sessions.open(wanted(*"abcdefgh"), False, 0)
    assert first is not None
    assert sessions.open(wanted(*"abc"), False, 0) is None
    assert sessions.open(wanted("a", "b"), False, 0) is not None
    assert sessions.partition_count == 10


@pytest.mark.pure
def test_room_is_made_by_sessions_that_nobody_uses(sessions: FetchSessions) -> None:
    for name in "abcdefghij":
        sessions.open(wanted(name), False, 0)
    assert sessions.open(wanted(*"klmno"), False, EVICTION_MS + 1) is not None
    assert (len(sessions), sessions.partition_count) == (6, 10)


@pytest.mark.pure
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


def test_a_session_gets_an_id_that_nobody_has() -> None:
    numbers = iter((0, 1, 1, 0, 2))
    sessions = FetchSessions(1000, lambda: next(numbers))
    opened = [sessions.open(wanted("a"), False, 0) for _ in range(2)]
    assert [each.session_id for each in opened if each is not None] == [1, 2]


def test_the_session_that_was_used_least_recently_makes_room(sessions: FetchSessions) -> None:
    sessions.slots = 2
    first, second = (sessions.open(wanted("a"), False, used_ms) for used_ms in (5, 0))
    assert first is not None
    assert second is not None
    assert sessions.resume(first.session_id, 1, VERSION, {}, [], 6) is first
    assert sessions.open(wanted("a"), False, EVICTION_MS) is None, "it was used too recently"
    assert sessions.open(wanted("a"), False, EVICTION_MS + 1) is not None
    assert sessions.find(first.session_id) is first
    assert sessions.find(second.session_id) is None


def test_epochs_begin_again_behind_the_last(sessions: FetchSessions) -> None:
    session = sessions.open(wanted("a"), False, 0)
    assert session is not None
    for epoch, following in ((1, 2), (EPOCH_MAX - 1, EPOCH_MAX), (EPOCH_MAX, 1)):
        session.epoch = epoch
        assert sessions.resume(session.session_id, epoch, VERSION, {}, [], 0) is session
        assert session.epoch == following


NEWS = {  # of a partition of which the client knows a high watermark of 3 and a log that begins at 0
    "nothing": ({}, False),
    "records": ({"records": b"r"}, True),
    "a high watermark": ({"high_watermark": 4}, True),
    "an earlier high watermark": ({"high_watermark": 2}, True),
    "the beginning of the log": ({"log_start_offset": 1}, True),
    "an error": ({"error_code": Error.OFFSET_OUT_OF_RANGE}, True),
    "another log": ({"diverging_epoch": PartitionResponse.EpochEndOffset(epoch=0, end_offset=1)}, True),
    "a replica nearby": ({"preferred_read_replica": 0}, True),
}


@pytest.mark.parametrize("name", NEWS)
def test_what_is_news_is_told_once_and_an_error_until_it_has_gone(sessions: FetchSessions, name: str) -> None:
    session = sessions.open(wanted("a"), False, 0)
    assert session is not None
    (key,) = session.partitions

    def is_told(**changed: Any) -> bool:
        fields = {"error_code": 0, "high_watermark": 3, "log_start_offset": 0, "records": b"", **changed}
        return session.has_news(key, PartitionResponse(partition_index=0, **fields))

    assert is_told()
    assert not is_told()
    changed, expected = NEWS[name]
    session.changed.clear()
    assert is_told(**changed) == expected
    is_error = name == "an error"
    assert (key in session.changed) == is_error
    is_kept = name in ("a high watermark", "an earlier high watermark", "the beginning of the log")
    assert is_told(**changed) == (expected and not is_kept)
    assert is_told() == (is_error or is_kept), "what it was before is news again"
