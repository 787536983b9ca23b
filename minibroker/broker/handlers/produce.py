"""Produce: append batches to partitions.

Each partition succeeds or fails for itself. Appending is done before the handler returns: the records lie in the
receive buffer until then. But a batch that takes longer to look at than others can wait is copied, looked at in pieces,
and then appended. With acks -1 the answer waits until every replica in sync has the records.

Versions of Produce: 3 one batch of format 2 for each partition, 4 a failed disk is told as such, 7 zstd,
10 who leads now is told (KIP-951), 13 topics by their ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from copy import copy
from functools import partial
from struct import Struct as Layout
from typing import Any, Final

from minibroker.broker.broker_parts import BrokerParts
from minibroker.broker.dispatch import Context, code_for, find_replica, is_internal, known_leader
from minibroker.errors import Error, KafkaError
from minibroker.in_pieces import finish
from minibroker.log.append_conversion import Looked
from minibroker.log.compression import ZSTD
from minibroker.log.formats import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    MAGIC_POSITION,
    MESSAGE_BYTES_MIN,
    PREFIX_BYTES,
    TRANSACTIONAL_BIT,
)
from minibroker.log.records import DECOMPRESSED_BYTES_MAX
from minibroker.log.validate import Allowance, LongValidation, RecordsRejected
from minibroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from minibroker.replication.replica import Replica
from minibroker.turns import Work, is_work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.in_pieces import InPieces
    from minibroker.log.producers import Verification

    Answer = ProduceResponse | Coroutine[None, None, ProduceResponse | None] | None
    Whole = tuple[KafkaError | None, Allowance]
    TopicRequest = ProduceRequest.TopicProduceData
    Topics = dict[tuple[str, bytes], "TopicResponse"]
    LongAppend = tuple[TopicRequest, "PartitionRequest", Replica, "PartitionResponse", Verification | None]
    Wait = tuple[Replica, int, int, "PartitionResponse"]  # until its high watermark is there, in the same epoch

PartitionRequest = ProduceRequest.TopicProduceData.PartitionProduceData
TopicResponse = ProduceResponse.TopicProduceResponse
PartitionResponse = TopicResponse.PartitionProduceResponse
RecordError = PartitionResponse.BatchIndexAndErrorMessage
LeaderHint = PartitionResponse.LeaderIdAndEpoch

SIZE: Final = Layout(">i")
CHECKED_SINCE: Final = 3  # version from which batches are looked at before anything else
ZSTD_SINCE: Final = 7
IDS_SINCE: Final = 13
# What compressed batches of one request may unpack to, by their length; or that of one batch
UNPACKED_RATIO_MAX: Final = 20
ACKS: Final = (-1, 0, 1)
ALL: Final = -1
TOLD: Final = frozenset(("produce", "ack"))  # kinds of events
AT_ONCE_MAX: Final = 100  # partitions, or topics, of a request that is handled without a pause
PARTITION_US: Final = 20
RECORD_ERRORS_PIECE: Final = 500  # each takes about a microsecond
BYTES_PER_US: Final = 2_000  # checksum and copies
LOOK_US_MAX: Final = 2_500  # for looking at the records of a request without a pause
ADMIN_CLIENT: Final = "__admin_client"  # may write to internal topics, as with Kafka
UNKNOWN_LOG: Final = {
    Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.NOT_LEADER_OR_FOLLOWER,
    Error.MESSAGE_TOO_LARGE,
    Error.RECORD_LIST_TOO_LARGE,
    Error.CORRUPT_MESSAGE,
    Error.KAFKA_STORAGE_ERROR,
    Error.UNKNOWN_TOPIC_ID,
    Error.INVALID_TOPIC_EXCEPTION,
}  # with these Kafka does not say where the log begins


def produce(request: ProduceRequest, context: Context) -> Answer | Work[ProduceResponse | None]:
    """Append what came for each partition."""
    count = 0
    for topic in request.topic_data:
        count += len(topic.partition_data)
    if count > AT_ONCE_MAX or len(request.topic_data) > AT_ONCE_MAX:
        return _produce_in_shares(request, context)
    answer = _produce_told(request, context)
    if isinstance(answer, ProduceResponse):
        return answer
    return _awaited(answer) if is_work(answer) else answer  # type: ignore[return-value]


def _awaited(work: Work[Answer]) -> Work[ProduceResponse | None]:
    """Do work, and wait for the answer if it comes later."""
    answer = yield from work
    if not asyncio.iscoroutine(answer):
        return answer
    wait: asyncio.Task[ProduceResponse | None] = asyncio.get_running_loop().create_task(answer)
    try:
        yield wait
        return wait.result()
    finally:
        wait.cancel()


def _produce_in_shares(request: ProduceRequest, context: Context) -> Work[ProduceResponse | None]:
    """Append a share of many partitions in each turn of the loop, and answer for all of them together."""
    for topic in request.topic_data:
        # Of one that comes twice Kafka takes the last. What lies in the receive buffer does not stay there.
        topic.partition_data = list({partition.index: partition for partition in topic.partition_data}.values())
        for partition in topic.partition_data:
            if partition.records is not None:
                partition.records = bytes(partition.records)
    made: dict[tuple[str, bytes], TopicResponse] = {}
    nodes: dict[int, Any] = {}
    waits: list[asyncio.Task[ProduceResponse | None]] = []
    whole = _whole(request, context)

    def take(response: ProduceResponse | None) -> None:
        for topic in response.responses if response is not None else ():
            known = made.setdefault((topic.name, topic.topic_id), topic)
            if known is not topic:
                known.partition_responses = known.partition_responses + topic.partition_responses
        nodes.update({each.node_id: each for each in response.node_endpoints} if response is not None else {})

    try:
        for share in _shares(request):
            if context.connection.is_closing:
                return None  # with acks 0 that is how an error is told
            whole[1].left_us = LOOK_US_MAX
            answer = _produce_told(share, context, whole)
            if is_work(answer):
                answer = yield from answer
            if asyncio.iscoroutine(answer):
                waits.append(asyncio.get_running_loop().create_task(answer))
            else:
                take(answer)  # type: ignore[arg-type]
            yield PARTITION_US * sum(len(topic.partition_data) + 1 for topic in share.topic_data)
        for wait in waits:
            yield wait
            take(wait.result())
    finally:
        for wait in waits:
            wait.cancel()
    if request.acks == 0:
        return None
    return ProduceResponse(responses=list(made.values()), node_endpoints=list(nodes.values()))


def _shares(request: ProduceRequest) -> Iterator[ProduceRequest]:
    """Cut a request into such as are appended without a pause."""
    topics: list[ProduceRequest.TopicProduceData] = []
    count = 0
    for topic in request.topic_data:
        for start in range(0, max(len(topic.partition_data), 1), AT_ONCE_MAX):
            piece = copy(topic)
            piece.partition_data = topic.partition_data[start : start + AT_ONCE_MAX]
            topics.append(piece)
            count += len(piece.partition_data) + 1
            if count >= AT_ONCE_MAX:
                yield _with(request, topics)
                topics, count = [], 0
    if topics:
        yield _with(request, topics)


def _with(request: ProduceRequest, topics: list[ProduceRequest.TopicProduceData]) -> ProduceRequest:
    share = copy(request)
    share.topic_data = topics
    return share


def _produce_told(request: ProduceRequest, context: Context, whole: Whole | None = None) -> Answer | Work[Answer]:
    """whole: what the request is refused for, and may cost, that this is a share of."""
    if not TOLD.isdisjoint(context.node.events.wanted):
        from minibroker.broker.handlers.produce_events import told

        return told(partial(_produce, whole=whole), request, context)
    return _produce(request, context, whole)


def _produce(request: ProduceRequest, context: Context, whole: Whole | None = None) -> Answer | Work[Answer]:
    topics: Topics = {}
    failed = False
    waits: list[Wait] = []
    long: list[LongAppend] = []
    unverified: list[LongAppend] = []
    clock = context.node.clock
    now_ms, steady_ms = clock.now_ms(), clock.steady_ms()
    refusal, allowance = whole or _whole(request, context)
    for topic in request.topic_data:
        answers = []
        partitions = topic.partition_data
        if len(partitions) > 1:
            # Of one that comes twice Kafka takes the last.
            partitions = list({partition.index: partition for partition in partitions}.values())
        for partition in partitions:
            answer = PartitionResponse(index=partition.index, error_code=Error.NONE, base_offset=-1)
            replica = None
            try:
                if refusal is not None:
                    raise refusal
                found = find_replica(
                    context.node, topic.name, topic.topic_id, partition.index, by_id=context.api_version >= IDS_SINCE
                )
                if context.api_version >= CHECKED_SINCE:
                    _check_batches(partition.records, context.api_version, answer)
                if request.acks not in ACKS:
                    raise KafkaError(Error.INVALID_REQUIRED_ACKS, f"acks is {request.acks}")
                if request.transactional_id is not None:
                    from minibroker.broker.handlers.produce_verification import start_verification

                    verification = start_verification(partition.records, found, context, now_ms)
                    if verification is not None:
                        unverified.append((topic, _kept(partition), found, answer, verification))
                        answers.append(answer)
                        continue
                replica = found
                waits_for = _append(request, partition, replica, answer, context, now_ms, steady_ms, allowance)
            except KafkaError as error:
                told = finish(_record_errors(error)) if isinstance(error, RecordsRejected) else []
                _refuse(answer, error, told, replica, topic, context)
                failed = True
            except LongValidation:
                assert replica is not None
                long.append((topic, _kept(partition), replica, answer, None))
            else:
                if waits_for > replica.high_watermark:
                    waits.append((replica, waits_for, replica.leader_epoch, answer))
            answers.append(answer)
        key = (topic.name, topic.topic_id)
        if key in topics:
            topics[key].partition_responses += answers
        else:
            topics[key] = TopicResponse(topic_id=topic.topic_id, name=topic.name, partition_responses=answers)
    if long or unverified:
        return _produce_long(request, context, long, unverified, topics, waits, allowance, failed)
    return _answer(request, context, topics, waits, failed)


def _produce_long(
    request: ProduceRequest,
    context: Context,
    long: list[LongAppend],
    unverified: list[LongAppend],
    topics: Topics,
    waits: list[Wait],
    allowance: Allowance,
    failed: bool,
) -> Work[Answer]:
    """Append what takes long to look at, or has to be verified first, one after the other, and with others in between.

    The rest has been done.
    """
    if long:
        yield LOOK_US_MAX  # so much has been tried without a pause
    if unverified:
        from minibroker.broker.handlers.produce_verification import refusal, verified

        assert request.transactional_id is not None
        replicas = [replica for _, _, replica, _, _ in unverified]
        first = bytes(unverified[0][1].records or b"")
        errors = yield from verified(request.transactional_id, first, replicas, context)
        for each in unverified:
            topic, _, replica, answer, _ = each
            error = errors[replica.topic, replica.partition]
            if error is Error.NONE:
                long.append(each)
                continue
            # Kafka has not looked at the log yet, and does not say where it begins.
            code, text = refusal(error, context.api_version)
            _refuse(answer, KafkaError(code), [], None, topic, context)
            answer.error_message = text
            failed = True
    for topic, partition, replica, answer, verification in long:
        records = bytes(partition.records or b"")
        try:
            looked = yield from replica.log.look(records, now_ms=context.now_ms, allowance=allowance)
            now_ms, steady_ms = context.now_ms, context.steady_ms
            waits_for = _append(
                request, partition, replica, answer, context, now_ms, steady_ms, allowance, looked, verification
            )
        except KafkaError as error:
            record_errors = yield from _record_errors(error)
            _refuse(answer, error, record_errors, replica, topic, context)
            failed = True
        else:
            if waits_for > replica.high_watermark:
                waits.append((replica, waits_for, replica.leader_epoch, answer))
        yield PARTITION_US + len(records) // BYTES_PER_US
    return _answer(request, context, topics, waits, failed)


def _answer(request: ProduceRequest, context: Context, topics: Topics, waits: list[Wait], failed: bool) -> Answer:
    """Answer when everything has been tried."""
    if request.acks == 0:
        if failed:
            # Nothing can be answered, so the client learns of it by losing the connection.
            context.connection.close("a Produce request with acks 0 failed")
        return None
    response = ProduceResponse(responses=list(topics.values()))
    if failed:
        _add_endpoints(response, context)
    if waits and request.acks == ALL:
        return _replicated(response, waits, request.timeout_ms, context)
    return response


def _whole(request: ProduceRequest, context: Context) -> Whole:
    """Return what a request is refused for as a whole, and what all its batches together may cost.

    It is refused for records of a transaction without a transactional id, since nobody could ever end that, and for
    records of several producers in one transaction.
    """
    sent_bytes = 0
    transactional = []
    for topic in request.topic_data:
        for partition in topic.partition_data:
            records = partition.records
            if records is None:
                continue
            sent_bytes += len(records)
            if len(records) <= ATTRIBUTES_POSITION or records[MAGIC_POSITION] != 2:
                continue
            if records[ATTRIBUTES_POSITION] & TRANSACTIONAL_BIT:
                if request.transactional_id is None:
                    code = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                    return KafkaError(code, "there is no transactional id"), Allowance()
                transactional.append((topic, partition))
    if len(transactional) > 1:
        from minibroker.broker.handlers.produce_verification import are_of_several

        answer = PartitionResponse(index=0, error_code=Error.NONE, base_offset=-1)  # to nobody
        check = partial(_check_batches, version=context.api_version, answer=answer)
        if are_of_several(transactional, check, context):
            text = "Transactional records contained more than one producer ID"
            return KafkaError(Error.INVALID_PRODUCER_ID_MAPPING, text), Allowance()
    return None, Allowance(max(DECOMPRESSED_BYTES_MAX, UNPACKED_RATIO_MAX * sent_bytes), LOOK_US_MAX)


def _append(
    request: ProduceRequest,
    partition: PartitionRequest,
    replica: Replica,
    answer: PartitionResponse,
    context: Context,
    now_ms: int,
    steady_ms: int,
    allowance: Allowance,
    looked: Looked | None = None,
    verification: Verification | None = None,
) -> int:
    """Append to one partition; return the offset that the high watermark has to reach."""
    if is_internal(replica.topic) and context.client_id != ADMIN_CLIENT:
        raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, f"{replica.topic} is an internal topic")
    if partition.records is None:
        raise KafkaError(Error.INVALID_RECORD, "no records")
    appended = replica.append(
        partition.records,
        now_ms=now_ms,
        steady_ms=steady_ms,
        acks=request.acks,
        allowance=allowance,
        looked=looked,
        verification=verification,
    )
    answer.base_offset = appended.first_offset
    answer.log_append_time_ms = appended.append_time_ms
    answer.log_start_offset = replica.log.log_start_offset
    return appended.last_offset + 1


def _kept(partition: PartitionRequest) -> PartitionRequest:
    """Return what came for a partition such that it may wait: the receive buffer will not."""
    return PartitionRequest(index=partition.index, records=bytes(partition.records or b""))


def _check_batches(records: bytes | memoryview | None, version: int, answer: PartitionResponse) -> None:
    """From v3 on a partition gets exactly one batch of format 2; what is cut off at the end does not count."""
    end = 0 if records is None else _batch_end(records, 0, answer)
    if records is None or not end:
        raise KafkaError(Error.INVALID_RECORD, "no batch")
    if records[MAGIC_POSITION] != 2:
        raise KafkaError(Error.INVALID_RECORD, f"a batch of format {records[MAGIC_POSITION]}")
    if version < ZSTD_SINCE and records[ATTRIBUTES_POSITION] & CODEC_MASK == ZSTD:
        raise KafkaError(Error.UNSUPPORTED_COMPRESSION_TYPE, f"zstd in a request below version {ZSTD_SINCE}")
    if end < len(records) and _batch_end(records, end, answer):
        raise KafkaError(Error.INVALID_RECORD, "more than one batch")


def _batch_end(records: bytes | memoryview, start: int, answer: PartitionResponse) -> int:
    """Return where a batch ends; 0 if it is cut off."""
    left = len(records) - start
    if left < PREFIX_BYTES:
        return 0
    size = SIZE.unpack_from(records, start + 8)[0]
    if size < MESSAGE_BYTES_MIN[0] - PREFIX_BYTES:
        answer.error_message = f"Record size {size} is less than the minimum record overhead (14)"
        raise KafkaError(Error.CORRUPT_MESSAGE, answer.error_message)
    if left > MAGIC_POSITION and records[start + MAGIC_POSITION] > 2:
        answer.error_message = f"Invalid magic found in record: {records[start + MAGIC_POSITION]}"
        raise KafkaError(Error.CORRUPT_MESSAGE, answer.error_message)
    return 0 if left < size + PREFIX_BYTES else start + size + PREFIX_BYTES


def _record_errors(error: KafkaError) -> InPieces[list[RecordError]]:
    """Return what is said of each record that is at fault."""
    told = []
    for index, message in error.record_errors if isinstance(error, RecordsRejected) else ():
        told.append(RecordError(batch_index=index, batch_index_error_message=message))
        if not len(told) % RECORD_ERRORS_PIECE:
            yield RECORD_ERRORS_PIECE
    return told


def _refuse(
    answer: PartitionResponse,
    error: KafkaError,
    record_errors: list[RecordError],
    replica: Replica | None,
    topic: TopicRequest,
    context: Context,
) -> None:
    answer.error_code = code_for(error, context.api_version <= 3)
    if replica is not None and error.code not in UNKNOWN_LOG:
        answer.log_start_offset = replica.log.log_start_offset
    if isinstance(error, RecordsRejected) or error.code == Error.INVALID_PRODUCER_ID_MAPPING:
        answer.error_message = error.message
        answer.record_errors = record_errors
    if error.code == Error.NOT_LEADER_OR_FOLLOWER:
        leader, epoch = known_leader(context.node, topic.name, topic.topic_id, answer.index)
        answer.current_leader = LeaderHint(leader_id=leader, leader_epoch=epoch)
    if error.code == Error.KAFKA_STORAGE_ERROR and replica is not None:
        context.node.disk_failed(error)


def _add_endpoints(response: ProduceResponse, context: Context) -> None:
    """Say where the leaders are that the answer names."""
    leaders = {each.current_leader.leader_id for topic in response.responses for each in topic.partition_responses}
    response.node_endpoints = [
        ProduceResponse.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
        for node_id, host, port, rack in context.node.brokers_for(context.connection)
        if node_id in leaders
    ]


async def _replicated(
    response: ProduceResponse,
    waits: list[Wait],
    timeout_ms: int,
    context: Context,
) -> ProduceResponse:
    """Answer when every replica in sync has the records, or the time is over."""
    from minibroker.broker.handlers.waiting import wait_for_decisions

    node = context.node
    has_moved = False
    outcomes = await wait_for_decisions(
        [(replica, partial(_outcome, replica, end, epoch, node)) for replica, end, epoch, _ in waits],
        timeout_ms,
        node.clock,
    )
    for (replica, _, _, answer), outcome in zip(waits, outcomes):
        if outcome != Error.NONE:
            answer.error_code = Error.REQUEST_TIMED_OUT if outcome is None else outcome
            answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
            if outcome == Error.NOT_LEADER_OR_FOLLOWER:
                leader, epoch = known_leader(node, replica.topic, replica.topic_id, replica.partition)
                answer.current_leader = LeaderHint(leader_id=leader, leader_epoch=epoch)
                has_moved = True
    if has_moved:
        _add_endpoints(response, context)
    return response


def _outcome(replica: Replica, end_offset: int, leader_epoch: int, node: BrokerParts) -> Error | None:
    """Return what becomes of an append; None: that is not known yet."""
    outcome = replica.replicated(end_offset, leader_epoch)
    if outcome == Error.NOT_LEADER_OR_FOLLOWER and not node.has_partition(replica.topic, replica.partition):
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    return outcome
