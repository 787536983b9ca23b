"""Load what a share group has done in a partition (KIP-932).

A partition leader sends it to the share coordinator when it takes over, before it hands out records.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int8, Int16, Int32, Int64, String, Uuid


class ReadShareGroupStateRequest(Request, api=84, versions="0", flexible="0+", elements_max=10_000):
    """Name the partitions to load."""

    group_id: String
    topics: Array[ReadStateData]

    class ReadStateData(Struct):
        topic_id: Uuid
        partitions: Array[PartitionData]

        class PartitionData(Struct):
            partition: Int32
            leader_epoch: Int32  # of the asking leader; from then on older leaders cannot write


class ReadShareGroupStateResponse(Response, api=84, versions="0", flexible="0+"):
    """Give the stored state of each partition."""

    results: Array[ReadStateResult]

    class ReadStateResult(Struct):
        topic_id: Uuid
        partitions: Array[PartitionResult]

        class PartitionResult(Struct):
            partition: Int32
            error_code: Int16  # 16: not the coordinator, 74: a newer leader has been here
            error_message: String | None = None  # for people to read; null: no error
            state_epoch: Int32  # of the set-up; later writes must carry it
            start_offset: Int64  # everything below is done with; -1: not decided yet
            state_batches: Array[StateBatch]  # states of offsets from start_offset on; what is not listed is available

            class StateBatch(Struct):
                first_offset: Int64
                last_offset: Int64  # inclusive
                delivery_state: Int8  # 0: available, 2: acknowledged, 4: archived
                delivery_count: Int16  # how often these records have been handed out
