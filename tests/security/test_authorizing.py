"""A broker with an authorizer: what its guards do beyond single answers, which test_acls_as_kafka.py compares."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from minibroker.broker.apis import SERVED
from minibroker.broker.authorize.guards import guard
from minibroker.broker.authorize.table import TABLE
from minibroker.broker.http_verbs import answer, find_refusal
from minibroker.client.connection import Connection as ClientConnection
from minibroker.config import BrokerConfig, ConfigError
from minibroker.errors import Error
from minibroker.log.memory_storage import MemoryStorage
from minibroker.protocol.messages.alter_configs import AlterConfigsRequest
from minibroker.protocol.messages.api_versions import ApiVersionsRequest
from minibroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from minibroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minibroker.protocol.messages.create_acls import CreateAclsRequest
from minibroker.protocol.messages.delete_acls import DeleteAclsRequest
from minibroker.protocol.messages.describe_acls import DescribeAclsRequest
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.list_groups import ListGroupsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from minibroker.security.acls import (
    ALLOW,
    ALTER,
    ANY,
    CLUSTER,
    CREATE,
    DENY,
    DESCRIBE,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
    java_address,
)
from minibroker.security.principal import ANONYMOUS, Principal
from minibroker.server.connection import Connection
from minibroker.server.http import HttpRequest
from minibroker.stored.security import AccessControlEntryRecord
from tests.broker.virtual_broker import VirtualBroker, virtual_broker
from tests.cluster.virtual import Lab, in_cluster
from tests.server.running import FedTransport, batch, connected, produce, running

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS: dict[str, object] = {"authorizer.class.name": AUTHORIZER, "super.users": "User:admin; User:root"}
ALICE, ADMIN, HOST = "User:alice", Principal("User", "admin"), "10.0.0.1"
NEWEST = 3  # of the APIs of rules
METADATA_VERSION, FETCH_VERSION, PRODUCE_VERSION = 9, 12, 9


@pytest.fixture
def broker() -> Iterator[VirtualBroker]:
    with virtual_broker(SETTINGS) as broker:
        broker.run(broker.node.create_topic, "orders", 2)
        broker.run(broker.node.create_topic, "bills", 1)
        broker.connection.principal = ADMIN
        yield broker


def client(broker: VirtualBroker, name: str = "alice", host: str = HOST) -> Connection:
    made: Connection = broker.run(FedTransport, broker.node, host).connection
    made.principal = Principal("User", name)
    return made


def creation(
    kind: int,
    name: str,
    operation: int,
    *,
    permission: int = ALLOW,
    pattern: int = LITERAL,
    who: str = ALICE,
    host: str = "*",
) -> CreateAclsRequest.AclCreation:
    return CreateAclsRequest.AclCreation(
        resource_type=kind, resource_name=name, resource_pattern_type=pattern, principal=who, host=host,
        operation=operation, permission_type=permission,
    )  # fmt: skip


def allow(broker: VirtualBroker, *creations: CreateAclsRequest.AclCreation) -> list[tuple[int, str | None]]:
    answer = broker.ask(CreateAclsRequest(creations=list(creations)), NEWEST)
    return [(each.error_code, each.error_message) for each in answer.results]


def every(**more: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY, "principal_filter": None,
        "host_filter": None, "operation": ANY, "permission_type": ANY, **more,
    }  # fmt: skip


def remove(broker: VirtualBroker, **more: Any) -> Any:
    request = DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**every(**more))])
    return broker.ask(request, NEWEST).filter_results[0]


def names_seen(broker: VirtualBroker, by: Connection) -> list[str]:
    return sorted(topic.name for topic in broker.ask(MetadataRequest(topics=None), METADATA_VERSION, by=by).topics)


# Rules


def test_rules_are_made_listed_and_removed(broker: VirtualBroker) -> None:
    assert allow(broker, creation(TOPIC, "orders", READ), creation(TOPIC, "orders", WRITE)) == [(0, ""), (0, "")]
    assert allow(broker, creation(TOPIC, "orders", READ)) == [(0, "")], "which is there already"
    assert allow(broker, creation(GROUP, "gr", READ, pattern=PREFIXED)) == [(0, "")]
    assert len(broker.node.image.acls) == 3
    found = broker.ask(DescribeAclsRequest(**every()), NEWEST)
    assert (found.error_code, found.error_message) == (Error.NONE, "")
    assert [
        (each.resource_type, each.resource_name, each.pattern_type, len(each.acls)) for each in found.resources
    ] == [
        (TOPIC, "orders", LITERAL, 2),
        (GROUP, "gr", PREFIXED, 1),
    ]
    only = broker.ask(DescribeAclsRequest(**every(operation=WRITE)), NEWEST).resources
    assert [rule.operation for each in only for rule in each.acls] == [WRITE]
    gone = remove(broker, resource_type_filter=TOPIC)
    assert (gone.error_code, gone.error_message) == (Error.NONE, None)
    assert sorted(rule.operation for rule in gone.matching_acls) == [READ, WRITE]
    assert len(broker.node.image.acls) == 1
    assert not remove(broker, resource_type_filter=TOPIC).matching_acls


BAD_RULES = [
    (creation(CLUSTER, "mine", ALTER), "The only valid name for the CLUSTER resource is kafka-cluster"),
    (creation(TOPIC, "", READ), "Invalid empty resource name"),
    (creation(99, "x", READ), "Invalid resourceType UNKNOWN"),
    (creation(TOPIC, "x", 77), "Invalid operation UNKNOWN"),
    (creation(TOPIC, "x", READ, host=""), "Host pattern cannot be null or empty"),
]


@pytest.mark.parametrize(("bad", "words"), BAD_RULES, ids=[words for _, words in BAD_RULES])
def test_what_is_no_rule_is_refused_and_the_others_are_made(
    broker: VirtualBroker, bad: CreateAclsRequest.AclCreation, words: str
) -> None:
    assert allow(broker, bad, creation(TOPIC, "orders", READ)) == [(Error.INVALID_REQUEST, words), (0, "")]
    assert len(broker.node.image.acls) == 1


def test_what_only_a_filter_can_be_refuses_the_whole_request(broker: VirtualBroker) -> None:
    answers = allow(broker, creation(TOPIC, "orders", READ), creation(TOPIC, "x", ANY))
    assert answers == [(Error.UNKNOWN_SERVER_ERROR, None)] * 2
    assert not broker.node.image.acls


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("resource_type_filter", "Unknown patternFilter."),
        ("pattern_type_filter", "Unknown patternFilter."),
        ("operation", "Unknown entryFilter."),
        ("permission_type", "Unknown entryFilter."),
    ],
)
def test_a_filter_that_nobody_understands_removes_nothing(broker: VirtualBroker, field: str, words: str) -> None:
    allow(broker, creation(TOPIC, "orders", READ))
    gone = remove(broker, **{field: 99})
    assert (gone.error_code, gone.error_message, gone.matching_acls) == (Error.INVALID_REQUEST, words, [])
    assert len(broker.node.image.acls) == 1


def test_too_many_rules_at_once_are_refused_all_of_them(broker: VirtualBroker) -> None:
    answers = allow(broker, *(creation(TOPIC, f"t{number}", READ) for number in range(10_001)))
    assert set(answers) == {(Error.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")}
    assert not broker.node.image.acls


@pytest.mark.slow
def test_too_many_rules_are_not_removed_at_once_none_of_them(broker: VirtualBroker) -> None:
    allow(broker, *(creation(TOPIC, f"t{number}", READ) for number in range(10_000)))
    allow(broker, creation(TOPIC, "orders", WRITE))
    gone = remove(broker)
    words = "Cannot remove more than 10000 acls in a single delete operation."
    assert (gone.error_code, gone.error_message, gone.matching_acls) == (Error.INVALID_REQUEST, words, [])
    assert len(broker.node.image.acls) == 10_001
    assert len(remove(broker, operation=READ).matching_acls) == 10_000
    assert len(broker.node.image.acls) == 1


def test_without_an_authorizer_there_are_no_rules() -> None:
    with virtual_broker() as broker:
        assert allow(broker, creation(TOPIC, "orders", READ)) == [
            (Error.SECURITY_DISABLED, "No Authorizer is configured.")
        ]
        found = broker.ask(DescribeAclsRequest(**every()), NEWEST)
        assert (found.error_code, found.error_message) == (
            Error.SECURITY_DISABLED,
            "No Authorizer is configured on the broker",
        )
        assert broker.node.authorizer is None
        assert guard not in broker.node.dispatcher.guards


@pytest.mark.setting("authorizer.class.name")
def test_rules_outlive_the_broker_and_are_asked_by_the_next() -> None:
    storage = MemoryStorage(lambda: 0)
    with virtual_broker(SETTINGS, storage=storage) as broker:
        broker.run(broker.node.create_topic, "orders", 1)
        broker.connection.principal = ADMIN
        allow(broker, creation(TOPIC, "orders", READ))
    with virtual_broker(SETTINGS, storage=storage) as broker:
        assert names_seen(broker, client(broker)) == ["orders"]
        assert names_seen(broker, client(broker, "bob")) == []


# Requests


def test_every_api_that_is_served_has_a_row() -> None:
    assert set(TABLE) == set(SERVED)
    assert all(row.needs or row.refused for row in TABLE.values())


def test_an_api_without_a_row_is_refused(broker: VirtualBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def handler(request: Any, context: Any) -> Any:
        raise AssertionError("never called")

    monkeypatch.delitem(TABLE, 16)
    assert guard(16, 5, handler) is not handler
    broker.node.dispatcher.guard(broker.node.dispatcher.guards)
    assert broker.ask(ListGroupsRequest(), 5).error_code == Error.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.setting("super.users")
def test_super_users_need_no_rules_and_others_do(broker: VirtualBroker) -> None:
    for name, seen in (("admin", ["bills", "orders"]), ("root", ["bills", "orders"]), ("alice", [])):
        assert names_seen(broker, client(broker, name)) == seen


@pytest.mark.setting("allow.everyone.if.no.acl.found")
def test_everybody_may_where_no_rule_speaks_if_that_is_set() -> None:
    with virtual_broker({**SETTINGS, "allow.everyone.if.no.acl.found": "true"}) as broker:
        broker.run(broker.node.create_topic, "orders", 1)
        broker.run(broker.node.create_topic, "bills", 1)
        broker.connection.principal = ADMIN
        alice, bob = client(broker), client(broker, "bob")
        assert names_seen(broker, alice) == names_seen(broker, bob) == ["bills", "orders"]
        allow(broker, creation(TOPIC, "orders", READ))
        assert names_seen(broker, alice) == ["bills", "orders"]
        assert names_seen(broker, bob) == ["bills"]


def test_a_rule_counts_from_the_next_request_on(broker: VirtualBroker) -> None:
    alice = client(broker)
    assert names_seen(broker, alice) == []
    allow(broker, creation(TOPIC, "or", DESCRIBE, pattern=PREFIXED))
    assert names_seen(broker, alice) == ["orders"]
    allow(broker, creation(TOPIC, "*", DESCRIBE, permission=DENY, host=HOST))
    assert names_seen(broker, alice) == []
    assert names_seen(broker, client(broker, host="10.0.0.2")) == ["orders"]
    remove(broker, permission_type=DENY)
    assert names_seen(broker, alice) == ["orders"]
    remove(broker)
    assert names_seen(broker, alice) == []


def test_a_topic_is_made_by_who_may_create_it_alone(broker: VirtualBroker) -> None:
    alice = client(broker)
    allow(broker, creation(TOPIC, "*", DESCRIBE), creation(TOPIC, "mine", CREATE, pattern=PREFIXED))
    Topic = MetadataRequest.MetadataRequestTopic
    asked = MetadataRequest(topics=[Topic(name="mine1"), Topic(name="yours")], allow_auto_topic_creation=True)
    answer = broker.ask(asked, METADATA_VERSION, by=alice)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("mine1", Error.NONE),
        ("yours", Error.TOPIC_AUTHORIZATION_FAILED),
    ]
    assert "yours" not in broker.node.image.topics


@pytest.mark.parametrize("version", [3, 4])
def test_no_topic_is_made_for_groups_that_one_may_not_describe(broker: VirtualBroker, version: int) -> None:
    request = FindCoordinatorRequest(key_type=0, key="g", coordinator_keys=["g"])
    answer = broker.ask(request, version, by=client(broker))
    code = answer.error_code if version < 4 else answer.coordinators[0].error_code
    assert code == Error.GROUP_AUTHORIZATION_FAILED
    assert "__consumer_offsets" not in broker.node.image.topics


def test_a_regular_expression_stands_for_what_a_member_may_describe(broker: VirtualBroker) -> None:
    allow(broker, creation(GROUP, "g", READ), creation(TOPIC, "ord", READ, pattern=PREFIXED))
    alice, member = client(broker), "AAAAAAAAAAAAAAAAAAAAAA"
    broker.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)

    def beat(epoch: int, **more: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member, member_epoch=epoch, **more)
        answer = broker.ask(request, 1, by=alice)
        assert answer.error_code == Error.NONE, answer
        broker.pass_ms(20_000)
        return answer

    def assigned(answer: Any) -> list[str]:
        rows = answer.assignment.topic_partitions
        return sorted(broker.node.topic_name(bytes(each.topic_id)) or "" for each in rows)

    answer = beat(0, subscribed_topic_regex=".*", rebalance_timeout_ms=60_000, topic_partitions=[])
    for _ in range(4):
        answer = beat(answer.member_epoch)
        if answer.assignment is not None and answer.assignment.topic_partitions:
            break
    assert assigned(answer) == ["orders"]
    allow(broker, creation(TOPIC, "b", DESCRIBE, pattern=PREFIXED))
    broker.run(broker.node.create_topic, "bottles", 1)  # a new topic has them looked at again
    for _ in range(4):
        answer = beat(answer.member_epoch)
        if answer.assignment is not None:
            break
    assert assigned(answer) == ["bills", "bottles", "orders"]


def test_a_group_is_described_to_who_may_describe_all_that_its_members_have(broker: VirtualBroker) -> None:
    broker.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    joined = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="AAAAAAAAAAAAAAAAAAAAAA", member_epoch=0, rebalance_timeout_ms=60_000,
        subscribed_topic_names=["orders", "bills"], topic_partitions=[],
    )  # fmt: skip
    assert broker.ask(joined, 1).error_code == Error.NONE
    alice = client(broker)

    def described() -> tuple[int, int]:
        asked = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
        (group,) = broker.ask(asked, 1, by=alice).groups
        return group.error_code, sum(
            len(each.assignment.topic_partitions) + len(each.target_assignment.topic_partitions)
            for each in group.members
        )

    assert described() == (Error.GROUP_AUTHORIZATION_FAILED, 0)
    allow(broker, creation(GROUP, "g", DESCRIBE), creation(TOPIC, "ord", READ, pattern=PREFIXED))
    assert described() == (Error.TOPIC_AUTHORIZATION_FAILED, 0)
    allow(broker, creation(TOPIC, "*", DESCRIBE, host="10.9.9.9"), creation(TOPIC, "bills", READ, who="User:bob"))
    assert described() == (Error.TOPIC_AUTHORIZATION_FAILED, 0)
    allow(broker, creation(TOPIC, "*", DESCRIBE))
    error, topics = described()
    assert error == Error.NONE
    assert topics >= 2
    allow(broker, creation(TOPIC, "b", DESCRIBE, permission=DENY, pattern=PREFIXED))
    assert described() == (Error.TOPIC_AUTHORIZATION_FAILED, 0)


def test_nothing_is_told_of_a_topic_that_one_may_not_describe(broker: VirtualBroker) -> None:
    Topic = MetadataRequest.MetadataRequestTopic

    def told(name: str) -> Any:
        asked = MetadataRequest(topics=[Topic(name=name)], allow_auto_topic_creation=True)
        (topic,) = broker.ask(asked, METADATA_VERSION, by=client(broker)).topics
        topic.name = "..."
        return topic

    assert told("orders") == told("absent")


def test_the_api_of_versions_asks_for_nothing(broker: VirtualBroker) -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    assert broker.ask(request, 3, by=client(broker)).error_code == Error.NONE


# Produce


def produce_to(*names: str, acks: int = 1) -> ProduceRequest:
    rows = [produce(name, batch(b"v")).topic_data[0] for name in names]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=rows)


def end_of(broker: VirtualBroker, name: str) -> int:
    return broker.node.replicas[name, 0].log.log_end_offset


def test_what_may_be_written_is_written_and_the_rest_refused(broker: VirtualBroker) -> None:
    allow(broker, creation(TOPIC, "orders", WRITE))
    answer = broker.ask(produce_to("bills", "orders", "absent"), PRODUCE_VERSION, by=client(broker))
    assert [(topic.name, topic.partition_responses[0].error_code) for topic in answer.responses] == [
        ("orders", Error.NONE),
        ("bills", Error.TOPIC_AUTHORIZATION_FAILED),
        ("absent", Error.TOPIC_AUTHORIZATION_FAILED),
    ]
    assert (end_of(broker, "orders"), end_of(broker, "bills")) == (1, 0)


@pytest.mark.parametrize("names", [("orders", "bills"), ("bills",)])
def test_without_an_answer_the_connection_says_that_something_was_refused(
    broker: VirtualBroker, names: tuple[str, ...]
) -> None:
    allow(broker, creation(TOPIC, "orders", WRITE))
    alice = client(broker)
    assert broker.ask(produce_to(*names, acks=0), PRODUCE_VERSION, by=alice) is None
    assert alice.is_closing
    assert (end_of(broker, "orders"), end_of(broker, "bills")) == (len(names) - 1, 0)


def test_many_partitions_are_written_in_shares_and_the_rest_is_refused(broker: VirtualBroker) -> None:
    broker.run(broker.node.create_topic, "wide", 300)
    allow(broker, creation(TOPIC, "wide", WRITE))
    Topic = ProduceRequest.TopicProduceData
    rows = [Topic.PartitionProduceData(index=number, records=batch(b"v")) for number in range(300)]
    request = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[Topic(name=name, partition_data=rows) for name in ("wide", "bills")]
    )
    answer = broker.ask(request, PRODUCE_VERSION, by=client(broker))
    wide, bills = answer.responses
    assert {row.error_code for row in wide.partition_responses} == {Error.NONE}
    assert {row.error_code for row in bills.partition_responses} == {Error.TOPIC_AUTHORIZATION_FAILED}
    assert len(wide.partition_responses) == len(bills.partition_responses) == 300


# Fetch


def fetch_of(*names: str, session_id: int = 0, epoch: int = 0, wait_ms: int = 0) -> FetchRequest:
    Topic = FetchRequest.FetchTopic
    rows = [
        Topic(topic=name, partitions=[Topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)])
        for name in names
    ]
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, topics=rows, session_id=session_id, session_epoch=epoch
    )


def told(answer: Any) -> dict[str, tuple[int, int]]:
    """Return error and size of what came, by topic."""
    return {
        topic.topic: (row.error_code, len(row.records or b"")) for topic in answer.responses for row in topic.partitions
    }


def test_a_partition_that_was_refused_stays_in_its_session_and_is_read_when_it_may_be(broker: VirtualBroker) -> None:
    broker.ask(produce_to("orders", "bills"), PRODUCE_VERSION)
    allow(broker, creation(TOPIC, "orders", READ))
    alice = client(broker)
    first = broker.ask(fetch_of("orders", "bills"), FETCH_VERSION, by=alice)
    assert told(first)["bills"] == (Error.TOPIC_AUTHORIZATION_FAILED, 0)
    assert told(first)["orders"][1] > 0
    again = broker.ask(fetch_of(session_id=first.session_id, epoch=1), FETCH_VERSION, by=alice)
    assert told(again)["bills"] == (Error.TOPIC_AUTHORIZATION_FAILED, 0), "an error is told each time"
    allow(broker, creation(TOPIC, "bills", READ))
    third = broker.ask(fetch_of(session_id=first.session_id, epoch=2), FETCH_VERSION, by=alice)
    assert told(third)["bills"][1] > 0


def test_a_partition_of_a_session_is_not_read_any_more_when_the_rule_has_gone(broker: VirtualBroker) -> None:
    allow(broker, creation(TOPIC, "orders", READ), creation(TOPIC, "bills", READ))
    alice = client(broker)
    first = broker.ask(fetch_of("orders", "bills"), FETCH_VERSION, by=alice)
    assert {code for code, _ in told(first).values()} == {Error.NONE}
    assert told(broker.ask(fetch_of(session_id=first.session_id, epoch=1), FETCH_VERSION, by=alice)) == {}
    remove(broker, resource_name_filter="orders")
    second = broker.ask(fetch_of(session_id=first.session_id, epoch=2), FETCH_VERSION, by=alice)
    assert told(second) == {"orders": (Error.TOPIC_AUTHORIZATION_FAILED, 0)}


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_fetch_waits_for_what_it_may_read_and_for_nothing_else(broker: VirtualBroker, epoch: int) -> None:
    allow(broker, creation(TOPIC, "orders", READ))
    alice = client(broker)
    waiting = broker.begin(fetch_of("orders", "bills", epoch=epoch, wait_ms=60_000), FETCH_VERSION, by=alice)
    broker.pass_ms(1000)
    assert not waiting.done(), "what was refused is no reason to answer"
    broker.ask(produce_to("bills"), PRODUCE_VERSION)
    broker.pass_ms(1000)
    assert not waiting.done()
    broker.ask(produce_to("orders"), PRODUCE_VERSION)
    answer = told(broker.wait(waiting))
    assert answer["orders"][1] > 0
    assert answer["bills"] == (Error.TOPIC_AUTHORIZATION_FAILED, 0)


def test_a_fetch_of_what_may_not_be_read_does_not_wait(broker: VirtualBroker) -> None:
    before_ms = broker.now_ms()
    answer = broker.ask(fetch_of("orders", "bills", wait_ms=60_000), FETCH_VERSION, by=client(broker))
    assert {code for code, _ in told(answer).values()} == {Error.TOPIC_AUTHORIZATION_FAILED}
    assert broker.now_ms() - before_ms < 100


def test_many_partitions_are_read_in_shares_but_for_those_that_may_not_be(broker: VirtualBroker) -> None:
    broker.run(broker.node.create_topic, "wide", 300)
    allow(broker, creation(TOPIC, "wide", READ))
    broker.ask(produce_to("wide"), PRODUCE_VERSION)
    Topic = FetchRequest.FetchTopic
    rows = [Topic.FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1000) for n in range(300)]
    asked = FetchRequest(
        max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, session_epoch=-1,
        topics=[Topic(topic="bills", partitions=rows), Topic(topic="wide", partitions=rows)],
    )  # fmt: skip
    wide, bills = broker.ask(asked, FETCH_VERSION, by=client(broker)).responses
    assert (wide.topic, {row.error_code for row in wide.partitions}) == ("wide", {Error.NONE})
    assert (bills.topic, {row.error_code for row in bills.partitions}) == ("bills", {Error.TOPIC_AUTHORIZATION_FAILED})


# Settings


REFUSED = [
    ({"authorizer.class.name": "com.example.Mine"}, "no other class decides here; make it org.apache.kafka"),
    ({"super.users": "User:admin"}, "it has no effect without an authorizer; set authorizer.class.name to"),
    ({"allow.everyone.if.no.acl.found": "true"}, "it has no effect without an authorizer; set authorizer.class.name"),
    ({**SETTINGS, "super.users": "admin"}, "'admin' is no principal: write TYPE:NAME, as User:admin"),
    ({**SETTINGS, "allow.everyone.if.no.acl.found": "maybe"}, "Expected value to be either true or false"),
]


@pytest.mark.parametrize(("settings", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_a_setting_that_would_not_keep_anybody_out_stops_the_start(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        BrokerConfig.from_sources(settings, {}, None)


@pytest.mark.parametrize("name", [AUTHORIZER, "kafka.security.authorizer.AclAuthorizer"])
def test_both_authorizers_of_kafka_are_ours(name: str) -> None:
    with virtual_broker({"authorizer.class.name": name}) as broker:
        assert broker.node.authorizer is not None
        assert names_seen(broker, broker.connection) == []


UNUSED = """
import sys
from minibroker import Broker
with Broker(topics=["orders"]):
    pass
