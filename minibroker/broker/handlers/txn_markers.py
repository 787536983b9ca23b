"""WriteTxnMarkers: what ends a transaction in the partitions that this broker leads; coordinators ask for it.

Behaviour: a marker is appended at once, and answered when every replica in sync has it. Whoever sends one is believed,
as far as the producer's epoch and the coordinator's allow: so an operator ends a transaction that nobody else will.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

from minibroker.broker.dispatch import NO_ID, Context, find_replica
from minibroker.broker.handlers.waiting import wait_for_decisions
from minibroker.errors import Error, KafkaError
from minibroker.groups import OFFSETS_TOPIC
from minibroker.log.build import build_transaction_marker
from minibroker.log.validate import COORDINATOR
from minibroker.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from minibroker.replication.replica import Replica
from minibroker.server.later import Later
from minibroker.transactions.metadata import NO_PRODUCER_ID
from minibroker.turns import Work

Marker = WriteTxnMarkersRequest.WritableTxnMarker
MarkerResult = WriteTxnMarkersResponse.WritableTxnMarkerResult
TopicResult = MarkerResult.WritableTxnMarkerTopicResult
PartitionResult = TopicResult.WritableTxnMarkerPartitionResult
Wait = tuple[Replica, int, int, PartitionResult]  # until its high watermark is there, in the same leader epoch

MARKER_US, NAMED_US = 60, 2
# What the coordinator of a group says, as leaders of partitions say it.
NOT_LED = (Error.COORDINATOR_NOT_AVAILABLE, Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR)


def write_txn_markers(
    request: WriteTxnMarkersRequest, context: Context
) -> Work[WriteTxnMarkersResponse | Coroutine[Any, Any, WriteTxnMarkersResponse]]:
    """Append the markers, and wait until they are safe.

    Kafka: refuses all markers of a request if one of them is of no producer.
    """
    results: dict[int, dict[str, dict[int, PartitionResult]]] = {}  # by producer id and topic
    waits: list[Wait] = []
    of_groups: list[tuple[Later, PartitionResult]] = []
    for marker in request.markers:
        yield NAMED_US * (1 + len(marker.topics))
        # Kafka: never answers if a partition comes twice.
        places = [(topic.name, number) for topic in marker.topics for number in topic.partition_indexes]
        yield len(places)
        for topic_name, number in dict.fromkeys(places):
            answer = PartitionResult(partition_index=number, error_code=Error.NONE)
            results.setdefault(marker.producer_id, {}).setdefault(topic_name, {})[number] = answer
            try:
                replica = _find(topic_name, number, context)
                if NO_PRODUCER_ID in (marker.producer_id, marker.producer_epoch):
                    raise KafkaError(Error.UNKNOWN_SERVER_ERROR, "a marker of no producer")
                if topic_name == OFFSETS_TOPIC:
                    of_groups.append((_end_offsets(marker, number, context), answer))
                else:
                    waits += _append(marker, replica, answer, context)
            except KafkaError as error:
                answer.error_code = error.code
            yield MARKER_US
    response = WriteTxnMarkersResponse(markers=[])
    for producer_id, topics in results.items():
        rows = [TopicResult(name=name, partitions=list(answers.values())) for name, answers in topics.items()]
        response.markers.append(MarkerResult(producer_id=producer_id, topics=rows))
        yield NAMED_US * (1 + len(rows))
    return _safe(response, waits, of_groups, context) if waits or of_groups else response


def _find(topic: str, number: int, context: Context) -> Replica:
    try:
        return find_replica(context.node, topic, NO_ID, number)
    except KafkaError as error:  # nothing is served of it here
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, error.message) from None


def _end_offsets(marker: Marker, number: int, context: Context) -> Later:
    """Have a partition of groups write a marker: what it keeps in memory changes with it."""
    led = context.node.groups.coordinator.led.get(number)
    if led is None or led.is_loading or led.failure is not None:
        raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER, f"groups of partition {number} are not coordinated here")
    later = Later()
    led.end_transaction(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        later,
        commit=marker.transaction_result,
        transaction_version=marker.transaction_version,
    )
    return later


def _append(marker: Marker, replica: Replica, answer: PartitionResult, context: Context) -> list[Wait]:
    """Append a marker to one partition; return what is to be waited for."""
    node = context.node
    now_ms = node.clock.now_ms()
    data = build_transaction_marker(
        commit=marker.transaction_result,
        offset=0,
        timestamp=now_ms,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
    )
    try:
        appended = replica.append(
            bytearray(data),
            now_ms=now_ms,
            steady_ms=node.clock.steady_ms(),
            acks=-1,
            origin=COORDINATOR,
            transaction_version=marker.transaction_version,
        )
    except KafkaError as error:
        if error.code == Error.KAFKA_STORAGE_ERROR:
            node.disk_failed(error)
        raise
    end_offset = appended.last_offset + 1
    if replica.high_watermark >= end_offset:
        return []
    return [(replica, end_offset, replica.leader_epoch, answer)]


async def _safe(
    response: WriteTxnMarkersResponse,
    waits: list[Wait],
    of_groups: list[tuple[Later, PartitionResult]],
    context: Context,
) -> WriteTxnMarkersResponse:
    """Answer when every replica in sync has the markers, or the time is over."""
    node = context.node
    outcomes = (
        await wait_for_decisions(
            [(replica, partial(replica.replicated, end, epoch)) for replica, end, epoch, _ in waits],
            node.config["request.timeout.ms"],
            node.clock,
        )
        if waits
        else []
    )
    for (_, _, _, answer), outcome in zip(waits, outcomes, strict=True):
        answer.error_code = Error.REQUEST_TIMED_OUT if outcome is None else outcome
    for later, answer in of_groups:
        error = await later
        answer.error_code = Error.NOT_LEADER_OR_FOLLOWER if error in NOT_LED else error
    return response
