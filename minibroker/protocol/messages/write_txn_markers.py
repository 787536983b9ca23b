"""Write the end of a transaction into the partitions it touched (KIP-98).

The transaction coordinator sends it to the leaders of these partitions after EndTxn or a timeout. Each partition gets a
control batch; read_committed consumers go by it. v1: flexible, v2: transaction version.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bool, Int8, Int16, Int32, Int64, String, since


class WriteTxnMarkersRequest(Request, api=27, versions="0-2", flexible="1+", elements_max=10_000):
    """Carry the outcome of transactions, and where to write it."""

    markers: Array[WritableTxnMarker]

    class WritableTxnMarker(Struct):
        producer_id: Int64
        # goes into the control batch; after a timeout, or with transaction version 2, already raised
        producer_epoch: Int16
        transaction_result: Bool  # true: committed, false: aborted
        topics: Array[WritableTxnMarkerTopic]
        # leader epoch of the coordinator's log; markers of an older coordinator are refused (52)
        coordinator_epoch: Int32
        # 2: the marker's epoch must be larger than the producer's last (KIP-890); 0 and 1: may equal it
        transaction_version: Int8 = since("2+", default=0)

        class WritableTxnMarkerTopic(Struct):
            name: String
            partition_indexes: Array[Int32]


class WriteTxnMarkersResponse(Response, api=27, versions="0-2", flexible="1+"):
    """Give one result for each marker and partition."""

    markers: Array[WritableTxnMarkerResult]

    class WritableTxnMarkerResult(Struct):
        producer_id: Int64
        topics: Array[WritableTxnMarkerTopicResult]

        class WritableTxnMarkerTopicResult(Struct):
            name: String
            partitions: Array[WritableTxnMarkerPartitionResult]

            class WritableTxnMarkerPartitionResult(Struct):
                partition_index: Int32
                # 6: not the leader any more, the coordinator looks for the new one; 47: epoch too old
                error_code: Int16
