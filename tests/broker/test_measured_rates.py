"""How fast clients get on that are limited: over 60 virtual seconds, it is the limit, and others notice nothing.

The first window begins with what may be taken at once, so it is looked at from its end on. Clients want twice as much
as they may have. One that asks without any pause takes a window's worth at once, and then waits for the next: that is
how Kafka's arithmetic has it, and over whole windows it is the limit, too.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minibroker.protocol.headers import Request
from tests.broker.handlers.test_quotas import alter
from tests.broker.test_quotas_guard import NO_TOPICS, batch, frame
from tests.broker.virtual_broker import VirtualBroker, virtual_broker
from tests.server.running import FedTransport, append, fetch, produce

FIRST_MS, MEASURED_MS, STEP_MS = 11_000, 60_000, 10
VALUE_BYTES = 1000
LIMIT = 200_000  # so that what all clients ask for at once is little beside a window: Kafka's arithmetic needs that
PRODUCED = ("producer_byte_rate", lambda: produce("t", batch(VALUE_BYTES)), 9)
FETCHED = ("consumer_byte_rate", lambda: fetch("t", 0, bytes_max=VALUE_BYTES + 100), 11)


class Busy:
    """A client that wants twice as much as its limit lets it have; what is answered late it does not make up for."""

    def __init__(self, broker: VirtualBroker, asked: bytes, share: float = 1):
        """share: of the limit that it would take if it were alone."""
        self.asked = asked
        self.transport = FedTransport(broker.node)
        self.step_bytes = 2 * share * LIMIT * STEP_MS / 1000
        self.taken_bytes = 0
        self.left_bytes = 0.0
        self.is_waiting = False

    def go_on(self) -> None:
        """Ask for what is wanted in one step."""
        self.left_bytes = min(self.left_bytes + self.step_bytes, max(self.step_bytes, 2 * VALUE_BYTES))
        self._take_answer()
        while self.left_bytes >= VALUE_BYTES and not self.is_waiting:
            self.left_bytes -= VALUE_BYTES
            self.is_waiting = True
            self.transport.feed(self.asked)
            self._take_answer()

    def _take_answer(self) -> None:
        if self.transport.sent:
            self.is_waiting = False
            self.taken_bytes += self.size_bytes
            self.transport.sent.clear()

    @property
    def size_bytes(self) -> int:
        return len(self.asked)


class Reader(Busy):
    """One that is served: what it gets is counted."""

    @property
    def size_bytes(self) -> int:
        return len(self.transport.sent)


def measured(broker: VirtualBroker, clients: list[Busy], time_ms: int = MEASURED_MS) -> float:
    """Return bytes a second of all of them together."""

    def go_on() -> None:
        for client in clients:
            client.go_on()

    def go_on_for(wait_ms: int) -> None:
        for _ in range(wait_ms // STEP_MS):
            broker.run(go_on)
            broker.pass_ms(STEP_MS)

    go_on_for(FIRST_MS)
    before = sum(client.taken_bytes for client in clients)
    go_on_for(time_ms)
    return (sum(client.taken_bytes for client in clients) - before) / time_ms * 1000


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 10, 100])
@pytest.mark.parametrize("kind", [PRODUCED, FETCHED], ids=["produce", "fetch"])
def test_clients_that_share_a_limit_get_on_as_fast_as_it_lets_them(
    kind: tuple[str, Callable[[], Request], int], count: int
) -> None:
    key, request, version = kind
    with virtual_broker() as broker:
        broker.node.create_topic("t", configs={"retention.bytes": "100000", "segment.bytes": "1048576"})
        append(broker.node, "t", bytes(VALUE_BYTES))
        alter(broker, ({"user": "ANONYMOUS"}, {key: float(LIMIT)}))
        make = Busy if key == "producer_byte_rate" else Reader
        asked = [frame(request(), version, client_id=f"c{number}") for number in range(count)]
        clients = [broker.run(make, broker, each, 1 / count) for each in asked]
        assert measured(broker, clients) == pytest.approx(LIMIT, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 10])
def test_each_of_several_clients_has_the_default_for_itself(count: int) -> None:
    with virtual_broker() as broker:
        broker.node.create_topic("t")
        alter(broker, ({"client-id": None}, {"producer_byte_rate": 20_000.0}))
        asked = [frame(produce("t", batch(VALUE_BYTES)), 9, client_id=f"c{number}") for number in range(count)]
        clients = [broker.run(Busy, broker, each, 20_000 / LIMIT) for each in asked]
        assert measured(broker, clients) == pytest.approx(20_000 * count, rel=0.05)


@pytest.mark.slow
def test_a_client_without_a_pause_gets_the_limit_over_whole_windows() -> None:
    with virtual_broker() as broker:
        broker.node.create_topic("t")
        alter(broker, ({"client-id": "c"}, {"producer_byte_rate": 20_000.0}))
        client = broker.run(Busy, broker, frame(produce("t", batch(VALUE_BYTES)), 9, client_id="c"), 1000)
        assert measured(broker, [client], 5 * FIRST_MS) == pytest.approx(20_000, rel=0.05)


def test_a_client_that_is_throttled_costs_others_no_time() -> None:
    with virtual_broker() as broker:
        broker.node.create_topic("t")
        alter(broker, ({"client-id": "greedy"}, {"producer_byte_rate": 100.0}))
        asked = frame(produce("t", batch(5000)), 9, client_id="greedy")
        greedy = [broker.run(Busy, broker, asked) for _ in range(10)]
        other = broker.connect()
        for _ in range(500):
            for client in greedy:
                broker.run(client.go_on)
            other.sent.clear()
            broker.feed(other, frame(NO_TOPICS, 9, client_id="other"))
            assert other.sent, "it has to wait"
            broker.pass_ms(10)
