"""Show which partitions are moving between brokers (KIP-455). Admin tools send it; the controller answers."""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int16, Int32, String


class ListPartitionReassignmentsRequest(Request, api=46, versions="0", flexible="0+"):
    """Name the partitions to look at."""

    timeout_ms: Int32 = 60000  # how long the controller may take
    topics: Array[ListPartitionReassignmentsTopics] | None = None  # null: everything that is moving

    class ListPartitionReassignmentsTopics(Struct):
        name: String
        partition_indexes: Array[Int32]


class ListPartitionReassignmentsResponse(Response, api=46, versions="0", flexible="0+"):
    """List the moves under way; partitions at rest are left out."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    error_code: Int16  # 0: success
    error_message: String | None  # for people to read; null: no error
    topics: Array[OngoingTopicReassignment]

    class OngoingTopicReassignment(Struct):
        name: String
        partitions: Array[OngoingPartitionReassignment]

        class OngoingPartitionReassignment(Struct):
            partition_index: Int32
            replicas: Array[Int32]  # all at present, old and new
            adding_replicas: Array[Int32]  # still copying or not yet in sync
            removing_replicas: Array[Int32]  # to be dropped once the new ones are in sync
