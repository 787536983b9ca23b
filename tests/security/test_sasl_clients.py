"""Clients of three libraries bring tokens without a signature, and log in again before their session is over.

Not here: all other ways of logging in (tests/clients/test_security.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from minibroker import Broker
from tests.leftovers import put_away
from tests.security.conversations import NOW_S, claims, jwt

pytest.importorskip("aiokafka")
pytest.importorskip("confluent_kafka")
pytest.importorskip("kafka")

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
PATIENCE_S = 4
REAUTH_MS = 1500
GOOD, EXPIRED = jwt(claims(sub="alice")), jwt(claims(sub="alice", exp=1_700_000_001))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": UNSECURED,
    }
    with Broker(users={"alice": "alice-secret"}, topics="orders", config=settings) as broker:
        yield broker


def confluent(broker: Broker, token: str) -> bool:
    """Whether a record of librdkafka arrives."""
    from confluent_kafka import Producer

    login = {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: (token, float(NOW_S))}
    common = {"bootstrap.servers": broker.bootstrap_servers, "security.protocol": "SASL_PLAINTEXT", "log_level": 0}
    producer = Producer({**common, **login})
    producer.produce("orders", b"of confluent")
    is_there = producer.flush(PATIENCE_S) == 0
    producer.purge()
    return is_there


def kafka_python(broker: Broker, token: str) -> bool:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return token

    try:
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
            max_block_ms=PATIENCE_S * 1000,
            bootstrap_timeout_ms=PATIENCE_S * 1000,
        )
    except KafkaError:
        return False
    try:
        producer.send("orders", b"of kafka-python").get(PATIENCE_S)
    except KafkaError:
        return False
    finally:
        producer.close(0)
    return True


def aiokafka(broker: Broker, token: str) -> bool:
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.errors import KafkaError

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return token

    async def send() -> bool:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
            request_timeout_ms=PATIENCE_S * 1000,
        )
        try:
            await producer.start()
            await producer.send_and_wait("orders", b"of aiokafka")
        except KafkaError:
            return False
        finally:
            await producer.stop()
        return True

    return asyncio.run(send())


LIBRARIES: list[Callable[[Broker, str], bool]] = [confluent, kafka_python, aiokafka]


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda each: each.__name__)
@pytest.mark.parametrize(("token", "expected"), [(GOOD, True), (EXPIRED, False)], ids=["good", "expired"])
def test_who_brings_a_token_comes_in(
    broker: Broker, library: Callable[[Broker, str], bool], token: str, expected: bool
) -> None:
    with put_away():
        assert library(broker, token) is expected


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_client_logs_in_again_before_its_session_is_over(mechanism: str) -> None:
    from confluent_kafka import Producer

    with Broker(users={"alice": "alice-secret"}, topics="orders", connections_max_reauth_ms=REAUTH_MS) as broker:
        login = {"sasl.username": "alice", "sasl.password": "alice-secret", "sasl.mechanism": mechanism}
        common = {"bootstrap.servers": broker.bootstrap_servers, "security.protocol": "SASL_PLAINTEXT", "log_level": 0}
        errors: list[str] = []
        producer = Producer({**common, **login, "error_cb": lambda error: errors.append(str(error))})
        for number in range(20):
            producer.produce("orders", b"%d" % number)
            assert producer.flush(PATIENCE_S) == 0
            producer.poll(REAUTH_MS / 1000 / 8)
        assert len(broker.wait_records("orders", 20)) == 20
        assert not errors
