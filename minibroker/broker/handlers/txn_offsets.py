"""TxnOffsetCommit: offsets that a group has read up to, committed with the transaction that came of what it read.

Behaviour: it is answered when every replica in sync has the offsets; they are shown when their transaction has been
committed, and until then who wants stable ones is told to ask again. The coordinator of the transaction is asked first.
What must hold: who may commit is looked at in the turn of the loop in which it is written.

Versions of TxnOffsetCommit: 3 members of a generation, 6 topics by their ids.
"""

from __future__ import annotations

from minibroker.broker.dispatch import Context
from minibroker.broker.handlers.group_offsets import WRITTEN_TOGETHER, WRITTEN_US, least_bytes_of, not_written
from minibroker.coordinator.log import BatchHead
from minibroker.errors import Error, KafkaError
from minibroker.groups import OFFSETS_TOPIC
from minibroker.groups.classic import ClassicGroup
from minibroker.groups.offsets import commit_record
from minibroker.groups.offsets_partition import Joint, encoded_of
from minibroker.log.batches import NO_SEQUENCE
from minibroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from minibroker.server.later import Later
from minibroker.transactions.metadata import ProducerIdAndEpoch
from minibroker.transactions.old_versions import TXN_OFFSET_COMMIT, adds_partitions, append_error, told
from minibroker.turns import awaited

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.coordinator.log import EncodedRecord
    from minibroker.groups.consumer import CheckPartition
    from minibroker.groups.offsets_partition import OffsetsPartition
    from minibroker.groups.records import CoordinatorRecord
    from minibroker.log.producers import Verification
    from minibroker.metadata.image import Topic
    from minibroker.turns import Work

    Wanted = list[tuple[Topic, "RequestPartition", "PartitionResult"]]

RequestPartition = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition
TopicResult = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
PartitionResult = TopicResult.TxnOffsetCommitResponsePartition

IDS_SINCE = 6
COMMITTED_US = 8


