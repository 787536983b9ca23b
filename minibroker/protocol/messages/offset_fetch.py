"""Ask where a group left off. Consumers send it to their coordinator before they begin to read, admin tools to look.

v0: offsets in ZooKeeper, v2: null for all topics, v6: flexible, v7: wait for open transactions (KIP-447), v8: many
groups (KIP-709), v9: groups of the new protocol (KIP-848), v10: topic ids.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, NO_ID, Array, Bool, Int16, Int32, Int64, String, Uuid, since


class OffsetFetchRequest(Request, api=9, versions="0-10", flexible="6+"):
    """Name group and partitions: one group until v7, a list from v8 on."""

    groups: Array[OffsetFetchRequestGroup] = since("8+", default=EMPTY)
    group_id: String = since("0-7", default="")
    # null: all that the group has committed
    topics: Array[OffsetFetchRequestTopic] | None = since("0-7", default=EMPTY, nullable="2+")
    # true: rather error 88 than an offset that an open transaction is about to replace
    require_stable: Bool = since("7+", default=False)

    class OffsetFetchRequestGroup(Struct):
        group_id: String
        member_id: String | None = since("9+", default=None)  # null: ask from outside, without being a member
        # of a member of the new protocol (KIP-848), else error 113; -1: not checked
        member_epoch: Int32 = since("9+", default=-1)
        topics: Array[OffsetFetchRequestTopics] | None  # null: all that the group has committed

        class OffsetFetchRequestTopics(Struct):
            topic_id: Uuid = since("10+", default=NO_ID)
            name: String = since("8-9", default="")
            partition_indexes: Array[Int32]

    class OffsetFetchRequestTopic(Struct):
        name: String
        partition_indexes: Array[Int32]


class OffsetFetchResponse(Response, api=9, versions="0-10", flexible="6+"):
    """Give the committed offset of each partition."""

    throttle_time_ms: Int32 = since("3+", default=0)  # how long the quota of the client makes it wait, 0: not at all
    groups: Array[OffsetFetchResponseGroup] = since("8+", default=EMPTY)
    topics: Array[OffsetFetchResponseTopic] = since("0-7", default=EMPTY)
    # of the group: 16 not its coordinator, 14 still loading; v0 and v1 repeat it in each partition
    error_code: Int16 = since("2-7", default=0)

    class OffsetFetchResponseGroup(Struct):
        group_id: String
        topics: Array[OffsetFetchResponseTopics]
        # 16: not its coordinator, 14: still loading, 25: no such member, 113: outdated member epoch
        error_code: Int16 = 0

        class OffsetFetchResponseTopics(Struct):
            topic_id: Uuid = since("10+", default=NO_ID)
            name: String = since("8-9", default="")
            partitions: Array[OffsetFetchResponsePartitions]

            class OffsetFetchResponsePartitions(Struct):
                partition_index: Int32
                committed_offset: Int64  # where to go on reading; -1: nothing committed
                committed_leader_epoch: Int32 = -1  # of the last record consumed; -1: not known
                metadata: String | None  # free text that came with the commit
                error_code: Int16  # 88: a transaction that touches it is still open, ask again

    class OffsetFetchResponseTopic(Struct):
        name: String
        partitions: Array[OffsetFetchResponsePartition]

        class OffsetFetchResponsePartition(Struct):
            partition_index: Int32
            committed_offset: Int64  # where to go on reading; -1: nothing committed
            committed_leader_epoch: Int32 = since("5-7", default=-1)  # of the last record consumed; -1: not known
            metadata: String | None  # free text that came with the commit
            error_code: Int16  # 88: a transaction that touches it is still open, ask again
