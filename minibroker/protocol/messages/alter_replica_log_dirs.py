"""AlterReplicaLogDirs: move replicas between log directories of one broker (KIP-113).

An admin tool sends it to the very broker whose directories are meant. The broker copies the log into a
second, "future" log and swaps the two when the copy has caught up; DescribeLogDirs shows the progress.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int16, Int32, String


class AlterReplicaLogDirsRequest(Request, api=34, versions="0-2", flexible="2+", elements_max=10_000):
    """Say in which directory each listed partition should live."""

    dirs: Array[AlterReplicaLogDir]

    class AlterReplicaLogDir(Struct):
        path: String  # absolute path, as in log.dirs of the broker; unknown: LOG_DIR_NOT_FOUND
        topics: Array[AlterReplicaLogDirTopic]

        class AlterReplicaLogDirTopic(Struct):
            name: String
            partitions: Array[Int32]  # partition indexes


class AlterReplicaLogDirsResponse(Response, api=34, versions="0-2", flexible="2+"):
    """One result per partition; success means that the move has begun, not that it is done."""

    throttle_time_ms: Int32  # how long a quota makes the client wait before its next request; 0: not at all
    results: Array[AlterReplicaLogDirTopicResult]

    class AlterReplicaLogDirTopicResult(Struct):
        topic_name: String
        partitions: Array[AlterReplicaLogDirPartitionResult]

        class AlterReplicaLogDirPartitionResult(Struct):
            partition_index: Int32
            # REPLICA_NOT_AVAILABLE (9): no replica here yet, the directory is remembered for when one is created
            error_code: Int16
