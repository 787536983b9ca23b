"""OffsetForLeaderEpoch: where a leader epoch ends in the leader's log.

A follower asks before it replicates from a new leader and truncates what differs (KIP-101); a consumer asks after
a leader change to find out whether records it has read were lost (KIP-320).
v1: epoch in the answer (KIP-279), v2: leader epoch check, v3: replica id (KIP-392), v4: flexible.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int16, Int32, Int64, String, since


class OffsetForLeaderEpochRequest(Request, api=23, versions="0-4", flexible="4+"):
    """Ask for the end of one epoch per partition."""

    # -1: a consumer, >= 0: broker id of a follower; -2: not given (before v3)
    replica_id: Int32 = since("3+", default=-2)
    topics: Array[OffsetForLeaderTopic]

    class OffsetForLeaderTopic(Struct):
        topic: String
        partitions: Array[OffsetForLeaderPartition]

        class OffsetForLeaderPartition(Struct):
            partition: Int32
            # what the client believes; older: FENCED_LEADER_EPOCH, newer: UNKNOWN_LEADER_EPOCH, -1: not checked
            current_leader_epoch: Int32 = since("2+", default=-1)
            leader_epoch: Int32  # epoch of the last record the asker has; its end is wanted


class OffsetForLeaderEpochResponse(Response, api=23, versions="0-4", flexible="4+"):
    """The end offset of the epoch, or of the nearest smaller one that the leader knows."""

    # how long a quota makes the client wait before its next request; 0: not at all
    throttle_time_ms: Int32 = since("2+", default=0)
    topics: Array[OffsetForLeaderTopicResult]

    class OffsetForLeaderTopicResult(Struct):
        topic: String
        partitions: Array[EpochEndOffset]

        class EpochEndOffset(Struct):
            error_code: Int16
            partition: Int32
            # largest epoch known to the leader that is not above the requested one; -1: unknown
            leader_epoch: Int32 = since("1+", default=-1)
            # exclusive: first offset of the next epoch, or the log end; -1: unknown. Truncate what is at or above it
            end_offset: Int64 = -1
