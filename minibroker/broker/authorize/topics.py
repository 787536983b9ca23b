"""Topics and the cluster: who sees which, and who may make, change and delete them.

What must hold: whoever may not describe a topic is told the same whether it is there or not.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from minibroker.broker.authorize.access import ASKED_US, FAILED, WORDS, answered, changed
from minibroker.broker.authorize.guards import by_each, split
from minibroker.broker.authorize.table import EACH, Need
from minibroker.broker.dispatch import NO_ID, is_internal, is_valid_name
from minibroker.errors import Error
from minibroker.faults.answers import Fault, copy_with
from minibroker.metadata.bootstrap import METADATA_TOPIC
from minibroker.protocol.messages.create_topics import CreateTopicsResponse
from minibroker.protocol.messages.delete_topics import DeleteTopicsResponse
from minibroker.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from minibroker.protocol.messages.describe_producers import DescribeProducersResponse
from minibroker.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsResponse
from minibroker.protocol.messages.metadata import MetadataResponse
from minibroker.security.acls import (
    ALTER,
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    READ,
    TOPIC,
)
from minibroker.turns import Work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.authorize.access import Access
    from minibroker.broker.dispatch import Context, Handler
    from minibroker.in_pieces import InPieces
    from minibroker.protocol.messages.create_partitions import CreatePartitionsRequest
    from minibroker.protocol.messages.create_topics import CreateTopicsRequest
    from minibroker.protocol.messages.delete_topics import DeleteTopicsRequest
    from minibroker.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
    from minibroker.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
    from minibroker.protocol.messages.describe_producers import DescribeProducersRequest
    from minibroker.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
    from minibroker.protocol.messages.metadata import MetadataRequest
    from minibroker.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

NOT_ASKED: Final = -(1 << 31)
IDS_SINCE, NO_TOPICS_SINCE = 12, 1  # of Metadata; before, no topics are all topics
DELETES_BY_ID_SINCE, ALL_ERRORS_SINCE = 6, 3  # of DeleteTopics, of DescribeLogDirs
FAILED_TOPIC: Final = Error.TOPIC_AUTHORIZATION_FAILED
HIDDEN_SETTINGS: Final = -1  # what CreateTopics says of a topic whose settings one may not see

TopicAnswer = MetadataResponse.MetadataResponseTopic
Created = CreateTopicsResponse.CreatableTopicResult
Deleted = DeleteTopicsResponse.DeletableTopicResult
Producers = DescribeProducersResponse.TopicResponse
TopicPage = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic


# Metadata


def metadata(request: MetadataRequest, context: Context, handler: Handler, access: Access) -> Work[Any]:
    """Describe the topics that one may describe, and make those that one may create."""
    asked, version = request.topics, context.api_version
    if asked is None or (not asked and version < NO_TOPICS_SINCE):
        return (yield from changed(handler(request, context), lambda made: _only_describable(made, request, access)))
    is_odd = any(each.name is None and each.topic_id == NO_ID for each in asked)
    if is_odd or (version < IDS_SINCE and any(each.name is None or each.topic_id != NO_ID for each in asked)):
        return (yield from answered(handler(request, context)))  # which refuses it
    by_id = [each for each in asked if each.topic_id != NO_ID]
    kept, refused, unmade = [], {}, {}
    may_create = _may_create(request, context, access)
    for each in by_id or asked:
        name = access.name_of("", each.topic_id) if by_id else each.name or ""
        if (name or not by_id) and not access.may(DESCRIBE, TOPIC, name):
            refused[name] = TopicAnswer(
                error_code=FAILED_TOPIC, name=None if by_id else name, topic_id=each.topic_id, partitions=[]
            )
        elif not by_id and not may_create and _would_be_made(name, context) and not access.may(CREATE, TOPIC, name):
            internal = is_internal(name)
            unmade[name] = TopicAnswer(error_code=FAILED_TOPIC, name=name, is_internal=internal, partitions=[])
        else:
            kept.append(each)
        yield ASKED_US
    rest = request if not (refused or unmade) else copy_with(request, "topics", kept)

    def together(response: MetadataResponse) -> InPieces[MetadataResponse]:
        if not kept and version < NO_TOPICS_SINCE:
            response.topics = []
        yield from _with_operations(response, request, access)
        response.topics = [*response.topics, *unmade.values(), *refused.values()]
        return response

    return (yield from changed(handler(rest, context), together))


def _may_create(request: MetadataRequest, context: Context, access: Access) -> bool:
    """Return whether topics may be made that are asked for and not there; if that is not wanted nobody is asked."""
    is_wanted = context.api_version < 4 or request.allow_auto_topic_creation
    return not is_wanted or not context.node.config["auto.create.topics.enable"] or access.could_to_cluster(CREATE)


def _would_be_made(name: str, context: Context) -> bool:
    return name not in context.node.image.topics


def _only_describable(
    response: MetadataResponse, request: MetadataRequest, access: Access
) -> InPieces[MetadataResponse]:
    kept = []
    for topic in response.topics:
        if access.could(DESCRIBE, TOPIC, topic.name or ""):
            kept.append(topic)
        yield ASKED_US
    response.topics = kept
    yield from _with_operations(response, request, access)
    return response


def _with_operations(response: MetadataResponse, request: MetadataRequest, access: Access) -> InPieces[None]:
    """Tell what this client may do, and not what everybody could without an authorizer."""
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = _of_cluster(access)
    if request.include_topic_authorized_operations:
        for topic in response.topics:
            if topic.name is not None:
                topic.topic_authorized_operations = access.operations(TOPIC, topic.name)
            yield ASKED_US * 8


def _of_cluster(access: Access) -> int:
    return access.operations(CLUSTER, CLUSTER_NAME) if access.could_to_cluster(DESCRIBE) else 0


def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: Context, handler: Handler, access: Access
) -> Work[Any]:
    """Describe the topics that one may describe; what cannot be seen is not on any page."""
    wants_all = not request.topics
    names = sorted(context.node.image.topics) if wants_all else [topic.name for topic in request.topics]
    kept, refused = [], {}
    cursor = request.cursor
    may_describe = access.could if wants_all else access.may
    for name in names:
        if may_describe(DESCRIBE, TOPIC, name):
            kept.append(type(request).TopicRequest(name=name))
        elif cursor is None or name >= cursor.topic_name:
            refused[name] = TopicPage(
                error_code=FAILED_TOPIC,
                name=name,
                topic_id=NO_ID,
                partitions=[],
                topic_authorized_operations=NOT_ASKED,
            )
        yield ASKED_US
    if wants_all:
        refused = {}
    if not kept:  # an empty list would mean all of them
        return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=list(refused.values()))
    rest = copy_with(request, "topics", kept)
    if cursor is not None and not any(topic.name == cursor.topic_name for topic in kept):
        following = [topic for topic in kept if topic.name > cursor.topic_name]
        if not wants_all and cursor.topic_name not in names:
            return (yield from answered(handler(request, context)))  # which refuses it
        if not following:
            return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=list(refused.values()))
        rest = copy_with(copy_with(rest, "topics", following), "cursor", None)

    def together(response: DescribeTopicPartitionsResponse) -> InPieces[DescribeTopicPartitionsResponse]:
        for topic in response.topics:
            topic.topic_authorized_operations = access.operations(TOPIC, topic.name or "")
            yield ASKED_US * 8
        response.topics = [*response.topics, *refused.values()]
        return response

    return (yield from changed(handler(rest, context), together))


def describe_cluster(request: DescribeClusterRequest, context: Context, handler: Handler, access: Access) -> Work[Any]:
    """List the brokers to everybody, and what a client may do."""

    def with_operations(response: DescribeClusterResponse) -> DescribeClusterResponse:
        if request.include_cluster_authorized_operations and response.error_code == Error.NONE:
            response.cluster_authorized_operations = _of_cluster(access)
        return response

    return (yield from changed(handler(request, context), with_operations))


# Making, changing and deleting them


def create_topics(request: CreateTopicsRequest, context: Context, handler: Handler, access: Access) -> Work[Any]:
    """Make the topics that one may create; of the others it is not said whether they are there."""
    counts = Counter(topic.name for topic in request.topics)
    may_all = access.could_to_cluster(CREATE)
    kept, refused = [], {}
    for topic in request.topics:
        if counts[topic.name] > 1 or topic.name == METADATA_TOPIC or may_all or access.may(CREATE, TOPIC, topic.name):
            kept.append(topic)
        else:
            words = "Authorization failed."
            refused[topic.name] = Created(name=topic.name, error_code=FAILED_TOPIC, error_message=words)
        yield ASKED_US

    def together(response: CreateTopicsResponse) -> InPieces[CreateTopicsResponse]:
        for topic in response.topics:
            if topic.error_code == Error.NONE and not access.could(DESCRIBE_CONFIGS, TOPIC, topic.name):
                topic.topic_config_error_code = FAILED_TOPIC
                topic.num_partitions = topic.replication_factor = HIDDEN_SETTINGS
                topic.configs = []
            yield ASKED_US
        response.topics = [*response.topics, *refused.values()]
        return response

    rest = copy_with(request, "topics", kept) if refused else request
    return (yield from changed(handler(rest, context), together))


def delete_topics(request: DeleteTopicsRequest, context: Context, handler: Handler, access: Access) -> Work[Any]:
    """Delete the topics that one may delete; that one is there is told only to whom may describe it."""
    if access.could_to_cluster(DELETE) or not context.node.config["delete.topic.enable"]:
        return (yield from answered(handler(request, context)))
    by_name = context.api_version < DELETES_BY_ID_SINCE
    field = "topic_names" if by_name else "topics"
    asked = (
        [(name, NO_ID) for name in request.topic_names] if by_name else [(t.name, t.topic_id) for t in request.topics]
    )
    counts = Counter(asked)
    elements: list[Any] = getattr(request, field)
    kept, refused = [], []
    for (name, topic_id), element in zip(asked, elements, strict=True):
        answer = None
        if counts[name, topic_id] == 1 and (name is None) != (topic_id == NO_ID):
            answer = _refusal(name, topic_id, context, access)
        if answer is None:
            kept.append(element)
        else:
            refused.append(answer)
        yield 2 * ASKED_US

    def together(response: DeleteTopicsResponse) -> DeleteTopicsResponse:
        # Kafka: shuffles them, so that nobody learns from their order which ones are there; here those that are
        # refused come in the order of the request, whatever is there.
        response.responses = [*response.responses, *refused]
        return response

    rest = copy_with(request, field, kept) if refused else request
    return (yield from changed(handler(rest, context), together))


def _refusal(name: str | None, topic_id: bytes, context: Context, access: Access) -> Deleted | None:
    """Return the answer for a topic that one may not delete; None: the handler may answer for it."""
    found = context.node.topic_name(topic_id) if name is None else name
    if found is None:
        return None  # nobody has this id
    may_describe, may_delete = access.may(DESCRIBE, TOPIC, found), access.may(DELETE, TOPIC, found)
    if may_delete and may_describe:
        return None
    if name is not None and may_describe and name not in context.node.image.topics:
        return None
    shown = name if name is not None or not may_describe else found
    return Deleted(name=shown, topic_id=topic_id, error_code=FAILED_TOPIC, error_message=WORDS[TOPIC])


def create_partitions(
    request: CreatePartitionsRequest, context: Context, handler: Handler, access: Access
) -> Work[Any]:
    """Give more partitions to the topics that one may alter; a name that comes twice is answered as such."""
    counts = Counter(topic.name for topic in request.topics)

    def is_refused(name: str, topic_id: bytes, _: int | None) -> bool:
        return counts[name] == 1 and not access.may(ALTER, TOPIC, name)

    return (yield from split(request, context, handler, is_refused, Fault(FAILED_TOPIC, None)))


# Reading about them


def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: Context, handler: Handler, access: Access
) -> Work[Any]:
    """Tell brokers, and who may describe the topics."""
    if access.could_to_cluster(CLUSTER_ACTION):
        return (yield from answered(handler(request, context)))
    return (yield from by_each(request, context, handler, access, Need(TOPIC, DESCRIBE, scope=EACH), ""))


def describe_producers(
    request: DescribeProducersRequest, context: Context, handler: Handler, access: Access
) -> Work[Any]:
    """Tell of the producers of topics that one may read; in the order of the request."""
    kept, places = [], {}
    for index, topic in enumerate(request.topics):
        if is_valid_name(topic.name) and not access.may(READ, TOPIC, topic.name):
            places[index] = Producers(
                name=topic.name,
                partitions=[
                    Producers.PartitionResponse(
                        partition_index=partition,
                        error_code=FAILED_TOPIC,
                        error_message=WORDS[TOPIC],
                        active_producers=[],
                    )
                    for partition in topic.partition_indexes
                ],
            )
        else:
            kept.append(topic)
        yield ASKED_US + len(topic.partition_indexes)

    def together(response: DescribeProducersResponse) -> DescribeProducersResponse:
        found = iter(response.topics)
        response.topics = [places[i] if i in places else next(found) for i in range(len(request.topics))]
        return response

    rest = copy_with(request, "topics", kept) if places else request
    return (yield from changed(handler(rest, context), together))


def log_dirs(request: DescribeLogDirsRequest, context: Context, handler: Handler, access: Access) -> Work[Any]:
    """Tell of directories to whom may describe the cluster."""
    if access.may_to_cluster(DESCRIBE):
        return (yield from answered(handler(request, context)))
    return DescribeLogDirsResponse(throttle_time_ms=0, error_code=FAILED[CLUSTER], results=[])
