"""Commit a group's offsets as part of a transaction (KIP-98): they count once the transaction commits.

A transactional producer sends it to the group's coordinator. v3: fencing by generation and member (KIP-447), v5: no
AddOffsetsToTxn beforehand (KIP-890), v6: topic ids (KIP-1319).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import NO_ID, Array, Int16, Int32, Int64, String, Uuid, since


class TxnOffsetCommitRequest(Request, api=28, versions="0-6", flexible="3+"):
    """Carry the offsets up to which the transaction has consumed."""

    transactional_id: String
    group_id: String  # group whose offsets these are
    producer_id: Int64
    producer_epoch: Int16  # an older epoch than the known one is refused with 47 or 90
    generation_id_or_member_epoch: Int32 = since("3+", default=-1)  # of the consumer in its group; -1: do not check
    member_id: String = since("3+", default="")  # of the consumer in its group; empty: do not check
    group_instance_id: String | None = since("3+", default=None)  # null: not a static member
    topics: Array[TxnOffsetCommitRequestTopic]

    class TxnOffsetCommitRequestTopic(Struct):
        topic_id: Uuid = since("6+", default=NO_ID)
        name: String = since("0-5", default="")
        partitions: Array[TxnOffsetCommitRequestPartition]

        class TxnOffsetCommitRequestPartition(Struct):
            partition_index: Int32
            committed_offset: Int64  # the next offset to read, not the last one read
            committed_leader_epoch: Int32 = since("2+", default=-1)  # of the last record consumed; -1: not known
            committed_metadata: String | None  # free text of the application


class TxnOffsetCommitResponse(Response, api=28, versions="0-6", flexible="3+"):
    """Give one result for each partition."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    topics: Array[TxnOffsetCommitResponseTopic]

    class TxnOffsetCommitResponseTopic(Struct):
        topic_id: Uuid = since("6+", default=NO_ID)
        name: String = since("0-5", default="")
        partitions: Array[TxnOffsetCommitResponsePartition]

        class TxnOffsetCommitResponsePartition(Struct):
            partition_index: Int32
            # 16: not the coordinator, 22: outdated generation, 25: unknown member, 47 or 90: producer fenced
            error_code: Int16
