"""`minibroker quotas` against a real Kafka, and what both do of topics that a limited client asks for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker import Broker
from minibroker.protocol.messages.metadata import MetadataRequest
from tests.cli.running import Shell
from tests.differential.kafka import Kafka, missing_tools
from tests.differential.play import CLIENT_ID
from tests.interop.test_tools_of_quotas import ask

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_tools()), reason=f"a real Kafka needs {missing_tools()}, not found"),
]

PARTITIONS, VERSION = 12, 9  # more than a whole window of 11 seconds allows at once
SETTINGS = {"auto.create.topics.enable": "true", "num.partitions": str(PARTITIONS)}
UNKNOWN_TOPIC = 3
PATIENCE_S = 5.0
SETTLE_S = 1.0  # until brokers and controllers have read of a new limit


@pytest.fixture(params=["minibroker", "4.4.0", "3.9.2"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "minibroker":
        with Broker(config=SETTINGS) as broker:
            yield broker.bootstrap_servers
    else:
        with Kafka(request.param, tmp_path, SETTINGS) as kafka:
            yield kafka.address


def found(address: str, topic: str) -> int:
    """Ask for a topic that is made if it is not there; return its code, and see that nobody is told to wait."""
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
    answer = ask(address, asked, VERSION)
    assert answer.throttle_time_ms == 0
    code: int = answer.topics[0].error_code
    return code


def is_made(address: str, topic: str) -> bool:
    """Ask until the topic is there: Kafka answers before it has made it."""
    end = time.monotonic() + PATIENCE_S
    while (code := found(address, topic)) and time.monotonic() < end:
        time.sleep(0.1)
    assert code in (0, UNKNOWN_TOPIC)
    return code == 0


def test_topics_that_metadata_makes_count_and_who_asks_is_not_told(address: str) -> None:
    shell = Shell(address)
    shell.good("quotas", "set", "--client-id", CLIENT_ID, "controller_mutation_rate=0.1")
    time.sleep(SETTLE_S)
    assert is_made(address, "first")  # with a debt
    assert not is_made(address, "second")
    shell.good("quotas", "remove", "--client-id", CLIENT_ID)
    time.sleep(SETTLE_S)
    assert is_made(address, "second")


def test_limits_are_set_listed_and_removed(address: str) -> None:
    shell = Shell(address)
    for words in (
        "--user alice producer_byte_rate=1MB/s request_percentage=50%",
        "--user alice --client-default producer_byte_rate=200kB/s",
        "--client-id app controller_mutation_rate=2.5",
        "--ip-default connection_creation_rate=70",
    ):
        shell.good("quotas", "set", *words.split())
    time.sleep(SETTLE_S)
    assert shell.good("quotas").lines == [
        "WHOM                          LIMIT                        MEANS",
        "user alice, default client-id producer_byte_rate=200000    200 kB/s",
        "user alice                    producer_byte_rate=1000000   1 MB/s",
        "user alice                    request_percentage=50        50 %",
        "client-id app                 controller_mutation_rate=2.5 2.5 partitions/s",
        "default ip                    connection_creation_rate=70  70 connections/s",
    ]
    assert len(shell.good("quotas", "--user", "alice").lines) == 4
    shell.good("quotas", "remove", "--user", "alice")
    time.sleep(SETTLE_S)
    assert len(shell.good("quotas", "--user", "alice").lines) == 2
