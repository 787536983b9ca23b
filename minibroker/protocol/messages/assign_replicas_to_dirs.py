"""AssignReplicasToDirs: a broker tells the controller which log directory holds which replica (KIP-858).

Sent after a replica was placed in or moved to a directory, so that the controller can elect new leaders when
that directory fails. Clients never send it.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int16, Int32, Int64, Uuid


class AssignReplicasToDirsRequest(Request, api=73, versions="0", flexible="0+"):
    """List the replicas of one broker by directory."""

    broker_id: Int32
    broker_epoch: Int64 = -1  # from the broker's registration; a stale one is refused, -1: not known
    directories: Array[DirectoryData]

    class DirectoryData(Struct):
        id: Uuid  # id from the directory's meta.properties, not its path
        topics: Array[TopicData]

        class TopicData(Struct):
            topic_id: Uuid
            partitions: Array[PartitionData]

            class PartitionData(Struct):
                partition_index: Int32


class AssignReplicasToDirsResponse(Response, api=73, versions="0", flexible="0+"):
    """Repeat the directories and partitions with a result for each."""

    throttle_time_ms: Int32  # how long a quota makes the client wait before its next request; 0: not at all
    error_code: Int16  # for the request as a whole
    directories: Array[DirectoryData]

    class DirectoryData(Struct):
        id: Uuid  # id from the directory's meta.properties, not its path
        topics: Array[TopicData]

        class TopicData(Struct):
            topic_id: Uuid
            partitions: Array[PartitionData]

            class PartitionData(Struct):
                partition_index: Int32
                error_code: Int16
