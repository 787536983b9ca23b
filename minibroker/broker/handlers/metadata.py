"""Metadata and DescribeTopicPartitions: which brokers there are, and which of them leads what.

Versions of Metadata: 0 no topics are all topics, 4 clients may forbid that topics are made, 10 topics have ids,
12 topics may be asked for by their ids.
"""

from __future__ import annotations

from minibroker.broker.dispatch import NO_ID, Context, is_internal, is_valid_name
from minibroker.broker.internal_topics import make_missing
from minibroker.errors import Error
from minibroker.metadata.image import Partition, Topic
from minibroker.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from minibroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from minibroker.turns import Work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

Broker = MetadataResponse.MetadataResponseBroker
TopicAnswer = MetadataResponse.MetadataResponseTopic
PartitionAnswer = TopicAnswer.MetadataResponsePartition
TopicPage = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
PartitionPage = TopicPage.DescribeTopicPartitionsResponsePartition

# Bit n is AclOperation n: without an authorizer everybody may do everything there is.
ALL_TOPIC_OPERATIONS: Final = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
ALL_CLUSTER_OPERATIONS: Final = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
NOT_ASKED: Final = -(1 << 31)
TOPIC_US: Final = 3


def metadata(request: MetadataRequest, context: Context) -> Work[MetadataResponse]:
    """Describe the brokers, and the topics asked for; what is not there is made first, if that is wanted.

    Kafka: answers 3 first and makes the topic meanwhile; here it is there already.
    """
    may_create = context.api_version < 4 or request.allow_auto_topic_creation
    missing = _missing(request, context) if may_create else []
    making = make_missing(context.node, missing, client=request.client) if missing else None
    if making is not None:
        yield making
    return (yield from _describe_all(request, context))


def _missing(request: MetadataRequest, context: Context) -> list[str]:
    """Return the topics that are asked for by name, are not there, and are to be made."""
    topics, wanted = context.node.image.topics, request.topics or ()
    if not context.node.config["auto.create.topics.enable"] or any(topic.topic_id != NO_ID for topic in wanted):
        return []
    names = dict.fromkeys(topic.name for topic in wanted if topic.name is not None)
    return [name for name in names if name not in topics and is_valid_name(name)]


