"""Listeners by name: where the broker listens, and which address it tells its clients.

    listeners=HOST://127.0.0.1:9092,DOCKER://:29092
    advertised.listeners=DOCKER://broker:29092
    listener.security.protocol.map=HOST:PLAINTEXT,DOCKER:PLAINTEXT

A client is told the advertised address of the listener that it came through. Without one it is told the address at
which its own connection reached the broker: right for localhost, a container's network and a LAN at once.
What must hold: each listener has a security protocol, and is served by that one.
Not here: sockets (server/).
"""

from __future__ import annotations

from minibroker.config.broker import BrokerConfig
from minibroker.config.values import ConfigError

PLAINTEXT, TLS = "PLAINTEXT", "SSL"
PROTOCOLS = (PLAINTEXT, TLS, "SASL_PLAINTEXT", "SASL_SSL")
EVERY_ADDRESS = ("", "0.0.0.0", "::")
PORT_MAX = 65535

LISTENERS, ADVERTISED = "listeners", "advertised.listeners"
PROTOCOL_MAP = "listener.security.protocol.map"
CONTROLLER_LISTENERS = "controller.listener.names"


class Listener:
    """A name, an address and a security protocol."""

    __slots__ = ("host", "name", "port", "protocol")

    def __init__(self, name: str, host: str, port: int, protocol: str = PLAINTEXT):
        self.name = name
        self.host = host  # empty: every address
        self.port = port  # 0: any that is free
        self.protocol = protocol

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith(TLS)

    @property
    def asks_for_login(self) -> bool:
        return self.protocol.startswith("SASL_")

    def __repr__(self) -> str:
        return f"{self.name}://{address(self.host, self.port)}"


def address(host: str, port: int) -> str:
    """Return host:port as clients write it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def protocol_of(*, uses_tls: bool, asks_for_login: bool) -> str:
    """Return the name that Kafka has for a way to come in."""
    return f"{'SASL_' if asks_for_login else ''}{TLS if uses_tls else PLAINTEXT}"


def is_local(host: str) -> bool:
    """Whether only programs of this machine reach an address."""
    return host in ("localhost", "::1") or host.startswith("127.")


def client_listeners(config: BrokerConfig) -> list[Listener]:
    """Return the listeners that are opened; raise ConfigError if any cannot be, as Kafka would.

    Those of the controller are left out: it is in this process, and nobody talks to it by a socket.
    """
    found = _parse(config, LISTENERS)
    protocols = security_protocols(config)
    controllers = controller_names(config)
    for listener in found:
        if listener.name not in protocols:
            if listener.name not in controllers or config.is_set(PROTOCOL_MAP):
                words = f"{listener.name} has no security protocol; {PROTOCOL_MAP}={listener.name}:PLAINTEXT gives it"
                raise config.error(LISTENERS, f"{words} one")
        else:
            listener.protocol = protocols[listener.name]
    _check_ports(config, found)
    opened = [listener for listener in found if listener.name not in controllers]
    if not opened:
        raise config.error(LISTENERS, "no listener for clients")
    return opened


def controller_names(config: BrokerConfig) -> list[str]:
    return [name.upper() for name in config[CONTROLLER_LISTENERS] or ()]


def security_protocols(config: BrokerConfig) -> dict[str, str]:
    """Return the security protocol of each listener name."""
    found = {}
    for pair in filter(None, config[PROTOCOL_MAP].split(",")):
        name, _, protocol = pair.strip().rpartition(":")
        if not name or protocol.upper() not in PROTOCOLS:
            words = f"{pair!r} is no NAME:PROTOCOL; protocols are {', '.join(PROTOCOLS)}"
            raise config.error(PROTOCOL_MAP, words)
        found[name.upper()] = protocol.upper()
    return found


def advertised_listeners(config: BrokerConfig) -> dict[str, Listener]:
    """Return by name what clients are told to connect to; a port of 0 is the one that was taken."""
    if not config.is_set(ADVERTISED):
        return {}
    names = {listener.name for listener in _parse(config, LISTENERS)}
    found = {}
    for listener in _parse(config, ADVERTISED):
        if listener.name not in names:
            raise config.error(
                ADVERTISED, f"there is no listener {listener.name}; there are {', '.join(sorted(names))}"
            )
        if listener.host in EVERY_ADDRESS:
            raise config.error(ADVERTISED, "clients need a name or an address at which they reach the broker")
        found[listener.name] = listener
    return found


def first_listener(config: BrokerConfig) -> Listener:
    """Return where clients begin: a listener that programs of this machine reach, else the first."""
    found = client_listeners(config)
    return next((each for each in found if each.host in EVERY_ADDRESS or is_local(each.host)), found[0])


def known_hosts(config: BrokerConfig) -> set[str]:
    """Return the names and addresses under which clients are to find the broker; empty: every address."""
    return {listener.host for listener in (*client_listeners(config), *advertised_listeners(config).values())}


def _parse(config: BrokerConfig, setting: str) -> list[Listener]:
    """Read `NAME://host:port`, as many as there are."""
    found: dict[str, Listener] = {}
    for text in config[setting] or ():
        name, separator, place = text.strip().partition("://")
        host, colon, port = place.rpartition(":")
        if not separator or not colon or not _is_port(port) or not name:
            words = f"{text!r} is no listener; NAME://host:port is, such as PLAINTEXT://127.0.0.1:9092"
            raise config.error(setting, words)
        name = name.upper()
        if name in found:
            raise config.error(setting, f"two listeners have the name {name}")
        found[name] = Listener(name, host.strip("[]"), int(port))
    return list(found.values())


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= PORT_MAX


def _check_ports(config: BrokerConfig, listeners: list[Listener]) -> None:
    """Refuse one port for two listeners, unless one has an IPv4 address and the other an IPv6 address."""
    taken: dict[int, list[Listener]] = {}
    for listener in listeners:
        if listener.port:
            taken.setdefault(listener.port, []).append(listener)
    for port, sharing in taken.items():
        if len(sharing) > 2 or (len(sharing) == 2 and not _are_two_families(sharing)):
            raise config.error(LISTENERS, f"{' and '.join(map(repr, sharing))} both take port {port}")


def _are_two_families(pair: list[Listener]) -> bool:
    hosts = [listener.host for listener in pair]
    is_4 = [host.replace(".", "").isdigit() and host.count(".") == 3 for host in hosts]
    return [":" in host for host in hosts] == [not each for each in is_4] and sum(is_4) == 1


__all__ = ["ConfigError", "Listener", "address", "advertised_listeners", "client_listeners", "is_local"]
