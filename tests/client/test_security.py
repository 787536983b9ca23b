"""TLS and SASL: the settings of Kafka's clients, the messages of SCRAM, and a real Kafka that wants them."""

from __future__ import annotations

import asyncio
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from minibroker.client import Cluster, Connection, Producer
from minibroker.client.connection import ConnectionLost
from minibroker.client.security import Scram, Security, SecurityError
from minibroker.errors import Error, KafkaError
from minibroker.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from tests.client.scripted import ScriptedBroker
from tests.differential.kafka import Kafka, _free_ports, missing_tools

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="a\\"b,c=d";'

USER = 'user_ann="a\\\\"b,c=d";'  # in a file of properties, where backslashes count double


def certified(directory: Path) -> Path:
    """Make a key and its certificate, for this machine's loopback."""
    made = directory / "broker.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=broker"]
    places = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", directory / "key", "-out", directory / "cert"]
    subprocess.run([*command, *places], check=True, capture_output=True)
    made.write_text((directory / "key").read_text() + (directory / "cert").read_text())
    return made


# Settings


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"security.protocol": "TLS"}, "it can be PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is not set: it can be PLAIN, SCRAM-SHA-256"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism is GSSAPI"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "must hold username and password"),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "/etc/trust.jks"},
            "keytool -list -rfc -keystore /etc/trust.jks > truststore.pem",
        ),
        (
            {"security.protocol": "SSL", "ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/etc/key"},
            "openssl pkcs12 -in keystore.p12 -nodes -out keystore.pem",
        ),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/nowhere"}, "/nowhere cannot be read: No such file"),
        ({"security.protocol": "SSL", "ssl.truststore.location": __file__}, "is no PEM"),
        ({"security.protocol": "SSL", "ssl.keystore.key": "x"}, "write key and certificates into one file of PEM"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(SecurityError, match=re.escape(reason)):
        Security.of(settings)


def test_plain_connections_need_nothing() -> None:
    assert Security.of({}) is None
    assert Security.of({"security.protocol": "plaintext"}) is None


def test_the_name_of_a_broker_is_checked_unless_that_is_switched_off() -> None:
    checked = Security.of({"security.protocol": "SSL"})
    assert checked
    assert checked.context
    assert checked.context.check_hostname
    unchecked = Security.of({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""})
    assert unchecked
    assert unchecked.context
    assert not unchecked.context.check_hostname


# SCRAM


def test_scram_as_in_rfc_7677() -> None:
    scram = Scram("sha256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert scram.final(challenge) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    scram.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    with pytest.raises(KafkaError, match="does not know the password itself"):
        scram.check(b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    with pytest.raises(KafkaError, match="other-error"):
        scram.check(b"e=other-error")


@pytest.mark.parametrize(
    "challenge", [b"", b"r=other,s=AA==,i=1", b"r=abc,s=AA==,i=1", b"r=abcd,s=AA==,i=0", b"r=abcd,s=AA==,i=9999999999"]
)
def test_challenges_that_break_scram_are_refused(challenge: bytes) -> None:
    with pytest.raises(KafkaError) as caught:
        Scram("sha256", "user", "pencil", "abc").final(challenge)
    assert caught.value.code == Error.SASL_AUTHENTICATION_FAILED


def test_names_are_escaped() -> None:
    assert Scram("sha256", "a=b,c", "", "n").first() == b"n,,n=a=3Db=2Cc,r=n"


@pytest.mark.outside
async def test_a_broker_without_tls_is_told_from_one_that_is_not_there() -> None:
    security = Security.of({"security.protocol": "SSL"})
    async with ScriptedBroker() as broker:
        with pytest.raises((KafkaError, ConnectionLost)):
            await Connection.open("127.0.0.1", broker.port, security=security, timeout_ms=2000)


# A real Kafka


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> object:
    missing = missing_tools() or ("" if shutil.which("openssl") else "openssl")
    if missing:
        pytest.skip(f"needs {missing}")
    work = tmp_path_factory.mktemp("secured")
    pem = certified(work)
    broker = Kafka("4.4.0", work / "kafka")
    tls, plain, both = _free_ports(3)
    listeners = f"TLS://127.0.0.1:{tls},PLAIN://127.0.0.1:{plain},BOTH://127.0.0.1:{both}"
    module = "org.apache.kafka.common.security"
    broker.settings |= {
        "listeners": f"{broker.settings['listeners']},{listeners}",
        "advertised.listeners": f"{broker.settings['advertised.listeners']},{listeners}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,TLS:SSL,PLAIN:SASL_PLAINTEXT,"
        "BOTH:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pem),
    }
    for name in ("plain", "both"):
        broker.settings |= {
            f"listener.name.{name}.plain.sasl.jaas.config": f"{module}.plain.PlainLoginModule required {USER}",
            f"listener.name.{name}.scram-sha-256.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
            f"listener.name.{name}.scram-sha-512.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
        }
    with broker:
        asyncio.run(prepare(broker.address))
        yield {"SSL": tls, "SASL_PLAINTEXT": plain, "SASL_SSL": both}, work / "cert"


async def prepare(address: str) -> None:
    """Have a topic with a record, and a user with passwords for SCRAM."""
    Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
    rows = []
    for mechanism, digest in ((1, "sha256"), (2, "sha512")):
        salted = hashlib.pbkdf2_hmac(digest, b'a"b,c=d', b"salt", 4096)
        rows.append(Upsertion(name="ann", mechanism=mechanism, iterations=4096, salt=b"salt", salted_password=salted))
    async with Cluster(address) as cluster:
        for row in rows:  # a user may come once in a request
            answer = await cluster.call(AlterUserScramCredentialsRequest(deletions=[], upsertions=[row]))
            assert [each.error_message for each in answer.results if each.error_code] == []
        async with Producer(cluster) as producer:
            await producer.send("orders", b"hello")


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        ("SSL", ""),
        ("SASL_PLAINTEXT", "PLAIN"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
        ("SASL_SSL", "SCRAM-SHA-512"),
        ("SASL_SSL", "PLAIN"),
    ],
)
def test_a_real_kafka_lets_us_in(protocol: str, mechanism: str, kafka: tuple[dict[str, int], Path]) -> None:
    """By the options of a query of Spark; and with a wrong password or name it does not."""
    from minibroker.spark.brokers.rows import WireTaskReader
    from minibroker.spark.options import parse
    from minibroker.spark.reading import plan

    ports, certificate = kafka
    told = {
        "kafka.bootstrap.servers": f"127.0.0.1:{ports[protocol]}",
        "subscribe": "orders",
        "kafka.security.protocol": protocol,
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": JAAS,
        "kafka.ssl.truststore.location": str(certificate),
        "fetchOffset.retryIntervalMs": "20",
    }
    options = parse(told)
    (task,) = plan(options)
    (batch,) = WireTaskReader(task, options).batches()
    assert batch.column("value").to_pylist() == [b"hello"]
    if mechanism:
        with pytest.raises(KafkaError, match="SASL_AUTHENTICATION_FAILED") as caught:
            plan(parse(told | {"kafka.sasl.jaas.config": JAAS.replace("a\\", "b\\")}))
        assert "c=d" not in str(caught.value)
    if protocol.endswith("SSL"):
        with pytest.raises(KafkaError, match=r"no TLS, .*certificate"):
            plan(parse({name: value for name, value in told.items() if "truststore" not in name}))
