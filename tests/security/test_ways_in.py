"""TLS, logins and access rules together: who comes in, and what each may do then."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from minibroker import Broker, Cluster
from minibroker.client import Cluster as ClientCluster
from minibroker.client import Producer
from minibroker.client.security import Security
from minibroker.embedded.client_settings import Access, client_settings
from minibroker.errors import Error, KafkaError
from minibroker.protocol.messages.create_acls import CreateAclsRequest
from minibroker.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from minibroker.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from minibroker.security.acls import (
    ALLOW,
    CLUSTER,
    CREATE_TOKENS,
    DELEGATION_TOKEN,
    DENY,
    DESCRIBE,
    DESCRIBE_TOKENS,
    IDEMPOTENT_WRITE,
    LITERAL,
    TOPIC,
    USER,
    WRITE,
)
from tests.leftovers import put_away
from tests.security.certificates import made
from tests.security.conversations import PASSWORDS
from tests.security.token_steps import LoggedIn

USERS = {"alice": 'a "secret" \\ of alice', "root": "secret-of-root"}
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:root;User:client",
}
FULL = Access("h:1", True, "SCRAM-SHA-256", "alice", 'a"\\', ca="CA")
TOKENS = {"delegation.token.secret.key": "abracadabra"}
NOT_ALLOWED, REFUSED = Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED


def rule(kind: int, name: str, principal: str, operation: int, permission: int = ALLOW) -> Any:
    return CreateAclsRequest.AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=LITERAL,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=permission,
    )


def produced(settings: dict[str, Any]) -> str:
    """Return what comes of a record of our own client: nothing, or the error's name."""

    async def produce() -> None:
        security = Security.of(settings)
        client = ClientCluster(settings["bootstrap.servers"], security=security)
        async with client as cluster, Producer(cluster) as producer:
            await producer.send("t", b"1")

    try:
        asyncio.run(produce())
    except KafkaError as error:
        return Error(error.code).name
    return ""


# SASL_SSL


@pytest.mark.parametrize("kind", [Broker, lambda **more: Cluster(2, **more)], ids=["broker", "cluster"])
def test_with_tls_and_users_a_client_needs_the_ca_and_the_password(kind: Any) -> None:
    with kind(tls=True, users=USERS, topics="t") as running:
        settings = running.client_config("minibroker")
        assert settings["security.protocol"] == "SASL_SSL"
        assert produced(settings) == ""
        for user, word in running._users.passwords.items():
            assert produced(running.client_config("minibroker", user=user)) == "", word
        wrong = settings["sasl.jaas.config"].replace("secret", "other")
        assert produced({**settings, "sasl.jaas.config": wrong}) == "SASL_AUTHENTICATION_FAILED"
        assert produced({**settings, "ssl.truststore.location": made("other").ca}) == "SASL_AUTHENTICATION_FAILED"
        with pytest.raises(ValueError, match="'bob' is none of alice, root"):
            running.client_config("java", user="bob")


@pytest.mark.interop
def test_kafka_python_and_confluent_log_in_over_tls() -> None:
    kafka_python = pytest.importorskip("kafka")
    confluent = pytest.importorskip("confluent_kafka")
    with Broker(tls=True, users=USERS, topics="t") as broker:
        settings = broker.client_config("kafka-python")
        with kafka_python.KafkaProducer(**settings) as producer:
            producer.send("t", b"1").get(10)
        for wrong in ({"sasl_plain_password": "other"}, {"ssl_cafile": made("other").ca}):
            with put_away(), pytest.raises(kafka_python.errors.KafkaError):
                kafka_python.KafkaProducer(**{**settings, **wrong}, bootstrap_timeout_ms=2000, max_block_ms=2000)
        settings = broker.client_config("confluent", user="root")
        for wrong, left in (({}, 0), ({"sasl.password": "other"}, 1), ({"ssl.ca.location": made("other").ca}, 1)):
            producer = confluent.Producer({**settings, **wrong, "log_level": 0})
            producer.produce("t", b"2")
            assert producer.flush(2 if wrong else 10) == left
            producer.purge()
        assert [record.value for record in broker.wait_records("t", 2)] == [b"1", b"2"]


# Settings of clients


