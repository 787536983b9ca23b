"""Clients of others go on while leaders are killed, paused and cut off in turns, a hundred times each."""

from __future__ import annotations

import gc
import importlib

import pytest

from tests.cluster import python_clients
from tests.cluster.turmoil import DISTURBANCES, turmoil

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # kafka-python leaves a socket behind for each connection that is refused.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"),
]

TIMES = 100


@pytest.mark.parametrize(
    ("module", "client"),
    [("kafka", "KafkaPython"), ("aiokafka", "Aiokafka"), ("confluent_kafka", "Confluent")],
    ids=["kafka-python", "aiokafka", "confluent-kafka"],
)
def test_a_client_loses_and_doubles_nothing_whatever_becomes_of_the_brokers(module: str, client: str) -> None:
    pytest.importorskip(module)
    importlib.import_module(module)
    struck = turmoil(getattr(python_clients, client), TIMES)
    gc.collect()  # what a client has left behind is told of here, and not in some other test
    assert struck.total() == TIMES
    assert struck.keys() == {each.__name__ for each in DISTURBANCES}
