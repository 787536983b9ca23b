"""Hold a leader election now. Admin tools send it; the controller acts.

v0: only the preferred leader (KIP-183), v1: unclean elections too (KIP-460), v2: flexible.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int8, Int16, Int32, String, since


class ElectLeadersRequest(Request, api=43, versions="0-2", flexible="2+"):
    """Name the partitions and the kind of election."""

    # 0: preferred, the first replica if it is in sync; 1: unclean, any live one, which may lose data
    election_type: Int8 = since("1+", default=0)
    topic_partitions: Array[TopicPartitions] | None  # null: all
    timeout_ms: Int32 = 60000  # how long to wait for the outcome

    class TopicPartitions(Struct):
        topic: String
        partitions: Array[Int32]


class ElectLeadersResponse(Response, api=43, versions="0-2", flexible="2+"):
    """Give one result for each partition."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    error_code: Int16 = since("1+", default=0)  # of the request as a whole
    replica_election_results: Array[ReplicaElectionResult]

    class ReplicaElectionResult(Struct):
        topic: String
        partition_result: Array[PartitionResult]

        class PartitionResult(Struct):
            partition_id: Int32
            # 84: it leads already, 80: the preferred replica is not available, 83: no replica can lead
            error_code: Int16
            error_message: String | None  # for people to read; null: no error
