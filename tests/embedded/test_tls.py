"""`tls=True`: a broker or cluster with certificates of its own, and the settings with which clients come in."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minibroker import Broker, Cluster
from minibroker.client import Admin
from minibroker.client import Cluster as ClientCluster
from minibroker.client.descriptions import SomeFailed
from minibroker.client.security import Security
from minibroker.config import ConfigError
from minibroker.config.sources import name_of_variable
from minibroker.embedded.client_settings import LIBRARIES, Access, client_settings
from minibroker.embedded.engine import Start
from minibroker.embedded.process import Subprocess

HOSTS: dict[str, Callable[..., Broker | Cluster]] = {
    "broker": lambda **more: Broker(tls=True, topics="t", **more),
    "process": lambda **more: Broker(tls=True, process=True, topics="t", **more),
    "cluster": lambda **more: Cluster(2, tls=True, topics="t", **more),
}


@pytest.mark.parametrize("auth", ["none", "required"])
@pytest.mark.parametrize("host", HOSTS)
def test_our_own_client_comes_in_and_nothing_is_left_behind(host: str, auth: str) -> None:
    with HOSTS[host](ssl_client_auth=auth) as running:
        settings = running.client_config("minibroker")
        assert running.topics() == {"t": 1}
        folder = os.path.dirname(settings["ssl.truststore.location"])
        assert os.path.exists(settings["ssl.truststore.location"])

        async def topics() -> list[str]:
            async with ClientCluster(running.bootstrap_servers, security=Security.of(settings)) as cluster:
                return sorted(await cluster.metadata())

        import asyncio

        assert asyncio.run(topics()) == ["t"]
    assert not os.path.exists(folder)


@pytest.mark.interop
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("auth", ["none", "required"])
def test_kafka_python_and_confluent_come_in(host: str, auth: str) -> None:
    kafka_python = pytest.importorskip("kafka")
    confluent = pytest.importorskip("confluent_kafka")
    with HOSTS[host](ssl_client_auth=auth) as running:
        with kafka_python.KafkaProducer(**running.client_config("kafka-python")) as producer:
            producer.send("t", b"1").get(10)
        producer = confluent.Producer(running.client_config("confluent"))
        producer.produce("t", b"2")
        assert producer.flush(10) == 0
        assert [record.value for record in running.wait_records("t", 2)] == [b"1", b"2"]


@pytest.mark.interop
@pytest.mark.parametrize("auth", ["none", "required"])
async def test_aiokafka_comes_in(auth: str) -> None:
    aiokafka = pytest.importorskip("aiokafka")
    async with Broker(tls=True, topics="t", ssl_client_auth=auth) as broker:
        async with aiokafka.AIOKafkaProducer(**broker.client_config("aiokafka")) as producer:
            await producer.send_and_wait("t", b"1")
        assert len(await broker.await_records("t", 1)) == 1


RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.mark.parametrize("config", [{}, RULES], ids=["for everybody", "by rules"])
async def test_a_broker_of_a_cluster_refuses_a_keystore_that_it_cannot_take(config: dict[str, str]) -> None:
    own, other = "listener.name.ssl.ssl.keystore.location", ("topic", "t")
    async with (
        Cluster(2, tls=True, topics="t", config=config) as cluster,
        ClientCluster(cluster.bootstrap_servers, security=Security.of(cluster.client_config("minibroker"))) as client,
    ):
        admin = Admin(client)
        with pytest.raises(SomeFailed, match="/no/such cannot be read") as failed:
            await admin.alter_configs(
                {("broker", "1"): {own: "/no/such", "log.roll.ms": "7"}, other: {"segment.ms": "7"}}
            )
        assert [*failed.value.errors] == [("broker", "1")]
        entries = await admin.describe_configs([("broker", "1"), other])
        assert entries["broker", "1"]["log.roll.ms"].value != "7"
        assert entries[other]["segment.ms"].value == "7"
        await admin.alter_configs({("broker", "1"): {"log.roll.ms": "8"}})
        assert (await admin.describe_configs([("broker", "1")]))["broker", "1"]["log.roll.ms"].value == "8"


def test_a_restart_has_the_same_certificates() -> None:
    broker = Broker(tls=True)
    with broker:
        before = Path(broker.client_config("java")["ssl.truststore.location"]).read_bytes()
    with broker:
        assert Path(broker.client_config("java")["ssl.truststore.location"]).read_bytes() == before


def test_certificates_lie_beside_the_data_and_stay(tmp_path: Path) -> None:
    for _ in range(2):
        with Broker(tls=True, data_dir=tmp_path, topics="t") as broker:
            assert os.path.dirname(broker.client_config("java")["ssl.truststore.location"]) == str(tmp_path)
            found = {path.name: path.read_bytes() for path in tmp_path.glob("tls-*")}
    assert sorted(found) == ["tls-ca.key", "tls-ca.pem", "tls-client.p12", "tls-client.pem", "tls-server.pem"]
    assert found == {path.name: path.read_bytes() for path in tmp_path.glob("tls-*")}


def test_a_start_that_fails_leaves_no_certificates() -> None:
    with Broker() as other:
        failing = Broker(tls=True, port=int(other.bootstrap_servers.rpartition(":")[2]))
        with pytest.raises(RuntimeError):
            failing.start()
    assert failing._ca is not None
    assert not os.path.exists(failing._ca.directory)


def test_tls_without_a_listener_for_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="tls=True, and none of them is SSL"):
        Broker(tls=True, listeners="PLAINTEXT://127.0.0.1:0")


def test_secrets_are_not_on_the_command_line_of_a_process() -> None:
    settings = {"ssl.keystore.password": "geheim", "listener.name.a-b.ssl.key.password": "geheim", "log.roll.ms": "7"}
    process = Subprocess(Start({"listeners": "SSL://:0", **settings}, (), None, None, None), {})
    assert "log.roll.ms=7" in process._command
    assert "geheim" not in str(process._command)
    assert {name_of_variable(name): text for name, text in process._secrets.items()} == {
        name: text for name, text in settings.items() if text == "geheim"
    }


def test_a_plain_broker_never_loads_what_tls_needs() -> None:
    import subprocess
    import sys

    code = (
        "import sys\nfrom minibroker import Broker\nwith Broker() as b: b.client_config('java')\n"
        "print([name for name in sys.modules if name in ('cryptography', 'tempfile') or 'security.' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{['minibroker.security.principal']}\n"


# Settings by library

FULL = Access("h:1,h:2", True, ca="CA", client="CLIENT", client_store="STORE", store_password="secret")
EXPECTED: dict[str, dict[str, Any]] = {
    "java": {
        "bootstrap.servers": "h:1,h:2",
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "CA",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": "STORE",
        "ssl.keystore.password": "secret",
    },
    "confluent": {
        "bootstrap.servers": "h:1,h:2",
        "security.protocol": "SSL",
        "ssl.ca.location": "CA",
        "ssl.certificate.location": "CLIENT",
        "ssl.key.location": "CLIENT",
    },
    "kafka-python": {
        "bootstrap_servers": "h:1,h:2",
        "security_protocol": "SSL",
        "ssl_cafile": "CA",
        "ssl_certfile": "CLIENT",
        "ssl_keyfile": "CLIENT",
    },
    "franz-go": {"brokers": ["h:1", "h:2"], "ca_file": "CA", "cert_file": "CLIENT", "key_file": "CLIENT"},
}
EXPECTED["librdkafka"] = EXPECTED["confluent"]
EXPECTED["minibroker"] = {
    **{name: value for name, value in EXPECTED["java"].items() if "keystore" not in name},
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "CLIENT",
}
EXPECTED["spark"] = {f"kafka.{name}": value for name, value in EXPECTED["java"].items()}


@pytest.mark.parametrize("library", EXPECTED)
def test_a_librarys_settings_have_its_own_names(library: str) -> None:
    assert client_settings(library, FULL) == EXPECTED[library]


def test_kafkajs_gets_json_and_aiokafka_a_context() -> None:
    with Broker(tls=True, ssl_client_auth="requested") as broker:
        found = json.loads(json.dumps(broker.client_config("kafkajs")))
        assert found["brokers"] == [broker.bootstrap_servers]
        assert "BEGIN CERTIFICATE" in found["ssl"]["ca"][0]
        assert "PRIVATE KEY" in found["ssl"]["key"]
        assert isinstance(broker.client_config("aiokafka")["ssl_context"], ssl.SSLContext)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_plain_broker_needs_no_more_than_its_address(library: str) -> None:
    assert len(client_settings(library, Access("h:1"))) == 1
