"""Transactions as their coordinator answers for them: AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, Describe, List.

Behaviour: what is decided is answered when it is safe. Errors that a client is too old for are told as older ones
(transactions/old_versions.py).

Versions of AddPartitionsToTxn: 4 many transactions, asked for by brokers, which may only want to know.
Versions of EndTxn: 5 the producer goes on with another epoch (transactions v2).
Versions of ListTransactions: 1 for how long, 2 a pattern of ids.
"""

from __future__ import annotations

from minibroker.broker.dispatch import Context, is_internal
from minibroker.coordinator.hashing import partition_of
from minibroker.errors import Error, KafkaError
from minibroker.groups import OFFSETS_TOPIC
from minibroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
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
from minibroker.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from minibroker.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from minibroker.server.later import Later
from minibroker.transactions.metadata import EPOCH_BUMP, NO_PRODUCER, ProducerIdAndEpoch, by_topic
from minibroker.transactions.old_versions import told
from minibroker.transactions.states import BY_NAME
from minibroker.turns import Work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from minibroker.transactions.metadata import TopicPartition
    from minibroker.transactions.partition import Answer

    Codes = Mapping[TopicPartition, Error]  # of each partition that is asked for

Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
TransactionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
PartitionResult = AddPartitionsToTxnTopicResult.AddPartitionsToTxnPartitionResult
Described = DescribeTransactionsResponse.TransactionState
Listed = ListTransactionsResponse.TransactionState

BATCHES_SINCE = 4  # of AddPartitionsToTxn
V2_SINCE = 5  # of EndTxn
CLASSIC = 0
PATTERN_LETTERS_MAX = 1000  # which take 10 ms at worst
PATTERN_STEPS_MAX = 1000  # of RE2's program, each of which may look at each letter of an id
MATCHED_US, STEPS_A_US = 4, 70  # an id and a pattern; what else it takes at worst
TRANSACTION_US, ADDED_US, LISTED_US, DESCRIBED_US = 40, 3, 4, 20
LOOKED_AT_TOGETHER = 100  # ids


# Partitions


def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, context: Context
) -> Work[AddPartitionsToTxnResponse | Later]:
    """Add partitions to transactions, or tell whether they are in them."""
    version = context.api_version
    transactions = request.transactions
    if version < BATCHES_SINCE:
        only = Transaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        transactions = [only]
    joint = _Results(len(transactions))
    for index, transaction in enumerate(transactions):
        yield from _add(transaction, context, joint.of(index))
    if not transactions:
        return AddPartitionsToTxnResponse(throttle_time_ms=0)

    def response(results: list[list[AddPartitionsToTxnTopicResult]]) -> AddPartitionsToTxnResponse:
        if version < BATCHES_SINCE:
            return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=results[0])
        return AddPartitionsToTxnResponse(
            throttle_time_ms=0,
            results_by_transaction=[
                TransactionResult(transactional_id=transaction.transactional_id, topic_results=topics)
                for transaction, topics in zip(transactions, results, strict=True)
            ],
        )

    return joint.later.into(response)


def _add(
    transaction: Transaction, context: Context, answered: Callable[[list[AddPartitionsToTxnTopicResult]], None]
) -> Work[None]:
    """Add the partitions of one transaction; all of them, or none.

    Kafka: of several transactions of one id takes the partitions of the last for all of them.
    """
    version, node = context.api_version, context.node
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    places: dict[TopicPartition, Error] = {}
    yield TRANSACTION_US + (0 if transaction.verify_only else _change_us(transaction.transactional_id, context))
    for topic in transaction.topics:
        yield ADDED_US
        for number in topic.partitions:
            code = Error.NONE
            if version < BATCHES_SINCE and is_internal(topic.name):  # brokers add those of groups
                code = Error.TOPIC_AUTHORIZATION_FAILED
            elif not node.has_partition(topic.name, number):
                code = Error.UNKNOWN_TOPIC_OR_PARTITION
            places[topic.name, number] = code
            yield ADDED_US

    def each(error: Answer) -> None:
        assert isinstance(error, Error)
        code = told(AddPartitionsToTxnRequest.api, version, error)
        answered(_results(transaction.topics, dict.fromkeys(places, code)))

    if any(places.values()):
        codes = {place: code or Error.OPERATION_NOT_ATTEMPTED for place, code in places.items()}
        answered(_results(transaction.topics, codes))
        return
    try:
        coordinator = node.transactions.coordinator
        name = transaction.transactional_id
        if transaction.verify_only:
            answered(_results(transaction.topics, coordinator.verify_partitions(name, producer, places)))
        else:
            client = EPOCH_BUMP if version >= BATCHES_SINCE else CLASSIC
            coordinator.add_partitions(name, producer, places, each, version=client)
    except KafkaError as error:
        each(Error(error.code))


def _change_us(transactional_id: str, context: Context) -> int:
    """How long about it takes to change a transaction: each record of it has all its partitions."""
    made = context.node.transactions.made
    return 0 if made is None else made.change_us(transactional_id)


def _results(topics: list[AddPartitionsToTxnTopic], codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                PartitionResult(partition_index=number, partition_error_code=codes[topic.name, number])
                for number in topic.partitions
            ],
        )
        for topic in topics
    ]


class _Results:
    """Answers of several transactions: told when all are there."""

    def __init__(self, count: int):
        self.later = Later()
        self._results: list[list[AddPartitionsToTxnTopicResult] | None] = [None] * count
        self._left = count

    def of(self, index: int) -> Callable[[list[AddPartitionsToTxnTopicResult]], None]:
        """Return who takes the answer of one of them."""

        def take(result: list[AddPartitionsToTxnTopicResult]) -> None:
            self._results[index] = result
            self._left -= 1
            if not self._left:
                self.later(self._results)

        return take


