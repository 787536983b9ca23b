"""How many connections a broker takes: in all, at one listener, from one address. Kafka's class has the same name.

What must hold: every connection that is counted is given back once. Limits may change at any time; connections that
are there then stay.
Kafka: accepts nobody for as long as there are too many connections in all; here who comes is closed, with a line.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.server.connection_rates import ConnectionRates

UNLIMITED = (1 << 31) - 1


class ConnectionQuotas:
    """Counts of one broker, shared by its listeners, and what they may come to."""

    def __init__(self) -> None:
        self.count = 0
        self.per_listener: dict[str, int] = {}
        self.per_address: dict[str, int] = {}
        self.rates: ConnectionRates | None = None  # as soon as somebody limits them
        self.protected = ""  # the listener of brokers, if there are others: no client takes their place
        self.take_limits()

    def take_limits(
        self,
        *,
        count_max: int = UNLIMITED,
        per_address_max: int = UNLIMITED,
        address_overrides: Mapping[str, int] | None = None,
        listener_overrides: Mapping[str, int] | None = None,
    ) -> None:
        """Replace all limits. Overrides: other limits for some addresses, by host; for some listeners, by name."""
        self.count_max = count_max
        self.per_address_max = per_address_max
        self.address_overrides = {
            found: most for host, most in (address_overrides or {}).items() for found in _addresses_of(host)
        }
        self.listener_overrides = dict(listener_overrides or {})

    def opened(self, listener: str, address: str) -> str:
        """Count a connection; return why it cannot stay, nothing if it can."""
        self.count += 1
        here = self.per_listener[listener] = self.per_listener.get(listener, 0) + 1
        same = self.per_address[address] = self.per_address.get(address, 0) + 1
        if same > (most := self.address_overrides.get(address, self.per_address_max)):
            return f"more than {most} connections from this address"
        if here > (most := self.listener_overrides.get(listener, UNLIMITED)):
            return f"more than {most} connections to listener {listener}"
        if self.count > self.count_max and listener != self.protected:
            return f"more than {self.count_max} connections"
        return ""

    @property
    def is_exceeded(self) -> bool:
        """Whether there are too many: brokers have come, for whom others are to make room."""
        return self.count > self.count_max

    def take_rates(
        self,
        windows: tuple[int, int],
        *,
        count_max: int = UNLIMITED,
        listener_max: Mapping[str, int] | None = None,
        address_max: Mapping[str, int] | None = None,
        address_default: int | None = None,
    ) -> None:
        """Replace all limits on how many come in a second. windows: how many samples are measured, and their ms."""
        if self.rates is None:
            if count_max == UNLIMITED and address_default is None and not listener_max and not address_max:
                return
            from minibroker.server.connection_rates import ConnectionRates

            self.rates = ConnectionRates(*windows)
        self.rates.broker_max = None if count_max == UNLIMITED else count_max
        self.rates.listener_max = {name: most for name, most in (listener_max or {}).items() if most != UNLIMITED}
        self.rates.address_max = address_max or {}
        self.rates.address_default = address_default

    def closed(self, listener: str, address: str) -> None:
        self.count -= 1
        for counts, key in ((self.per_listener, listener), (self.per_address, address)):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]


def _addresses_of(host: str) -> set[str]:
    """Return the addresses of a host as a socket would name them; a name that nobody knows has none."""
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return set()
