"""Move partitions to other brokers, or stop a move (KIP-455). Admin tools send it; the controller carries it out.

The answer comes when the move has begun; ListPartitionReassignments tells when it is over.
v1: guard against a changed number of replicas (KIP-860).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bool, Int16, Int32, String, since


class AlterPartitionReassignmentsRequest(Request, api=45, versions="0-1", flexible="0+"):
    """Name the partitions and the brokers they should live on."""

    timeout_ms: Int32 = 60000  # how long the controller may take to begin
    # false: refuse a move that changes the number of replicas (error 38)
    allow_replication_factor_change: Bool = since("1+", default=True)
    topics: Array[ReassignableTopic]

    class ReassignableTopic(Struct):
        name: String
        partitions: Array[ReassignablePartition]

        class ReassignablePartition(Struct):
            partition_index: Int32
            replicas: Array[Int32] | None = None  # broker ids, preferred leader first; null: cancel the move


class AlterPartitionReassignmentsResponse(Response, api=45, versions="0-1", flexible="0+"):
    """Say for each partition whether its move has begun."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    allow_replication_factor_change: Bool = since("1+", default=True)  # as in the request
    error_code: Int16  # of the request as a whole
    error_message: String | None  # for people to read; null: no error
    responses: Array[ReassignableTopicResponse]

    class ReassignableTopicResponse(Struct):
        name: String
        partitions: Array[ReassignablePartitionResponse]

        class ReassignablePartitionResponse(Struct):
            partition_index: Int32
            error_code: Int16  # 39: bad list of brokers, 85: nothing to cancel
            error_message: String | None  # for people to read; null: no error