def _describe_all(request: MetadataRequest, context: Context) -> Work[MetadataResponse]:
    node, version = context.node, context.api_version
    asked = request.topics
    if version == 0 and not asked:
        asked = None
    with_operations = request.include_topic_authorized_operations
    if asked is None:
        topics = []
        for topic in list(node.image.topics.values()):
            topics.append(_describe(topic, context, with_operations))
            yield TOPIC_US + 2 * len(topic.partitions)
    elif 10 <= version <= 11 and any(topic.name is None or topic.topic_id != NO_ID for topic in asked):
        return _refuse(asked, Error.INVALID_REQUEST)
    elif any(topic.name is None and topic.topic_id == NO_ID for topic in asked):
        return _refuse(asked, Error.UNKNOWN_SERVER_ERROR)
    else:
        # Kafka: where one is asked for by its id, names are not looked at.
        by_id = [each for each in asked if each.topic_id != NO_ID]
        once = {(each.name, each.topic_id): each for each in by_id or asked}
        topics = []
        for each in once.values():
            topics.append(_find(each, context, with_operations))
            yield TOPIC_US + 2 * len(topics[-1].partitions)
    return MetadataResponse(
        brokers=[
            Broker(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in node.brokers_for(context.connection)
        ],
        cluster_id=node.cluster_id,
        controller_id=node.node_id,
        topics=topics,
        cluster_authorized_operations=(
            ALL_CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _refuse(asked: list[MetadataRequest.MetadataRequestTopic], error: Error) -> MetadataResponse:
    """Answer that nothing of the request makes sense."""
    return MetadataResponse(
        brokers=[],
        topics=[
            TopicAnswer(error_code=error, name=topic.name or "", topic_id=topic.topic_id, partitions=[])
            for topic in asked
        ],
        error_code=error,
    )


def _find(asked: MetadataRequest.MetadataRequestTopic, context: Context, with_operations: bool) -> TopicAnswer:
    """Describe one topic by name or id."""
    node = context.node
    if asked.topic_id != NO_ID:
        by_id = node.image.topics_by_id.get(asked.topic_id)
        if by_id is None:
            return TopicAnswer(error_code=Error.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id, partitions=[])
        return _describe(by_id, context, with_operations)
    name = asked.name or ""
    topic = node.image.topics.get(name)
    if topic is None:
        error = Error.UNKNOWN_TOPIC_OR_PARTITION if is_valid_name(name) else Error.INVALID_TOPIC_EXCEPTION
        return TopicAnswer(error_code=error, name=name, is_internal=is_internal(name), partitions=[])
    return _describe(topic, context, with_operations)


def _describe(topic: Topic, context: Context, with_operations: bool) -> TopicAnswer:
    return TopicAnswer(
        error_code=Error.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[_partition(partition, context) for partition in topic.partitions],
        topic_authorized_operations=ALL_TOPIC_OPERATIONS if with_operations else NOT_ASKED,
    )


def _partition(partition: Partition, context: Context) -> PartitionAnswer:
    alive = context.node.alive
    offline = [replica for replica in partition.replicas if replica not in alive]
    error = Error.NONE
    if partition.leader not in alive:
        error = Error.LEADER_NOT_AVAILABLE
    elif context.api_version == 0 and offline:
        error = Error.REPLICA_NOT_AVAILABLE
    return PartitionAnswer(
        error_code=error,
        partition_index=partition.id,
        leader_id=partition.leader if partition.leader in alive else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=offline,
    )


def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: Context
) -> Work[DescribeTopicPartitionsResponse]:
    """Describe topics page by page, sorted by name."""
    node, cursor = context.node, request.cursor
    names = sorted({topic.name for topic in request.topics} or node.image.topics)
    if not all(map(is_valid_name, names)):
        return _refuse_page(request, Error.UNKNOWN_SERVER_ERROR)
    start = 0
    if cursor is not None:
        start = cursor.partition_index
        if start < 0 or (request.topics and cursor.topic_name not in names):
            return _refuse_page(request, Error.INVALID_REQUEST)
        names = [name for name in names if name >= cursor.topic_name]
        if not names or names[0] != cursor.topic_name:
            start = 0
    left = min(max(request.response_partition_limit, 1), node.config["max.request.partition.size.limit"])
    pages: list[TopicPage] = []
    next_cursor = None
    for name in names:
        topic = node.image.topics.get(name)
        if topic is None:
            pages.append(
                TopicPage(
                    error_code=Error.UNKNOWN_TOPIC_OR_PARTITION,
                    name=name,
                    topic_id=NO_ID,
                    partitions=[],
                    topic_authorized_operations=ALL_TOPIC_OPERATIONS,
                )
            )
            yield TOPIC_US
            continue
        if not left:
            next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=start)
            break
        shown = topic.partitions[start : start + left]
        pages.append(
            TopicPage(
                error_code=Error.NONE,
                name=name,
                topic_id=topic.id,
                is_internal=is_internal(name),
                partitions=[_partition_page(partition, node.alive) for partition in shown],
                topic_authorized_operations=ALL_TOPIC_OPERATIONS,
            )
        )
        left -= len(shown)
        yield TOPIC_US + 4 * len(shown)
        if start + len(shown) < len(topic.partitions):
            next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=start + len(shown))
            break
        start = 0
    return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=pages, next_cursor=next_cursor)


def _refuse_page(request: DescribeTopicPartitionsRequest, error: Error) -> DescribeTopicPartitionsResponse:
    """Answer that the request makes no sense."""
    refused = [TopicPage(error_code=error, name=topic.name, topic_id=NO_ID, partitions=[]) for topic in request.topics]
    return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=refused)


def _partition_page(partition: Partition, alive: frozenset[int]) -> PartitionPage:
    has_leader = partition.leader in alive
    return PartitionPage(
        error_code=Error.NONE if has_leader else Error.LEADER_NOT_AVAILABLE,
        partition_index=partition.id,
        leader_id=partition.leader if has_leader else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        eligible_leader_replicas=partition.elr,
        last_known_elr=partition.last_known_elr,
        offline_replicas=[replica for replica in partition.replicas if replica not in alive],
    )
