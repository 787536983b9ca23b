"""Quotas of users who log in by SCRAM, as kafka-python sees them: whose limit holds, and who shares it.

Set over the same listener by `minibroker quotas`. A client sends one record, and says how long it was told to
wait; nobody waits for the end of that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker import Broker
from tests.cli.running import Shell

kafka = pytest.importorskip("kafka")

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

PATIENCE_S = 20
USERS = {name: f"{name}-secret" for name in ("alice", "bob", "carl", "dora", "eve", "admin")}
LIMITS = [
    "--user alice producer_byte_rate=1kB/s",
    "--user bob --client-id report producer_byte_rate=1kB/s",
    "--user carl --client-default producer_byte_rate=1kB/s",
    "--user carl --client-id big producer_byte_rate=1MB/s",
    "--client-id hog producer_byte_rate=1kB/s",
    "--user eve producer_byte_rate=1MB/s",
]
WINDOW_MS = 10_000
THROTTLED = re.compile(r"ProduceResponse throttled by broker \((\d+) ms\)")  # as kafka-python logs it
MUCH, LITTLE = 50_000, 10  # bytes; of the first a window of 1 kB/s is full at once
CASES = [  # user, client id, bytes, whether it is throttled; in this order, since windows are shared
    ("alice", "app", MUCH, True),
    ("alice", "other", LITTLE, True),  # all clients of alice share what she has used up
    ("bob", "report", MUCH, True),
    ("bob", "shop", MUCH, False),
    ("dora", "report", MUCH, False),
    ("carl", "big", MUCH, False),
    ("carl", "one", MUCH, True),
    ("carl", "two", LITTLE, False),  # each client id has the default for itself
    ("dora", "hog", MUCH, True),
    ("bob", "hog", LITTLE, True),  # what is for a client id alone is shared by all users
    ("eve", "hog", MUCH, False),  # a user's limit comes before that of a client id
]


def properties(directory: Path, name: str) -> str:
    file = directory / f"{name}.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config=ScramLoginModule required username="{name}" password="{USERS[name]}";\n'
    )
    return str(file)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(users=USERS, topics="orders") as broker:
        shell, login = Shell(broker.bootstrap_servers), ("--command-config", properties(tmp_path, "admin"))
        for line in LIMITS:
            shell.good("quotas", "set", *line.split(), *login)
        yield broker


def send(broker: Broker, user: str, client_id: str, size_bytes: int) -> None:
    """Send one record, and wait until it is acknowledged."""
    producer: Any = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        client_id=client_id,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username=user,
        sasl_plain_password=USERS[user],
        max_block_ms=PATIENCE_S * 1000,
    )
    try:
        producer.send("orders", bytes(size_bytes)).get(PATIENCE_S)
    finally:
        producer.close(0)


def test_quotas_of_users_and_client_ids_hold_for_who_has_logged_in(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    for user, client_id, size_bytes, is_throttled in CASES:
        caplog.clear()
        send(broker, user, client_id, size_bytes)
        told = [found for each in caplog.messages if (found := THROTTLED.search(each))]
        assert bool(told) == is_throttled, f"{user} as {client_id} with {size_bytes} bytes: {caplog.messages}"
        if size_bytes == MUCH and told:  # (rate - limit) / limit * window, and a little for what is around the record
            assert int(told[0][1]) == pytest.approx(MUCH - WINDOW_MS, abs=500)
