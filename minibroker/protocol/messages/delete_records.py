"""Throw away the beginning of partitions (KIP-107): the log start offset moves up, nothing else changes.

Admin clients and Kafka Streams (for its repartition topics) send it to the leader of each partition.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int16, Int32, Int64, String


class DeleteRecordsRequest(Request, api=21, versions="0-2", flexible="2+"):
    """Name the partitions and the offset before which everything goes."""

    topics: Array[DeleteRecordsTopic]
    timeout_ms: Int32  # how long the leader waits until every live replica has moved its start too

    class DeleteRecordsTopic(Struct):
        name: String
        partitions: Array[DeleteRecordsPartition]

        class DeleteRecordsPartition(Struct):
            partition_index: Int32
            offset: Int64  # the first offset to keep; -1: the high watermark, so all that consumers can see goes


class DeleteRecordsResponse(Response, api=21, versions="0-2", flexible="2+"):
    """Say where each partition begins now."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    topics: Array[DeleteRecordsTopicResult]

    class DeleteRecordsTopicResult(Struct):
        name: String
        partitions: Array[DeleteRecordsPartitionResult]

        class DeleteRecordsPartitionResult(Struct):
            partition_index: Int32
            low_watermark: Int64  # lowest log start offset among the live replicas; -1 with an error
            error_code: Int16  # 1: beyond the high watermark, 6: not the leader, 44: topic is only compacted