def add_offsets_to_txn(request: AddOffsetsToTxnRequest, context: Context) -> Work[AddOffsetsToTxnResponse | Later]:
    """Add the partition of a group's offsets to a transaction."""
    node, version = context.node, context.api_version
    yield _change_us(request.transactional_id, context)

    def response(answer: Answer) -> AddOffsetsToTxnResponse:
        assert isinstance(answer, Error)
        return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=told(request.api, version, answer))

    later = Later()
    offsets = node.image.topics.get(OFFSETS_TOPIC)
    # Of a group that nobody has looked for yet, it is the partition that there will be.
    count = node.config["offsets.topic.num.partitions"] if offsets is None else len(offsets.partitions)
    place = (OFFSETS_TOPIC, partition_of(request.group_id, count))
    try:
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        coordinator = node.transactions.coordinator
        coordinator.add_partitions(request.transactional_id, producer, [place], later, version=CLASSIC)
    except KafkaError as error:
        return response(Error(error.code))
    return later.into(response)


# The end


def end_txn(request: EndTxnRequest, context: Context) -> Work[EndTxnResponse | Later]:
    """Commit or abort a transaction; it is answered when that is decided, and markers follow."""
    version = context.api_version
    yield _change_us(request.transactional_id, context)

    def response(answer: Answer) -> EndTxnResponse:
        if isinstance(answer, ProducerIdAndEpoch):
            error, producer = Error.NONE, answer
        else:
            error, producer = told(request.api, version, answer), NO_PRODUCER
        return EndTxnResponse(
            throttle_time_ms=0, error_code=error, producer_id=producer.producer_id, producer_epoch=producer.epoch
        )

    later = Later()
    try:
        context.node.transactions.coordinator.end_transaction(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            later,
            commit=request.committed,
            version=EPOCH_BUMP if version >= V2_SINCE else CLASSIC,
        )
    except KafkaError as error:
        return response(Error(error.code))
    return later.into(response)


# Who looks at them


def describe_transactions(request: DescribeTransactionsRequest, context: Context) -> Work[DescribeTransactionsResponse]:
    """Tell the state of each transactional id that is asked for."""
    made: dict[str, Described] = {}  # who asks twice gets the same
    for name in request.transactional_ids:
        yield 1
        if name not in made:
            described = made[name] = _describe(name, context)
            yield DESCRIBED_US + sum(len(topic.partitions) for topic in described.topics)
    states = [made[name] for name in request.transactional_ids]
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)


def _describe(name: str, context: Context) -> Described:
    try:
        metadata = context.node.transactions.coordinator.describe(name)
    except KafkaError as error:
        return Described(
            error_code=error.code,
            transactional_id=name,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=[],
        )
    return Described(
        error_code=Error.NONE,
        transactional_id=name,
        transaction_state=metadata.state.name,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=[
            Described.TopicData(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(metadata.partitions).items()
        ],
    )


def list_transactions(request: ListTransactionsRequest, context: Context) -> Work[ListTransactionsResponse]:
    """List the transactional ids that this broker coordinates and that fit all filters."""
    response = ListTransactionsResponse(
        throttle_time_ms=0, error_code=Error.NONE, unknown_state_filters=[], transaction_states=[]
    )
    coordinator = context.node.transactions.made
    led_here = () if coordinator is None else coordinator.led.values()
    partitions = [led for led in led_here if led.failure is None]
    if any(led.is_loading for led in partitions):
        response.error_code = Error.COORDINATOR_LOAD_IN_PROGRESS
        return response
    try:
        pattern = _pattern(request.transactional_id_pattern or "")
    except KafkaError as error:
        response.error_code = error.code
        return response
    response.unknown_state_filters = [state for state in request.state_filters if state not in BY_NAME]
    producer_ids, states = frozenset(request.producer_id_filters), frozenset(request.state_filters)
    for led in partitions:
        ids = list(led.shard.ids.values())
        for start in range(0, len(ids), LOOKED_AT_TOGETHER):
            selected = led.shard.select(
                producer_ids=producer_ids,
                states=states,
                duration_ms=request.duration_filter,
                now_ms=context.now_ms,
                among=ids[start : start + LOOKED_AT_TOGETHER],
            )
            for found in selected:
                if pattern is not None:
                    yield MATCHED_US + pattern.programsize * len(found.name) // STEPS_A_US
                    if pattern.fullmatch(found.name) is None:
                        continue
                response.transaction_states.append(
                    Listed(
                        transactional_id=found.name,
                        producer_id=found.metadata.producer_id,
                        transaction_state=found.metadata.state.name,
                    )
                )
            yield LISTED_US * len(ids[start : start + LOOKED_AT_TOGETHER])
    return response


def _pattern(pattern: str) -> Any:
    """Return the expression that an id is to match as a whole, by RE2's rules, as Kafka's RE2/J.

    Kafka: takes one of any size.
    """
    from minibroker.groups.patterns import check, compiled

    if not pattern:
        return None
    if len(pattern) > PATTERN_LETTERS_MAX:
        raise KafkaError(Error.INVALID_REGULAR_EXPRESSION, f"{len(pattern)} letters")
    check(pattern)
    expression = compiled(pattern)
    if expression.programsize > PATTERN_STEPS_MAX:
        raise KafkaError(Error.INVALID_REGULAR_EXPRESSION, f"a program of {expression.programsize} steps")
    return expression
