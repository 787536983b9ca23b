"""What a start refuses: what does not fit together, and what asks for something that is not there."""

from __future__ import annotations

import pytest

from minibroker.config import BrokerConfig, ConfigError
from minibroker.config.listeners import advertised_listeners, client_listeners
from minibroker.config.start import NOT_ABOVE

MAP = "listener.security.protocol.map"
TWO = {MAP: "A:PLAINTEXT,B:PLAINTEXT"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"listeners": "SECURE://127.0.0.1:0"}, "SECURE has no security protocol"),
        ({"listeners": "PLAINTEXT://127.0.0.1"}, "is no listener; NAME://host:port is"),
        ({"listeners": "PLAINTEXT://127.0.0.1:65536"}, "is no listener"),
        ({"listeners": "PLAINTEXT://127.0.0.1:1,plaintext://127.0.0.1:2"}, "two listeners have the name PLAINTEXT"),
        ({"listeners": "A://127.0.0.1:9092,B://:9092", **TWO}, "both take port 9092"),
        ({"listeners": "A://127.0.0.1:9092,B://127.0.0.2:9092", **TWO}, "both take port 9092"),
        ({"listeners": "CONTROLLER://:9093"}, "no listener for clients"),
        ({MAP: "PLAINTEXT"}, "is no NAME:PROTOCOL"),
        ({MAP: "PLAINTEXT:TLS"}, "is no NAME:PROTOCOL"),
        ({"advertised.listeners": "OTHER://broker:1"}, "there is no listener OTHER; there are PLAINTEXT"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "clients need a name or an address"),
        ({"ssl.client.auth": "required"}, "no such listener uses TLS"),
        ({"listener.name.x.ssl.client.auth": "requested", "listeners": "SSL://:0"}, "no such listener uses TLS"),
        ({"inter.broker.listener.name": "OTHER"}, "no listener has this name; there are PLAINTEXT"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "only one of it and inter.broker.listener.name can be set",
        ),
        ({"security.inter.broker.protocol": "SSL"}, "no listener is named SSL: add SSL://host:port to listeners"),
        ({"listener.name.nope.max.connections": 3}, "no listener has the name NOPE: write one of PLAINTEXT"),
        ({"listener.name.nope.max.connection.creation.rate": 3}, "no listener has the name NOPE"),
        ({"delegation.token.expiry.time.ms": 5}, "there are no delegation tokens: set delegation.token.secret.key"),
        ({"delegation.token.expiry.check.interval.ms": 5}, "there are no delegation tokens"),
        ({"delegation.token.max.lifetime.ms": 5}, "there are no delegation tokens"),
        ({"process.roles": "controller"}, "one process is broker and controller"),
        ({"process.roles": "broker"}, "one process is broker and controller"),
        ({"controller.quorum.voters": "1@a:9093,2@b:9093"}, "its own and only controller"),
        ({"controller.quorum.voters": "2@a:9093"}, "the controller is node 1 itself"),
        ({"controller.quorum.voters": "here"}, "is no ID@HOST:PORT"),
        ({"controller.quorum.bootstrap.servers": "a:1,b:2"}, "its own and only controller"),
        ({"log.dirs": "a,b"}, "partitions are kept in one data directory"),
        ({"log.dir": "a,b"}, "partitions are kept in one data directory"),
        ({"log.dirs": "a", "metadata.log.dir": "b"}, "the metadata log is kept in the data directory"),
        ({"metadata.log.dir": "b"}, "the metadata log is kept in the data directory"),
        ({"max.connections.per.ip": 0}, "can be set to zero only if max.connections.per.ip.overrides"),
        ({"max.connections.per.ip.overrides": "127.0.0.1"}, "is no HOST:NUMBER"),
        ({"max.connections.per.ip.overrides": "127.0.0.1:x"}, "is no HOST:NUMBER"),
        ({"max.connections.per.ip.overrides": "127.0.0.1:99999999999"}, "is no HOST:NUMBER"),
        ({"log.retention.ms": 0}, "must be unlimited"),
        ({"log.retention.hours": 0}, "must be unlimited"),
        ({"log.roll.ms": 0}, "must be greater than or equal to 1"),
        ({"log.roll.jitter.ms": -1}, "must be greater than or equal to 0"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "Disabling the 'classic' protocol is not supported"),
        ({"queued.max.request.bytes": 5}, "must be larger or equal to socket.request.max.bytes"),
        (
            {"group.consumer.heartbeat.interval.ms": 10_000, "group.consumer.session.timeout.ms": 10_000}
            | {"group.consumer.min.session.timeout.ms": 1},
            "must be less than group.consumer.session.timeout.ms",
        ),
    ],
)
def test_what_a_start_cannot_be_told_stops_it(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        BrokerConfig.from_sources(settings)


@pytest.mark.parametrize(("low", "high"), NOT_ABOVE)
def test_what_must_not_be_above_another_is_refused(low: str, high: str) -> None:
    config = BrokerConfig()
    with pytest.raises(ConfigError, match="must be"):
        BrokerConfig.from_sources({low: config[high] + 1})


@pytest.mark.parametrize(
    "settings",
    [
        {"listeners": "A://127.0.0.1:9092,B://[::1]:9092", **TWO},
        {"listeners": "A://127.0.0.1:0,B://127.0.0.1:0", **TWO},
        {"log.dirs": "a", "log.dir": "b", "metadata.log.dir": "a/"},
        {"controller.quorum.voters": "1@localhost:9093", "process.roles": "controller,broker"},
        {"inter.broker.listener.name": "plaintext"},
        {"max.connections.per.ip": 0, "max.connections.per.ip.overrides": "127.0.0.1:2,[::1]:3,host:4"},
        {"listeners": "SSL://127.0.0.1:0,A://127.0.0.1:0", MAP: "A:PLAINTEXT,SSL:SSL"}
        | {"security.inter.broker.protocol": "SSL", "listener.name.a.max.connections": 3},
        {"listeners": "A://127.0.0.1:0", **TWO, "security.inter.broker.protocol": "PLAINTEXT"},
        {"listener.name.controller.max.connections": 3, "listener.name.nope.max.connections": 2147483647},
        {"delegation.token.max.lifetime.ms": 604800000},
        {"delegation.token.max.lifetime.ms": 5, "delegation.token.secret.key": "hush"},
        {"log.retention.ms": -1},
        {"log.retention.hours": 0, "log.retention.ms": 5},
        {"queued.max.request.bytes": -1},
    ],
)
def test_what_fits_together_is_taken(settings: dict[str, object]) -> None:
    BrokerConfig.from_sources(settings)


# config/server.properties of Kafka 4.x, without its comments.
SAMPLE = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def test_kafkas_own_sample_file_starts_and_the_controllers_listener_is_for_nobody() -> None:
    config = BrokerConfig.from_sources(properties_text=SAMPLE)
    assert [repr(listener) for listener in client_listeners(config)] == ["PLAINTEXT://:9092"]
    assert advertised_listeners(config)["PLAINTEXT"].host == "localhost"
    (said,) = [warning for warning in config.warnings if "CONTROLLER" in warning]
    assert said.startswith("properties line 4: no listener CONTROLLER is opened")


AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
WITH_TLS = {"listeners": "SASL_SSL://:9092", "ssl.client.auth": "required"}
WARNED: list[tuple[dict[str, str], str]] = [
    ({**AUTHORIZER, "super.users": "User:admin"}, "everybody is User:ANONYMOUS, none of super.users, and nobody can"),
    (AUTHORIZER, "everybody is User:ANONYMOUS, none of super.users, and nobody can make rules"),
    ({**AUTHORIZER, "super.users": "User:a;User:ANONYMOUS"}, ""),
    ({**AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}, ""),
    ({**AUTHORIZER, "super.users": "User:admin", "listeners": "SASL_PLAINTEXT://:9092"}, ""),
    ({**AUTHORIZER, "super.users": "User:CN=a", "listeners": "SSL://:9092", "ssl.client.auth": "required"}, ""),
    ({**AUTHORIZER, "super.users": "User:CN=a", "listeners": "SSL://:9092"}, "nobody can make rules"),
    (
        WITH_TLS,
        "ssl.client.auth is for listeners without a login, as in Kafka: "
        "listener.name.sasl_ssl.ssl.client.auth=required asks for certificates at SASL_SSL",
    ),
    ({**WITH_TLS, "listener.name.sasl_ssl.ssl.client.auth": "none"}, ""),
    ({**WITH_TLS, "ssl.client.auth": "none"}, ""),
]


@pytest.mark.parametrize(("settings", "words"), WARNED)
def test_what_keeps_nobody_out_or_lets_nobody_in_is_said(settings: dict[str, str], words: str) -> None:
    warnings = BrokerConfig.from_sources(settings).warnings
    if not words:
        assert not warnings
        return
    (said,) = warnings
    assert words in said


def test_an_unknown_security_protocol_of_a_listener_that_is_not_there_does_no_harm() -> None:
    config = BrokerConfig.from_sources({MAP: "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_SSL"})
    assert [listener.name for listener in client_listeners(config)] == ["PLAINTEXT"]
