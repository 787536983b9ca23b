"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete.

Behaviour: a commit is answered when every replica in sync has it, and shown then. Who is no member may commit for a
group that nobody is in, and makes it by that.
What must hold: what is written was decided in the same turn of the loop. A large request is looked through in several,
and meanwhile members come and go.

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
from minibroker.errors import Error, KafkaError
from minibroker.groups.classic import ClassicGroup
from minibroker.groups.offsets import commit_record, tombstone
from minibroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from minibroker.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from minibroker.server.later import Later

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from minibroker.broker.dispatch import Context
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
IDS_SINCE = 10  # of both commit and fetch: topics by their ids
CONSUMER_GROUPS_SINCE = 9  # of commit: unknown groups are told from old generations
TOP_LEVEL_ERROR_SINCE = 2  # of fetch
BATCHES_SINCE = 8  # of fetch: many groups
NO_OFFSET = -1
COMMITTED_US, FETCHED_US = 8, 4
# What a client is told instead, when a record of offsets could not be written.
TOO_LARGE = (Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE, Error.INVALID_FETCH_SIZE)


# Commit


def offset_commit(request: OffsetCommitRequest, context: Context) -> Work[OffsetCommitResponse | Later]:
    """Write offsets down, and answer when they are safe."""
    version = context.api_version
    topics: list[CommitTopic] = []
    wanted: list[tuple[Topic, CoordinatorRecord, CommitAnswer]] = []
    try:
        _check_member(request, context)
    except KafkaError as error:
        return _commit_refused(request, error.code)
    merges = context.node.emulated.is_before_4 and version > 0
    for asked in _each_once(request.topics) if merges else request.topics:
        topic = _topic_of(asked.name, asked.topic_id, context)
        answers: list[CommitAnswer] = []
        for each in asked.partitions:
            answer = CommitAnswer(partition_index=each.partition_index, error_code=Error.NONE)
            try:
                wanted.append((*_record(request, topic, each, context), answer))
            except KafkaError as error:
                answer.error_code = error.code
            answers.append(answer)
            yield COMMITTED_US
        if answers:
            topics.append(CommitTopic(topic_id=bytes(asked.topic_id), name=asked.name, partitions=answers))
    try:  # others may have had their turn
        led, check_partition = _check_member(request, context)
    except KafkaError as error:
        return _commit_refused(request, error.code)
    records: list[CoordinatorRecord] = []
    written: list[CommitAnswer] = []
    for known, record, answer in wanted:
        try:
            if check_partition is not None:
                check_partition(known.name, known.id, answer.partition_index)
            records.append(record)
            written.append(answer)
        except KafkaError as error:
            answer.error_code = error.code
    response = OffsetCommitResponse(topics=topics)
    if not context.node.emulated.is_before_3:
        _put_errors_first(response)
    if version == 0 and context.node.emulated.refuses_version_0_offsets:
        _refuse_all_if_one_is_known(response)
    if not records:
        return response
    later = Later()
    led.write(request.group_id, records, later)
    led.arm(request.group_id)
    return later.into(lambda error: _committed(response, written, error))


def _committed(response: OffsetCommitResponse, written: list[CommitAnswer], error: Error) -> OffsetCommitResponse:
    for answer in written if error != Error.NONE else ():
        answer.error_code = Error.INVALID_COMMIT_OFFSET_SIZE if error in TOO_LARGE else error
    return response


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
    request: OffsetCommitRequest, topic: Topic | None, wanted: CommittedPartition, context: Context
) -> tuple[Topic, CoordinatorRecord]:
    if topic is None:
        code = Error.UNKNOWN_TOPIC_OR_PARTITION if context.api_version < IDS_SINCE else Error.UNKNOWN_TOPIC_ID
        raise KafkaError(code, "there is no such topic")
    if context.api_version == 0 and context.node.emulated.refuses_version_0_offsets:
        raise KafkaError(Error.UNSUPPORTED_VERSION, "there is no ZooKeeper to keep it in")
    if not 0 <= wanted.partition_index < len(topic.partitions):
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {wanted.partition_index}")
    metadata = wanted.committed_metadata or ""
    if len(metadata) > context.node.config["offset.metadata.max.bytes"]:
        raise KafkaError(Error.OFFSET_METADATA_TOO_LARGE, f"{len(metadata)} characters")
    now_ms = context.now_ms
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


def _commit_refused(request: OffsetCommitRequest, code: Error) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            CommitTopic(
                topic_id=topic.topic_id,
                name=topic.name,
                partitions=[
                    CommitAnswer(partition_index=each.partition_index, error_code=code) for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


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
