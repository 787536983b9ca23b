"""What a client of few rights asks of every API, and the rules that would allow it: put to Kafka and to us alike.

    case       a request of alice's, and the rules (`grants`) that allow part of it or all
    variation  how these rules are made: not at all, as they are, beside one that denies, by prefix, by *, for another
               host, for all operations, for everybody

An administrator, who is a super user, makes topics, groups with offsets and transactional ids first, and what a request
would use up before each. Bob, who may do nothing, has a delegation token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol import registry
from minibroker.protocol.headers import Request
from minibroker.security import acls
from minibroker.security.acls import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    CREATE,
    CREATE_TOKENS,
    DELEGATION_TOKEN,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    DESCRIBE_TOKENS,
    GROUP,
    IDEMPOTENT_WRITE,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
    WRITE,
)

ALICE = "User:alice"
ADMIN = "User:ANONYMOUS"
BOB = "User:bob"
THE_TOKEN = "the token"  # of bob's: in grants instead of its id, which is another one each time
THIS_HOST, OTHER_HOST = "127.0.0.1", "10.9.9.9"
# Partitions of each topic; grants are for `orders` if a case says nothing else.
TOPICS = {"orders": 2, "bills": 1, "secret": 1}
NO_ID = bytes(16)
TIME = 1_700_000_000_000

Grant = tuple[int, int, str]  # resource type, operation, name


class World:
    """What is known of the broker that is asked."""

    token_id, hmac = "", b""  # of bob's delegation token

    def __init__(self, ids: dict[str, bytes], producer: tuple[int, int], before: str):
        self.ids = ids  # of topics, by name
        self.producer = producer  # id and epoch of the transactional id
        self.before = before  # the release

    def name_of(self, topic_id: bytes) -> str:
        return next((name for name, known in self.ids.items() if known == topic_id), "")


class Case(NamedTuple):
    name: str
    api: int
    build: Callable[[World, int], Request]
    grants: tuple[Grant, ...] = ()
    version: int = -1  # the newest that both serve
    prepare: tuple[str, ...] = ()  # topics that the administrator makes anew before it
    since: str = ""  # the first release that has it
    without: tuple[str, ...] = ()  # variations in which we differ on purpose
    is_changing: bool = False  # what it does cannot be done twice alike: asked only where nothing is allowed


def topic(name: str) -> tuple[Grant, ...]:
    return ((TOPIC, READ, name),)


def on_cluster(*operations: int) -> tuple[Grant, ...]:
    return tuple((CLUSTER, operation, CLUSTER_NAME) for operation in operations)


def batch(producer: tuple[int, int] = (-1, -1), *, transactional: bool = False) -> bytes:
    more: dict[str, Any] = {}
    if producer[0] >= 0:
        more = {"producer_id": producer[0], "producer_epoch": producer[1], "base_sequence": 0}
        more["transactional"] = transactional
    return build_batch(2, [Record(None, b"v", (), TIME, 0)], **more)


# Requests


def request_of(api: int) -> Any:
    """Return the class of the requests of an API."""
    return registry.request_class(api)


def by_name(field: str, cls: Any, name: str, world: World, *, by_id: bool, **more: Any) -> Any:
    """Return the element of a request for a topic, by its name or by its id."""
    return cls(topic_id=world.ids.get(name, b"\7" * 16), **more) if by_id else cls(**{field: name}, **more)


def produce(
    world: World, version: int, *, transactional_id: str | None = None, records: bytes | None = None
) -> Request:
    cls = request_of(0)
    Topic = cls.TopicProduceData
    rows = [
        by_name(
            "name", Topic, name, world, by_id=version >= 13,
            partition_data=[Topic.PartitionProduceData(index=0, records=records or batch())],
        )
        for name in ("orders", "secret", "absent")
    ]  # fmt: skip
    made: Request = cls(transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=rows)
    return made


def produce_in_transaction(world: World, version: int) -> Request:
    return produce(world, version, transactional_id="pay", records=batch(world.producer, transactional=True))


def produce_in_lost_transaction(world: World, version: int) -> Request:
    return produce(world, version, transactional_id="pay", records=batch((world.producer[0], 99), transactional=True))


def produce_by_id_without_transaction(world: World, version: int) -> Request:
    return produce(world, version, transactional_id="pay")


def fetch(world: World, version: int, replica_id: int = -1) -> Request:
    cls = request_of(1)
    Topic = cls.FetchTopic
    rows = [
        by_name(
            "topic", Topic, name, world, by_id=version >= 13,
            partitions=[Topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000)],
        )
        for name in ("orders", "secret", "absent")
    ]  # fmt: skip
    more: dict[str, Any] = {"replica_id": replica_id}
    if version >= 15:
        more = {"replica_state": cls.ReplicaState(replica_id=replica_id)}
    made: Request = cls(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=rows, session_epoch=-1, **more)
    return made


def list_offsets(world: World, version: int) -> Request:
    cls = request_of(2)
    Topic = cls.ListOffsetsTopic
    names = ("orders", "secret", "absent")
    made: Request = cls(
        replica_id=-1,
        topics=[Topic(name=n, partitions=[Topic.ListOffsetsPartition(partition_index=0, timestamp=-1)]) for n in names],
    )
    return made


def metadata(
    world: World, version: int, names: tuple[str, ...] | None = ("orders", "secret", "absent"), *,
    creates: bool = False, by_id: bool = False,
) -> Request:  # fmt: skip
    cls = request_of(3)
    Topic = cls.MetadataRequestTopic
    topics = None
    if names is not None:
        topics = [Topic(name=None, topic_id=world.ids.get(n, b"\7" * 16)) if by_id else Topic(name=n) for n in names]
    more: dict[str, Any] = {"allow_auto_topic_creation": creates} if version >= 4 else {}
    if version >= 8:
        more["include_topic_authorized_operations"] = True
        if version <= 10:
            more["include_cluster_authorized_operations"] = True
    made: Request = cls(topics=topics, **more)
    return made


def offset_commit(world: World, version: int) -> Request:
    cls = request_of(8)
    Topic = cls.OffsetCommitRequestTopic
    Row = Topic.OffsetCommitRequestPartition
    rows = [
        by_name(
            "name", Topic, name, world, by_id=version >= 10,
            partitions=[Row(partition_index=0, committed_offset=1, committed_metadata="")],
        )
        for name in ("orders", "secret", "absent")
    ]  # fmt: skip
    made: Request = cls(group_id="writers", topics=rows)
    return made


def offset_fetch(world: World, version: int, *, everything: bool = False) -> Request:
    cls = request_of(9)
    names = ("orders", "secret")
    if version < 8:
        Topic = cls.OffsetFetchRequestTopic
        topics = None if everything else [Topic(name=name, partition_indexes=[0]) for name in names]
        made: Request = cls(group_id="readers", topics=topics)
        return made
    Group = cls.OffsetFetchRequestGroup
    Row = Group.OffsetFetchRequestTopics

    def rows() -> Any:
        if everything:
            return None
        return [by_name("name", Row, name, world, by_id=version >= 10, partition_indexes=[0]) for name in names]

    made = cls(groups=[Group(group_id="readers", topics=rows()), Group(group_id="others", topics=rows())])
    return made


def find_coordinator(world: World, version: int, kind: int = 0, keys: tuple[str, ...] = ("readers", "x")) -> Request:
    cls = request_of(10)
    made: Request = cls(key_type=kind, coordinator_keys=list(keys)) if version >= 4 else cls(key=keys[0], key_type=kind)
    return made


def join_group(world: World, version: int) -> Request:
    cls = request_of(11)
    protocol = cls.JoinGroupRequestProtocol(name="range", metadata=b"")
    made: Request = cls(
        group_id="readers", session_timeout_ms=10_000, rebalance_timeout_ms=1000, member_id="nobody",
        protocol_type="consumer", protocols=[protocol],
    )  # fmt: skip
    return made


def member(api: int, **more: Any) -> Callable[[World, int], Request]:
    return lambda world, version: request_of(api)(group_id="readers", **more)


def leave_group(world: World, version: int) -> Request:
    cls = request_of(13)
    made: Request = cls(group_id="readers", members=[cls.MemberIdentity(member_id="nobody")])
    return made


def groups(api: int, field: str, **more: Any) -> Callable[[World, int], Request]:
    return lambda world, version: request_of(api)(**{field: ["readers", "others", "absent"]}, **more)


def create_topics(world: World, version: int) -> Request:
    cls = request_of(19)
    Topic = cls.CreatableTopic
    made: Request = cls(
        topics=[
            Topic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for name in ("orders", "orders-new", "new", "twice", "twice", "__cluster_metadata")
        ],
        timeout_ms=10_000,
        validate_only=True,
    )
    return made


def delete_topics(world: World, version: int, *, by_id: bool = False) -> Request:
    cls = request_of(20)
    names = ["doomed", "spared", "absent"]
    if version < 6:
        made: Request = cls(topic_names=names, timeout_ms=10_000)
        return made
    State = cls.DeleteTopicState
    rows = [
        State(name=None, topic_id=world.ids.get(name, b"\7" * 16)) if by_id else State(name=name, topic_id=NO_ID)
        for name in names
    ]
    made = cls(topics=rows, timeout_ms=10_000)
    return made


def delete_records(world: World, version: int) -> Request:
    cls = request_of(21)
    Topic = cls.DeleteRecordsTopic
    rows = [Topic.DeleteRecordsPartition(partition_index=0, offset=0)]
    made: Request = cls(
        topics=[Topic(name=n, partitions=rows) for n in ("orders", "secret", "absent")], timeout_ms=1000
    )
    return made


def init_producer_id(world: World, version: int, name: str | None = None) -> Request:
    made: Request = request_of(22)(transactional_id=name, transaction_timeout_ms=10_000)
    return made


def offset_for_leader_epoch(world: World, version: int) -> Request:
    cls = request_of(23)
    Topic = cls.OffsetForLeaderTopic
    rows = [Topic.OffsetForLeaderPartition(partition=0, leader_epoch=0)]
    made: Request = cls(replica_id=-1, topics=[Topic(topic=n, partitions=rows) for n in ("orders", "secret", "absent")])
    return made


def add_partitions(world: World, version: int, names: tuple[str, ...] = ("orders", "secret", "absent")) -> Request:
    cls = request_of(24)
    from minibroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic

    topics = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in names]
    if version >= 4:
        one = cls.AddPartitionsToTxnTransaction(
            transactional_id="pay", producer_id=world.producer[0], producer_epoch=99, topics=topics
        )
        made: Request = cls(transactions=[one])
        return made
    made = cls(
        v3_and_below_transactional_id="pay",
        v3_and_below_producer_id=world.producer[0],
        v3_and_below_producer_epoch=99,  # nobody has it: what is allowed fails, too
        v3_and_below_topics=topics,
    )
    return made


def in_transaction(api: int, **more: Any) -> Callable[[World, int], Request]:
    return lambda world, version: request_of(api)(
        transactional_id="pay", producer_id=world.producer[0], producer_epoch=99, **more
    )


def write_txn_markers(world: World, version: int) -> Request:
    cls = request_of(27)
    Marker = cls.WritableTxnMarker
    topics = [Marker.WritableTxnMarkerTopic(name="absent", partition_indexes=[0])]
    marker = Marker(producer_id=5, producer_epoch=0, transaction_result=True, topics=topics, coordinator_epoch=0)
    made: Request = cls(markers=[marker])
    return made


def txn_offset_commit(world: World, version: int) -> Request:
    cls = request_of(28)
    Topic = cls.TxnOffsetCommitRequestTopic
    Row = Topic.TxnOffsetCommitRequestPartition
    rows = [
        by_name(
            "name", Topic, name, world, by_id=version >= 6,
            partitions=[Row(partition_index=0, committed_offset=1, committed_metadata="")],
        )
        for name in ("orders", "secret", "absent")
    ]  # fmt: skip
    made: Request = cls(
        transactional_id="pay", group_id="writers", producer_id=world.producer[0], producer_epoch=99, topics=rows
    )
    return made


def describe_acls(world: World, version: int) -> Request:
    made: Request = request_of(29)(
        resource_type_filter=TOPIC, resource_name_filter="nothing", pattern_type_filter=LITERAL, principal_filter=None,
        host_filter=None, operation=acls.ANY, permission_type=acls.ANY,
    )  # fmt: skip
    return made


def create_acls(world: World, version: int) -> Request:
    cls = request_of(30)
    made: Request = cls(
        creations=[
            cls.AclCreation(
                resource_type=TOPIC, resource_name="", resource_pattern_type=LITERAL, principal=ALICE, host="*",
                operation=READ, permission_type=acls.ALLOW,
            )
        ]
    )  # fmt: skip
    return made


def delete_acls(world: World, version: int) -> Request:
    cls = request_of(31)
    made: Request = cls(
        filters=[
            cls.DeleteAclsFilter(
                resource_type_filter=TOPIC, resource_name_filter="nothing", pattern_type_filter=LITERAL,
                principal_filter=None, host_filter=None, operation=acls.ANY, permission_type=acls.ANY,
            )
        ]
    )  # fmt: skip
    return made


# Type, name, pattern, principal, host, operation, permission: what is no rule, or an odd one.
ODD_RULES: tuple[tuple[int, str, int, str, str, int, int], ...] = (
    (CLUSTER, "mine", LITERAL, ALICE, "*", READ, 3),
    (CLUSTER, CLUSTER_NAME, PREFIXED, ALICE, "*", READ, 3),
    (TOPIC, "", LITERAL, ALICE, "*", READ, 3),
    (99, "odd", LITERAL, ALICE, "*", READ, 3),
    (TOPIC, "odd", 9, ALICE, "*", READ, 3),
    (TOPIC, "odd", LITERAL, ALICE, "*", 77, 3),
    (TOPIC, "odd", LITERAL, ALICE, "*", READ, 9),
    (99, "", 9, ALICE, "*", 77, 9),
    (TOPIC, "odd", LITERAL, "alice", "*", READ, 3),
    (TOPIC, "odd", LITERAL, "", "*", READ, 3),
    (TOPIC, "odd", LITERAL, ALICE, "", READ, 3),
    (TOPIC, "odd", LITERAL, ALICE, "no address", READ, 3),
    (TOPIC, "/", LITERAL, ALICE, "*", READ, 3),
    (TOPIC, "odd", LITERAL, ALICE, "*", CREATE_TOKENS, 3),
    (TOPIC, "odd", LITERAL, ALICE, "*", READ, 3),
    (TOPIC, "odd", LITERAL, ALICE, "*", READ, 3),
    (USER, "User:bob", LITERAL, ALICE, "*", CREATE_TOKENS, 3),
    (DELEGATION_TOKEN, "t", LITERAL, ALICE, "*", DESCRIBE, 3),
)
OF_FILTERS: tuple[tuple[int, str, int, str, str, int, int], ...] = (  # what only a filter can be: any
    (acls.ANY, "odd", LITERAL, ALICE, "*", READ, 3),
    (TOPIC, "odd", acls.ANY, ALICE, "*", READ, 3),
    (TOPIC, "odd", acls.MATCH, ALICE, "*", READ, 3),
    (TOPIC, "odd", LITERAL, ALICE, "*", acls.ANY, 3),
    (TOPIC, "odd", LITERAL, ALICE, "*", READ, acls.ANY),
)


def create_odd_acls(
    world: World, version: int, rules: tuple[tuple[int, str, int, str, str, int, int], ...] = ODD_RULES
) -> Request:
    cls = request_of(30)
    made: Request = cls(
        creations=[
            cls.AclCreation(
                resource_type=kind,
                resource_name=name,
                resource_pattern_type=pattern,
                principal=who,
                host=host,
                operation=operation,
                permission_type=permission,
            )
            for kind, name, pattern, who, host, operation, permission in rules
            if host or world.before >= "4"
        ]
    )
    return made


# What of a filter is odd; the rest is any.
ODD_FILTERS: tuple[dict[str, Any], ...] = (
    {},
    {"resource_type_filter": 99},
    {"pattern_type_filter": 99},
    {"operation": 99},
    {"permission_type": 99},
    {"pattern_type_filter": 2},
    {"pattern_type_filter": 2, "resource_name_filter": "kafka-cluster"},
    {"pattern_type_filter": PREFIXED, "resource_name_filter": "kafka-cluster"},
    {"principal_filter": "alice"},
    {"principal_filter": ALICE, "host_filter": THIS_HOST},
    {"resource_name_filter": ""},
)


def any_rule(**more: Any) -> dict[str, Any]:
    every = dict.fromkeys(("resource_type_filter", "pattern_type_filter", "operation", "permission_type"), acls.ANY)
    return {**every, **dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter")), **more}


def delete_odd_acls(world: World, version: int) -> Request:
    cls = request_of(31)
    made: Request = cls(filters=[cls.DeleteAclsFilter(**any_rule(**odd)) for odd in ODD_FILTERS])
    return made


def describe_odd_acls(odd: dict[str, Any]) -> Callable[[World, int], Request]:
    return lambda world, version: request_of(29)(**any_rule(**odd))


RESOURCES = ((2, "orders"), (2, "secret"), (2, "absent"), (4, "1"), (32, "readers"))


def describe_configs(world: World, version: int) -> Request:
    cls = request_of(32)
    Resource = cls.DescribeConfigsResource
    wanted = [each for each in RESOURCES if each[0] != 32 or world.before >= "4"]
    made: Request = cls(
        resources=[
            Resource(resource_type=kind, resource_name=name, configuration_keys=["cleanup.policy", "node.id"])
            for kind, name in wanted
        ]
    )
    return made


def alter_configs(world: World, version: int) -> Request:
    cls = request_of(33)
    Resource = cls.AlterConfigsResource
    one = [Resource.AlterableConfig(name="retention.ms", value="1000000")]
    rows = [Resource(resource_type=2, resource_name=name, configs=one) for name in ("orders", "secret")]
    rows.append(Resource(resource_type=4, resource_name="1", configs=[]))
    made: Request = cls(resources=rows, validate_only=True)
    return made


def configs_of_groups(api: int, **more: Any) -> Callable[[World, int], Request]:
    """Groups have settings of their own since 4.0."""

    def build(world: World, version: int) -> Request:
        cls = request_of(api)
        if api == 32:
            Resource, fields = cls.DescribeConfigsResource, {"configuration_keys": ["consumer.session.timeout.ms"]}
        else:
            Resource, fields = cls.AlterConfigsResource, {"configs": []}
        names = ("readers", "others")
        made: Request = cls(resources=[Resource(resource_type=32, resource_name=n, **fields) for n in names], **more)
        return made

    return build


def incremental_alter_configs(world: World, version: int) -> Request:
    cls = request_of(44)
    Resource = cls.AlterConfigsResource
    one = [Resource.AlterableConfig(name="retention.ms", config_operation=0, value="1000000")]
    rows = [Resource(resource_type=2, resource_name=name, configs=one) for name in ("orders", "secret")]
    rows.append(Resource(resource_type=4, resource_name="1", configs=[]))
    made: Request = cls(resources=rows, validate_only=True)
    return made


def alter_twice(world: World, version: int) -> Request:
    """Settings of a topic that is named twice, and of another one."""
    made: Any = incremental_alter_configs(world, version)
    made.resources = [made.resources[0], *made.resources[:2]]
    found: Request = made
    return found


def alter_replica_log_dirs(world: World, version: int) -> Request:
    cls = request_of(34)
    Dir = cls.AlterReplicaLogDir
    topics = [Dir.AlterReplicaLogDirTopic(name="orders", partitions=[0])]
    made: Request = cls(dirs=[Dir(path="/nowhere", topics=topics)])
    return made


def create_partitions(world: World, version: int) -> Request:
    cls = request_of(37)
    Topic = cls.CreatePartitionsTopic
    names = ("orders", "secret", "absent", "twice", "twice")
    rows = [Topic(name=name, count=5, assignments=None) for name in names]
    made: Request = cls(topics=rows, timeout_ms=10_000, validate_only=True)
    return made


def elect_leaders(world: World, version: int) -> Request:
    cls = request_of(43)
    made: Request = cls(
        election_type=0, topic_partitions=[cls.TopicPartitions(topic="orders", partitions=[0])], timeout_ms=1000
    )
    return made


def alter_reassignments(world: World, version: int) -> Request:
    cls = request_of(45)
    Topic = cls.ReassignableTopic
    rows = [Topic.ReassignablePartition(partition_index=0, replicas=None)]
    made: Request = cls(timeout_ms=1000, topics=[Topic(name="orders", partitions=rows)])
    return made


def offset_delete(world: World, version: int) -> Request:
    cls = request_of(47)
    Topic = cls.OffsetDeleteRequestTopic
    rows = [Topic.OffsetDeleteRequestPartition(partition_index=1)]  # of which there are no offsets
    made: Request = cls(group_id="readers", topics=[Topic(name=n, partitions=rows) for n in ("orders", "absent")])
    return made


def alter_client_quotas(world: World, version: int) -> Request:
    cls = request_of(49)
    Entity, Op = cls.EntryData.EntityData, cls.EntryData.OpData
    made: Request = cls(
        entries=[
            cls.EntryData(
                entity=[Entity(entity_type="user", entity_name=name)],
                ops=[Op(key="producer_byte_rate", value=value, remove=False)],
            )
            for name, value in (("anna", 1000.0), (None, 2000.0))
        ],
        validate_only=True,
    )
    return made


def alter_scram(world: World, version: int) -> Request:
    """Nothing that can succeed: only what is not there is taken away, and a mechanism that is none."""
    cls = request_of(51)
    made: Request = cls(
        deletions=[cls.ScramCredentialDeletion(name=name, mechanism=1) for name in ("anna", "ben")],
        upsertions=[
            cls.ScramCredentialUpsertion(
                name=name, mechanism=9, iterations=4096, salt=b"salt", salted_password=b"salted"
            )
            for name in ("carl", "carl")
        ],
    )
    return made


def describe_producers(world: World, version: int) -> Request:
    cls = request_of(61)
    names = ("orders", "secret", "absent", "/")
    made: Request = cls(topics=[cls.TopicRequest(name=name, partition_indexes=[0]) for name in names])
    return made


def heartbeat_of_consumer(world: World, version: int) -> Request:
    cls = request_of(68)
    made: Request = cls(
        group_id="newer", member_id="nobody-aaaaaaaaaaaaaaaa", member_epoch=5, subscribed_topic_names=["orders"]
    )
    return made


def describe_topic_partitions(
    world: World, version: int, names: tuple[str, ...] = ("orders", "secret", "absent")
) -> Request:
    cls = request_of(75)
    made: Request = cls(topics=[cls.TopicRequest(name=name) for name in names])
    return made


def describe_tokens(world: World, version: int) -> Request:
    cls = request_of(41)
    made: Request = cls(owners=[cls.DescribeDelegationTokenOwner(principal_type="User", principal_name="bob")])
    return made


def shared(api: int, **more: Any) -> Callable[[World, int], Request]:
    return lambda world, version: request_of(api)(
        group_id="readers", member_id="nobody", share_session_epoch=0, topics=[], **more
    )


def share_group_offsets(world: World, version: int) -> Request:
    cls = request_of(90)
    made: Request = cls(groups=[cls.DescribeShareGroupOffsetsRequestGroup(group_id="readers", topics=None)])
    return made


def share_group_state(api: int, word: str) -> Callable[[World, int], Request]:
    """Return what brokers tell each other of share groups."""
    cls = request_of(api)
    Topic = getattr(cls, f"{word}Data")
    fields: dict[str, Any] = dict.fromkeys(Topic.PartitionData.__fields_all__(), 0)
    if "state_batches" in fields:
        fields["state_batches"] = []
    topics = [Topic(topic_id=b"\7" * 16, partitions=[Topic.PartitionData(**fields)])]
    return lambda world, version: cls(group_id="g", topics=topics)


def streams_topology(world: World, version: int) -> Request:
    cls = request_of(93)
    made: Request = cls(
        group_id="readers", member_id="nobody", topology_epoch=0,
        topology_description=cls.TopologyDescription(subtopologies=[], global_stores=[]),
    )  # fmt: skip
    return made


def plain(api: int, **fields: Any) -> Callable[[World, int], Request]:
    return lambda world, version: request_of(api)(**fields)


BOTH_GROUPS = ((GROUP, DESCRIBE, "readers"),)
IN_GROUP = ((GROUP, READ, "readers"),)
PAY = ((TRANSACTIONAL_ID, WRITE, "pay"),)
ORDERS_WRITE = ((TOPIC, WRITE, "orders"),)

TO_DELETE = ("doomed", "spared")
SHARED = (*BOTH_GROUPS, (GROUP, READ, "readers"), *topic("orders"))

CASES = (
    Case("produce", 0, produce, ORDERS_WRITE, is_changing=False),
    Case("produce v3", 0, produce, ORDERS_WRITE, version=9),
    Case("produce in a transaction", 0, produce_in_transaction, (*PAY, *ORDERS_WRITE), version=9, is_changing=True),
    Case("produce in a transaction, only topics", 0, produce_in_transaction, ORDERS_WRITE, version=9, is_changing=True),
    Case("produce in a transaction that is lost", 0, produce_in_lost_transaction, (*PAY, *ORDERS_WRITE), version=9),
    Case("produce with an id, and no transaction", 0, produce_by_id_without_transaction, ORDERS_WRITE, version=9),
    Case("fetch by names", 1, fetch, topic("orders"), version=12),
    Case("fetch by ids", 1, fetch, topic("orders")),
    Case("fetch as a replica", 1, lambda w, v: fetch(w, v, 2), on_cluster(CLUSTER_ACTION), version=11),
    Case("fetch as a replica that may read", 1, lambda w, v: fetch(w, v, 2), topic("orders"), version=11),
    Case("list offsets", 2, list_offsets, ((TOPIC, DESCRIBE, "orders"),)),
    Case("list offsets as a reader", 2, list_offsets, topic("orders"), version=1),
    Case("metadata", 3, metadata, ((TOPIC, DESCRIBE, "orders"),)),
    Case("metadata v8", 3, metadata, ((TOPIC, READ, "orders"), *on_cluster(DESCRIBE, ALTER)), version=8),
    Case("metadata v1", 3, metadata, ((TOPIC, WRITE, "orders"),), version=1),
    Case("metadata of all", 3, lambda w, v: metadata(w, v, None), ((TOPIC, ALTER, "orders"),)),
    Case("metadata of all v0", 3, lambda w, v: metadata(w, v, ()), ((TOPIC, ALTER, "orders"),), version=0),
    Case("metadata of none", 3, lambda w, v: metadata(w, v, ()), ((TOPIC, ALTER, "orders"),)),
    Case("metadata by ids", 3, lambda w, v: metadata(w, v, by_id=True), ((TOPIC, DESCRIBE, "orders"),), version=12),
    Case(
        "metadata that would make topics, described only",
        3,
        lambda w, v: metadata(w, v, creates=True),
        ((TOPIC, DESCRIBE, "*"),),
        without=("all operations",),
    ),
    Case("offset commit", 8, offset_commit, ((GROUP, READ, "writers"), *topic("orders")), version=9),
    Case("offset commit by ids", 8, offset_commit, ((GROUP, READ, "writers"), *topic("orders"))),
    Case("offset commit without the group", 8, offset_commit, topic("orders"), version=8),
    Case("offset commit v2", 8, offset_commit, ((GROUP, READ, "writers"),), version=2),
    Case("offset fetch", 9, offset_fetch, (*BOTH_GROUPS, (TOPIC, DESCRIBE, "orders")), version=9),
    Case("offset fetch by ids", 9, offset_fetch, (*BOTH_GROUPS, (TOPIC, DESCRIBE, "orders"))),
    Case(
        "offset fetch of all",
        9,
        lambda w, v: offset_fetch(w, v, everything=True),
        (*BOTH_GROUPS, *topic("orders")),
        version=9,
    ),
    Case("offset fetch v7", 9, offset_fetch, (*BOTH_GROUPS, *topic("orders")), version=7),
    Case(
        "offset fetch of all v5",
        9,
        lambda w, v: offset_fetch(w, v, everything=True),
        (*BOTH_GROUPS, *topic("orders")),
        version=5,
    ),
    Case("offset fetch v1", 9, offset_fetch, BOTH_GROUPS, version=1),
    Case("find coordinator of groups", 10, find_coordinator, BOTH_GROUPS),
    Case("find coordinator of a group v3", 10, find_coordinator, BOTH_GROUPS, version=3),
    Case(
        "find coordinator of transactions",
        10,
        lambda w, v: find_coordinator(w, v, 1, ("pay", "x")),
        ((TRANSACTIONAL_ID, DESCRIBE, "pay"),),
    ),
    Case("find coordinator of a transaction v1", 10, lambda w, v: find_coordinator(w, v, 1, ("pay",)), PAY, version=1),
    Case(
        "find coordinator of share groups",
        10,
        lambda w, v: find_coordinator(w, v, 2, ("readers",)),  # no key of one: Kafka would make a topic
        on_cluster(CLUSTER_ACTION),
        since="4.1",
    ),
    Case("join group", 11, join_group, IN_GROUP),
    Case("heartbeat", 12, member(12, generation_id=1, member_id="nobody"), IN_GROUP),
    Case("leave group", 13, leave_group, IN_GROUP),
    Case("leave group v1", 13, member(13, member_id="nobody"), IN_GROUP, version=1),
    Case(
        "sync group",
        14,
        member(
            14, generation_id=1, member_id="nobody", protocol_type="consumer", protocol_name="range", assignments=[]
        ),
        IN_GROUP,
    ),
    Case("describe groups", 15, groups(15, "groups", include_authorized_operations=True), BOTH_GROUPS),
    Case(
        "describe groups, and delete them",
        15,
        groups(15, "groups", include_authorized_operations=True),
        (*BOTH_GROUPS, (GROUP, DELETE, "others")),
        version=5,
    ),
    Case("list groups", 16, plain(16), BOTH_GROUPS),
    Case("list groups of the cluster", 16, plain(16), on_cluster(DESCRIBE)),
    Case("create topics", 19, create_topics, ((TOPIC, CREATE, "orders-new"),)),
    Case(
        "create topics and see settings", 19, create_topics, ((TOPIC, CREATE, "new"), (TOPIC, DESCRIBE_CONFIGS, "new"))
    ),
    Case("create topics of the cluster", 19, create_topics, on_cluster(CREATE)),
    Case("delete topics", 20, delete_topics, ((TOPIC, DELETE, "doomed"),), prepare=TO_DELETE),
    Case("delete topics that one may describe", 20, delete_topics, ((TOPIC, DESCRIBE, "spared"),), prepare=TO_DELETE),
    Case(
        "delete topics by ids",
        20,
        lambda w, v: delete_topics(w, v, by_id=True),
        ((TOPIC, DELETE, "doomed"), (TOPIC, DESCRIBE, "spared")),
        prepare=TO_DELETE,
    ),
    Case("delete topics v5", 20, delete_topics, ((TOPIC, DELETE, "doomed"),), version=5, prepare=TO_DELETE),
    Case("delete topics of the cluster", 20, delete_topics, on_cluster(DELETE), prepare=TO_DELETE),
    Case("delete records", 21, delete_records, ((TOPIC, DELETE, "orders"),)),
    Case("init producer id", 22, init_producer_id, on_cluster(IDEMPOTENT_WRITE)),
    Case("init producer id by a topic", 22, init_producer_id, ORDERS_WRITE),
    Case(
        "init producer id of a transaction",
        22,
        lambda w, v: init_producer_id(w, v, "own"),
        ((TRANSACTIONAL_ID, WRITE, "own"),),
    ),
    Case("offset for leader epoch", 23, offset_for_leader_epoch, ((TOPIC, DESCRIBE, "orders"),)),
    Case("offset for leader epoch of the cluster", 23, offset_for_leader_epoch, on_cluster(CLUSTER_ACTION)),
    Case("add partitions to txn", 24, add_partitions, (*PAY, *ORDERS_WRITE), version=3),
    Case(
        "add one partition to txn", 24, lambda w, v: add_partitions(w, v, ("orders",)), (*PAY, *ORDERS_WRITE), version=3
    ),
    Case("add partitions to txn without its id", 24, add_partitions, ORDERS_WRITE, version=3),
    Case("add partitions to txn as a broker", 24, add_partitions, on_cluster(CLUSTER_ACTION), version=4),
    Case("add offsets to txn", 25, in_transaction(25, group_id="readers"), (*PAY, *IN_GROUP)),
    Case("add offsets to txn without the group", 25, in_transaction(25, group_id="readers"), PAY),
    Case("end txn", 26, in_transaction(26, committed=True), PAY, version=4),
    Case("write txn markers", 27, write_txn_markers, on_cluster(CLUSTER_ACTION)),
    Case("write txn markers to alter", 27, write_txn_markers, on_cluster(ALTER)),
    Case("txn offset commit", 28, txn_offset_commit, (*PAY, (GROUP, READ, "writers"), *topic("orders")), version=3),
    Case("txn offset commit without the group", 28, txn_offset_commit, (*PAY, *topic("orders")), version=3),
    Case("describe acls", 29, describe_acls, on_cluster(DESCRIBE)),
    Case("create acls", 30, create_acls, on_cluster(ALTER)),
    Case("delete acls", 31, delete_acls, on_cluster(ALTER)),
    Case("create odd acls", 30, create_odd_acls, on_cluster(ALTER)),
    Case("create odd acls v1", 30, create_odd_acls, on_cluster(ALTER), version=1),
    *(
        Case(
            f"create acls of filters {number}",
            30,
            partial(create_odd_acls, rules=(ODD_RULES[-1], rule)),
            on_cluster(ALTER),
        )
        for number, rule in enumerate(OF_FILTERS)
    ),
    Case("delete odd acls", 31, delete_odd_acls, on_cluster(ALTER)),
    *(
        Case(f"describe odd acls {number}", 29, describe_odd_acls(odd), on_cluster(DESCRIBE))
        for number, odd in enumerate(ODD_FILTERS)
    ),
    Case("describe configs", 32, describe_configs, ((TOPIC, DESCRIBE_CONFIGS, "orders"),)),
    Case(
        "describe configs of brokers",
        32,
        describe_configs,
        ((TOPIC, ALTER_CONFIGS, "orders"), *on_cluster(DESCRIBE_CONFIGS)),
    ),
    Case("describe configs of groups", 32, configs_of_groups(32), ((GROUP, DESCRIBE_CONFIGS, "readers"),), since="4.0"),
    *(
        Case(name, api, configs_of_groups(api, validate_only=True), ((GROUP, ALTER_CONFIGS, "readers"),), since="4.0")
        for name, api in (("alter configs of groups", 33), ("incremental alter configs of groups", 44))
    ),
    Case("incremental alter configs of brokers", 44, incremental_alter_configs, on_cluster(ALTER_CONFIGS)),
    Case("alter configs", 33, alter_configs, ((TOPIC, ALTER_CONFIGS, "orders"),)),
    Case("alter configs of brokers", 33, alter_configs, on_cluster(ALTER_CONFIGS)),
    Case("alter replica log dirs", 34, alter_replica_log_dirs, on_cluster(ALTER)),
    Case("describe log dirs", 35, plain(35, topics=[]), on_cluster(DESCRIBE)),
    Case("describe log dirs v1", 35, plain(35, topics=[]), on_cluster(DESCRIBE), version=1),
    Case("create partitions", 37, create_partitions, ((TOPIC, ALTER, "orders"),)),
    Case("delete groups", 42, plain(42, groups_names=["gone", "absent", "gone"]), ((GROUP, DELETE, "gone"),)),
    Case("elect leaders", 43, elect_leaders, on_cluster(ALTER)),
    Case("incremental alter configs", 44, incremental_alter_configs, ((TOPIC, ALTER_CONFIGS, "orders"),)),
    Case("alter twice", 44, alter_twice, ((TOPIC, ALTER_CONFIGS, "orders"),)),
    Case("alter reassignments", 45, alter_reassignments, on_cluster(ALTER)),
    Case("list reassignments", 46, plain(46, timeout_ms=1000, topics=None), on_cluster(DESCRIBE)),
    Case("offset delete", 47, offset_delete, ((GROUP, DELETE, "readers"), *topic("orders"))),
    Case("offset delete of no group", 47, offset_delete, topic("orders")),
    Case("describe client quotas", 48, plain(48, components=[], strict=False), on_cluster(DESCRIBE_CONFIGS)),
    Case("alter client quotas", 49, alter_client_quotas, on_cluster(ALTER_CONFIGS)),
    Case("describe scram", 50, plain(50, users=[]), on_cluster(DESCRIBE)),
    Case("alter scram", 51, alter_scram, on_cluster(ALTER)),
    Case("describe quorum", 55, plain(55, topics=[]), on_cluster(DESCRIBE)),
    Case("update features", 57, plain(57, timeout_ms=1000, feature_updates=[]), on_cluster(ALTER)),
    Case("describe cluster", 60, plain(60, include_cluster_authorized_operations=True), on_cluster(DESCRIBE)),
    Case(
        "describe cluster and alter it",
        60,
        plain(60, include_cluster_authorized_operations=True),
        on_cluster(ALTER, CREATE),
    ),
    Case("describe producers", 61, describe_producers, topic("orders")),
    Case("unregister broker", 64, plain(64, broker_id=77), on_cluster(ALTER)),
    Case(
        "describe transactions",
        65,
        plain(65, transactional_ids=["other", "pay", "absent"]),
        ((TRANSACTIONAL_ID, DESCRIBE, "pay"),),
    ),
    Case(
        "describe a transaction with topics",
        65,
        plain(65, transactional_ids=["busy"]),
        ((TRANSACTIONAL_ID, DESCRIBE, "busy"), (TOPIC, DESCRIBE, "orders")),
    ),
    Case(
        "list transactions",
        66,
        plain(66, state_filters=[], producer_id_filters=[]),
        ((TRANSACTIONAL_ID, DESCRIBE, "pay"),),
    ),
    Case(
        "consumer group heartbeat",
        68,
        heartbeat_of_consumer,
        ((GROUP, READ, "newer"), (TOPIC, DESCRIBE, "orders")),
    ),
    Case("consumer group heartbeat without topics", 68, heartbeat_of_consumer, ((GROUP, READ, "newer"),)),
    Case(
        "consumer group describe",
        69,
        groups(69, "group_ids", include_authorized_operations=True),
        BOTH_GROUPS,
    ),
    Case("list config resources", 74, plain(74), on_cluster(DESCRIBE_CONFIGS), version=0),
    Case("describe topic partitions", 75, describe_topic_partitions, ((TOPIC, DESCRIBE, "orders"),)),
    Case("describe topic partitions of all", 75, lambda w, v: describe_topic_partitions(w, v, ()), topic("orders")),
    Case("api versions", 18, plain(18, client_software_name="a", client_software_version="1"), topic("orders")),
    # Tokens: of bob's, which he made himself
    Case("describe tokens", 41, plain(41, owners=None), ((DELEGATION_TOKEN, DESCRIBE, THE_TOKEN),)),
    Case("describe tokens of an owner", 41, describe_tokens, ((USER, DESCRIBE_TOKENS, BOB),)),
    Case(
        "renew a token",
        39,
        lambda w, v: request_of(39)(hmac=w.hmac, renew_period_ms=1000),
        ((DELEGATION_TOKEN, ALTER, THE_TOKEN), (USER, CREATE_TOKENS, BOB)),
    ),
    Case(
        "expire a token",
        40,
        lambda w, v: request_of(40)(hmac=w.hmac, expiry_time_period_ms=-1),
        ((DELEGATION_TOKEN, DELETE, THE_TOKEN), (USER, CREATE_TOKENS, BOB)),
    ),
    Case("create a token", 38, plain(38, renewers=[], max_lifetime_ms=-1), ((USER, CREATE_TOKENS, BOB),)),
    Case(
        "create a token of another",
        38,
        plain(38, owner_principal_type="User", owner_principal_name="bob", renewers=[], max_lifetime_ms=-1),
        ((USER, CREATE_TOKENS, BOB),),
    ),
    # Share groups and streams groups: switched off
    Case(
        "share group heartbeat",
        76,
        plain(76, group_id="readers", member_id="nobody", member_epoch=5, subscribed_topic_names=["orders"]),
        SHARED,
    ),
    Case("share group describe", 77, groups(77, "group_ids", include_authorized_operations=True), SHARED),
    Case("share fetch", 78, shared(78, max_wait_ms=0, min_bytes=1, forgotten_topics_data=[]), SHARED),
    Case("share acknowledge", 79, shared(79), SHARED),
    Case(
        "streams group heartbeat",
        88,
        plain(88, group_id="readers", member_id="nobody", member_epoch=5, endpoint_information_epoch=0),
        SHARED,
    ),
    Case("streams group describe", 89, groups(89, "group_ids", include_authorized_operations=True), SHARED),
    Case("describe share group offsets", 90, share_group_offsets, SHARED),
    Case("alter share group offsets", 91, plain(91, group_id="readers", topics=[]), SHARED),
    Case(
        "delete share group offsets",
        92,
        plain(92, group_id="readers", topics=[]),
        ((GROUP, DELETE, "readers"), *topic("orders")),
    ),
    Case("streams group topology", 93, streams_topology, SHARED),
    *(
        Case(f"share group state {api}", api, share_group_state(api, word), on_cluster(CLUSTER_ACTION))
        for api, word in (
            (83, "InitializeState"),
            (84, "ReadState"),
            (85, "WriteState"),
            (86, "DeleteState"),
            (87, "ReadStateSummary"),
        )
    ),
    Case(
        "remove raft voter",
        81,
        plain(81, cluster_id="x", voter_id=9, voter_directory_id=NO_ID),
        on_cluster(ALTER),
    ),
    Case(
        "add raft voter",
        80,
        plain(80, cluster_id="x", voter_id=9, voter_directory_id=NO_ID, listeners=[], timeout_ms=1000),
        on_cluster(ALTER),
    ),
    Case("unregister controller", 94, plain(94, controller_id=77), on_cluster(ALTER)),
)

NONE, ALLOWED, DENIED, BY_PREFIX, BY_STAR, ELSEWHERE = "none", "allow", "deny", "prefix", "star", "elsewhere"
EVERYTHING, EVERYBODY, HERE = "all operations", "everybody", "from here"
VARIATIONS = (NONE, ALLOWED, DENIED, BY_PREFIX, BY_STAR, ELSEWHERE, EVERYTHING, EVERYBODY, HERE)

RuleRow = tuple[int, int, str, str, str, int, int]


def rules_of(case: Case, variation: str, world: World) -> list[RuleRow]:
    """Return the rules of a variation: type, pattern, name, principal, host, operation, permission."""
    rows: list[RuleRow] = []
    for kind, operation, name in case.grants if variation != NONE else ():
        pattern, host, who = LITERAL, "*", ALICE
        if name == THE_TOKEN:
            name = world.token_id
        if variation == BY_PREFIX and kind != CLUSTER and name != "*":
            pattern, name = PREFIXED, name[:3]
        elif variation == BY_STAR and kind != CLUSTER:
            name = "*"
        elif variation == ELSEWHERE:
            host = OTHER_HOST
        elif variation == HERE:
            host = THIS_HOST
        elif variation == EVERYTHING:
            operation = acls.ALL
        elif variation == EVERYBODY:
            who = "User:*"
        rows.append((kind, pattern, name, who, host, operation, acls.ALLOW))
        if variation == DENIED:
            rows.append((kind, pattern, name, who, host, operation, acls.DENY))
    return rows


def asked(release: str) -> Iterator[tuple[Case, str]]:
    """Yield what is asked of a release."""
    for case in CASES:
        if case.since and release < case.since:
            continue
        for variation in VARIATIONS:
            if variation not in case.without and (not case.is_changing or variation in (NONE, DENIED, ELSEWHERE)):
                yield case, variation
