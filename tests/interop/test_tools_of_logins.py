"""Kafka's tools log in, and set passwords and tokens: kafka-configs of users, kafka-delegation-tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker import Cluster
from tests.interop import kafka

pytestmark = [pytest.mark.interop, pytest.mark.slow]

CONFIGS = (kafka.Release("kafka_2.13", "3.9.2"), kafka.Release("kafka_2.13", "4.3.1"))
TOKENS = (kafka.Release("kafka-tools", "3.9.2"), kafka.Release("kafka-tools", "4.3.1"))
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, users={"alice": "secret"}, delegation_token_secret_key="abracadabra") as cluster:
        yield cluster


def run(release: kafka.Release, cluster: Cluster, directory: Path, tool: str, words: list[str], jaas: str) -> str:
    """Return what a tool prints; jaas: the options of the login."""
    (directory / "client.properties").write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={SCRAM} {jaas};\n"
    )
    servers = ["--bootstrap-server", cluster.bootstrap_servers, "--command-config", "client.properties"]
    done = kafka.run(release, tool, *servers, *words, cwd=directory)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


ALICE = 'username="alice" password="secret"'


@pytest.mark.parametrize("release", CONFIGS, ids=lambda release: release.version)
def test_passwords_are_set_described_and_removed(cluster: Cluster, tmp_path: Path, release: kafka.Release) -> None:
    def configs(*words: str, jaas: str = ALICE) -> str:
        users = ["--entity-type", "users", "--entity-name", "bob", *words]
        return run(release, cluster, tmp_path, "kafka.admin.ConfigCommand", users, jaas)

    # One mechanism at a time: a controller of KRaft alters a user once in a request, Kafka's too.
    configs("--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=other]")
    configs("--alter", "--add-config", "SCRAM-SHA-512=[password=third]")
    told = configs("--describe", jaas='username="bob" password="other"')
    assert "SCRAM-SHA-256=iterations=8192" in told
    assert "SCRAM-SHA-512=iterations=4096" in told
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        configs("--alter", "--delete-config", mechanism)
    assert "SCRAM" not in configs("--describe")


@pytest.mark.parametrize("release", TOKENS, ids=lambda release: release.version)
def test_tokens_are_made_told_renewed_and_ended(cluster: Cluster, tmp_path: Path, release: kafka.Release) -> None:
    def tokens(*words: str, jaas: str = ALICE) -> str:
        return run(release, cluster, tmp_path, "org.apache.kafka.tools.DelegationTokenCommand", [*words], jaas)

    made = tokens("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    token_id, hmac = re.findall(r"^(\S{22})\s+(\S+)\s+User:alice", made, re.MULTILINE)[0]
    assert token_id in tokens("--describe", "--owner-principal", "User:alice")
    tokens("--renew", "--renew-time-period", "-1", "--hmac", hmac)
    # Who comes with it is told of no token, but comes in.
    bearer = f'username="{token_id}" password="{hmac}" tokenauth="true"'
    users = ["--entity-type", "users", "--describe"]
    assert "alice" in run(CONFIGS[1], cluster, tmp_path, "kafka.admin.ConfigCommand", users, bearer)
    tokens("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert token_id not in tokens("--describe", "--owner-principal", "User:alice")
