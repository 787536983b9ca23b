"""Stores how far a group has read.

Sent by consumers to the group coordinator, which keeps it in __consumer_offsets. Programs that assign partitions
themselves commit as well, without being a member.
v0: kept in ZooKeeper. v1: kept in Kafka. v6: leader epochs (KIP-320). v7: static members (KIP-345). v8: flexible. v9:
also groups of KIP-848. v10: topic ids in place of names.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import NO_ID, Array, Int16, Int32, Int64, String, Uuid, since


class OffsetCommitRequest(Request, api=8, versions="0-10", flexible="8+"):
    """Store offsets for partitions."""

    group_id: String
    # generation (classic group) or member epoch (KIP-848); -1: sender is not a member
    generation_id_or_member_epoch: Int32 = since("1+", default=-1)
    member_id: String = since("1+", default="")  # "": sender is not a member
    # name of a static member (group.instance.id); null: not static
    group_instance_id: String | None = since("7+", default=None)
    # how long to keep these offsets; -1: as the broker is configured (offsets.retention.minutes)
    retention_time_ms: Int64 = since("2-4", default=-1)
    topics: Array[OffsetCommitRequestTopic]

    class OffsetCommitRequestTopic(Struct):
        topic_id: Uuid = since("10+", default=NO_ID)
        name: String = since("0-9", default="")
        partitions: Array[OffsetCommitRequestPartition]

        class OffsetCommitRequestPartition(Struct):
            partition_index: Int32
            committed_offset: Int64  # the next record to read, not the last one read
            # of the last record read; shows later whether the log was cut; -1: not known
            committed_leader_epoch: Int32 = since("6+", default=-1)
            # ms since 1970, the retention time counts from here; -1: the broker's clock
            commit_timestamp: Int64 = since("1", default=-1)
            # free text of the client, up to offset.metadata.max.bytes; null is stored as ""
            committed_metadata: String | None


class OffsetCommitResponse(Response, api=8, versions="0-10", flexible="8+"):
    """One error code per partition."""

    throttle_time_ms: Int32 = since("3+", default=0)  # milliseconds a quota makes the client wait; 0: none
    topics: Array[OffsetCommitResponseTopic]

    class OffsetCommitResponseTopic(Struct):
        topic_id: Uuid = since("10+", default=NO_ID)
        name: String = since("0-9", default="")
        partitions: Array[OffsetCommitResponsePartition]

        class OffsetCommitResponsePartition(Struct):
            partition_index: Int32
            # 12: text too long, 16: other coordinator, 22: old generation, 25: unknown member, 27: rebalance first
            error_code: Int16
