"""Forget committed offsets of a group (KIP-496). Admin tools send it to the group's coordinator."""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int16, Int32, String


class OffsetDeleteRequest(Request, api=47, versions="0"):
    """Name the group and the partitions whose offsets are to go."""

    group_id: String
    topics: Array[OffsetDeleteRequestTopic]

    class OffsetDeleteRequestTopic(Struct):
        name: String
        partitions: Array[OffsetDeleteRequestPartition]

        class OffsetDeleteRequestPartition(Struct):
            partition_index: Int32


class OffsetDeleteResponse(Response, api=47, versions="0"):
    """Give one result for each partition."""

    # of the request as a whole: 69 no such group, 68 the group is active with another kind of protocol
    error_code: Int16
    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    topics: Array[OffsetDeleteResponseTopic]

    class OffsetDeleteResponseTopic(Struct):
        name: String
        partitions: Array[OffsetDeleteResponsePartition]

        class OffsetDeleteResponsePartition(Struct):
            partition_index: Int32
            error_code: Int16  # 86: a member still reads this topic, 3: no such partition
