"""Saves the delivery state of share partitions (KIP-932).

The leader of a partition sends it to the share coordinator, which keeps it in __share_group_state, so that the next
leader knows which records are done. v1: count of finished deliveries, for the lag of a group.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int8, Int16, Int32, Int64, String, Uuid, since


class WriteShareGroupStateRequest(Request, api=85, versions="0-1", flexible="0+", elements_max=10_000):
    """Save what has changed since the last write."""

    group_id: String
    topics: Array[WriteStateData]

    class WriteStateData(Struct):
        topic_id: Uuid
        partitions: Array[PartitionData]

        class PartitionData(Struct):
            partition: Int32
            state_epoch: Int32  # rises when the state is initialised anew; an older one is refused with 124
            leader_epoch: Int32  # of the sender as leader of the partition; an older one is refused with 74
            start_offset: Int64  # first record that is not done with; -1: unchanged
            # records from start_offset on whose delivery is finished; -1: not known
            delivery_complete_count: Int32 = since("1+", default=-1)
            state_batches: Array[StateBatch]  # only ranges whose state has changed

            class StateBatch(Struct):
                first_offset: Int64
                last_offset: Int64  # inclusive
                delivery_state: Int8  # 0: available, 2: acknowledged, 4: archived; acquired (1) is never saved
                delivery_count: Int16  # how often the records have been handed out; at the limit they are archived


class WriteShareGroupStateResponse(Response, api=85, versions="0-1", flexible="0+"):
    """One result per partition."""

    results: Array[WriteStateResult]

    class WriteStateResult(Struct):
        topic_id: Uuid
        partitions: Array[PartitionResult]

        class PartitionResult(Struct):
            partition: Int32
            error_code: Int16  # 16: other coordinator, 74: old leader epoch, 124: old state epoch
            error_message: String | None = None  # null: no error, or nothing to add to the code
