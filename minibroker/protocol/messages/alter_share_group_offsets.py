"""Moves the start offsets of a share group (KIP-932), to read records again or to skip some.

Sent by admin clients to the group's coordinator, while the group has no members.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int16, Int32, Int64, String, Uuid


class AlterShareGroupOffsetsRequest(Request, api=91, versions="0", flexible="0+"):
    """Set the offset at which the group starts in each partition named."""

    group_id: String
    topics: Array[AlterShareGroupOffsetsRequestTopic]

    class AlterShareGroupOffsetsRequestTopic(Struct):
        topic_name: String
        partitions: Array[AlterShareGroupOffsetsRequestPartition]

        class AlterShareGroupOffsetsRequestPartition(Struct):
            partition_index: Int32
            start_offset: Int64  # first record the group will be given; what it knew about later records is forgotten


class AlterShareGroupOffsetsResponse(Response, api=91, versions="0", flexible="0+"):
    """One result per partition."""

    throttle_time_ms: Int32  # milliseconds a quota makes the client wait; 0: none
    # failure of the whole request, such as 68: the group still has members; 0: look at each partition
    error_code: Int16
    error_message: String | None = None  # null: no error, or nothing to add to the code
    responses: Array[AlterShareGroupOffsetsResponseTopic]

    class AlterShareGroupOffsetsResponseTopic(Struct):
        topic_name: String
        topic_id: Uuid  # all zero: the broker does not know the topic
        partitions: Array[AlterShareGroupOffsetsResponsePartition]

        class AlterShareGroupOffsetsResponsePartition(Struct):
            partition_index: Int32
            error_code: Int16
            error_message: String | None = None  # null: no error, or nothing to add to the code
