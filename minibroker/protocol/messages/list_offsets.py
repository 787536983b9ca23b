"""Finds offsets by time: the earliest, the latest, or the first record at or after a timestamp.

Sent by consumers and tools to the leader of the partitions, and by followers to learn where the leader's log begins and
ends. v0: offsets of segments, whose times are those of their files. v1: one offset, exact to the record (KIP-79).
v2: isolation level. v4: leader epochs (KIP-320). v6: flexible. v7: -3 (KIP-734). v8: -4 (KIP-405). v9: -5 (KIP-1005).
v10: timeout for tiered storage (KIP-1075). v11: -6.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, Array, Int8, Int16, Int32, Int64, String, since


class ListOffsetsRequest(Request, api=2, versions="0-11", flexible="6+"):
    """Ask for one offset per partition (v0: several)."""

    replica_id: Int32  # broker id of a follower; -1: a client; -2: a debugging tool, which may ask any replica
    # 0: read uncommitted, 1: read committed: "latest" is then the first offset of an open transaction
    isolation_level: Int8 = since("2+", default=0)
    topics: Array[ListOffsetsTopic]
    timeout_ms: Int32 = since("10+", default=0)  # how long to wait for an answer that must be read from tiered storage

    class ListOffsetsTopic(Struct):
        name: String
        partitions: Array[ListOffsetsPartition]

        class ListOffsetsPartition(Struct):
            partition_index: Int32
            # epoch the client believes in: older than the leader's: 74, newer: 75; -1: do not check
            current_leader_epoch: Int32 = since("4+", default=-1)
            # ms since 1970, or -1: latest, -2: earliest, -3: record with the largest timestamp, -4: earliest on the
            # broker's own disk, -5: latest in tiered storage, -6: earliest not yet copied there
            timestamp: Int64
            max_num_offsets: Int32 = since("0", default=1)  # how many segment offsets to answer at most


class ListOffsetsResponse(Response, api=2, versions="0-11", flexible="6+"):
    """The offsets found."""

    throttle_time_ms: Int32 = since("2+", default=0)  # milliseconds a quota makes the client wait; 0: none
    topics: Array[ListOffsetsTopicResponse]

    class ListOffsetsTopicResponse(Struct):
        name: String
        partitions: Array[ListOffsetsPartitionResponse]

        class ListOffsetsPartitionResponse(Struct):
            partition_index: Int32
            error_code: Int16  # 6: not the leader, 74 and 75: leader epoch, 78: a new leader does not know yet, retry
            timestamp: Int64 = since("1+", default=-1)  # of the record found; -1: none found, or not asked by time
            # -1: none found; for "latest" the offset after the last record this reader may see
            offset: Int64 = since("1+", default=-1)
            # of the record found, to notice later that the log was cut; -1: not known
            leader_epoch: Int32 = since("4+", default=-1)
            # newest first: first offsets of segments, for "latest" with the log end in front
            old_style_offsets: Array[Int64] = since("0", default=EMPTY)
