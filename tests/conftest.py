"""What tests of several parts use."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest

from minibroker.replication import bugs


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Return one more than xdist would: many tests wait for clients and brokers in other processes."""
    count = yield
    return count if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else count + 1


@pytest.fixture
def plant(request: pytest.FixtureRequest) -> Iterator[None]:
    """Plant the bug that a test is parametrized with."""
    bugs.planted = frozenset([request.getfixturevalue("bug")])
    yield
    bugs.planted = frozenset()
