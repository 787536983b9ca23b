"""How fast connections may come: to a listener, to a broker, from an address; and who makes room for brokers."""

from __future__ import annotations

import pytest

from minibroker.protocol.framing import encode_request
from minibroker.protocol.messages.metadata import MetadataRequest
from tests.broker.handlers.test_quotas import alter
from tests.broker.virtual_broker import VirtualBroker, virtual_broker
from tests.server.running import FedTransport, connected, running

ASK = MetadataRequest(topics=[])
FRAME = b"".join(encode_request(ASK, 9, 1, "test"))
RATE = "max.connection.creation.rate"
TWO = {
    "listeners": "A://127.0.0.1:0,B://127.0.0.1:0",
    "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
}


def arrivals_ms(broker: VirtualBroker, transports: list[FedTransport], limit_ms: int) -> list[int | None]:
    """Return when each connection was answered first, after now; None for one that was closed before."""
    begun_ms = broker.now_ms()
    found: dict[FedTransport, int] = {}
    for transport in transports:
        broker.feed(transport, FRAME)
    while broker.now_ms() - begun_ms <= limit_ms:
        for transport in transports:
            if transport.sent and transport not in found:
                found[transport] = broker.now_ms() - begun_ms
        broker.pass_ms(10)
    return [found.get(transport) for transport in transports]


@pytest.mark.setting("max.connection.creation.rate")
@pytest.mark.parametrize("name", [RATE, f"listener.name.plaintext.{RATE}"])
def test_who_comes_too_soon_waits_until_it_is_his_turn(name: str) -> None:
    with virtual_broker({name: "2"}) as broker:
        transports = [broker.connect() for _ in range(25)]  # and the one of the broker itself: 20 may come at once
        arrived = arrivals_ms(broker, transports, 6000)
        assert arrived[:19] == [0] * 19
        assert None not in arrived
        later = [each for each in arrived[19:] if each is not None]
        assert later == sorted(later)
        assert later[0] == 500
        assert 2500 <= later[-1] <= 5500  # nobody waits for more than a second behind the one before
        for transport in transports:
            broker.hang_up(transport)


def test_a_rate_that_is_altered_holds_from_now_on() -> None:
    with virtual_broker() as broker:
        many = [broker.connect() for _ in range(30)]
        assert arrivals_ms(broker, many, 0) == [0] * 30
        broker.node.change(broker.node.controller.alter_configs(4, "", {RATE: "1"}))
        arrived = arrivals_ms(broker, [broker.connect() for _ in range(12)], 3000)
        assert arrived[:10] == [0] * 10
        assert arrived[11] is not None
        assert arrived[11] > 1000
        broker.node.change(broker.node.controller.alter_configs(4, "", {RATE: None}))
        assert arrivals_ms(broker, [broker.connect() for _ in range(30)], 0) == [0] * 30


def test_whoever_stops_while_connections_wait_leaves_nothing_behind() -> None:
    with virtual_broker({RATE: "1"}) as broker:
        for _ in range(15):
            broker.feed(broker.connect(), FRAME)


def test_who_hangs_up_gives_his_turn_to_the_next() -> None:
    with virtual_broker({RATE: "1"}) as broker:
        many = [broker.connect() for _ in range(500)]
        late = broker.connect()
        for transport in many[15:]:
            broker.hang_up(transport)
        assert len(broker.node.servers[0]._arrivals) <= 10  # nobody is kept who has gone
        (arrived,) = arrivals_ms(broker, [late], 10_000)
        assert arrived is not None
        assert arrived < 10_000


@pytest.mark.parametrize("ip", ["127.0.0.1", None])
def test_who_comes_too_often_from_an_address_is_not_let_in_and_told_so_late(ip: str | None) -> None:
    with virtual_broker() as broker:
        alter(broker, ({"ip": ip}, {"connection_creation_rate": 1.0}))
        transports = [broker.connect() for _ in range(12)]
        assert arrivals_ms(broker, transports, 2000) == [0] * 10 + [None] * 2
        assert [transport.is_gone for transport in transports] == [False] * 10 + [True] * 2
        assert any("connections come too fast from 127.0.0.1" in line for line in broker.said)
        alter(broker, ({"ip": ip}, {"connection_creation_rate": None}))
        assert arrivals_ms(broker, [broker.connect() for _ in range(12)], 0) == [0] * 12


def test_an_address_has_a_limit_of_its_own_before_the_default() -> None:
    with virtual_broker() as broker:
        alter(
            broker,
            ({"ip": None}, {"connection_creation_rate": 1.0}),
            ({"ip": "127.0.0.1"}, {"connection_creation_rate": 3.0}),
        )
        assert arrivals_ms(broker, [broker.connect() for _ in range(31)], 100) == [0] * 30 + [None]


def test_who_is_not_let_in_counts_nowhere_else() -> None:
    with virtual_broker({RATE: "2"}) as broker:
        alter(broker, ({"ip": "127.0.0.1"}, {"connection_creation_rate": 1.0}))
        arrived = arrivals_ms(broker, [broker.connect() for _ in range(18)], 100)
        assert arrived == [0] * 10 + [None] * 8
        alter(broker, ({"ip": "127.0.0.1"}, {"connection_creation_rate": None}))
        assert arrivals_ms(broker, [broker.connect() for _ in range(9)], 0) == [0] * 9


@pytest.mark.setting("inter.broker.listener.name")
async def test_the_listener_of_brokers_takes_more_and_another_gives_up_whoever_is_idle_for_longest() -> None:
    settings = {**TWO, "inter.broker.listener.name": "B", "max.connections": "2"}
    async with running(settings) as node, connected(node) as one, connected(node) as two:
        await one.ask(ASK, 9)
        await two.ask(ASK, 9)
        next(iter(node.servers[0].connections)).last_active_ms -= 5000
        async with connected(node, listener=1) as broker:
            await broker.ask(ASK, 9)
            assert await one.is_closed()
            await two.ask(ASK, 9)
            async with connected(node) as three:
                assert await three.is_closed()


async def test_a_listener_that_is_the_only_one_is_no_refuge() -> None:
    async with running({"max.connections": "1"}) as node, connected(node) as one:
        await one.ask(ASK, 9)
        async with connected(node) as two:
            assert await two.is_closed()
