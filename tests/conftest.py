"""What tests of several parts use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minibroker.replication import bugs


@pytest.fixture
def plant(request: pytest.FixtureRequest) -> Iterator[None]:
    """Plant the bug that a test is parametrized with."""
    bugs.planted = frozenset([request.getfixturevalue("bug")])
    yield
    bugs.planted = frozenset()
