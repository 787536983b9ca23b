"""Fixtures for pytest, there as soon as minibroker is installed:

    def test_an_order_is_confirmed(kafka):
        shop.confirm(kafka.bootstrap_servers, "order 1")
        assert kafka.wait_records("orders", 1)[0].value == b"order 1"

kafka               a broker for one test, on memory and a free port; `@pytest.mark.kafka(...)` holds its arguments
kafka_session       one for all tests, in each worker of xdist; override `kafka_session_options` with its arguments
kafka_topic         the name of a topic on `kafka_session` that one test has for itself
minibroker_cluster  three brokers for one test, to be killed, cut and paused; `@pytest.mark.minibroker_cluster(...)`

A broker runs in a thread, so tests with a loop of their own use it as well, and no plugin for asyncio is asked for.
Where no test asks for a fixture, nothing of minibroker is imported but this file.
"""

from __future__ import annotations

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from minibroker.embedded import Broker, Cluster

MARKERS = (
    "kafka(**arguments): what minibroker.Broker is called with for the fixture `kafka`, such as topics=['orders:3']",
    "minibroker_cluster(**arguments): what minibroker.Cluster is called with for the fixture `minibroker_cluster`",
)
NAME_LENGTH_MAX = 200  # of a topic, with room for a number: Kafka takes 249


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker for this test alone."""
    from minibroker.embedded import Broker

    with Broker(**_arguments(request, "kafka")) as broker:
        yield broker


@pytest.fixture
def minibroker_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster for this test alone."""
    from minibroker.embedded import Cluster

    with Cluster(**_arguments(request, "minibroker_cluster")) as cluster:
        yield cluster


def _arguments(request: pytest.FixtureRequest, name: str) -> dict[str, Any]:
    """Return what the markers of a test hold."""
    arguments: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(name))):  # the closest comes last and wins
        arguments |= marker.kwargs
    return arguments


@pytest.fixture(scope="session")
def kafka_session_options() -> dict[str, Any]:
    """What `kafka_session` is called with: override it in conftest.py."""
    return {}


@pytest.fixture(scope="session")
def kafka_session(kafka_session_options: dict[str, Any]) -> Iterator[Broker]:
    """A broker for all tests. Topics stay until somebody deletes them: use names of your own, or `kafka_topic`."""
    from minibroker.embedded import Broker

    with Broker(**kafka_session_options) as broker:
        yield broker


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_session: Broker) -> Iterator[str]:
    """The name of an empty topic on `kafka_session`, named after the test and deleted after it."""
    known = kafka_session.topics()
    name = wanted = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in request.node.name)[
        :NAME_LENGTH_MAX
    ]
    number = 1
    while name in known:
        number += 1
        name = f"{wanted}-{number}"
    kafka_session.create_topic(name)
    yield name
    if name in kafka_session.topics():
        kafka_session.delete_topic(name)
