"""Which address clients are told: the one they came by, unless a listener advertises another."""

from __future__ import annotations

import socket

import pytest

from minibroker import Broker
from minibroker.client import Cluster

EVERYWHERE = "PLAINTEXT://:0"


async def told(address: str) -> tuple[str, int]:
    """Return the address of the broker, as it tells a client that came by this one."""
    async with Cluster(address) as cluster:
        await cluster.metadata([])
        (node,) = cluster.nodes.values()
        return node.host, node.port


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")


def port_of(broker: Broker) -> int:
    return int(broker.bootstrap_servers.rpartition(":")[2])


async def test_a_client_is_told_the_address_it_came_by() -> None:
    async with Broker(listeners=EVERYWHERE) as broker:
        port = port_of(broker)
        assert broker.bootstrap_servers == f"localhost:{port}"
        assert await told(f"127.0.0.1:{port}") == ("127.0.0.1", port)
        assert await told(f"127.0.0.2:{port}") == ("127.0.0.2", port)
        assert (await told(f"localhost:{port}"))[0] in ("127.0.0.1", "::1")


@needs_ipv6
async def test_a_client_of_ipv6_is_told_its_own_kind_of_address_at_the_same_port() -> None:
    async with Broker(listeners=EVERYWHERE) as broker:
        port = port_of(broker)
        assert await told(f"[::1]:{port}") == ("::1", port)
    async with Broker(host="::1") as broker:
        assert broker.bootstrap_servers.startswith("[::1]:")
        assert await told(broker.bootstrap_servers) == ("::1", port_of(broker))


@pytest.mark.setting("advertised.listeners")
async def test_an_advertised_listener_is_told_wherever_a_client_came_by() -> None:
    async with Broker(advertised_listeners="PLAINTEXT://kafka.example:1234") as broker:
        port = int(broker._start.settings["listeners"].rpartition(":")[2])
        assert broker.bootstrap_servers == "kafka.example:1234"
        assert await told(f"127.0.0.1:{port}") == ("kafka.example", 1234)


@pytest.mark.setting("listeners", "listener.security.protocol.map")
async def test_each_of_two_listeners_tells_its_own_address() -> None:
    settings = {
        "listeners": "HOST://127.0.0.1:0,DOCKER://127.0.0.1:0",
        "advertised.listeners": "DOCKER://broker:29092",
        "listener.security.protocol.map": "HOST:PLAINTEXT,DOCKER:PLAINTEXT",
        "inter.broker.listener.name": "DOCKER",
    }
    async with Broker(config=settings) as broker:
        host, docker = (text.rpartition("://")[2] for text in broker._start.settings["listeners"].split(","))
        assert broker.bootstrap_servers == host
        assert await told(host) == ("127.0.0.1", int(host.rpartition(":")[2]))
        assert await told(docker) == ("broker", 29092)


async def test_all_listeners_keep_their_ports_over_a_restart() -> None:
    protocols = "A:PLAINTEXT,B:PLAINTEXT"
    broker = Broker(
        config={"listeners": "A://127.0.0.1:0,B://127.0.0.1:0", "listener.security.protocol.map": protocols}
    )
    async with broker:
        before = broker._start.settings["listeners"]
    async with broker:
        assert broker._start.settings["listeners"] == before
