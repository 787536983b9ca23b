"""Listeners by name: where the broker listens, and which address it tells its clients.

    listeners=PLAINTEXT://127.0.0.1:9092,DOCKER://:29092
    advertised.listeners=DOCKER://broker:29092

A client is told the advertised address of the listener that it came through. Without one it is told the address at
which its own connection reached the broker: right for localhost, a container's network and a LAN at once.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class ListenerError(ValueError):
    """A listener that cannot be."""


class Listener:
    """A name and an address."""

    __slots__ = ("host", "name", "port")

    def __init__(self, name: str, host: str, port: int):
        self.name = name
        self.host = host  # empty: every address
        self.port = port  # 0: any that is free

    def __repr__(self) -> str:
        return f"{self.name}://{address(self.host, self.port)}"


def address(host: str, port: int) -> str:
    """Return host:port as clients write it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_listeners(texts: Iterable[str]) -> list[Listener]:
    """Read `NAME://host:port`, as many as there are."""
    found: dict[str, Listener] = {}
    for text in texts:
        name, separator, address = text.strip().partition("://")
        host, colon, port = address.rpartition(":")
        if not separator or not colon or not port.isdigit() or int(port) > 65535 or not name:
            raise ListenerError(f"{text!r} is no listener; NAME://host:port is, such as PLAINTEXT://127.0.0.1:9092")
        if name in found:
            raise ListenerError(f"two listeners have the name {name}")
        found[name] = Listener(name.upper(), host.strip("[]"), int(port))
    return list(found.values())
