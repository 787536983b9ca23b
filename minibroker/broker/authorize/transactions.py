"""Transactions and producer ids: by the transactional id, and by the topics that are written to."""

from __future__ import annotations

from typing import Any, Final

from minibroker.broker.authorize.access import ASKED_US, FAILED, answered, changed
from minibroker.broker.dispatch import is_internal
from minibroker.errors import Error
from minibroker.faults.answers import Fault, copy_with, refuse_in_pieces
from minibroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from minibroker.protocol.messages.describe_transactions import DescribeTransactionsResponse
from minibroker.protocol.messages.init_producer_id import InitProducerIdResponse
from minibroker.security.acls import (
    CLUSTER,
    CLUSTER_ACTION,
    DESCRIBE,
    IDEMPOTENT_WRITE,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from minibroker.turns import Work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.authorize.access import Access
    from minibroker.broker.dispatch import Context, Handler
    from minibroker.in_pieces import InPieces
    from minibroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
    from minibroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
    from minibroker.protocol.messages.init_producer_id import InitProducerIdRequest
    from minibroker.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

BROKERS_SINCE: Final = 4  # of AddPartitionsToTxn
PartitionResult = AddPartitionsToTxnTopicResult.AddPartitionsToTxnPartitionResult
Described = DescribeTransactionsResponse.TransactionState


def init_producer_id(request: InitProducerIdRequest, context: Context, handler: Handler, access: Access) -> Any:
    """Give an id to who may use the transactional id, or may write anywhere without one (KIP-679)."""
    name, code = request.transactional_id, Error.NONE
    if name is not None:
        if not access.may(WRITE, TRANSACTIONAL_ID, name):
            code = FAILED[TRANSACTIONAL_ID]
    elif (
        not access.could_to_cluster(IDEMPOTENT_WRITE)
        and not access.could_for_any(WRITE, TOPIC)
        and not access.may_to_cluster(IDEMPOTENT_WRITE)  # now it is a denial
    ):
        code = FAILED[CLUSTER]
    if code == Error.NONE:
        return handler(request, context)
    return InitProducerIdResponse(throttle_time_ms=0, error_code=code, producer_id=-1, producer_epoch=-1)


def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, context: Context, handler: Handler, access: Access
) -> Work[Any]:
    """Add the partitions of topics that one may write to: all of them, or none."""
    api, version = request.api, context.api_version
    if version >= BROKERS_SINCE:
        if not access.may_to_cluster(CLUSTER_ACTION):
            return AddPartitionsToTxnResponse(throttle_time_ms=0, error_code=FAILED[CLUSTER])
        return (yield from answered(handler(request, context)))
    if not access.may(WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        return (yield from refuse_in_pieces(request, api, version, Fault(FAILED[TRANSACTIONAL_ID], None)))
    topics = request.v3_and_below_topics
    refused = set()
    for topic in topics:
        if is_internal(topic.name) or not access.may(WRITE, TOPIC, topic.name):
            refused.add(topic.name)
        yield ASKED_US
    if not refused:
        return (yield from answered(handler(request, context)))
    results = []
    for topic in topics:
        rows = []
        for number in topic.partitions:
            code = Error.OPERATION_NOT_ATTEMPTED
            if topic.name in refused:
                code = FAILED[TOPIC]
            elif not context.node.has_partition(topic.name, number):
                code = Error.UNKNOWN_TOPIC_OR_PARTITION
            rows.append(PartitionResult(partition_index=number, partition_error_code=code))
        results.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=rows))
        yield ASKED_US + len(rows)
    return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=results)


def describe_transactions(
    request: DescribeTransactionsRequest, context: Context, handler: Handler, access: Access
) -> Work[Any]:
    """Tell of the transactions that one may describe, and of their topics those."""
    kept, refused = [], {}
    for index, name in enumerate(request.transactional_ids):
        if access.may(DESCRIBE, TRANSACTIONAL_ID, name):
            kept.append(name)
        else:
            refused[index] = Described(
                error_code=FAILED[TRANSACTIONAL_ID],
                transactional_id=name,
                transaction_state="",
                transaction_timeout_ms=0,
                transaction_start_time_ms=0,
                producer_id=0,
                producer_epoch=0,
                topics=[],
            )
        yield ASKED_US

    def together(response: DescribeTransactionsResponse) -> InPieces[DescribeTransactionsResponse]:
        for state in response.transaction_states:
            state.topics = [topic for topic in state.topics if access.could(DESCRIBE, TOPIC, topic.topic)]
            yield ASKED_US * (1 + len(state.topics))
        found = iter(response.transaction_states)
        count = len(request.transactional_ids)
        response.transaction_states = [refused[i] if i in refused else next(found) for i in range(count)]
        return response

    rest = copy_with(request, "transactional_ids", kept) if refused else request
    return (yield from changed(handler(rest, context), together))


def list_transactions(
    request: ListTransactionsRequest, context: Context, handler: Handler, access: Access
) -> Work[Any]:
    """List the transactional ids that one may describe."""

    def only_describable(response: ListTransactionsResponse) -> InPieces[ListTransactionsResponse]:
        kept = []
        for state in response.transaction_states:
            if access.could(DESCRIBE, TRANSACTIONAL_ID, state.transactional_id):
                kept.append(state)
            yield ASKED_US
        response.transaction_states = kept
        return response

    return (yield from changed(handler(request, context), only_describable))
