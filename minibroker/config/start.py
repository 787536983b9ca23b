"""Checks of a start's settings: they have to fit together, and to ask for nothing that is not there.

Each rule is one of Kafka's (KafkaConfig.validateValues), or refuses what one broker that is its own controller, with
one data directory and without TLS or logins, cannot be. Values of single settings are checked where they are read.
"""

from __future__ import annotations

from collections.abc import Sequence

from minibroker.config.broker import BrokerConfig
from minibroker.config.listeners import (
    ADVERTISED,
    CONTROLLER_LISTENERS,
    LISTENERS,
    SERVED_PROTOCOLS,
    advertised_listeners,
    client_listeners,
    controller_names,
)

INTER_BROKER_LISTENER, INTER_BROKER_PROTOCOL = "inter.broker.listener.name", "security.inter.broker.protocol"
ROLES, VOTERS, QUORUM_SERVERS = "process.roles", "controller.quorum.voters", "controller.quorum.bootstrap.servers"
LOG_DIRS, LOG_DIR, METADATA_LOG_DIR = "log.dirs", "log.dir", "metadata.log.dir"
PER_ADDRESS, OVERRIDES = "max.connections.per.ip", "max.connections.per.ip.overrides"
QUEUED_BYTES, FRAME_BYTES = "queued.max.request.bytes", "socket.request.max.bytes"
LARGEST_NUMBER = (1 << 31) - 1
PROTOCOLS = "group.coordinator.rebalance.protocols"
_GROUP = "group.consumer."
# The first must not be above the second.
NOT_ABOVE = (
    (f"{_GROUP}min.heartbeat.interval.ms", f"{_GROUP}max.heartbeat.interval.ms"),
    (f"{_GROUP}min.heartbeat.interval.ms", f"{_GROUP}heartbeat.interval.ms"),
    (f"{_GROUP}heartbeat.interval.ms", f"{_GROUP}max.heartbeat.interval.ms"),
    (f"{_GROUP}min.session.timeout.ms", f"{_GROUP}max.session.timeout.ms"),
    (f"{_GROUP}min.session.timeout.ms", f"{_GROUP}session.timeout.ms"),
    (f"{_GROUP}session.timeout.ms", f"{_GROUP}max.session.timeout.ms"),
    (f"{_GROUP}min.assignment.interval.ms", f"{_GROUP}max.assignment.interval.ms"),
    (f"{_GROUP}min.assignment.interval.ms", f"{_GROUP}assignment.interval.ms"),
    (f"{_GROUP}assignment.interval.ms", f"{_GROUP}max.assignment.interval.ms"),
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
)
# Kafka's own name of a value that several settings give, each in another unit.
AT_LEAST = (
    (("log.roll.ms", "log.roll.hours"), 1, "must be greater than or equal to 1"),
    (("log.roll.jitter.ms", "log.roll.jitter.hours"), 0, "must be greater than or equal to 0"),
)
RETENTION = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")


def check_start(config: BrokerConfig) -> None:
    """Raise ConfigError for what a start cannot be told."""
    client_listeners(config)
    advertised_listeners(config)
    _check_inter_broker(config)
    _check_controller(config)
    data_directory(config)
    check_together(config)


def check_together(config: BrokerConfig) -> None:
    """Raise ConfigError for values that do not go together, at a start and while the broker runs."""
    for names, least, words in AT_LEAST:
        if (value := _first_set(config, names)) is not None and value < least:
            raise config.error(names[0], f"{names[0]} {words}")
    if _first_set(config, RETENTION) == 0:
        raise config.error(RETENTION[0], f"{RETENTION[0]} must be unlimited (-1) or, greater than or equal to 1")
    connection_overrides(config)
    if config[PER_ADDRESS] == 0 and not config[OVERRIDES]:
        raise config.error(PER_ADDRESS, f"{PER_ADDRESS} can be set to zero only if {OVERRIDES} property is set.")
    if config.is_set(QUEUED_BYTES) and 0 < config[QUEUED_BYTES] < config[FRAME_BYTES]:
        raise config.error(QUEUED_BYTES, f"{QUEUED_BYTES} must be larger or equal to {FRAME_BYTES}")
    for low, high in NOT_ABOVE:
        if config[low] > config[high]:
            raise config.error(low, f"{low} must be less than or equal to {high}")
    if "classic" not in config[PROTOCOLS]:
        raise config.error(PROTOCOLS, "Disabling the 'classic' protocol is not supported.")
    beat, session = f"{_GROUP}heartbeat.interval.ms", f"{_GROUP}session.timeout.ms"
    if config[beat] >= config[session]:
        raise config.error(beat, f"{beat} must be less than {session}")


