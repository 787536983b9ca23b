"""What real brokers of three releases answered once, we answer today."""

from __future__ import annotations

import pytest

from tests.differential.sessions import RELEASES, replay, replay_transactions, report

REQUESTS_MIN, TRANSACTION_REQUESTS_MIN = 250, 5_000


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_questions_get_the_recorded_answers(release: str) -> None:
    found = replay(release)
    assert not found.differences, report(found)
    assert found.asked >= REQUESTS_MIN


@pytest.mark.parametrize("release", ["3.9", "4.4"])
def test_recorded_transactions_are_answered_as_they_were(release: str) -> None:
    found = replay_transactions(release)
    assert not found.differences, report(found)
    assert found.asked >= TRANSACTION_REQUESTS_MIN
