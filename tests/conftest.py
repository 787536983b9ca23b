"""What tests of several parts use."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest

from minibroker.replication import bugs
from tests.spark.session import Session, started


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Return one more than xdist would: many tests wait for clients and brokers in other processes."""
    count = yield
    return count if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else count + 1


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say which tests are to run in one process: with `--dist loadgroup` each group is handed out as a whole.

    All that need Spark share one session, which takes seconds to start and minutes to become quick. Fast tests go by
    the file, as handing out a test takes as long as some of them. Slow ones go one by one, unless their file has
    something made for all its tests.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            group = "spark"
        elif _is_slow(item) and not _shares_with_its_file(item):
            continue
        else:
            group = item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))


def _is_slow(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) is not None for name in ("slow", "interop"))


def _shares_with_its_file(item: pytest.Item) -> bool:
    fixtures = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    return any(each.scope == "module" for named in fixtures.values() for each in named)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """The session of Spark that all tests share."""
    with started(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def plant(request: pytest.FixtureRequest) -> Iterator[None]:
    """Plant the bug that a test is parametrized with."""
    bugs.planted = frozenset([request.getfixturevalue("bug")])
    yield
    bugs.planted = frozenset()
