"""What there is to say of transactions as long as nobody coordinates any: nothing is listed, no id has a coordinator.

Kafka answers the same before the first transactional producer has come.

Versions of AddPartitionsToTxn: 4 many transactions, asked for by brokers.
Versions of TxnOffsetCommit: 6 topics by their ids.
"""

from __future__ import annotations

from minibroker.broker.broker_parts import BrokerParts
from minibroker.broker.dispatch import Context
from minibroker.errors import Error, KafkaError
from minibroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from minibroker.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from minibroker.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from minibroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from minibroker.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

STATES = frozenset(
    (
        *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"),
        "PrepareEpochFence",
    )
)
BATCHES_SINCE = 4
TOPIC_IDS_SINCE = 6
PATTERN_LETTERS_MAX = 1000  # which take 10 ms at worst


def describe_transactions(request: DescribeTransactionsRequest, context: Context) -> DescribeTransactionsResponse:
    State = DescribeTransactionsResponse.TransactionState
    return DescribeTransactionsResponse(
        throttle_time_ms=0,
        transaction_states=[
            State(
                error_code=Error.NOT_COORDINATOR if name else Error.INVALID_REQUEST,
                transactional_id=name,
                transaction_state="",
                transaction_timeout_ms=0,
                transaction_start_time_ms=0,
                producer_id=0,
                producer_epoch=0,
                topics=[],
            )
            for name in request.transactional_ids
        ],
    )


def list_transactions(request: ListTransactionsRequest, context: Context) -> ListTransactionsResponse:
    is_good = _is_pattern(request.transactional_id_pattern or "")
    return ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=Error.NONE if is_good else Error.INVALID_REGULAR_EXPRESSION,
        unknown_state_filters=[state for state in request.state_filters if state not in STATES] if is_good else [],
        transaction_states=[],
    )


def _is_pattern(text: str) -> bool:
    """Whether RE2 takes it, as Kafka's RE2/J does; nothing of it is run, for there is nothing to match."""
    from minibroker.groups.patterns import check

    if len(text) > PATTERN_LETTERS_MAX:
        return False
    try:
        check(text)
    except KafkaError:
        return False
    return True


def add_partitions_to_txn(request: AddPartitionsToTxnRequest, context: Context) -> AddPartitionsToTxnResponse:
    if context.api_version < BATCHES_SINCE:
        return AddPartitionsToTxnResponse(
            throttle_time_ms=0,
            results_by_topic_v3_and_below=_not_added(request.v3_and_below_topics, context.node),
        )
    Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
    return AddPartitionsToTxnResponse(
        throttle_time_ms=0,
        results_by_transaction=[
            Result(transactional_id=each.transactional_id, topic_results=_not_added(each.topics, context.node))
            for each in request.transactions
        ],
    )


def _not_added(topics: list[AddPartitionsToTxnTopic], node: BrokerParts) -> list[AddPartitionsToTxnTopicResult]:
    """Answer for each partition: it is not there, or another is not, or nobody coordinates the transaction."""
    is_whole = all(node.has_partition(topic.name, index) for topic in topics for index in topic.partitions)
    here = Error.NOT_COORDINATOR if is_whole else Error.OPERATION_NOT_ATTEMPTED
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnTopicResult.AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=(
                        here if node.has_partition(topic.name, index) else Error.UNKNOWN_TOPIC_OR_PARTITION
                    ),
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def txn_offset_commit(request: TxnOffsetCommitRequest, context: Context) -> TxnOffsetCommitResponse:
    Topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
    by_id = context.api_version >= TOPIC_IDS_SINCE
    topics = []
    for topic in request.topics:
        name = (context.node.topic_name(bytes(topic.topic_id)) or "") if by_id else topic.name
        absent = Error.UNKNOWN_TOPIC_ID if by_id and not name else Error.UNKNOWN_TOPIC_OR_PARTITION
        partitions = [
            Topic.TxnOffsetCommitResponsePartition(
                partition_index=each.partition_index,
                error_code=(
                    Error.NOT_COORDINATOR if context.node.has_partition(name, each.partition_index) else absent
                ),
            )
            for each in topic.partitions
        ]
        topics.append(Topic(topic_id=topic.topic_id, name=topic.name, partitions=partitions))
    return TxnOffsetCommitResponse(throttle_time_ms=0, topics=topics)


def write_txn_markers(request: WriteTxnMarkersRequest, context: Context) -> WriteTxnMarkersResponse:
    """Refuse markers: no transaction is open that they could end.

    Kafka: writes them for whoever asks.
    """
    Marker = WriteTxnMarkersResponse.WritableTxnMarkerResult
    Topic = Marker.WritableTxnMarkerTopicResult
    return WriteTxnMarkersResponse(
        markers=[
            Marker(
                producer_id=marker.producer_id,
                topics=[
                    Topic(
                        name=topic.name,
                        partitions=[
                            Topic.WritableTxnMarkerPartitionResult(
                                partition_index=index,
                                error_code=(
                                    Error.INVALID_TXN_STATE
                                    if context.node.has_partition(topic.name, index)
                                    else Error.UNKNOWN_TOPIC_OR_PARTITION
                                ),
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
