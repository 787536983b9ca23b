"""Show where share groups are in their topics (KIP-932). Admin tools send it to the coordinator. v1: lag."""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int16, Int32, Int64, String, Uuid, since


class DescribeShareGroupOffsetsRequest(Request, api=90, versions="0-1", flexible="0+"):
    """Name groups and partitions to look at."""

    groups: Array[DescribeShareGroupOffsetsRequestGroup]

    class DescribeShareGroupOffsetsRequestGroup(Struct):
        group_id: String
        topics: Array[DescribeShareGroupOffsetsRequestTopic] | None  # null: every topic for which the group has state

        class DescribeShareGroupOffsetsRequestTopic(Struct):
            topic_name: String
            partitions: Array[Int32]  # partition indexes


class DescribeShareGroupOffsetsResponse(Response, api=90, versions="0-1", flexible="0+"):
    """Give the start of each partition's window of records in flight."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    groups: Array[DescribeShareGroupOffsetsResponseGroup]

    class DescribeShareGroupOffsetsResponseGroup(Struct):
        group_id: String
        topics: Array[DescribeShareGroupOffsetsResponseTopic]
        error_code: Int16  # of the group as a whole
        error_message: String | None = None  # for people to read; null: no error

        class DescribeShareGroupOffsetsResponseTopic(Struct):
            topic_name: String
            topic_id: Uuid
            partitions: Array[DescribeShareGroupOffsetsResponsePartition]

            class DescribeShareGroupOffsetsResponsePartition(Struct):
                partition_index: Int32
                start_offset: Int64  # everything below is done with; -1: the group has not begun here
                leader_epoch: Int32  # of the partition, as last written to the group's state
                lag: Int64 = since("1+", default=-1)  # records not yet done with; -1: not known
                error_code: Int16  # 0: success
                error_message: String | None = None  # for people to read; null: no error