def _first_set(config: BrokerConfig, names: Sequence[str]) -> int | None:
    """Return the value of the first of some settings that has one; what the others say is hidden then."""
    for name in names:
        if config.is_set(name) and (value := config[name]) is not None:
            return int(value)
    return None


def data_directory(config: BrokerConfig) -> str | None:
    """Return the data directory that was asked for, None if nobody did.

    Kafka: spreads partitions over several. Here there is one, and partitions in the others would be served as empty.
    """
    found = None
    for name in (LOG_DIRS, LOG_DIR):
        if config.is_set(name) and config[name]:
            if len(config[name]) > 1:
                words = "partitions are kept in one data directory; move them into one, or start a broker for each"
                raise config.error(name, words)
            found = found or config[name][0]
    apart = config[METADATA_LOG_DIR]
    if apart and (found is None or apart.rstrip("/") != found.rstrip("/")):
        raise config.error(METADATA_LOG_DIR, "the metadata log is kept in the data directory; leave it unset")
    return found


def connection_overrides(config: BrokerConfig) -> dict[str, int]:
    """Return how many connections there may be from single addresses, by host."""
    found = {}
    for pair in filter(None, config[OVERRIDES].split(",")):
        host, _, count = pair.strip().rpartition(":")
        number = int(count) if count.isascii() and count.isdigit() else LARGEST_NUMBER + 1
        if not host or number > LARGEST_NUMBER:
            raise config.error(OVERRIDES, f"{pair.strip()!r} is no HOST:NUMBER, as in 127.0.0.1:200")
        found[host.strip("[]")] = number
    return found


def _check_inter_broker(config: BrokerConfig) -> None:
    name = config[INTER_BROKER_LISTENER]
    if name is not None and config.is_set(INTER_BROKER_PROTOCOL):
        raise config.error(INTER_BROKER_PROTOCOL, f"only one of it and {INTER_BROKER_LISTENER} can be set")
    if (protocol := config[INTER_BROKER_PROTOCOL]) not in SERVED_PROTOCOLS:
        raise config.error(INTER_BROKER_PROTOCOL, f"{protocol} is not served; leave it unset")
    names = [listener.name for listener in client_listeners(config)]
    if name is not None and name.upper() not in names:
        raise config.error(INTER_BROKER_LISTENER, f"no listener has this name; there are {', '.join(names)}")


def _check_controller(config: BrokerConfig) -> None:
    """One process is broker and controller; there is nobody else to ask or to vote with."""
    if sorted(config[ROLES] or ()) != ["broker", "controller"]:
        raise config.error(ROLES, "one process is broker and controller at once; leave it broker,controller")
    voters = config[VOTERS]
    if len(voters) > 1:
        raise config.error(VOTERS, "the broker is its own and only controller; leave it unset")
    for voter in voters:
        node_id, separator, place = voter.partition("@")
        if not separator or not node_id.isdigit() or ":" not in place:
            raise config.error(VOTERS, f"{voter!r} is no ID@HOST:PORT")
        if int(node_id) != config["node.id"]:
            raise config.error(VOTERS, f"the controller is node {config['node.id']} itself, and no other")
    if len(config[QUORUM_SERVERS]) > 1:
        raise config.error(QUORUM_SERVERS, "the broker is its own and only controller; leave it unset")


def start_warnings(config: BrokerConfig) -> list[str]:
    """Return a sentence for each thing that was asked for and is passed over."""
    controllers = controller_names(config)
    return [
        f"{config.place_of(LISTENERS)}: no listener {name.strip()} is opened: {CONTROLLER_LISTENERS} keeps it for the "
        "controller, which is in this process"
        for text in config[LISTENERS] or ()
        if (name := text.partition("://")[0]).strip().upper() in controllers
    ]


__all__ = ["ADVERTISED", "check_start", "connection_overrides", "data_directory", "start_warnings"]
