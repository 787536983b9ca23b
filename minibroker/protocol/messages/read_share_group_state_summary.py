"""ReadShareGroupStateSummary: start offsets of share-partitions without the state of single records (KIP-932).

The group coordinator sends it to the share coordinator, for example to answer DescribeShareGroupOffsets. Clients
never send it. v1: count of completed deliveries, needed to compute lag (KIP-1226).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int16, Int32, Int64, String, Uuid, since


class ReadShareGroupStateSummaryRequest(Request, api=87, versions="0-1", flexible="0+", elements_max=10_000):
    """Name the share-partitions of one group."""

    group_id: String
    topics: Array[ReadStateSummaryData]

    class ReadStateSummaryData(Struct):
        topic_id: Uuid
        partitions: Array[PartitionData]

        class PartitionData(Struct):
            partition: Int32
            leader_epoch: Int32  # epoch of the partition's leader as the asker knows it


class ReadShareGroupStateSummaryResponse(Response, api=87, versions="0-1", flexible="0+"):
    """One summary or error per partition."""

    results: Array[ReadStateSummaryResult]

    class ReadStateSummaryResult(Struct):
        topic_id: Uuid
        partitions: Array[PartitionResult]

        class PartitionResult(Struct):
            partition: Int32
            error_code: Int16
            error_message: String | None = None  # null: no error or no text
            # rises when the state is initialised anew, so that writes meant for the old state are refused
            state_epoch: Int32
            leader_epoch: Int32  # epoch of the partition leader that wrote the state
            start_offset: Int64  # first offset whose delivery is not finished; -1: not initialised
            # records at or above start_offset that need no more delivery; lag leaves them out; -1: unknown
            delivery_complete_count: Int32 = since("1+", default=-1)
