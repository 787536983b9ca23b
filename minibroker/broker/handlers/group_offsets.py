"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete.

Behaviour: a commit is answered when every replica in sync has it, and shown then. Who is no member may commit for a
group that nobody is in, and makes it by that.
What must hold: what is written was decided in the same turn of the loop. A large request is looked through in several,
and written in several, and meanwhile members come and go.

Kafka: writes all offsets of a commit in one batch; here some hundreds at a time, so a part of a large one may count
though it is answered with an error, or not at all.

Versions:
  OffsetCommit 0-10  v0: kept in ZooKeeper once, by anybody; v1: by members of a generation, with a time; v2 to v4: with
                     a retention; v6: the leader's epoch; v7: static members; v9: member epochs; v10: topic ids
  OffsetFetch 0-10   v0: a partition without an offset is unknown; v2: all topics, and an error for the whole; v5: the
                     leader's epoch; v7: stable offsets; v8: many groups; v9: member epochs; v10: topic ids
  OffsetDelete 0-0
"""

from __future__ import annotations

from minibroker.broker.dispatch import NO_ID
from minibroker.broker.handlers.groups import check_id
from minibroker.coordinator.log import RECORD_BYTES_MIN
from minibroker.errors import Error, KafkaError
from minibroker.groups.classic import ClassicGroup
from minibroker.groups.offsets import commit_record, tombstone
from minibroker.groups.offsets_partition import Joint, encoded_of
from minibroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from minibroker.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from minibroker.server.later import Later
from minibroker.turns import SHARE_US

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

    from minibroker.broker.dispatch import Context
    from minibroker.coordinator.log import EncodedRecord
    from minibroker.groups.consumer import CheckPartition
    from minibroker.groups.offsets_partition import OffsetsPartition
    from minibroker.groups.records import CoordinatorRecord
    from minibroker.groups.shard import Group
    from minibroker.metadata.image import Topic
    from minibroker.turns import Work

    CommittedPartition = OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition

CommitRequestTopic = OffsetCommitRequest.OffsetCommitRequestTopic
CommitTopic = OffsetCommitResponse.OffsetCommitResponseTopic
CommitAnswer = CommitTopic.OffsetCommitResponsePartition
OldFetchTopic = OffsetFetchResponse.OffsetFetchResponseTopic
OldFetchAnswer = OldFetchTopic.OffsetFetchResponsePartition
FetchGroup = OffsetFetchResponse.OffsetFetchResponseGroup
FetchTopic = FetchGroup.OffsetFetchResponseTopics
FetchAnswer = FetchTopic.OffsetFetchResponsePartitions
DeleteTopic = OffsetDeleteResponse.OffsetDeleteResponseTopic
DeleteAnswer = DeleteTopic.OffsetDeleteResponsePartition

# First versions.
IDS_SINCE: Final = 10  # of both commit and fetch: topics by their ids
CONSUMER_GROUPS_SINCE: Final = 9  # of commit: unknown groups are told from old generations
TOP_LEVEL_ERROR_SINCE: Final = 2  # of fetch
BATCHES_SINCE: Final = 8  # of fetch: many groups
NO_OFFSET: Final = -1
COMMITTED_US: Final = 8
FETCHED_US: Final = 4
WRITTEN_US: Final = 5
WRITTEN_TOGETHER: Final = 250  # offsets of one request that are written down in one turn of the loop
UNKNOWN: Final = (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID, Error.UNSUPPORTED_VERSION)
TOO_LARGE: Final = (Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE, Error.INVALID_FETCH_SIZE)


# Commit


def offset_commit(request: OffsetCommitRequest, context: Context) -> Work[OffsetCommitResponse | Later]:
    """Write offsets down, and answer when they are safe."""
    version = context.api_version
    topics: list[CommitTopic] = []
    wanted: list[tuple[Topic, CoordinatorRecord, CommitAnswer]] = []
    encoded: list[EncodedRecord] = []
    least_bytes, is_refused = 0, False
    merges = context.node.emulated.is_before_4 and version > 0
    now_ms = context.now_ms
    for asked in _each_once(request.topics) if merges else request.topics:
        topic = _topic_of(asked.name, asked.topic_id, context)
        answers: list[CommitAnswer] = []
        for each in asked.partitions:
            answer = CommitAnswer(partition_index=each.partition_index, error_code=Error.NONE)
            try:
                found, record = _record(request, topic, each, now_ms, context)
                encoded.append(encoded_of(request.group_id, record, context.node))
                least_bytes += least_bytes_of(encoded[-1])
                wanted.append((found, record, answer))
            except KafkaError as error:
                answer.error_code = error.code
                is_refused = True
            answers.append(answer)
            yield COMMITTED_US
        if answers:
            topics.append(CommitTopic(topic_id=bytes(asked.topic_id), name=asked.name, partitions=answers))
    response = OffsetCommitResponse(topics=topics)
    records = [record for _, record, _ in wanted]
    try:  # others may have had their turn
        led = _check_rows(request, wanted[:WRITTEN_TOGETHER], context)
    except KafkaError as error:
        led, records, is_refused = None, [], True
        for each_topic in topics:
            for told in each_topic.partitions:
                if told.error_code not in UNKNOWN:  # of those the group is not asked
                    told.error_code = error.code
    if is_refused and not context.node.emulated.is_before_3:
        _put_errors_first(response)
    if version == 0 and context.node.emulated.refuses_version_0_offsets:
        _refuse_all_if_one_is_known(response)
    if led is None or not records:
        return response

    def committed(error: Error) -> OffsetCommitResponse:
        if error != Error.NONE:
            for _, _, answer in wanted:
                answer.error_code = not_written(error, context)
        return response

    later = Later()
    safe = later if len(records) <= WRITTEN_TOGETHER else Joint(-(-len(records) // WRITTEN_TOGETHER), later)
    try:
        led.log.check_size(least_bytes)
        for start in range(0, len(records), WRITTEN_TOGETHER):
            end = start + WRITTEN_TOGETHER
            if start:
                yield WRITTEN_US * WRITTEN_TOGETHER
                led = _check_rows(request, wanted[start:end], context)
            led.commit(request.group_id, records[start:end], safe, encoded[start:end])
    except KafkaError as error:
        return committed(Error(error.code))
    return later.into(committed)


def least_bytes_of(record: EncodedRecord) -> int:
    """Return what a record takes in a batch at least."""
    key, value = record
    return RECORD_BYTES_MIN + len(key) + len(value or b"")


def _check_rows(
    request: OffsetCommitRequest, wanted: list[tuple[Topic, CoordinatorRecord, CommitAnswer]], context: Context
) -> OffsetsPartition:
    """Raise unless these offsets may be committed; return who writes them."""
    led, check_partition = _check_member(request, context)
    if check_partition is not None:
        for known, _, answer in wanted:
            check_partition(known.name, known.id, answer.partition_index)
    return led


def not_written(error: Error, context: Context) -> Error:
    """Return what a client is told of offsets that could not be written."""
    if error not in TOO_LARGE:
        return error
    return Error.INVALID_COMMIT_OFFSET_SIZE if context.node.emulated.is_before_4 else Error.UNKNOWN_SERVER_ERROR


def _check_member(request: OffsetCommitRequest, context: Context) -> tuple[OffsetsPartition, CheckPartition | None]:
    """Raise unless offsets may be committed; return who writes them, and what each partition must pass."""
    led = context.node.groups.coordinator.find(request.group_id)
    group = led.shard.find(request.group_id)
    epoch = request.generation_id_or_member_epoch
    if context.api_version == 0 or (group is None and epoch < 0):
        return led, None  # version 0 knew nothing of members; and who is none makes a group by the commit
    if group is None:
        is_old = context.api_version < CONSUMER_GROUPS_SINCE or context.node.emulated.is_before_4
        code = Error.ILLEGAL_GENERATION if is_old else Error.GROUP_ID_NOT_FOUND
        raise KafkaError(code, f"Group {request.group_id} not found.")
    member_id, instance_id = request.member_id, request.group_instance_id
    if isinstance(group, ClassicGroup):
        group.check_commit(member_id, instance_id, epoch, context.now_ms)
        return led, None
    check = group.check_commit(member_id, instance_id, epoch, is_transactional=False, version=context.api_version)
    return led, check


def _record(
    request: OffsetCommitRequest, topic: Topic | None, wanted: CommittedPartition, now_ms: int, context: Context
) -> tuple[Topic, CoordinatorRecord]:
    if topic is None:
        code = Error.UNKNOWN_TOPIC_OR_PARTITION if context.api_version < IDS_SINCE else Error.UNKNOWN_TOPIC_ID
        raise KafkaError(code, "there is no such topic")
    if context.api_version == 0 and context.node.emulated.refuses_version_0_offsets:
        raise KafkaError(Error.UNSUPPORTED_VERSION, "there is no ZooKeeper to keep it in")
    if not 0 <= wanted.partition_index < len(topic.partitions):
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {wanted.partition_index}")
    metadata = wanted.committed_metadata or ""
    if metadata and len(metadata) > context.node.config["offset.metadata.max.bytes"]:
        raise KafkaError(Error.OFFSET_METADATA_TOO_LARGE, f"{len(metadata)} characters")
    timestamp = now_ms if wanted.commit_timestamp == -1 else wanted.commit_timestamp
    retention_ms = request.retention_time_ms
    record = commit_record(
        request.group_id,
        topic.name,
        wanted.partition_index,
        wanted.committed_offset,
        leader_epoch=wanted.committed_leader_epoch,
        metadata=metadata,
        commit_timestamp=timestamp,
        expire_timestamp=-1 if retention_ms == -1 else now_ms + retention_ms,
        topic_id=topic.id,
    )
    return topic, record


def _topic_of(name: str, topic_id: bytes, context: Context) -> Topic | None:
    image = context.node.image
    if context.api_version >= IDS_SINCE:
        return image.topics_by_id.get(bytes(topic_id))
    return image.topics.get(name)


def _each_once(topics: Iterable[CommitRequestTopic]) -> list[CommitRequestTopic]:
    """Return topics and partitions as a broker before 4.0 sees them: of what is named twice, the last."""
    found: dict[str, dict[int, CommittedPartition]] = {}
    for topic in topics:
        found.setdefault(topic.name, {}).update({each.partition_index: each for each in topic.partitions})
    return [CommitRequestTopic(name=name, partitions=list(each.values())) for name, each in found.items()]


def _refuse_all_if_one_is_known(response: OffsetCommitResponse) -> None:
    answers = [each for topic in response.topics for each in topic.partitions]
    if any(each.error_code == Error.UNSUPPORTED_VERSION for each in answers):
        for each in answers:
            each.error_code = Error.UNSUPPORTED_VERSION


def _put_errors_first(response: OffsetCommitResponse) -> None:
    for topic in response.topics:
        topic.partitions.sort(key=lambda each: each.error_code == Error.NONE)
    response.topics.sort(key=lambda topic: all(each.error_code == Error.NONE for each in topic.partitions))


# Fetch


def offset_fetch(request: OffsetFetchRequest, context: Context) -> Work[OffsetFetchResponse]:
    """Say what has been committed."""
    version = context.api_version
    if version >= BATCHES_SINCE:
        groups = []
        for wanted in request.groups:
            groups.append((yield from _fetch_group(wanted, request.require_stable, context)))
        return OffsetFetchResponse(groups=groups)
    topics: list[OffsetFetchRequest.OffsetFetchRequestGroup.OffsetFetchRequestTopics] | None = None
    if request.topics is not None:
        topics = []
        for topic in request.topics:
            topics.append(
                OffsetFetchRequest.OffsetFetchRequestGroup.OffsetFetchRequestTopics(
                    name=topic.name, partition_indexes=topic.partition_indexes
                )
            )
            yield FETCHED_US
    only = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    found = yield from _fetch_group(only, request.require_stable, context)
    error = found.error_code
    if error and version < TOP_LEVEL_ERROR_SINCE:
        found.topics = []
        for each in topics or []:
            partitions = [_nothing(index, Error(error)) for index in each.partition_indexes]
            found.topics.append(FetchTopic(name=each.name, partitions=partitions))
            yield FETCHED_US * (1 + len(partitions))
    is_refused = context.node.emulated.refuses_version_0_offsets
    old_topics = []
    for answered in found.topics:
        rows = []
        for row in answered.partitions:
            if version == 0 and not error:
                # In ZooKeeper nothing was kept for what had never been committed, and a partition without it was
                # unknown.
                row.metadata = ""
                if is_refused:
                    row.committed_offset, row.error_code = NO_OFFSET, Error.UNSUPPORTED_VERSION
                elif row.committed_offset == NO_OFFSET:
                    row.error_code = Error.UNKNOWN_TOPIC_OR_PARTITION
            rows.append(_as_old(row))
            yield FETCHED_US
        old_topics.append(OldFetchTopic(name=answered.name, partitions=rows))
        yield FETCHED_US
    return OffsetFetchResponse(
        error_code=error if version >= TOP_LEVEL_ERROR_SINCE else Error.NONE,
        topics=old_topics,
    )


def _as_old(found: FetchAnswer) -> OldFetchAnswer:
    return OldFetchAnswer(
        partition_index=found.partition_index,
        committed_offset=found.committed_offset,
        committed_leader_epoch=found.committed_leader_epoch,
        metadata=found.metadata,
        error_code=found.error_code,
    )


def _nothing(index: int, error: Error = Error.NONE) -> FetchAnswer:
    return FetchAnswer(partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=error)


def _fetch_group(
    wanted: OffsetFetchRequest.OffsetFetchRequestGroup, require_stable: bool, context: Context
) -> Work[FetchGroup]:
    yield FETCHED_US
    answer = FetchGroup(group_id=wanted.group_id, topics=[])
    try:
        led = context.node.groups.coordinator.find(wanted.group_id)
        group = led.shard.find(wanted.group_id)
        if group is not None and not isinstance(group, ClassicGroup):
            group.check_fetch(wanted.member_id, wanted.member_epoch)
        ending = led.shard.offsets.ending(wanted.group_id) if require_stable else ()
        if require_stable and (ending or not led.is_safe(wanted.group_id)):
            yield from _all_safe(wanted.group_id, led)
            while any(not ended.is_settled for ended in ending):
                led.log.check_open()
                yield SHARE_US
            led = context.node.groups.coordinator.find(wanted.group_id)
    except KafkaError as error:
        answer.error_code = error.code
        return answer
    if wanted.topics is None:
        names: dict[str, list[int]] = {}
        for topic, partition in led.shard.offsets.places(wanted.group_id):
            names.setdefault(topic, []).append(partition)
        for name, indexes in names.items():
            found = _fetch_all(name, indexes, wanted.group_id, led, require_stable, context)
            if found is not None:
                answer.topics.append(found)
            yield FETCHED_US * len(indexes)
        return answer
    merges = context.node.emulated.is_before_4  # then nothing is answered twice
    for asked in wanted.topics:
        topic_id = bytes(asked.topic_id)
        wanted_name: str | None = asked.name
        if context.api_version >= IDS_SINCE:
            wanted_name = context.node.topic_name(topic_id)
        partitions = []
        for index in dict.fromkeys(asked.partition_indexes) if merges else asked.partition_indexes:
            partitions.append(
                _nothing(index, Error.UNKNOWN_TOPIC_ID)
                if wanted_name is None
                else _fetch(wanted_name, _id_now(wanted_name, context), index, wanted.group_id, led, require_stable)
            )
            yield FETCHED_US
        if partitions or not merges:
            answer.topics.append(FetchTopic(topic_id=topic_id, name=wanted_name or "", partitions=partitions))
        yield FETCHED_US
    return answer


def _all_safe(group_id: str, led: OffsetsPartition) -> Work[None]:
    """Wait until all that is written of a group is committed: who wants stable offsets wants the last of them."""
    safe = Later()
    led.write(group_id, (), safe)
    yield safe
    if safe.value != Error.NONE:
        raise KafkaError(safe.value, f"what was written of {group_id!r} is not committed")


def _fetch_all(
    name: str, indexes: list[int], group_id: str, led: OffsetsPartition, require_stable: bool, context: Context
) -> FetchTopic | None:
    """Return what a group has committed of a topic; None if it has gone, and the client wants to hear of ids."""
    topic_id = NO_ID
    if context.api_version >= IDS_SINCE:
        topic = context.node.image.topics.get(name)
        if topic is None:
            return None
        topic_id = topic.id
    id_now = _id_now(name, context)
    partitions = [_fetch(name, id_now, index, group_id, led, require_stable) for index in indexes]
    return FetchTopic(topic_id=topic_id, name=name, partitions=partitions)


def _id_now(name: str, context: Context) -> bytes:
    """Return the id of the topic that has a name now: an offset of one that had it before is none of this.

    Kafka: looks at the id only if the client asks by it, and shows the offset of the topic before to others until the
    records that delete it are committed.
    """
    topic = context.node.image.topics.get(name)
    return NO_ID if topic is None else topic.id


def _fetch(
    name: str, topic_id: bytes, index: int, group_id: str, led: OffsetsPartition, require_stable: bool
) -> FetchAnswer:
    offsets = led.shard.offsets
    if require_stable and offsets.is_unstable(group_id, name, index):
        return _nothing(index, Error.UNSTABLE_OFFSET_COMMIT)
    found = offsets.find(group_id, name, index)
    if found is None or (topic_id != NO_ID and found.topic_id not in (NO_ID, topic_id)):
        return _nothing(index)
    return FetchAnswer(
        partition_index=index,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
        error_code=Error.NONE,
    )


# Delete


def offset_delete(request: OffsetDeleteRequest, context: Context) -> Work[OffsetDeleteResponse | Later]:
    """Forget offsets of topics that no member reads."""
    try:
        check_id(request.group_id)
        _check_delete(request, context)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code, throttle_time_ms=0, topics=[])
    topics = []
    wanted: list[tuple[str, DeleteAnswer]] = []
    is_before_4 = context.node.emulated.is_before_4
    for topic in request.topics:
        found = context.node.image.topics.get(topic.name)
        answers = []
        indexes = [each.partition_index for each in topic.partitions]
        for index in dict.fromkeys(indexes) if is_before_4 else indexes:
            answer = DeleteAnswer(partition_index=index, error_code=Error.NONE)
            if found is None or not 0 <= index < len(found.partitions):
                answer.error_code = Error.UNKNOWN_TOPIC_OR_PARTITION
            else:
                wanted.append((topic.name, answer))
            answers.append(answer)
            yield FETCHED_US
        if answers:
            topics.append(DeleteTopic(name=topic.name, partitions=answers))
    try:  # others may have had their turn
        led, group = _check_delete(request, context)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code, throttle_time_ms=0, topics=[])
    records: list[CoordinatorRecord] = []
    written: list[DeleteAnswer] = []
    read = {name for name in {name for name, _ in wanted} if group.reads(name)}
    for name, answer in wanted:
        if name in read:
            answer.error_code = Error.GROUP_SUBSCRIBED_TO_TOPIC
        elif led.shard.offsets.is_known(request.group_id, (name, answer.partition_index)):
            records.append(tombstone(request.group_id, name, answer.partition_index))
            written.append(answer)
    response = OffsetDeleteResponse(error_code=Error.NONE, throttle_time_ms=0, topics=topics)
    ending: list[Group] = []
    if is_before_4 and group.is_idle and len(records) == len(led.shard.offsets.latest(group.group_id)):
        records, group = led.shard.deletion(request.group_id)  # there a group went with its last offset at once
        ending = [group]
    if not records:
        return response
    later = Later()
    led.write(request.group_id, records, later, ending=ending, is_atomic=False)
    return later.into(lambda error: _deleted(response, written, error))


def _check_delete(request: OffsetDeleteRequest, context: Context) -> tuple[OffsetsPartition, Group]:
    """Raise unless offsets of a group may be deleted; return who writes that, and the group."""
    led = context.node.groups.coordinator.find(request.group_id)
    group = led.shard.find(request.group_id)
    if group is None:
        raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
    group.check_offset_delete()
    return led, group


def _deleted(response: OffsetDeleteResponse, written: list[DeleteAnswer], error: Error) -> OffsetDeleteResponse:
    for answer in written:
        answer.error_code = error
    return response
