"""DescribeLogDirs: sizes and health of one broker's log directories (KIP-113).

An admin tool sends it to every broker of interest; each answers only for its own disks.
v3: error for the whole answer, v4: disk totals (KIP-827), v5: cordoned directories (KIP-1066).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bool, Int16, Int32, Int64, String, since


class DescribeLogDirsRequest(Request, api=35, versions="0-5", flexible="2+"):
    """Ask for all partitions or for some."""

    topics: Array[DescribableLogDirTopic] | None  # null: all topics

    class DescribableLogDirTopic(Struct):
        topic: String
        partitions: Array[Int32]  # partition indexes


class DescribeLogDirsResponse(Response, api=35, versions="0-5", flexible="2+"):
    """One entry per log directory, with the replicas in it."""

    throttle_time_ms: Int32  # how long a quota makes the client wait before its next request; 0: not at all
    # for the request as a whole, for example CLUSTER_AUTHORIZATION_FAILED (31)
    error_code: Int16 = since("3+", default=0)
    results: Array[DescribeLogDirsResult]

    class DescribeLogDirsResult(Struct):
        error_code: Int16  # KAFKA_STORAGE_ERROR (56): the directory is offline
        log_dir: String  # absolute path
        topics: Array[DescribeLogDirsTopic]
        total_bytes: Int64 = since("4+", default=-1)  # size of the volume that holds the directory; -1: unknown
        usable_bytes: Int64 = since("4+", default=-1)  # free bytes on that volume; -1: unknown
        is_cordoned: Bool = since("5+", default=False)  # true: the directory takes no new replicas

        class DescribeLogDirsTopic(Struct):
            name: String
            partitions: Array[DescribeLogDirsPartition]

            class DescribeLogDirsPartition(Struct):
                partition_index: Int32
                partition_size: Int64  # bytes of all segments of this log
                # how far the log end is behind: the high watermark (0 if ahead), or for a future log the current log's
                # end
                offset_lag: Int64
                # true: a copy being made by AlterReplicaLogDirs, which will replace the current log
                is_future_key: Bool
