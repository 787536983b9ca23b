"""DescribeTopicPartitions: describe topics page by page (KIP-966).

Admin clients send it instead of Metadata: large topics need not fit one answer, and it shows the eligible
leader replicas. Topics are sorted by name.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bool, Int16, Int32, String, Uuid


class DescribeTopicPartitionsRequest(Request, api=75, versions="0", flexible="0+"):
    """Ask for topics, beginning at a cursor."""

    topics: Array[TopicRequest]  # empty: all topics
    # most partitions in one answer; the broker's max.request.partition.size.limit also applies
    response_partition_limit: Int32 = 2000
    # first partition to return, normally next_cursor of the last answer; null: from the beginning
    cursor: Cursor | None = None

    class TopicRequest(Struct):
        name: String

    class Cursor(Struct):
        topic_name: String
        partition_index: Int32  # inclusive


class DescribeTopicPartitionsResponse(Response, api=75, versions="0", flexible="0+"):
    """One page of partitions and the cursor of the next page."""

    throttle_time_ms: Int32  # how long a quota makes the client wait before its next request; 0: not at all
    topics: Array[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = None  # null: nothing is left

    class DescribeTopicPartitionsResponseTopic(Struct):
        error_code: Int16  # UNKNOWN_TOPIC_OR_PARTITION (3): no such topic, or not allowed to know
        name: String | None
        topic_id: Uuid
        is_internal: Bool = False  # true: kept by Kafka itself, such as __consumer_offsets
        partitions: Array[DescribeTopicPartitionsResponsePartition]
        # bit n set: AclOperation n is allowed; -2147483648: was not asked for
        topic_authorized_operations: Int32 = -2147483648

        class DescribeTopicPartitionsResponsePartition(Struct):
            error_code: Int16  # LEADER_NOT_AVAILABLE (5): the partition has no leader now
            partition_index: Int32
            leader_id: Int32  # -1: no leader
            leader_epoch: Int32 = -1  # rises by one with each change of leader; -1: unknown
            replica_nodes: Array[Int32]  # broker ids in assignment order; the first is the preferred leader
            isr_nodes: Array[Int32]  # broker ids of the in-sync replicas
            # outside the ISR, but safe to elect: they hold everything committed; null: not known
            eligible_leader_replicas: Array[Int32] | None = None
            # once eligible, but dropped after an unclean shutdown: may lack records; null: not known
            last_known_elr: Array[Int32] | None = None
            offline_replicas: Array[Int32]  # replicas on dead brokers or failed directories

    class Cursor(Struct):
        topic_name: String
        partition_index: Int32  # first partition that is not in this answer
