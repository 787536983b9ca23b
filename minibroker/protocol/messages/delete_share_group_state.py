"""DeleteShareGroupState: forget the delivery state of share-partitions (KIP-932).

The group coordinator sends it to the share coordinator, the broker that leads the right partition of
__share_group_state, when a share group or its offsets for a topic are deleted. Clients never send it.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int16, Int32, String, Uuid


class DeleteShareGroupStateRequest(Request, api=86, versions="0", flexible="0+", elements_max=10_000):
    """Name the share-partitions of one group whose state shall go."""

    group_id: String
    topics: Array[DeleteStateData]

    class DeleteStateData(Struct):
        topic_id: Uuid
        partitions: Array[PartitionData]

        class PartitionData(Struct):
            partition: Int32


class DeleteShareGroupStateResponse(Response, api=86, versions="0", flexible="0+"):
    """One result per partition."""

    results: Array[DeleteStateResult]

    class DeleteStateResult(Struct):
        topic_id: Uuid
        partitions: Array[PartitionResult]

        class PartitionResult(Struct):
            partition: Int32
            error_code: Int16
            error_message: String | None = None  # null: no error or no text
