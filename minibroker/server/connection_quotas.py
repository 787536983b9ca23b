"""How many connections a broker takes: in all, at one listener, from one address. Kafka's class has the same name.

What must hold: every connection that is counted is given back once. Limits may change at any time; connections that
are there then stay.
Kafka: accepts nobody for as long as there are too many connections in all; here who comes is closed, with a line.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

UNLIMITED = (1 << 31) - 1


class ConnectionQuotas:
    """Counts of one broker, shared by its listeners, and what they may come to."""

    def __init__(self) -> None:
        self.count = 0
        self.per_listener: dict[str, int] = {}
        self.per_address: dict[str, int] = {}
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
        if self.count > self.count_max:
            return f"more than {self.count_max} connections"
        return ""

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
