"""Metadata: brokers, topics and who leads which partition.

Every client sends it at the start, from time to time, and after errors such as NOT_LEADER_OR_FOLLOWER; then it sends
Produce and Fetch to the leaders directly. Any broker can answer.
v1: null for all topics, v2: cluster id (KIP-78), v4: auto-creation can be refused, v5: offline replicas (KIP-112),
v7: leader epochs (KIP-320), v8: authorized operations (KIP-430), v9: flexible, v10: topic ids (KIP-516),
v12: ask by id, v13: error for the whole answer (KIP-1102).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, NO_ID, Array, Bool, Int16, Int32, String, Uuid, since


class MetadataRequest(Request, api=3, versions="0-13", flexible="9+"):
    """Ask about all topics, some or none; brokers are always listed."""

    # null: all topics, empty: none (v0 has no null, there empty means all)
    topics: Array[MetadataRequestTopic] | None = since("0+", nullable="1+")
    # true: unknown topics may be created, if auto.create.topics.enable allows; always so before v4
    allow_auto_topic_creation: Bool = since("4+", default=True)
    # from v11 on DescribeCluster answers this
    include_cluster_authorized_operations: Bool = since("8-10", default=False)
    # true: fill topic_authorized_operations in the answer
    include_topic_authorized_operations: Bool = since("8+", default=False)

    class MetadataRequestTopic(Struct):
        topic_id: Uuid = since("10+", default=NO_ID)  # v12+: ask by id, name must be null; all zero: ask by name
        name: String | None = since("0+", nullable="10+")  # null: the topic is given by its id (v12+)


class MetadataResponse(Response, api=3, versions="0-13", flexible="9+"):
    """What this broker knows of the cluster, which may lag behind the controller."""

    # how long a quota makes the client wait before its next request; 0: not at all
    throttle_time_ms: Int32 = since("3+", default=0)
    brokers: Array[MetadataResponseBroker]  # live brokers, at the address of the listener that was asked
    cluster_id: String | None = since("2+", default=None)  # null: not known
    # -1: unknown; in KRaft some live broker, which forwards to the real controller
    controller_id: Int32 = since("1+", default=-1)
    topics: Array[MetadataResponseTopic]
    error_code: Int16 = since("13+", default=0)  # REBOOTSTRAP_REQUIRED (129): start again from the bootstrap servers
    # bit n set: AclOperation n is allowed; -2147483648: was not asked for
    cluster_authorized_operations: Int32 = since("8-10", default=-2147483648)

    class MetadataResponseBroker(Struct):
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = since("1+", default=None)  # null: none configured

    class MetadataResponseTopic(Struct):
        # UNKNOWN_TOPIC_OR_PARTITION (3) or LEADER_NOT_AVAILABLE (5): also while a topic is being created
        error_code: Int16
        name: String | None = since("0+", nullable="12+")  # null: asked by an id that the broker does not know
        # changes when a topic is deleted and created again under the same name; all zero: none
        topic_id: Uuid = since("10+", default=NO_ID)
        is_internal: Bool = since("1+", default=False)  # true: kept by Kafka itself, such as __consumer_offsets
        partitions: Array[MetadataResponsePartition]
        # bit n set: AclOperation n is allowed; -2147483648: was not asked for
        topic_authorized_operations: Int32 = since("8+", default=-2147483648)

        class MetadataResponsePartition(Struct):
            error_code: Int16  # LEADER_NOT_AVAILABLE (5): no leader now, ask again later
            partition_index: Int32
            leader_id: Int32  # broker to produce to and fetch from; -1: none
            # rises by one with each change of leader; clients ignore answers with an older one; -1: unknown
            leader_epoch: Int32 = since("7+", default=-1)
            replica_nodes: Array[Int32]  # broker ids in assignment order; the first is the preferred leader
            isr_nodes: Array[Int32]  # broker ids of the in-sync replicas, the leader among them
            # replicas on dead brokers or failed directories
            offline_replicas: Array[Int32] = since("5+", default=EMPTY)
