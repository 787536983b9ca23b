"""What real brokers of three releases answered once, we answer today."""

from __future__ import annotations

import pytest

from tests.differential.sessions import RELEASES, replay, report

REQUESTS_MIN = 250


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_questions_get_the_recorded_answers(release: str) -> None:
    found = replay(release)
    assert not found.differences, report(found)
    assert found.asked >= REQUESTS_MIN
