"""A fetch session lists what has changed, and starts again when in doubt."""

from __future__ import annotations

from minibroker.client.sessions import EPOCH_MAX, FetchSession

A, B, C = ("orders", 0), ("orders", 1), ("bills", 0)


def test_without_sessions_every_request_lists_everything() -> None:
    session = FetchSession(enabled=False)
    for _ in range(2):
        assert (session.id, session.epoch) == (0, -1)
        assert session.next({A: 1, B: 1}) == ([A, B], [])
        session.answered(0)


def test_a_session_lists_what_is_new_or_has_moved_and_forgets_what_is_gone() -> None:
    session = FetchSession(enabled=True)
    assert (session.epoch, session.next({A: 1, B: 1})) == (0, ([A, B], []))
    session.answered(99)
    assert (session.id, session.epoch) == (99, 1)
    assert session.next({A: 1, B: 2, C: 0}) == ([B, C], [])
    session.answered(99)
    assert (session.epoch, session.next({A: 1, C: 0})) == (2, ([], [B]))


def test_what_was_not_answered_is_said_again() -> None:
    session = FetchSession(enabled=True)
    session.next({A: 1})
    session.answered(99)
    session.next({A: 2})
    session.reset()
    assert (session.id, session.epoch) == (0, 0)
    assert session.next({A: 2}) == ([A], [])


def test_a_broker_without_room_gives_no_session() -> None:
    session = FetchSession(enabled=True)
    session.next({A: 1})
    session.answered(0)
    assert (session.id, session.epoch) == (0, 0)
    assert session.next({A: 1}) == ([A], [])


def test_epochs_go_on_with_1_after_the_largest() -> None:
    session = FetchSession(enabled=True)
    session.next({A: 1})
    session.answered(99)
    session.epoch = EPOCH_MAX
    session.answered(99)
    assert session.epoch == 1
