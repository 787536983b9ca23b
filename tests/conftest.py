"""What tests of several parts use."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from types import FunctionType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from minibroker.log.validate import validate_in_place
from tests.rings import Doors, Rings
from tests.spark.session import Session, started

# Nothing is judged by the time that it takes: machines are busy now and then.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_configure(config: pytest.Config) -> None:
    doors = Doors()
    doors.guard()
    config.pluginmanager.register(Rings(doors), "rings")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not isinstance(validate_in_place, FunctionType):
        compiled = pytest.mark.skip(reason="changes or counts what is compiled here")
        for item in items:
            if item.get_closest_marker("pure"):
                item.add_marker(compiled)


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Return one more than xdist would: many tests wait for clients and brokers in other processes."""
    count = yield
    return count if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else count + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    if config.getvalue("dist") != "load":
        return None  # somebody has asked for another
    from tests.scheduling import SparkInOnePlace

    return SparkInOnePlace(config, log)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """The session of Spark that all tests share."""
    with started(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def plant(request: pytest.FixtureRequest) -> Iterator[None]:
    """Plant the bug that a test is parametrized with."""
    from tests.planting import planted

    with planted(request.getfixturevalue("bug")):
        yield
