"""What real brokers of three releases answered once, we answer today."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential.ours import ours, tracebacks
from tests.differential.sessions import RELEASES, SETTINGS, prepare, replay, report

REQUESTS_MIN = 250


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_recorded_questions_get_the_recorded_answers(release: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    prepare(release, data)
    like = ("--data-dir", str(data), "--as-version", release)
    with ours(tmp_path / "ours.txt", *like, settings=SETTINGS) as address:
        found = replay(release, address)
    assert not found.differences, report(found)
    assert not tracebacks(tmp_path / "ours.txt")
    assert found.asked >= REQUESTS_MIN
