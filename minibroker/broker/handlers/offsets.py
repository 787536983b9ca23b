"""Where logs begin and end: ListOffsets, OffsetForLeaderEpoch, DeleteRecords.

Versions of ListOffsets: 0 beginnings of segments, 1 one offset by its time, 5 OFFSET_NOT_AVAILABLE while a new leader
does not know what is committed, 7 the greatest timestamp, 8 where the local log begins, 9 where what is tiered ends, 11
what is to be tiered.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from minibroker.broker.dispatch import NO_ID, Context, find_replica
from minibroker.errors import Error, KafkaError
from minibroker.log import reading
from minibroker.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from minibroker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from minibroker.replication.leader import LeaderState
from minibroker.replication.replica import Replica
from minibroker.turns import SHARE_US, Work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from minibroker.in_pieces import InPieces

    OffsetWanted = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition
    Wait = tuple[Replica, int, int, "DeletedAnswer"]  # until nobody has records below the offset, in the same epoch
    EpochWanted = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition

OffsetTopic = ListOffsetsResponse.ListOffsetsTopicResponse
OffsetAnswer = OffsetTopic.ListOffsetsPartitionResponse
EpochTopic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
EpochAnswer = EpochTopic.EpochEndOffset
DeletedTopic = DeleteRecordsResponse.DeleteRecordsTopicResult
DeletedAnswer = DeletedTopic.DeleteRecordsPartitionResult

LISTED_US: Final = 5
DELETED_US: Final = 20
DEBUGGING_REPLICA: Final = -2
OFFSET_NOT_AVAILABLE_SINCE: Final = 5
ALL_BELOW_HIGH_WATERMARK: Final = -1
# The first version of ListOffsets that knows a special timestamp.
SPECIAL_SINCE: Final = {
    reading.LATEST: 0,
    reading.EARLIEST: 0,
    reading.MAX_TIMESTAMP: 7,
    reading.EARLIEST_LOCAL: 8,
    reading.LATEST_TIERED: 9,
    reading.EARLIEST_PENDING_UPLOAD: 11,
}


def list_offsets(request: ListOffsetsRequest, context: Context) -> Work[ListOffsetsResponse]:
    """Find offsets by time, or the ends of logs.

    A search by time looks at records: others have their turn behind what takes a share, also within one partition.
    """
    searched_us = 0
    asked = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    emulated = context.node.emulated
    is_before_3 = emulated.is_before_3
    topics = []
    for topic in request.topics:
        answers = []
        partitions = topic.partitions
        if not emulated.is_before_4:
            partitions = list({partition.partition_index: partition for partition in partitions}.values())
        for wanted in partitions:
            answer = OffsetAnswer(partition_index=wanted.partition_index, error_code=Error.NONE)
            try:
                if context.api_version >= 1 and asked[topic.name, wanted.partition_index] > 1:
                    raise KafkaError(Error.INVALID_REQUEST, f"{topic.name}-{wanted.partition_index} is asked for twice")
                replica = find_replica(context.node, topic.name, NO_ID, wanted.partition_index)
                if request.replica_id != DEBUGGING_REPLICA:
                    replica.check_leader(wanted.current_leader_epoch)
                if not is_before_3:
                    _check_special(wanted.timestamp, context.api_version)
                if context.api_version == 0:
                    answer.old_style_offsets = _old_style(replica, wanted, context.now_ms)
                else:
                    searched_us = yield from _search(replica, request, wanted, answer, context, searched_us)
            except KafkaError as error:
                context.node.say_if_damaged(error)
                answer.error_code = error.code
            answers.append(answer)
            yield LISTED_US
        topics.append(OffsetTopic(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _check_special(timestamp: int, version: int) -> None:
    if timestamp < 0 and version < SPECIAL_SINCE.get(timestamp, version + 1):
        raise KafkaError(Error.UNSUPPORTED_VERSION, f"timestamp {timestamp} means nothing in version {version}")


def _check_committed(replica: Replica, request: ListOffsetsRequest, version: int) -> None:
    """Raise while a new leader does not know yet what is committed: what it says might go back (KIP-207).

    An open transaction from before this leader is no reason: the last stable offset does not go back.
    """
    role = replica.role
    if (
        isinstance(role, LeaderState)
        and replica.high_watermark < role.epoch_start_offset
        and request.replica_id != DEBUGGING_REPLICA
    ):
        code = Error.OFFSET_NOT_AVAILABLE if version >= OFFSET_NOT_AVAILABLE_SINCE else Error.LEADER_NOT_AVAILABLE
        raise KafkaError(code, f"the high watermark is below {role.epoch_start_offset}, where this leader began")


def _search(
    replica: Replica,
    request: ListOffsetsRequest,
    wanted: OffsetWanted,
    answer: OffsetAnswer,
    context: Context,
    searched_us: int,
) -> Work[int]:
    """Find one offset; searched_us: for how long others have waited already. Return for how long they do then."""
    is_before_3 = context.node.emulated.is_before_3
    is_over = False
    while not is_over:
        is_over, epoch = True, replica.leader_epoch
        for step_us in _find(replica, request, wanted.timestamp, answer, context.api_version, is_before_3=is_before_3):
            searched_us += step_us
            if searched_us < SHARE_US:
                continue
            yield context.node.shares.turn()
            searched_us = 0
            now = find_replica(context.node, replica.topic, NO_ID, replica.partition)
            if request.replica_id != DEBUGGING_REPLICA:
                now.check_leader(wanted.current_leader_epoch)
            if now is not replica or now.leader_epoch != epoch:
                replica, is_over = now, False  # the log may have been truncated: begin once more
                break
    return searched_us


def _find(
    replica: Replica,
    request: ListOffsetsRequest,
    timestamp: int,
    answer: OffsetAnswer,
    version: int,
    *,
    is_before_3: bool,
) -> InPieces[None]:
    if timestamp not in (reading.LATEST, reading.EARLIEST) and replica.log.settings.validation.message_format == 0:
        raise KafkaError(Error.UNSUPPORTED_FOR_MESSAGE_FORMAT, "records of format 0 have no timestamps")
    limit = replica.readable_end(request.isolation_level)
    if request.replica_id == DEBUGGING_REPLICA:
        limit = replica.log.log_end_offset
    if timestamp == reading.LATEST:
        _check_committed(replica, request, version)
    if is_before_3 and timestamp < reading.EARLIEST:
        # Only the two were special then; any other number was a time.
        found = yield from reading.find_time_in_pieces(replica.log, timestamp, limit_offset=limit)
    else:
        found = yield from reading.find_offset_in_pieces(replica.log, timestamp, limit_offset=limit)
    if found is None:
        _check_committed(replica, request, version)
    if found is not None:
        answer.timestamp = found.timestamp
        answer.offset = found.offset
        answer.leader_epoch = -1 if found.leader_epoch is None else found.leader_epoch


def _old_style(replica: Replica, wanted: OffsetWanted, now_ms: int) -> list[int]:
    """Answer version 0: consumers see nothing above the high watermark."""
    found = reading.offsets_before(replica.log, wanted.timestamp, wanted.max_num_offsets, now_ms=now_ms)
    limit = replica.high_watermark
    visible = [offset for offset in found if offset <= limit]
    return [limit, *visible][: wanted.max_num_offsets] if len(visible) < len(found) else found


def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: Context
) -> Work[OffsetForLeaderEpochResponse]:
    """Say where leader epochs ended."""
    topics = []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            answer = EpochAnswer(partition=wanted.partition, error_code=Error.NONE)
            try:
                replica = find_replica(context.node, topic.topic, NO_ID, wanted.partition)
                replica.check_leader(wanted.current_leader_epoch)
                log = replica.log
                answer.leader_epoch, answer.end_offset = log.epochs.end_offset_for(
                    wanted.leader_epoch, log.log_end_offset
                )
            except KafkaError as error:
                answer.error_code = error.code
            answers.append(answer)
            yield LISTED_US
        topics.append(EpochTopic(topic=topic.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(topics=topics)


def delete_records(request: DeleteRecordsRequest, context: Context) -> Work[DeleteRecordsResponse]:
    """Delete what lies below an offset; answer when every living replica has deleted it."""
    topics = []
    waits: list[Wait] = []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            answer = DeletedAnswer(partition_index=wanted.partition_index, low_watermark=-1, error_code=Error.NONE)
            try:
                replica = find_replica(context.node, topic.name, NO_ID, wanted.partition_index)
                replica.check_leader()
                if replica.log.settings.only_compacts:
                    raise KafkaError(Error.POLICY_VIOLATION, f"{topic.name} is compacted, and nothing else")
                offset = replica.high_watermark if wanted.offset == ALL_BELOW_HIGH_WATERMARK else wanted.offset
                if not 0 <= offset <= replica.high_watermark:
                    raise KafkaError(Error.OFFSET_OUT_OF_RANGE, f"{offset} is not within 0 to {replica.high_watermark}")
                if offset > replica.log.log_start_offset:
                    replica.log.advance_log_start(offset)
                    replica.log_start_moved("somebody asked for it")
                answer.low_watermark = replica.as_leader().low_watermark
                if answer.low_watermark < offset:
                    waits.append((replica, offset, replica.leader_epoch, answer))
            except KafkaError as error:
                answer.error_code = error.code
            answers.append(answer)
            yield DELETED_US
        topics.append(DeletedTopic(name=topic.name, partitions=answers))
    if waits:
        yield _deleted(waits, request.timeout_ms, context)
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


async def _deleted(waits: list[Wait], timeout_ms: int, context: Context) -> None:
    """Return when the followers have deleted the records too, or the time is over."""
    from minibroker.broker.handlers.waiting import wait_for_decisions

    node = context.node

    def decide(replica: Replica, offset: int, leader_epoch: int, answer: DeletedAnswer) -> Error | None:
        if replica.log.offline is not None:
            return Error.KAFKA_STORAGE_ERROR
        if not replica.is_leader or replica.leader_epoch != leader_epoch:
            is_known = node.has_partition(replica.topic, replica.partition)
            return Error.NOT_LEADER_OR_FOLLOWER if is_known else Error.UNKNOWN_TOPIC_OR_PARTITION
        answer.low_watermark = replica.as_leader().low_watermark
        return Error.NONE if answer.low_watermark >= offset else None

    outcomes = await wait_for_decisions(
        [(wait[0], partial(decide, *wait)) for wait in waits], timeout_ms, context.node.clock
    )
    for (*_, answer), outcome in zip(waits, outcomes):
        answer.error_code = Error.REQUEST_TIMED_OUT if outcome is None else outcome
        if outcome not in (None, Error.NONE):
            answer.low_watermark = -1
