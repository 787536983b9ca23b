"""Give existing topics more partitions (KIP-195). Admin clients send it; the number can never go down again.

Keys may land in other partitions afterwards, since producers choose by hash modulo the number of partitions.
v2: flexible, v3: may answer 89, THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bool, Int16, Int32, String


class CreatePartitionsRequest(Request, api=37, versions="0-3", flexible="2+"):
    """Name the topics and the number of partitions each should have."""

    topics: Array[CreatePartitionsTopic]
    timeout_ms: Int32  # how long the controller may take
    validate_only: Bool  # true: check everything, change nothing

    class CreatePartitionsTopic(Struct):
        name: String
        count: Int32  # the new total, not how many to add
        # one for each added partition, in order; null: the controller places them
        assignments: Array[CreatePartitionsAssignment] | None

        class CreatePartitionsAssignment(Struct):
            broker_ids: Array[Int32]  # the replicas; the first is the preferred leader


class CreatePartitionsResponse(Response, api=37, versions="0-3", flexible="2+"):
    """Give one result for each topic."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    results: Array[CreatePartitionsTopicResult]

    class CreatePartitionsTopicResult(Struct):
        name: String
        error_code: Int16  # 37: count is not larger than before, 39: bad assignment, 60: a reassignment is running
        error_message: String | None = None  # for people to read; null: no error
