"""What an audit is told: logins, certificates, denials, and who changes users, rules, tokens and quotas."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from minibroker import Cluster
from minibroker.broker.auditing import LINES_MAX, WINDOW_MS, plainly
from minibroker.broker.authorize.access import TOLD_MAX
from minibroker.client import Cluster as ClientCluster
from minibroker.client.security import Security
from minibroker.event_kinds import Administration, Allowed, Certificate, Denied
from minibroker.events import Event
from minibroker.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from minibroker.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from minibroker.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from minibroker.protocol.messages.delete_acls import DeleteAclsRequest
from minibroker.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from minibroker.protocol.messages.init_producer_id import InitProducerIdRequest
from minibroker.protocol.messages.list_groups import ListGroupsRequest
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from minibroker.security.acls import DENY, DESCRIBE, PREFIXED, READ, TOPIC, WRITE
from minibroker.server.connection import Connection
from tests.broker.virtual_broker import VirtualBroker, virtual_broker
from tests.security.conversations import PASSWORDS, plain
from tests.security.test_authorizing import ADMIN, SETTINGS, allow, client, creation, every, names_seen
from tests.security.wire import Wire, asking_broker
from tests.server.running import batch, produce, running

ALICE = plain("alice", PASSWORDS["alice"])


@pytest.fixture
def broker() -> Iterator[VirtualBroker]:
    with virtual_broker({**SETTINGS, "delegation.token.secret.key": "abracadabra"}) as broker:
        broker.run(broker.node.create_topic, "orders", 1)
        broker.connection.principal = ADMIN
        yield broker


def heard(broker: VirtualBroker, *kinds: str) -> list[Any]:
    found: list[Event] = []
    broker.node.events.subscribe(found.append, kinds)
    return found


def write(broker: VirtualBroker, by: Connection, topic: str = "orders") -> int:
    answer = broker.ask(produce(topic, batch(b"x")), 9, by=by)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


# Denials


def test_a_denial_is_an_event_and_a_line_with_its_reason(broker: VirtualBroker) -> None:
    events = heard(broker)
    allow(broker, creation(TOPIC, "ord", WRITE, pattern=PREFIXED, permission=DENY))
    assert write(broker, client(broker))
    (denied,) = [each for each in events if isinstance(each, Denied)]
    assert denied.line == "denied b1 User:alice WRITE TOPIC:orders Produce"
    assert denied.sentence == (
        "Broker 1 denied User:alice from 10.0.0.1 to WRITE TOPIC:orders, which Produce needs, because a rule denies "
        "it, for ord (prefixed)."
    )
    assert (denied.listener, denied.client) == ("PLAINTEXT", "test")
    assert broker.said[-1] == (
        "denied: User:alice from 10.0.0.1 may not WRITE TOPIC:orders (Produce), because a rule denies it, for ord "
        "(prefixed)"
    )


def test_a_denial_is_a_line_though_nobody_watches(broker: VirtualBroker) -> None:
    write(broker, client(broker))
    assert broker.said[-1].endswith("because there is no rule for the resource")


def test_what_is_allowed_is_told_to_who_asks_for_it(broker: VirtualBroker) -> None:
    allow(broker, creation(TOPIC, "orders", WRITE))
    usual = heard(broker)
    assert not write(broker, client(broker))
    assert not [each for each in usual if isinstance(each, Allowed)]
    events = heard(broker, "allowed")
    assert not write(broker, client(broker))
    assert [each.line for each in events] == ["allowed b1 User:alice WRITE TOPIC:orders Produce"]
    assert "because a rule allows it, for orders (literal)." in events[0].sentence
    assert not [line for line in broker.said if "allowed" in line]


def test_what_is_hidden_in_a_list_or_allowed_by_something_else_is_no_denial(broker: VirtualBroker) -> None:
    allow(broker, creation(TOPIC, "orders", WRITE))
    events = heard(broker)
    alice = client(broker)
    assert names_seen(broker, alice) == ["orders"]
    broker.ask(ListGroupsRequest(), 4, by=alice)
    init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    assert not broker.ask(init, 4, by=alice).error_code, "who may write anywhere may be idempotent"
    bob = client(broker, "bob")
    assert names_seen(broker, bob) == []
    assert not [each for each in events if isinstance(each, Denied)]
    assert broker.ask(init, 4, by=bob).error_code
    denied = [each.line for each in events if isinstance(each, Denied)]
    assert denied == ["denied b1 User:bob IDEMPOTENT_WRITE CLUSTER:kafka-cluster InitProducerId"]


def test_lines_are_few_and_those_that_were_none_are_counted(broker: VirtualBroker) -> None:
    alice, before, events = client(broker), len(broker.said), heard(broker, "denied")
    for number in range(LINES_MAX + 7):
        write(broker, alice, f"t{number}")
    assert len(broker.said) - before == LINES_MAX
    assert len(events) == LINES_MAX + 7
    broker.pass_ms(WINDOW_MS)
    write(broker, alice)
    assert broker.said[-2:] == [
        "denied: 7 more, which had no lines",
        "denied: User:alice from 10.0.0.1 may not WRITE TOPIC:orders (Produce), because there is no rule for the "
        "resource",
    ]


async def test_denials_by_http_take_no_lines_from_those_who_log_in() -> None:
    async with running(SETTINGS) as node:
        said: list[str] = []
        node.reporter.say = said.append  # type: ignore[method-assign, assignment]
        assert node.authorizer is not None
        assert node.authorizer.audit is not None
        decision = (READ, TOPIC, "t")
        for _ in range(LINES_MAX + 1):
            node.authorizer.audit(False, ("HTTP", "", "GET /metrics"), "User:ANONYMOUS", "10.0.0.1", decision)
        assert len(said) == LINES_MAX
        node.authorizer.audit(False, ("PLAINTEXT", "app", 3), "User:alice", "10.0.0.1", decision)
        assert said[-1].startswith("denied: User:alice from 10.0.0.1 may not READ TOPIC:t (Metadata)")


def test_of_one_request_only_so_much_is_told_and_each_thing_once(broker: VirtualBroker) -> None:
    alice, events = client(broker), heard(broker, "denied")
    Topic = ListOffsetsRequest.ListOffsetsTopic
    place = Topic.ListOffsetsPartition(partition_index=0, timestamp=-1)
    names = ["same", *(f"t{number}" for number in range(TOLD_MAX * 2)), "same"]
    topics = [Topic(name=name, partitions=[place]) for name in names]
    broker.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 7, by=alice)
    assert len(events) == TOLD_MAX
    assert len({each.resource for each in events}) == TOLD_MAX
    assert events[-1].why.endswith("; of more in this request nothing is told")


def test_what_is_allowed_hides_no_denial_and_nothing_that_is_said_twice_does(broker: VirtualBroker) -> None:
    allow(broker, creation(TOPIC, "o", DESCRIBE, pattern=PREFIXED))
    alice, before, events = client(broker), len(broker.said), heard(broker, "denied", "allowed")
    Topic = ListOffsetsRequest.ListOffsetsTopic
    place = Topic.ListOffsetsPartition(partition_index=0, timestamp=-1)
    allowed = [f"o{number}" for number in range(TOLD_MAX + 1)]
    topics = [Topic(name=name, partitions=[place]) for name in [*allowed, *["same"] * (TOLD_MAX + 1), "hidden"]]
    broker.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 7, by=alice)
    assert [each.resource for each in events if isinstance(each, Denied)] == ["TOPIC:same", "TOPIC:hidden"]
    assert len(broker.said) - before == 2
    assert len([each for each in events if isinstance(each, Allowed)]) == TOLD_MAX
    Asked = MetadataRequest.MetadataRequestTopic
    broker.ask(MetadataRequest(topics=[Asked(name="same"), Asked(name="same")]), 9, by=client(broker))
    assert [each.line for each in events[TOLD_MAX:]].count("denied b1 User:alice DESCRIBE TOPIC:same Metadata") == 1


def test_a_clients_word_stays_on_its_line() -> None:
    assert plainly("a\nb\x1b[1m") == "a\\nb\\x1b[1m"
    assert plainly("ä" * 300) == "ä" * 200 + "..."


def test_a_name_with_a_line_in_it_makes_no_line(broker: VirtualBroker) -> None:
    events = heard(broker, "denied")
    broker.ask(produce("x\ndenied: nothing", batch(b"x")), 9, by=client(broker, "mallory\nroot"))
    assert "\n" not in broker.said[-1] + events[0].line + events[0].sentence


# Logins


def test_a_login_tells_who_from_where_and_what_came_of_it() -> None:
    with asking_broker() as broker:
        events = heard(broker, "login")
        Wire(broker).log_in("PLAIN", ALICE)
        Wire(broker).log_in("PLAIN", plain("alice", "guessed"))
        Wire(broker).log_in("MD5")
        Wire(broker).ask(MetadataRequest(topics=[]), 9)
        assert [(each.state, each.error, each.is_again) for each in events] == [
            ("succeeds", "", False),
            ("fails", "SASL_AUTHENTICATION_FAILED", False),
            ("fails", "UNSUPPORTED_SASL_MECHANISM", False),
            ("fails", "ILLEGAL_SASL_STATE", False),
        ]
        assert events[0].sentence == (
            "The login of 'alice' by PLAIN from 127.0.0.1 at listener SASL_PLAINTEXT of broker 1 succeeds, because the "
            "credentials are right."
        )
        assert not [each for each in events if "guessed" in repr(vars(each)) or "secret" in repr(vars(each))]


def test_who_logs_in_again_or_never_is_told_of() -> None:
    with asking_broker(**{"connections.max.reauth.ms": 60_000}) as broker:
        events = heard(broker, "login")
        wire = Wire(broker)
        wire.log_in("PLAIN", ALICE)
        broker.pass_ms(2_000)
        wire.log_in("PLAIN", ALICE)
        broker.pass_ms(2_000)
        wire.log_in("PLAIN", plain("alice", "guessed"))
        Wire(broker)
        broker.pass_ms(40_000)
        assert [(each.state, each.is_again, each.why) for each in events[:4]] == [
            ("succeeds", False, "the credentials are right"),
            ("succeeds", True, "the credentials are right"),
            ("fails", True, "name or password are wrong"),
            ("fails", False, "it took too long"),
        ]


@pytest.mark.outside
def test_a_certificate_that_names_its_client_is_told_of() -> None:
    with Cluster(1, tls=True, topics="t", ssl_client_auth="required") as cluster:
        settings = cluster.client_config("minibroker")

        async def topics() -> list[str]:
            security = Security.of(settings)
            async with ClientCluster(cluster.bootstrap_servers, security=security) as one:
                return sorted(await one.metadata())

        with cluster.watching("certificate") as seen:
            assert asyncio.run(topics()) == ["t"]
        told = [each for each in seen if isinstance(each, Certificate)]
        assert {each.principal for each in told} == {"User:CN=client,O=minibroker"}
        assert told[0].sentence.startswith("The client at 127.0.0.1 is User:CN=")


# Who changes what


def test_who_makes_and_removes_rules_is_told_of(broker: VirtualBroker) -> None:
    events = heard(broker, "administration")
    allow(broker, creation(TOPIC, "orders", READ), creation(TOPIC, "", READ))
    filters = [DeleteAclsRequest.DeleteAclsFilter(**every())]
    broker.ask(DeleteAclsRequest(filters=filters), 3)
    broker.ask(DeleteAclsRequest(filters=filters), 3, by=client(broker))
    rule = "the rule ALLOW User:alice to READ TOPIC:orders"
    assert [(each.principal, each.wish, each.error) for each in events] == [
        ("User:admin", f"make {rule}", ""),
        ("User:admin", "make the rule ALLOW User:alice to READ TOPIC:", "INVALID_REQUEST"),
        ("User:admin", f"remove {rule}", ""),
        ("User:alice", "remove rules", "CLUSTER_AUTHORIZATION_FAILED"),
    ]
    assert events[0].sentence == f"Broker 1 was asked by User:admin from 127.0.0.1 to make {rule}, and it was done."
    assert events[1].sentence.endswith("and answered INVALID_REQUEST.")


def test_who_sets_and_removes_passwords_is_told_of_and_the_password_is_not(broker: VirtualBroker) -> None:
    events = heard(broker, "administration")
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="bob\n", mechanism=1, iterations=4096, salt=b"pinch", salted_password=b"hushed"
    )
    deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="carl", mechanism=2)
    broker.ask(AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[upsertion]), 0)
    assert [(each.thing, each.wish, each.error) for each in events] == [
        ("user", "remove the password of carl for SCRAM-SHA-512", "RESOURCE_NOT_FOUND"),
        ("user", "set the password of bob\\n for SCRAM-SHA-256", ""),
    ]
    assert not [each for each in events if "hushed" in repr(each.as_json()) or "pinch" in repr(each.as_json())]


def test_who_makes_renews_and_ends_tokens_is_told_of_and_the_secret_is_not() -> None:
    with asking_broker(**{"delegation.token.secret.key": "abracadabra"}) as broker:
        events = heard(broker, "administration")
        wire = Wire(broker)
        wire.log_in("PLAIN", ALICE)
        made = wire.ask(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
        hmac = bytes(made.hmac)
        wire.ask(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=-1), 2)
        wire.ask(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1), 2)
        wire.ask(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=-1), 2)
        token = f"the token {made.token_id} of User:alice"
        assert [(each.principal, each.wish, each.error) for each in events] == [
            ("User:alice", f"make {token}", ""),
            ("User:alice", f"renew {token}", ""),
            ("User:alice", f"end {token}", ""),
            ("User:alice", "renew a token that is not there", "DELEGATION_TOKEN_NOT_FOUND"),
        ]
        assert not [each for each in events if hmac.hex() in repr(vars(each)) or repr(hmac) in repr(vars(each))]


def test_who_sets_quotas_is_told_of(broker: VirtualBroker) -> None:
    events = heard(broker, "administration")
    Entry = AlterClientQuotasRequest.EntryData
    change = Entry.OpData(key="producer_byte_rate", value=1024.0, remove=False)
    gone = Entry.OpData(key="consumer_byte_rate", value=0.0, remove=True)
    entry = Entry(entity=[Entry.EntityData(entity_type="user", entity_name=None)], ops=[change, gone])
    answer = broker.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
    is_set = not answer.entries[0].error_code
    assert [(each.thing, each.wish) for each in events] == [
        ("quota", "set the quota producer_byte_rate=1024 of user <default>"),
        ("quota", "remove the quota consumer_byte_rate of user <default>"),
    ]
    assert {not each.error for each in events} == {is_set}


def test_nothing_is_looked_at_if_nobody_watches(broker: VirtualBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minibroker.broker.auditing.CHANGES", {})
    assert allow(broker, creation(TOPIC, "orders", READ)) == [(0, "")]


@pytest.mark.outside
def test_a_broker_of_a_cluster_tells_of_what_its_controller_has_done() -> None:
    from minibroker.client.security_admin import AccessRule, SecurityAdmin

    settings: dict[str, Any] = {**SETTINGS, "super.users": "User:ANONYMOUS"}
    with Cluster(2, **settings) as cluster, cluster.watching("administration") as seen:

        async def make() -> None:
            async with ClientCluster(cluster.bootstrap_servers) as one:
                await SecurityAdmin(one).add_rules([AccessRule(TOPIC, 3, "orders", "User:alice", "*", READ, 3)])

        asyncio.run(make())
        told = [each for each in seen if isinstance(each, Administration)]
        assert [(each.principal, each.wish, each.error) for each in told] == [
            ("User:ANONYMOUS", "make the rule ALLOW User:alice to READ TOPIC:orders", "")
        ]