print(sorted(name for name in sys.modules if name.startswith(("minibroker.security.", "minibroker.broker.authorize"))))
"""


@pytest.mark.slow
def test_a_broker_that_lets_everybody_imports_nothing_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", UNUSED], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "['minibroker.security.principal']"


# Clusters, other protocols, and addresses


def test_in_a_cluster_every_broker_goes_by_the_rules_that_any_of_them_was_told() -> None:
    hidden = creation(TOPIC, "ord", DESCRIBE, permission=DENY, pattern=PREFIXED, who=str(ANONYMOUS))

    async def main(lab: Lab) -> None:
        async def ask(broker: int, request: Any, version: int) -> Any:
            host, _, port = lab.cluster.nodes[broker].bootstrap_servers.rpartition(":")
            async with await ClientConnection.open(host, int(port), clock=lab.world.clock) as connection:
                return await connection.call(request, version)

        async def seen(broker: int) -> list[str]:
            topics = (await ask(broker, MetadataRequest(topics=None), METADATA_VERSION)).topics
            return sorted(topic.name for topic in topics)

        lab.cluster.create_topic("orders", 3, 3)
        lab.cluster.create_topic("bills", 1, 3)
        await lab.cluster.waits.in_sync()
        assert [await seen(broker) for broker in (1, 2, 3)] == [["bills", "orders"]] * 3
        await lab.cluster.stop(3)
        made = await ask(2, CreateAclsRequest(creations=[hidden]), NEWEST)
        assert [each.error_code for each in made.results] == [Error.NONE]
        await lab.cluster.start(3)
        await lab.cluster.waits.in_sync()
        assert [await seen(broker) for broker in (1, 2, 3)] == [["bills"]] * 3
        gone = await ask(3, DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**every())]), NEWEST)
        assert len(gone.filter_results[0].matching_acls) == 1
        await lab.world.clock.sleep(1000)
        assert [await seen(broker) for broker in (1, 2, 3)] == [["bills", "orders"]] * 3

    settings = {"authorizer.class.name": AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
    in_cluster(main, settings=settings)


def test_settings_of_what_is_named_twice_are_altered_by_nobody(broker: VirtualBroker) -> None:
    for cls, version, more in (
        (AlterConfigsRequest, 2, {}),
        (IncrementalAlterConfigsRequest, 1, {"config_operation": 0}),
    ):
        Resource: Any = cls.AlterConfigsResource
        for kind, name, key in ((2, "orders", "retention.ms"), (4, "", "max.connections")):
            one = Resource(
                resource_type=kind,
                resource_name=name,
                configs=[Resource.AlterableConfig(name=key, value="1", **more)],
            )
            for asking in (client(broker), broker.connection):
                answer = broker.ask(cls(resources=[one, one], validate_only=False), version, by=asking)
                assert [each.error_code for each in answer.responses] == [Error.INVALID_REQUEST] * 2
    assert not broker.node.image.configs


def test_a_refused_marker_comes_back_with_its_own_id(broker: VirtualBroker) -> None:
    Marker = WriteTxnMarkersRequest.WritableTxnMarker
    Topic = Marker.WritableTxnMarkerTopic
    markers = [
        Marker(
            producer_id=number, producer_epoch=0, transaction_result=False, coordinator_epoch=0,
            topics=[Topic(name="orders", partition_indexes=[0])],
        )
        for number in (7, 8)
    ]  # fmt: skip
    answer = broker.ask(WriteTxnMarkersRequest(markers=markers), 1, by=client(broker))
    rows = [(each.producer_id, each.topics[0].partitions[0].error_code) for each in answer.markers]
    assert rows == [(7, Error.CLUSTER_AUTHORIZATION_FAILED), (8, Error.CLUSTER_AUTHORIZATION_FAILED)]


async def test_who_comes_by_http_is_nobody_in_particular() -> None:
    async def status(node: Any, method: str, path: str, body: dict[str, Any] | None = None) -> int:
        data = b"" if body is None else json.dumps(body).encode()
        head = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        async with connected(node) as browser:
            browser.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + data)
            return int((await browser.reader.read()).split()[1])

    rule = {"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER"}
    async with running(SETTINGS) as node:
        told: list[Any] = []
        node.events.subscribe(told.append, ["denied"])
        assert await status(node, "GET", "/health") == 200
        assert await status(node, "GET", "/metrics") == 403
        assert await status(node, "GET", "/faults") == 403
        assert await status(node, "POST", "/faults", rule) == 403
        assert not node.faults.rules
        assert [(each.principal, each.operation, each.request) for each in told] == [
            ("User:ANONYMOUS", "DESCRIBE", "GET /metrics"),
            ("User:ANONYMOUS", "DESCRIBE", "GET /faults"),
            ("User:ANONYMOUS", "ALTER", "POST /faults"),
        ]
    async with running({**SETTINGS, "super.users": str(ANONYMOUS)}) as node:
        assert await status(node, "GET", "/metrics") == 200
        assert await status(node, "POST", "/faults", rule) == 200
    for operation, steers in ((DESCRIBE, 403), (ALTER, 200)):  # who may alter may describe
        async with running(SETTINGS) as node:
            give(node, (operation, "*", ALLOW))
            assert await status(node, "GET", "/faults") == 200
            for method, path, body in (("POST", "/faults", rule), ("DELETE", "/faults", None), ("POST", "/roll", {})):
                assert await status(node, method, path, body) == steers, path
    async with running(SETTINGS) as node:
        told = []
        node.events.subscribe(told.append, ["denied"])
        give(node, (ALTER, "*", ALLOW), (ALTER, "127.0.0.1", DENY))
        assert await status(node, "GET", "/faults") == 200
        assert await status(node, "DELETE", "/faults") == 403
        (denied,) = told
        assert denied.sentence == (
            "Broker 1 denied User:ANONYMOUS from 127.0.0.1 to ALTER CLUSTER:kafka-cluster, which DELETE /faults needs, "
            "because a rule denies it, for kafka-cluster (literal)."
        )


@pytest.mark.parametrize("address", ["::1", "::ffff:10.0.0.7"])
async def test_rules_by_address_bind_http_however_the_address_is_written(address: str) -> None:
    request = HttpRequest("GET", "/api/events", {"host": "localhost"})
    request.address = address
    async with running(SETTINGS) as node:
        give(node, (DESCRIBE, "*", ALLOW))
        assert find_refusal(node, request) is None
        stream: Any = answer(node, request)
        assert stream._may_look()
        give(node, (DESCRIBE, "*", ALLOW), (DESCRIBE, java_address(address), DENY))
        refusal: Any = find_refusal(node, request)
        assert refusal[0] == "403 Forbidden"
        assert not stream._may_look()


def give(node: Any, *rules: tuple[int, str, int]) -> None:
    """Have rules for whoever comes by HTTP: operation, address, permission."""
    node.change(
        [
            AccessControlEntryRecord(
                id=bytes([number]) * 16,
                resource_type=CLUSTER,
                resource_name="kafka-cluster",
                pattern_type=LITERAL,
                principal=str(ANONYMOUS),
                host=host,
                operation=operation,
                permission_type=permission,
            )
            for number, (operation, host, permission) in enumerate(rules, 1)
        ]
    )


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("fe80::a:0bcd", "fe80:0:0:0:0:0:a:bcd"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("", ""),
    ],
)
def test_addresses_are_written_as_java_writes_them(address: str, told: str) -> None:
    assert java_address(address) == told
