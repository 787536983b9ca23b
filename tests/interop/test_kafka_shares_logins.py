"""Users of SCRAM in one directory, and two brokers in turn: each lets in whom the other has written down."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from minibroker import Broker
from tests.interop import broker, kafka
from tests.interop.sasl_answers import NAME, make_directory, settings_of, wait_until_open
from tests.security.conversations import client_first, play, scram, settings

pytestmark = [pytest.mark.interop, pytest.mark.slow]

CLUSTER_ID = "AAECAwQFBgcICQoLDA0ODw"
FORMATS = kafka.Release("kafka_2.13", "3.9.2")


def is_in(port: int, mechanism: str, name: str, password: str) -> bool:
    conversation = scram(mechanism, client_first(name), password)
    return asyncio.run(play("127.0.0.1", port, conversation))[-1] != "closed"


def test_users_that_kafka_has_formatted_a_directory_with_log_in_here(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:1\n"
        f"listeners=PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:1\ncontroller.listener.names=CONTROLLER\n"
        f"log.dirs={tmp_path / 'data'}\n"
    )
    users = ["SCRAM-SHA-256=[name=alice,password=alice-secret]", "SCRAM-SHA-512=[name=bob,iterations=8192,password=x]"]
    words = ["format", "-t", CLUSTER_ID, "-c", "server.properties", *(f"--add-scram={user}" for user in users)]
    done = kafka.run(FORMATS, "kafka.tools.StorageTool", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    config = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", **settings(NAME)}
    with Broker(data_dir=tmp_path / "data", config=config) as ours:
        port = int(ours.bootstrap_servers.rpartition(":")[2])
        assert is_in(port, "SCRAM-SHA-256", "alice", "alice-secret")
        assert is_in(port, "SCRAM-SHA-512", "bob", "x")
        assert not is_in(port, "SCRAM-SHA-512", "alice", "alice-secret")
        assert not is_in(port, "SCRAM-SHA-512", "bob", "y")


def test_users_that_we_have_written_down_log_in_at_kafka(tmp_path: Path) -> None:
    asyncio.run(make_directory(tmp_path / "data"))
    port, controller_port = broker.free_ports(2)
    properties = settings_of(tmp_path / "data", port, controller_port)
    with broker.launched(properties, tmp_path / "work", port) as running:
        wait_until_open(running, port)
        assert is_in(port, "SCRAM-SHA-512", "bob", "bob-secret")
        assert not is_in(port, "SCRAM-SHA-512", "bob", "alice-secret")
