"""Appends records to partitions.

Sent by producers to the leader of each partition; one request holds one batch for each of many partitions.
v0-v1: message format v0. v2: message format v1. v3: record batches, transactions (KIP-98). v7: zstd may be used
(KIP-110). v8: says which records were refused (KIP-467). v9: flexible. v10: names the new leader (KIP-951). v11:
TRANSACTION_ABORTABLE (120). v12: the leader adds partitions to transactions itself (KIP-890). v13: topic ids in place
of names (KIP-516).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import DEFAULTS, EMPTY, NO_ID, Array, Int16, Int32, Int64, Records, String, Uuid, since


class ProduceRequest(Request, api=0, versions="0-13", flexible="9+", elements_max=20_000):
    """Append record batches to partitions, to 10,000 at most if each is of another topic."""

    transactional_id: String | None = since("3+", default=None)  # null: the batches belong to no transaction
    acks: Int16  # 0: no response at all, 1: leader only, -1: every in-sync replica
    # with acks -1: how long to wait for the other replicas; then 7, though the records stay in the log
    timeout_ms: Int32
    topic_data: Array[TopicProduceData]

    class TopicProduceData(Struct):
        topic_id: Uuid = since("13+", default=NO_ID)
        name: String = since("0-12", default="")
        partition_data: Array[PartitionProduceData]

        class PartitionProduceData(Struct):
            index: Int32
            records: Records | None  # from v3 on exactly one batch; null only by mistake


class ProduceResponse(Response, api=0, versions="0-13", flexible="9+"):
    """Where the records went, partition by partition; with acks 0 there is no response."""

    responses: Array[TopicProduceResponse]
    throttle_time_ms: Int32 = since("1+", default=0)  # milliseconds a quota makes the client wait; 0: none
    # addresses of the brokers that current_leader names
    node_endpoints: Array[NodeEndpoint] = since("10+", default=EMPTY, tag=0)

    class TopicProduceResponse(Struct):
        topic_id: Uuid = since("13+", default=NO_ID)
        name: String = since("0-12", default="")
        partition_responses: Array[PartitionProduceResponse]

        class PartitionProduceResponse(Struct):
            index: Int32
            # 6: other leader, 10: too large, 19 and 20: too few in-sync replicas, 45: gap in sequence, 87: bad record
            error_code: Int16
            base_offset: Int64  # offset of the first record; a batch sent twice gets its old one again; -1: error
            # time the broker gave the records; -1: they keep the producer's
            log_append_time_ms: Int64 = since("2+", default=-1)
            log_start_offset: Int64 = since("5+", default=-1)  # first offset the log still holds; -1: not known
            # which records made the broker refuse the batch; nothing of it was written
            record_errors: Array[BatchIndexAndErrorMessage] = since("8+", default=EMPTY)
            error_message: String | None = since("8+", default=None)  # null: no error, or nothing to add to the code
            # sent with error 6, so that the client need not ask for metadata
            current_leader: LeaderIdAndEpoch = since("10+", default=DEFAULTS, tag=0)

            class BatchIndexAndErrorMessage(Struct):
                batch_index: Int32  # place of the record in its batch, from 0
                batch_index_error_message: String | None = None  # null: nothing to add to the code of the partition

            class LeaderIdAndEpoch(Struct):
                leader_id: Int32 = -1  # -1: not known
                # rises with each change of leader; clients ignore hints older than what they know; -1: not known
                leader_epoch: Int32 = -1

    class NodeEndpoint(Struct):
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = None  # null: the broker has none