def txn_offset_commit(request: TxnOffsetCommitRequest, context: Context) -> Work[TxnOffsetCommitResponse | Later]:
    """Write offsets down that count when their transaction is committed."""
    response = TxnOffsetCommitResponse(throttle_time_ms=0, topics=[])
    wanted = yield from _wanted(request, response, context)
    if not wanted:
        return response

    def refused(error: Error) -> TxnOffsetCommitResponse:
        code = not_written(error, context)
        for _, _, answer in wanted:
            answer.error_code = told(TXN_OFFSET_COMMIT, context.api_version, code)
        return response

    try:
        if not request.group_id:
            raise KafkaError(Error.INVALID_GROUP_ID, "the group has no name")
        coordinator = context.node.groups.coordinator
        verification = yield from _verified(request, coordinator.find(request.group_id), context)
        written, records, encoded, least_bytes = yield from _records(request, wanted, context)
        later = Later()
        safe = Joint(-(-len(records) // WRITTEN_TOGETHER), later)
        for start in range(0, len(records) or 1, WRITTEN_TOGETHER):
            end = start + WRITTEN_TOGETHER
            if start:
                yield WRITTEN_US * WRITTEN_TOGETHER
                verification = yield from _verified(request, coordinator.find(request.group_id), context)
            led = coordinator.find(request.group_id)  # others may have had their turn
            check_partition = _check_member(request, led, context)
            for topic, each in written[start:end] if check_partition is not None else ():
                check_partition(topic.name, topic.id, each.partition_index)  # type: ignore[misc]
            if not records:
                return response
            if not start:
                led.log.check_size(least_bytes)
            head = BatchHead(request.producer_id, request.producer_epoch, verification=verification)
            led.write(request.group_id, records[start:end], safe, head=head, encoded=encoded[start:end])
    except KafkaError as error:
        return refused(Error(error.code))
    return later.into(lambda error: refused(error) if error else response)


def _wanted(request: TxnOffsetCommitRequest, response: TxnOffsetCommitResponse, context: Context) -> Work[Wanted]:
    """Return what there is of the partitions that are named, and answer for the others, which come first."""
    image, by_id = context.node.image, context.api_version >= IDS_SINCE
    wanted: Wanted = []
    known: list[TopicResult] = []
    unknown: dict[str | bytes, TopicResult] = {}
    for topic in request.topics:
        found = image.topics_by_id.get(bytes(topic.topic_id)) if by_id else image.topics.get(topic.name)
        there = TopicResult(topic_id=topic.topic_id, name=topic.name, partitions=[])
        missing = TopicResult(topic_id=topic.topic_id, name=topic.name, partitions=[])
        yield COMMITTED_US
        code = Error.UNKNOWN_TOPIC_ID if found is None and by_id else Error.UNKNOWN_TOPIC_OR_PARTITION
        for each in topic.partitions:
            answer = PartitionResult(partition_index=each.partition_index, error_code=Error.NONE)
            if found is not None and 0 <= each.partition_index < len(found.partitions):
                there.partitions.append(answer)
                wanted.append((found, each, answer))
            else:
                answer.error_code = code
                missing.partitions.append(answer)
            yield COMMITTED_US
        if there.partitions:
            known.append(there)
        if missing.partitions or found is None:
            _put(missing, unknown, by_id)
    if unknown:
        for there in known:
            _put(there, unknown, by_id)
        known = list(unknown.values())
    response.topics = known
    return wanted


def _put(topic: TopicResult, topics: dict[str | bytes, TopicResult], by_id: bool) -> None:
    """Put the partitions of a topic behind those that there are of it."""
    key = bytes(topic.topic_id) if by_id else topic.name
    if key in topics:
        topics[key].partitions += topic.partitions
    else:
        topics[key] = topic


def _verified(request: TxnOffsetCommitRequest, led: OffsetsPartition, context: Context) -> Work[Verification | None]:
    """Ask the coordinator of the transaction, if that has not been done for this partition of groups."""
    replica, adds = led.replica, adds_partitions(TXN_OFFSET_COMMIT, context.api_version)
    if not adds and not replica.log.settings.transaction_partition_verification_enable:
        return None
    verification = replica.log.producers.start_verification(
        request.producer_id, request.producer_epoch, NO_SEQUENCE, context.now_ms, supports_epoch_bump=adds
    )
    if verification is not None:
        place = OFFSETS_TOPIC, replica.partition
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        verifier = context.node.transactions.verifier
        errors = yield from awaited(verifier.verify(request.transactional_id, producer, [place], adds=adds))
        error = errors[place]
        if error is not Error.NONE:
            raise KafkaError(append_error(TXN_OFFSET_COMMIT, context.api_version, error))
    return verification


def _records(
    request: TxnOffsetCommitRequest, wanted: Wanted, context: Context
) -> Work[tuple[list[tuple[Topic, RequestPartition]], list[CoordinatorRecord], list[EncodedRecord], int]]:
    """Return what can be written: which partitions, their records, these as bytes, and how many at least."""
    least_bytes = 0
    written: list[tuple[Topic, RequestPartition]] = []
    records: list[CoordinatorRecord] = []
    encoded: list[EncodedRecord] = []
    for topic, each, answer in wanted:
        yield COMMITTED_US
        metadata = each.committed_metadata or ""
        if len(metadata) > context.node.config["offset.metadata.max.bytes"]:
            answer.error_code = Error.OFFSET_METADATA_TOO_LARGE
            continue
        record = commit_record(
            request.group_id,
            topic.name,
            each.partition_index,
            each.committed_offset,
            leader_epoch=each.committed_leader_epoch,
            metadata=metadata,
            commit_timestamp=context.now_ms,
            topic_id=topic.id,
        )
        written.append((topic, each))
        records.append(record)
        encoded.append(encoded_of(request.group_id, record, context.node))
        least_bytes += least_bytes_of(encoded[-1])
    return written, records, encoded, least_bytes


def _check_member(request: TxnOffsetCommitRequest, led: OffsetsPartition, context: Context) -> CheckPartition | None:
    """Raise unless a member may commit; return what each partition must pass."""
    group = led.shard.find(request.group_id)
    epoch, member_id, instance_id = (
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
    )
    if group is None:
        if epoch < 0:
            return None  # the offsets make a group
        raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
    if isinstance(group, ClassicGroup):
        group.check_commit(member_id, instance_id, epoch, context.now_ms, is_transactional=True)
        return None
    return group.check_commit(member_id, instance_id, epoch, is_transactional=True, version=context.api_version)
