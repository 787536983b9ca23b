"""Instances over real sockets: who may connect, what is shown, and that a start refuses what would do nothing."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker import Broker, Cluster
from minibroker.cli import main
from minibroker.client import Admin
from minibroker.client import Cluster as Client
from minibroker.client.descriptions import Append, SomeFailed, Subtract
from minibroker.embedded import BrokerError

LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,VIP://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,VIP:PLAINTEXT",
    "instance.shop.listener": "VIP",
}
SHOP = {"instance.shop.topic.prefix": "shop.", "instance.shop.producer.byte.rate": "3000000"}
ELSEWHERE = "127.0.0.2"


@pytest.fixture
def vip() -> Iterator[tuple[Broker, int]]:
    """A broker, and the port of an instance that only 127.0.0.1 may connect to."""
    with Broker(config={**LISTENERS, "instance.shop.allow.list": "127.0.0.1/32,fd00::/8"}) as broker:
        yield broker, broker._engine._node.servers[1].port  # type: ignore[union-attr]


def is_let_in(port: int, source: str) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=5, source_address=(source, 0)) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        try:
            return connection.recv(100).startswith(b"HTTP/1.1 200")
        except ConnectionResetError:
            return False


def test_who_comes_from_elsewhere_is_closed_with_a_line(
    vip: tuple[Broker, int], caplog: pytest.LogCaptureFixture
) -> None:
    broker, port = vip
    own_port = int(broker.bootstrap_servers.rpartition(":")[2])
    assert [is_let_in(port, source) for source in ("127.0.0.1", ELSEWHERE)] == [True, False]
    assert is_let_in(own_port, ELSEWHERE)
    (line,) = [record.getMessage() for record in caplog.records if "closed" in record.getMessage()]
    assert line.startswith(f"{ELSEWHERE}:")
    assert line.endswith("closed: no network that may connect to listener VIP has this address")


def test_networks_change_while_it_runs(vip: tuple[Broker, int]) -> None:
    broker, port = vip

    async def alter(text: str) -> None:
        async with Client(broker.bootstrap_servers) as client:
            await Admin(client).alter_configs({("broker", ""): {"instance.shop.allow.list": text}})

    asyncio.run(alter("127.0.0.2/32"))
    assert [is_let_in(port, source) for source in ("127.0.0.1", ELSEWHERE)] == [False, True]
    with pytest.raises(Exception, match="it is no network such as"):
        asyncio.run(alter("127.0.0.300"))
    assert [is_let_in(port, source) for source in ("127.0.0.1", ELSEWHERE)] == [False, True]


def test_an_edit_begins_from_the_networks_in_force_and_the_last_cannot_be_taken_out(vip: tuple[Broker, int]) -> None:
    broker, port = vip

    async def alter(edit: Append | Subtract | str) -> None:
        async with Client(broker.bootstrap_servers) as client:
            await Admin(client).alter_configs({("broker", ""): {"instance.shop.allow.list": edit}})

    def who_is_let_in() -> list[bool]:
        return [is_let_in(port, source) for source in ("127.0.0.1", ELSEWHERE)]

    asyncio.run(alter(Subtract("fd00::/8")))
    assert who_is_let_in() == [True, False]
    asyncio.run(alter(Append("127.0.0.2/32")))
    assert who_is_let_in() == [True, True]
    asyncio.run(alter(Subtract("127.0.0.1/32")))
    assert who_is_let_in() == [False, True]
    for edit in (Subtract("127.0.0.2/32"), ""):
        with pytest.raises(SomeFailed, match="it names no network; for everybody"):
            asyncio.run(alter(edit))
        assert who_is_let_in() == [False, True]


def test_networks_of_what_has_no_listener_or_is_not_there_are_refused(tmp_path: Path) -> None:
    async def alter(broker: Broker, setting: str) -> None:
        async with Client(broker.bootstrap_servers) as client:
            await Admin(client).alter_configs({("broker", ""): {setting: "10.0.0.0/8"}})

    with Broker(config=SHOP, data_dir=tmp_path) as broker:
        for setting, words in (
            ("instance.shop.allow.list", "give the instance a listener of its own"),
            ("instance.nope.allow.list", "there is no such instance; there are shop"),
        ):
            with pytest.raises(SomeFailed, match=words):
                asyncio.run(alter(broker, setting))
    with Broker(config=LISTENERS | {"instance.shop.allow.list": "127.0.0.0/8"}, data_dir=tmp_path) as broker:
        asyncio.run(alter(broker, "instance.shop.allow.list"))
    with Broker(config=SHOP, data_dir=tmp_path) as broker:  # another instance of that name starts all the same
        assert broker.topics() == {}


def test_with_tls_nobody_shakes_hands_who_may_not_come(caplog: pytest.LogCaptureFixture) -> None:
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "instance.shop.listener": "SSL",
        "instance.shop.allow.list": "10.0.0.0/8",
    }
    with Broker(tls=True, config=settings) as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            assert connection.recv(1) == b""
        server = broker._engine._node.servers[0]  # type: ignore[union-attr]
        assert server.refused_count == 1
        assert server.quotas.count == 0
    assert any("no network that may connect" in record.getMessage() for record in caplog.records)


def test_what_would_do_nothing_stops_the_start() -> None:
    with pytest.raises(BrokerError, match="nothing is promised or limited"):
        Broker(config={"instance.shop.topic.prefix": "shop."}).start()
    with pytest.raises(BrokerError, match="there is no such listener"):
        Cluster(2, config={"instance.shop.listener": "VIP", "instance.shop.capacity.bytes": "1"}).start()


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("brokers", [1, 2])
def test_the_command_shows_shares_and_how_full_it_is(brokers: int, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {**SHOP, "instance.shop.capacity.bytes": "1000000", "instance.shop.report.interval.ms": "100"}
    made: Any = Cluster(brokers, config=settings) if brokers > 1 else Broker(config=settings)
    with made as running:
        running.create_topic("shop.a", brokers)
        for partition in range(brokers):
            running.produce("shop.a", "x" * 100_000, partition=partition)
        while any((row["stored_bytes"] or 0) < 100_000 for row in running.instances()):
            continue  # a report is on its way
        address = running.bootstrap_servers
        lines = told(capsys, "-b", address, "instances").splitlines()
        assert lines[0].split() == ["INSTANCE", "BROKER", "PARTS", "FLOW", "PROMISED", "STEP", "SHARE", "USED"]
        assert [line.split()[:4] for line in lines[1:-1]] == [
            ["shop", str(each + 1), "1", "in"] for each in range(brokers)
        ]
        assert lines[-1].startswith(f"shop holds {brokers}00 KB of 1.0 MB ({brokers}0 %), takes records")
        assert all(len(line) <= 80 for line in lines)
        rows = json.loads(told(capsys, "-b", address, "instances", "--json"))
        assert [row["broker"] for row in rows] == [row["broker"] for row in running.instances()]
        assert sum(row["produced"]["fair"] for row in rows) == 3_000_000
        assert told(capsys, "-b", address, "instances", "bank").startswith("there is no such instance")


def test_without_instances_nothing_of_them_is_imported() -> None:
    import subprocess
    import sys

    program = """
import sys
from minibroker import Broker
with Broker(topics="t") as broker:
    broker.produce("t", "x")
    assert broker.instances() == []
print(*[name for name in sys.modules if "instance" in name and name.startswith("minibroker")])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
