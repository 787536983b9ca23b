"""Set up the state of a share group for partitions it begins to read (KIP-932).

The group coordinator sends it to the share coordinator, which writes it to __share_group_state.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int16, Int32, Int64, String, Uuid


class InitializeShareGroupStateRequest(Request, api=83, versions="0", flexible="0+", elements_max=10_000):
    """Name the partitions and where to begin."""

    group_id: String
    topics: Array[InitializeStateData]

    class InitializeStateData(Struct):
        topic_id: Uuid
        partitions: Array[PartitionData]

        class PartitionData(Struct):
            partition: Int32
            state_epoch: Int32  # grows each time the state is set up anew; requests with an older one are fenced
            start_offset: Int64  # -1: to be decided by the partition leader when it first reads


class InitializeShareGroupStateResponse(Response, api=83, versions="0", flexible="0+"):
    """Give one result for each partition."""

    results: Array[InitializeStateResult]

    class InitializeStateResult(Struct):
        topic_id: Uuid
        partitions: Array[PartitionResult]

        class PartitionResult(Struct):
            partition: Int32
            error_code: Int16  # 16: not the coordinator, 124: state epoch is too old
            error_message: String | None = None  # for people to read; null: no error
