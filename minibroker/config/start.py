"""Checks of a start's settings: they have to fit together, and to ask for nothing that is not there.

Each rule is one of Kafka's (KafkaConfig.validateValues), or refuses what one broker that is its own controller, with
one data directory, cannot be. Values of single settings are checked where they are read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from minibroker.config.broker import BrokerConfig
from minibroker.config.listeners import (
    ADVERTISED,
    CONTROLLER_LISTENERS,
    LISTENERS,
    PLAINTEXT,
    Listener,
    advertised_listeners,
    client_listeners,
    controller_names,
)
from minibroker.config.tables import (
    LISTENER_LIMITS,
    LISTENER_PREFIX,
    find_broker_setting,
    get_broker_setting,
    listener_of,
    without_listener,
)

INTER_BROKER_LISTENER, INTER_BROKER_PROTOCOL = "inter.broker.listener.name", "security.inter.broker.protocol"
CLIENT_AUTH = "ssl.client.auth"
ROLES, VOTERS, QUORUM_SERVERS = "process.roles", "controller.quorum.voters", "controller.quorum.bootstrap.servers"
LOG_DIRS, LOG_DIR, METADATA_LOG_DIR = "log.dirs", "log.dir", "metadata.log.dir"
PER_ADDRESS, OVERRIDES = "max.connections.per.ip", "max.connections.per.ip.overrides"
QUEUED_BYTES, FRAME_BYTES = "queued.max.request.bytes", "socket.request.max.bytes"
LARGEST_NUMBER = (1 << 31) - 1
AUTHORIZER, SUPER_USERS, OPEN_WITHOUT_RULES = "authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found"
# Kafka's own, the second of the releases with ZooKeeper; both decide by access rules, and so do we.
AUTHORIZERS = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
TOKEN_KEY, OF_TOKENS = "delegation.token.secret.key", "delegation.token."
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
    _check_authorizer(config)
    check_together(config)
    _check_unused_tls(config)
    _check_limited_listeners(config)
    _check_tokens(config)


def check_together(config: BrokerConfig) -> None:
    """Raise ConfigError for values that do not go together, at a start and while the broker runs."""
    for names, least, words in AT_LEAST:
        if (value := _first_set(config, names)) is not None and value < least:
            raise config.error(names[0], f"{names[0]} {words}")
    if _first_set(config, RETENTION) == 0:
        raise config.error(RETENTION[0], f"{RETENTION[0]} must be unlimited (-1) or, greater than or equal to 1")
    _check_tls(config)
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
    names = [listener.name for listener in client_listeners(config)]
    if name is not None and name.upper() not in names:
        raise config.error(INTER_BROKER_LISTENER, f"no listener has this name; there are {', '.join(names)}")
    protocol = config[INTER_BROKER_PROTOCOL]
    if protocol not in (PLAINTEXT, *names):
        words = f"no listener is named {protocol}: add {protocol}://host:port to {LISTENERS}, or leave it unset"
        raise config.error(INTER_BROKER_PROTOCOL, f"{words}; there are {', '.join(names)}")


def _check_tls(config: BrokerConfig) -> None:
    """Refuse to ask for certificates where nobody could show one."""
    with_tls = _tls_listeners(config)
    for name in (*config.static, *config.dynamic_broker, *config.dynamic_default):
        if name.endswith(CLIENT_AUTH) and config[name] != "none" and not _has_tls(name, with_tls):
            raise config.error(name, "no such listener uses TLS: write listeners=SSL://host:port, or leave it unset")


def _tls_listeners(config: BrokerConfig) -> set[str]:
    return {listener.name for listener in client_listeners(config) if listener.uses_tls}


def _check_authorizer(config: BrokerConfig) -> None:
    """Have access rules decide, or nobody: no setting may look as if somebody were kept out who is not."""
    name = config[AUTHORIZER]
    if name and name not in AUTHORIZERS:
        raise config.error(AUTHORIZER, f"no other class decides here; make it {AUTHORIZERS[0]}, or leave it unset")
    for setting in (SUPER_USERS, OPEN_WITHOUT_RULES):
        if config[setting] and not name:
            raise config.error(setting, f"it has no effect without an authorizer; set {AUTHORIZER} to {AUTHORIZERS[0]}")
    for principal in super_users(config):
        kind, colon, name = principal.partition(":")
        if not (kind and colon) or f",{kind}:" in name.replace(" ", ""):
            words = f"{principal!r} is no principal: write TYPE:NAME, as User:admin, with semicolons between several"
            raise config.error(SUPER_USERS, words)


def super_users(config: BrokerConfig) -> list[str]:
    """Return the principals that may do anything."""
    return [each.strip() for each in (config[SUPER_USERS] or "").split(";") if each.strip()]


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


def _check_unused_tls(config: BrokerConfig) -> None:
    """Refuse what makes somebody believe that a listener uses TLS; what says no more than the default may stand."""
    with_tls = _tls_listeners(config)
    for name, text in config.static.items():
        setting = find_broker_setting(name)  # None: it is misspelt, and gets a warning
        if setting is not None and not _has_tls(name, with_tls) and text != setting.default:
            words = "no listener that it is for uses TLS: listeners=SSL://127.0.0.1:9093 has one, or leave it unset"
            raise config.error(name, words)


def _check_limited_listeners(config: BrokerConfig) -> None:
    """Refuse a limit of a listener that is not there; what says no more than the default may stand.

    That of the controller is not opened, and there is a warning of it.
    """
    names, controllers = [listener.name for listener in client_listeners(config)], controller_names(config)
    for name, text in config.static.items():
        base, listener = without_listener(name), listener_of(name)
        is_there = base not in LISTENER_LIMITS or listener in (*names, *controllers)
        if not is_there and text != get_broker_setting(name).default:
            words = f"no listener has the name {listener}: write one of {', '.join(names)} in lower case"
            raise config.error(name, words)


def _check_tokens(config: BrokerConfig) -> None:
    """Refuse what is about delegation tokens where none are made; what says no more than the default may stand."""
    if config[TOKEN_KEY]:
        return
    for name, text in config.static.items():
        if name.startswith(OF_TOKENS) and (setting := find_broker_setting(name)) and text != setting.default:
            raise config.error(name, f"there are no delegation tokens: set {TOKEN_KEY}, or leave it unset")


def start_warnings(config: BrokerConfig) -> list[str]:
    """Return a sentence for each thing that was asked for and is passed over."""
    controllers = controller_names(config)
    with_login = [each for each in client_listeners(config) if each.uses_tls and each.asks_for_login]
    return [
        *_nobody_is_super(config),
        *(
            f"{config.place_of(CLIENT_AUTH)}: {CLIENT_AUTH} is for listeners without a login, as in Kafka: "
            f"{own}={config[CLIENT_AUTH]} asks for certificates at {each.name}"
            for each in with_login
            if config[CLIENT_AUTH] != "none" and (own := _own_auth(each.name)) and not config.is_set(own)
        ),
        *(
            f"{config.place_of(LISTENERS)}: no listener {name.strip()} is opened: {CONTROLLER_LISTENERS} keeps it for "
            "the controller, which is in this process"
            for text in config[LISTENERS] or ()
            if (name := text.partition("://")[0]).strip().upper() in controllers
        ),
    ]


def _nobody_is_super(config: BrokerConfig) -> list[str]:
    """Say so where rules decide, and nobody can come in who may make any."""
    listeners = client_listeners(config)
    asks = any(each.asks_for_login or (each.uses_tls and _asks_for_certificates(config, each)) for each in listeners)
    is_open = config[OPEN_WITHOUT_RULES] or "User:ANONYMOUS" in super_users(config)
    if not config[AUTHORIZER] or asks or is_open:
        return []
    words = "no listener asks who comes, so everybody is User:ANONYMOUS, none of super.users, and nobody can make rules"
    return [f"{config.place_of(AUTHORIZER)}: {words}"]


def _asks_for_certificates(config: BrokerConfig, listener: Listener) -> bool:
    return bool(config.of_listener(CLIENT_AUTH, listener.name) != "none")


def _own_auth(listener: str) -> str:
    return f"{LISTENER_PREFIX}{listener.lower()}.{CLIENT_AUTH}"


def _has_tls(name: str, with_tls: Collection[str]) -> bool:
    """Whether a setting is not about TLS, or there is a listener that uses TLS and that it counts for."""
    if (base := without_listener(name)) is None:
        return bool(with_tls) or not name.startswith("ssl.")
    return not base.startswith("ssl.") or listener_of(name) in with_tls


__all__ = ["ADVERTISED", "check_start", "connection_overrides", "data_directory", "start_warnings", "super_users"]