EXPECTED: dict[str, dict[str, Any]] = {
    "confluent": {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice", "sasl.password": 'a"\\'},
    "kafka-python": {
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "alice",
        "sasl_plain_password": 'a"\\',
    },
    "java": {
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="alice" password="a\\"\\\\";',
    },
    "kafkajs": {"sasl": {"mechanism": "scram-sha-256", "username": "alice", "password": 'a"\\'}},
    "franz-go": {"sasl_mechanism": "SCRAM-SHA-256", "user": "alice", "password": 'a"\\'},
}


@pytest.mark.parametrize("library", EXPECTED)
def test_a_librarys_settings_say_who_logs_in(library: str) -> None:
    found = client_settings(library, FULL._replace(ca=""))
    assert EXPECTED[library].items() <= found.items()
    protocol = [value for name, value in found.items() if name in ("security.protocol", "security_protocol")]
    assert protocol in ([], ["SASL_SSL"])


def test_who_can_log_in_is_in_no_repr() -> None:
    assert "a" + '"' not in repr(FULL)
    assert "alice" not in repr(FULL)


def test_without_users_there_is_nobody_to_log_in_as() -> None:
    with Broker() as broker:
        assert list(broker.client_config("java")) == ["bootstrap.servers"]
        with pytest.raises(ValueError, match="nobody is known by 'alice'"):
            broker.client_config("java", user="alice")


# Access rules


def test_rules_are_for_the_name_of_who_logged_in() -> None:
    with Broker(users=USERS, topics="t", config=AUTHORIZER) as broker:
        alice, root = (broker.client_config("minibroker", user=user) for user in USERS)
        assert produced(root) == ""
        assert produced(alice) == "TOPIC_AUTHORIZATION_FAILED"
        add_rules(
            broker,
            root,
            rule(TOPIC, "t", "User:alice", WRITE),
            rule(CLUSTER, "kafka-cluster", "User:alice", IDEMPOTENT_WRITE),
        )
        assert produced(alice) == ""
        add_rules(broker, root, rule(TOPIC, "t", "User:alice", WRITE, DENY))
        assert produced(alice) == "TOPIC_AUTHORIZATION_FAILED"


def test_rules_are_for_the_name_in_a_certificate() -> None:
    mapping = {"ssl.client.auth": "requested", "ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/L"}
    with Broker(tls=True, topics="t", config={**AUTHORIZER, **mapping}) as broker:
        client = broker.client_config("minibroker")
        nobody = {name: value for name, value in client.items() if "keystore" not in name}
        assert produced(nobody) == "TOPIC_AUTHORIZATION_FAILED"
        assert produced(client) == ""
        add_rules(
            broker,
            client,
            rule(TOPIC, "t", "User:ANONYMOUS", WRITE),
            rule(CLUSTER, "kafka-cluster", "User:ANONYMOUS", IDEMPOTENT_WRITE),
        )
        assert produced(nobody) == ""


def add_rules(broker: Broker, settings: dict[str, Any], *rules: Any) -> None:
    async def add() -> None:
        async with ClientCluster(broker.bootstrap_servers, security=Security.of(settings)) as cluster:
            answer = await cluster.call(CreateAclsRequest(creations=list(rules)))
            assert [each.error_code for each in answer.results] == [0] * len(rules)

    asyncio.run(add())


@contextmanager
def logged_in(broker: Broker, *names: str) -> Iterator[list[LoggedIn]]:
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    found = [LoggedIn(port) for _ in names]
    try:
        yield [each.by_password(name) for each, name in zip(found, names, strict=True)]
    finally:
        for each in found:
            each.close()


def create(who: LoggedIn, owner: str = "") -> Any:
    request = CreateDelegationTokenRequest(
        owner_principal_type="User" if owner else "", owner_principal_name=owner, renewers=[], max_lifetime_ms=-1
    )
    return who.ask(request, 3)


def seen(who: LoggedIn) -> list[str]:
    return sorted(each.principal_name for each in who.ask(DescribeDelegationTokenRequest(owners=None), 3).tokens)


def test_rules_say_whose_tokens_one_makes_and_sees() -> None:
    config = {**AUTHORIZER, **TOKENS, "super.users": "User:alice"}
    with (
        Broker(users=PASSWORDS, config=config) as broker,
        logged_in(broker, "alice", "bob") as (alice, bob),
    ):

        def allow(*rules: Any) -> None:
            assert [each.error_code for each in alice.ask(CreateAclsRequest(creations=list(rules)), 3).results] == [0]

        refused = create(bob, "carol")
        assert (refused.error_code, refused.principal_name, refused.hmac) == (REFUSED, "carol", b"")
        of_alice, of_bob = create(alice), create(bob, "bob")
        assert (of_alice.error_code, of_bob.error_code) == (0, 0)
        assert (seen(alice), seen(bob)) == (["alice", "bob"], ["bob"])
        allow(rule(USER, "User:carol", "User:bob", CREATE_TOKENS))
        assert create(bob, "carol").error_code == 0
        assert seen(bob) == ["bob", "carol"]  # he has asked for it
        assert create(alice, "dave").error_code == create(alice).error_code == 0
        assert seen(bob) == ["bob", "carol"]
        allow(rule(DELEGATION_TOKEN, of_alice.token_id, "User:bob", DESCRIBE))
        assert seen(bob) == ["alice", "bob", "carol"]
        allow(rule(USER, "User:dave", "User:bob", DESCRIBE_TOKENS))
        assert seen(bob) == ["alice", "bob", "carol", "dave"]


def test_who_came_by_a_token_may_ask_for_none_whatever_the_rules_say() -> None:
    with (
        Broker(users=PASSWORDS, config={**AUTHORIZER, **TOKENS}) as broker,
        logged_in(broker, "alice") as (alice,),
    ):
        token = create(alice)
        bearer = LoggedIn(int(broker.bootstrap_servers.rpartition(":")[2])).by_token(token.token_id, token.hmac)
        try:
            assert create(bearer, "carol").error_code == NOT_ALLOWED
            assert create(alice, "carol").error_code == REFUSED
        finally:
            bearer.close()
