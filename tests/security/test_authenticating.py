"""A listener that asks for a login: how long it waits, how much it takes before, how long a session holds."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.authenticating import LOGIN_MS
from minibroker.errors import Error
from minibroker.event_kinds import Login
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from minibroker.security.principal import ANONYMOUS, Principal
from minibroker.security.sasl import TOKEN_BYTES_MAX
from minibroker.server.http import HttpRequest
from tests.broker.virtual_broker import virtual_broker
from tests.security.conversations import plain
from tests.security.wire import SETTINGS, Wire, asking_broker

ALICE, WRONG = plain("alice", "alice-secret"), plain("alice", "guessed")


@pytest.mark.setting("connection.failed.authentication.delay.ms")
def test_who_fails_waits_for_the_answer_and_is_closed_then() -> None:
    with asking_broker(connection_failed_authentication_delay_ms=500) as broker:
        wire = Wire(broker)
        assert wire.log_in("PLAIN", WRONG) is None
        broker.pass_ms(499)
        assert not wire.is_closed
        assert wire.take() is None
        broker.pass_ms(1)
        assert wire.take() is not None
        assert wire.is_closed
        assert broker.node.login_counts == {"SASL_PLAINTEXT": {"succeeded": 0, "failed": 1, "expired": 0}}
        unsigned, said = broker.said
        assert unsigned == "listener SASL_PLAINTEXT takes tokens without a signature: anybody can be anybody"
        assert said.endswith("closed: the login of 'alice' by PLAIN failed: name or password are wrong")


@pytest.mark.setting("connections.max.reauth.ms")
def test_a_session_ends_with_the_next_request_unless_the_client_logs_in_again() -> None:
    with asking_broker(**{"listener.name.sasl_plaintext.plain.connections.max.reauth.ms": 5000}) as broker:
        lazy, eager = Wire(broker), Wire(broker)
        assert lazy.log_in("PLAIN", ALICE).session_lifetime_ms == 5000
        assert eager.log_in("PLAIN", ALICE).session_lifetime_ms == 5000
        broker.pass_ms(5000)
        assert lazy.serves()
        assert eager.log_in("PLAIN", ALICE).session_lifetime_ms == 5000
        broker.pass_ms(1)
        assert not lazy.serves()
        assert lazy.is_closed
        assert eager.serves()
        assert broker.node.login_counts["SASL_PLAINTEXT"]["expired"] == 1


def test_without_a_limit_a_session_holds() -> None:
    with asking_broker(**{"listener.name.sasl_plaintext.plain.connections.max.reauth.ms": 0}) as broker:
        wire = Wire(broker)
        assert wire.log_in("PLAIN", ALICE).session_lifetime_ms == 0
        broker.pass_ms(60_000)
        assert wire.serves()
        assert wire.log_in("PLAIN").error_code == Error.ILLEGAL_SASL_STATE


@pytest.mark.setting("sasl.server.max.receive.size")
def test_frames_are_short_before_a_login_and_as_long_as_ever_behind_it() -> None:
    long = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t" * 240) for _ in range(10)])
    with asking_broker(sasl_server_max_receive_size=1000) as broker:
        wire = Wire(broker)
        wire.log_in("PLAIN", ALICE)
        wire.ask(long, 9)
        assert not wire.is_closed
        other = Wire(broker)
        other.send((1001).to_bytes(4, "big"))
        assert other.is_closed
        assert "a frame of 1001 bytes; 1000 are allowed" in broker.said[-1]


def test_frames_of_another_login_on_the_same_connection_are_short_as_well() -> None:
    settings = {"listener.name.sasl_plaintext.plain.connections.max.reauth.ms": 60_000}
    with asking_broker(sasl_server_max_receive_size=1000, **settings) as broker:
        for begins, length in ((False, 2000), (True, 1001)):
            wire = Wire(broker)
            wire.log_in("PLAIN", ALICE)
            broker.pass_ms(2000)
            if begins:
                assert wire.log_in("PLAIN").error_code == Error.NONE
                wire.send(length.to_bytes(4, "big"))
            else:
                wire.ask(SaslHandshakeRequest(mechanism="P" * length), 1)
                assert "bytes are no request of a login" in broker.said[-1]
            assert wire.is_closed, begins
        wire = Wire(broker)
        wire.log_in("PLAIN", ALICE)
        broker.pass_ms(2000)
        assert wire.log_in("PLAIN", ALICE).error_code == Error.NONE
        wire.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t" * 240)] * 10), 9)
        assert not wire.is_closed  # afterwards they are as long as ever


def test_no_more_of_a_message_is_read_than_is_read_at_once() -> None:
    with asking_broker() as broker:
        for size, code in (
            (TOKEN_BYTES_MAX, "name or password are wrong"),
            (TOKEN_BYTES_MAX + 1, "bytes, and no more"),
        ):
            wire = Wire(broker)
            token = b"\0alice\0" + b"x" * (size - 7)
            assert wire.log_in("PLAIN", token).error_code == Error.SASL_AUTHENTICATION_FAILED
            assert code in broker.said[-1]
            assert wire.is_closed


def test_who_does_not_log_in_in_time_is_closed() -> None:
    with asking_broker() as broker:
        silent, halfway, done = Wire(broker), Wire(broker), Wire(broker)
        halfway.log_in("PLAIN")
        done.log_in("PLAIN", ALICE)
        broker.pass_ms(LOGIN_MS - 100)
        assert not silent.is_closed
        broker.pass_ms(1100)
        assert [each.is_closed for each in (silent, halfway, done)] == [True, True, False]


@pytest.mark.setting("sasl.enabled.mechanisms", "sasl.jaas.config")
def test_what_is_offered_and_who_can_come_in_is_up_to_the_settings() -> None:
    line = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_dora="d";'
    listener = "listener.name.sasl_plaintext"
    with asking_broker(
        **{
            f"{listener}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
            f"{listener}.plain.sasl.jaas.config": line,
            f"{listener}.scram-sha-512.sasl.jaas.config": None,
        }
    ) as broker:
        refused = Wire(broker).ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1)
        assert refused.error_code == Error.UNSUPPORTED_SASL_MECHANISM
        assert refused.mechanisms == ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]
        assert Wire(broker).log_in("PLAIN", ALICE).error_code == Error.SASL_AUTHENTICATION_FAILED
        assert Wire(broker).log_in("PLAIN", plain("dora", "d")).error_code == Error.NONE


def test_a_connection_knows_who_its_client_is() -> None:
    with asking_broker() as broker:
        wire = Wire(broker)
        wire.log_in("PLAIN")
        assert wire.connection.principal == ANONYMOUS
        other = Wire(broker)
        other.log_in("PLAIN", ALICE)
        assert other.connection.principal == Principal("User", "alice")


def test_a_login_is_an_event_and_names_no_secret() -> None:
    with asking_broker() as broker:
        seen: list[Any] = []
        broker.node.events.subscribe(seen.append)
        Wire(broker).log_in("PLAIN", ALICE)
        Wire(broker).log_in("PLAIN", plain("mallory\n", "guessed"))
        logins = [str(each) for each in seen if isinstance(each, Login)]
        assert [(each.user, each.state) for each in seen if isinstance(each, Login)] == [
            ("'alice'", "succeeds"),
            ("'mallory\\n'", "fails"),
        ]
        assert not [line for line in [*logins, *broker.said] if "secret" in line or "guessed" in line]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        *(("/health", None), ("/ready", None), ("/metrics", "403 Forbidden")),
        *(("/api/state", "403 Forbidden"), ("/api/events", "403 Forbidden")),
    ],
)
def test_http_tells_nothing_at_a_listener_that_asks_for_a_login(path: str, status: str | None) -> None:
    with asking_broker() as broker:
        refusal = broker.node.logins["SASL_PLAINTEXT"].http_refusal(HttpRequest("GET", path, {"host": "localhost"}))
        assert (None if refusal is None else refusal[0]) == status


def test_other_listeners_of_the_broker_ask_nobody() -> None:
    listeners = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
    with asking_broker(listeners=listeners) as broker:
        assert Wire(broker).serves()
        assert broker.connection.session is None


def test_secrets_are_not_described() -> None:
    from minibroker.config.describe import broker_entries

    with asking_broker(delegation_token_secret_key="abracadabra") as broker:
        shown = [repr((entry.value, entry.synonyms)) for entry in broker_entries(broker.node.config)]
        assert not [each for each in shown if "alice-secret" in each or "abracadabra" in each]
        assert "alice-secret" in str(SETTINGS)


def test_logins_are_counted_in_the_metrics() -> None:
    from minibroker.broker.http_pages import metrics

    with asking_broker() as broker:
        Wire(broker).log_in("PLAIN", ALICE)
        Wire(broker).log_in("PLAIN", WRONG)
        lines = [line for line in broker.run(list, metrics(broker.node)) if line.startswith("minibroker_logins_total")]
        assert lines == [
            'minibroker_logins_total{listener="SASL_PLAINTEXT",result="succeeded"} 1',
            'minibroker_logins_total{listener="SASL_PLAINTEXT",result="failed"} 1',
            'minibroker_logins_total{listener="SASL_PLAINTEXT",result="expired"} 0',
        ]


@pytest.mark.parametrize("release", ["0.10.2", "2.8", "4.4"])
def test_clients_of_old_log_in_to_brokers_of_old(release: str) -> None:
    with virtual_broker(SETTINGS, as_version=release) as broker:
        wire = Wire(broker)
        assert wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0).error_code == Error.NONE
        wire.send(len(ALICE).to_bytes(4, "big") + ALICE)
        assert wire.take() == b""
        assert wire.ask(MetadataRequest(topics=[]), 1) is not None
