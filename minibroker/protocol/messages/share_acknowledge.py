"""Tells what became of records that a share group member had been given (KIP-932).

Sent by members of share groups to the leader of the partitions, within the session opened by ShareFetch; the same
acknowledgements may also ride on the next ShareFetch. v0: early access of 3.9 and 4.0 only. v2: renew (KIP-1222).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bool, Int8, Int16, Int32, Int64, String, Uuid, since


class ShareAcknowledgeRequest(Request, api=79, versions="0-2", flexible="0+", never_stable="0", elements_max=10_000):
    """Accept, release, reject or renew acquired records."""

    group_id: String | None = None  # null is the default of the format only; brokers want one
    member_id: String | None  # the UUID of the share group heartbeat
    # counts the requests of a session from 1; -1: the last one, releases all that is left; 0 is refused
    share_session_epoch: Int32
    is_renew_ack: Bool = since("2+", default=False)  # true: at least one of the types below is 4 (renew)
    topics: Array[AcknowledgeTopic]

    class AcknowledgeTopic(Struct):
        topic_id: Uuid
        partitions: Array[AcknowledgePartition]

        class AcknowledgePartition(Struct):
            partition_index: Int32
            acknowledgement_batches: Array[AcknowledgementBatch]

            class AcknowledgementBatch(Struct):
                first_offset: Int64
                last_offset: Int64  # inclusive
                # one per offset, or a single one for all: 0: gap (no record there), 1: accept, 2: release (somebody may
                # try again), 3: reject (nobody shall), 4: renew (v2, more time needed)
                acknowledge_types: Array[Int8]


class ShareAcknowledgeResponse(Response, api=79, versions="0-2", flexible="0+"):
    """One result per partition."""

    throttle_time_ms: Int32  # milliseconds a quota makes the client wait; 0: none
    error_code: Int16  # failure of the whole request: 25: unknown member, 122: no such session, 123: wrong epoch
    error_message: String | None = None  # null: no error, or nothing to add to the code
    # how long records stay with a member before they go back by themselves
    acquisition_lock_timeout_ms: Int32 = since("2+", default=0)
    responses: Array[ShareAcknowledgeTopicResponse]
    node_endpoints: Array[NodeEndpoint]  # addresses of the brokers that current_leader names

    class ShareAcknowledgeTopicResponse(Struct):
        topic_id: Uuid
        partitions: Array[PartitionData]

        class PartitionData(Struct):
            partition_index: Int32
            # 6 and 74: other leader, 42: bad acknowledgement, 121: the record is not in a state for it
            error_code: Int16
            error_message: String | None = None  # null: no error, or nothing to add to the code
            current_leader: LeaderIdAndEpoch  # the leader to turn to after error 6 or 74

            class LeaderIdAndEpoch(Struct):
                leader_id: Int32  # -1: not known
                leader_epoch: Int32  # rises with each change of leader

    class NodeEndpoint(Struct):
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = None  # null: the broker has none
