"""Shows which idempotent and transactional producers a partition remembers (KIP-664).

Sent by admin clients to the leader of the partitions, above all to find the transaction that holds back
read_committed consumers.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int16, Int32, Int64, String


class DescribeProducersRequest(Request, api=61, versions="0", flexible="0+"):
    """Ask for the producer state of partitions."""

    topics: Array[TopicRequest]

    class TopicRequest(Struct):
        name: String
        partition_indexes: Array[Int32]


class DescribeProducersResponse(Response, api=61, versions="0", flexible="0+"):
    """What the leader remembers of each producer."""

    throttle_time_ms: Int32  # milliseconds a quota makes the client wait; 0: none
    topics: Array[TopicResponse]

    class TopicResponse(Struct):
        name: String
        partitions: Array[PartitionResponse]

        class PartitionResponse(Struct):
            partition_index: Int32
            error_code: Int16  # 3: unknown partition, 6: this broker does not lead it
            error_message: String | None = None  # null: no error, or nothing to add to the code
            # those that wrote recently; forgotten after producer.id.expiration.ms without a write
            active_producers: Array[ProducerState]

            class ProducerState(Struct):
                producer_id: Int64
                producer_epoch: Int32  # 32 bits here, though batches and all other requests carry 16
                last_sequence: Int32 = -1  # sequence number of its newest record; -1: none known
                last_timestamp: Int64 = -1  # ms since 1970, of what it wrote last; -1: not known
                coordinator_epoch: Int32  # of the transaction coordinator that wrote the producer's last marker here
                # first record of its open transaction: read_committed stops there at the latest; -1: none open
                current_txn_start_offset: Int64 = -1
