"""What tests of several parts use."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from minibroker.replication import bugs


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return one more than there are processors: many tests wait for clients and brokers in other processes."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) + 1


@pytest.fixture
def plant(request: pytest.FixtureRequest) -> Iterator[None]:
    """Plant the bug that a test is parametrized with."""
    bugs.planted = frozenset([request.getfixturevalue("bug")])
    yield
    bugs.planted = frozenset()
