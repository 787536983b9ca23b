"""Names the partitions that a transaction is about to write to, so that its end marker reaches all of them.

A transactional producer asks its transaction coordinator before the first write to each partition (KIP-98). Since
KIP-890 partition leaders also send it, for several transactions at once, to learn whether a transaction is open.
v2: a fenced producer gets PRODUCER_FENCED (90) instead of 47. v3: flexible, the last version that clients use.
v4: batched, for brokers only. v5: may answer TRANSACTION_ABORTABLE (120).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, Array, Bool, Int16, Int32, Int64, String, since


class AddPartitionsToTxnRequest(Request, api=24, versions="0-5", flexible="3+", elements_max=10_000):
    """Add partitions to transactions, or only verify that they have been added."""

    # sent by brokers, which batch what they ask for several producers
    transactions: Array[AddPartitionsToTxnTransaction] = since("4+", default=EMPTY)
    # the name the application gave its producer (transactional.id)
    v3_and_below_transactional_id: String = since("0-3", default="")
    # as handed out by InitProducerId; another one than the coordinator knows: error 49
    v3_and_below_producer_id: Int64 = since("0-3", default=0)
    # an older epoch than the coordinator's means a newer instance took over: 47, from v2 on 90
    v3_and_below_producer_epoch: Int16 = since("0-3", default=0)
    # partitions to add; naming one that is already part of the transaction does no harm
    v3_and_below_topics: Array[AddPartitionsToTxnTopic] = since("0-3", default=EMPTY)

    class AddPartitionsToTxnTransaction(Struct):
        transactional_id: String
        producer_id: Int64  # as handed out by InitProducerId
        producer_epoch: Int16  # guards against an older instance with the same transactional id
        verify_only: Bool = False  # true: add nothing, only tell whether the partitions belong to the open transaction
        topics: Array[AddPartitionsToTxnTopic]


class AddPartitionsToTxnTopic(Struct):
    name: String
    partitions: Array[Int32]  # partition indexes


class AddPartitionsToTxnResponse(Response, api=24, versions="0-5", flexible="3+"):
    """One error code per partition asked for."""

    throttle_time_ms: Int32  # milliseconds a quota makes the client wait; 0: none
    # failure of the whole request, such as a sender without the right to ask; 0: look at each partition
    error_code: Int16 = since("4+", default=0)
    # one entry per transaction of the request
    results_by_transaction: Array[AddPartitionsToTxnResult] = since("4+", default=EMPTY)
    # the one transaction of the request, topic by topic
    results_by_topic_v3_and_below: Array[AddPartitionsToTxnTopicResult] = since("0-3", default=EMPTY)

    class AddPartitionsToTxnResult(Struct):
        transactional_id: String
        topic_results: Array[AddPartitionsToTxnTopicResult]


class AddPartitionsToTxnTopicResult(Struct):
    name: String
    results_by_partition: Array[AddPartitionsToTxnPartitionResult]

    class AddPartitionsToTxnPartitionResult(Struct):
        partition_index: Int32
        # 55: not tried because another partition failed; 51: the last transaction is still ending, retry
        partition_error_code: Int16
