"""Groups: their coordinators, offsets and members, for who may read, describe or delete them."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from minibroker.broker.authorize.access import ASKED_US, FAILED, WORDS, answered, changed
from minibroker.broker.authorize.guards import split
from minibroker.broker.handlers.coordinators import GROUP as GROUP_KEY
from minibroker.broker.handlers.coordinators import SHARE as SHARE_KEY
from minibroker.broker.handlers.coordinators import TRANSACTION as TRANSACTION_KEY
from minibroker.errors import Error, KafkaError
from minibroker.faults.answers import Fault, answer_of, copy_with, refuse_in_pieces
from minibroker.groups.consumer import ConsumerGroup
from minibroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from minibroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from minibroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from minibroker.protocol.messages.offset_fetch import OffsetFetchResponse
from minibroker.security.acls import CLUSTER, CLUSTER_ACTION, DELETE, DESCRIBE, GROUP, READ, TOPIC, TRANSACTIONAL_ID
from minibroker.turns import Work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.authorize.access import Access
    from minibroker.broker.dispatch import Context, Handler
    from minibroker.groups.timers import Timers
    from minibroker.in_pieces import InPieces
    from minibroker.protocol.headers import Response
    from minibroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
    from minibroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from minibroker.protocol.messages.delete_groups import DeleteGroupsRequest
    from minibroker.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
    from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
    from minibroker.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
    from minibroker.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
    from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest

NOT_ASKED: Final = -(1 << 31)
GROUPS_SINCE, GROUP_ERRORS_SINCE = 8, 2  # of OffsetFetch
KEYS_SINCE, SHARES_SINCE = 4, 6  # of FindCoordinator
GROUP_FAILED: Final = Fault(FAILED[GROUP], None)
TOPICS_HIDDEN: Final = "The group has described topic(s) that the client is not authorized to describe."

Coordinator = FindCoordinatorResponse.Coordinator
DescribedConsumerGroup = ConsumerGroupDescribeResponse.DescribedGroup
FetchedGroup = OffsetFetchResponse.OffsetFetchResponseGroup


def find_coordinator(request: FindCoordinatorRequest, context: Context, handler: Handler, access: Access) -> Work[Any]:
    """Name the broker of what one may describe."""
    version = context.api_version
    kinds = {GROUP_KEY: GROUP, TRANSACTION_KEY: TRANSACTIONAL_ID}
    kind = kinds.get(request.key_type)
    if kind is None:
        is_refused = (
            request.key_type == SHARE_KEY and version >= SHARES_SINCE and not access.may_to_cluster(CLUSTER_ACTION)
        )
        if is_refused:
            return (yield from refuse_in_pieces(request, request.api, version, Fault(FAILED[CLUSTER], WORDS[CLUSTER])))
        return (yield from answered(handler(request, context)))
    keys = request.coordinator_keys if version >= KEYS_SINCE else [request.key]
    refused = set()
    for key in keys:
        if not access.may(DESCRIBE, kind, key):
            refused.add(key)
        yield ASKED_US
    if not refused:
        return (yield from answered(handler(request, context)))
    if version < KEYS_SINCE:
        code = FAILED[kind]
        return FindCoordinatorResponse(error_code=code, error_message=WORDS[kind], node_id=-1, host="", port=-1)

    def together(response: FindCoordinatorResponse) -> FindCoordinatorResponse:
        found = iter(response.coordinators)
        response.coordinators = [
            Coordinator(key=key, node_id=-1, host="", port=-1, error_code=FAILED[kind], error_message="")
            if key in refused
            else next(found)
            for key in keys
        ]
        return response

    kept = [key for key in keys if key not in refused]
    if not kept:  # and no topic is made for nobody
        return together(FindCoordinatorResponse(coordinators=[]))
    rest = copy_with(request, "coordinator_keys", kept)
    return (yield from changed(handler(rest, context), together))


# Offsets


def offset_fetch(request: OffsetFetchRequest, context: Context, handler: Handler, access: Access) -> Work[Any]:
    """Tell the offsets of groups, and of topics, that one may describe."""
    if context.api_version < GROUPS_SINCE:
        if not access.may(DESCRIBE, GROUP, request.group_id):
            return (yield from refuse_in_pieces(request, request.api, context.api_version, GROUP_FAILED))
        return (yield from _offsets_of_one(request, context, handler, access))
    asked, kept = request.groups, list[Any]()
    refused: dict[int, FetchedGroup] = {}
    hidden: dict[int, list[Any]] = {}  # topics of each group that is fetched, by its place among these
    Topics = FetchedGroup.OffsetFetchResponseTopics
    for index, group in enumerate(asked):
        yield ASKED_US
        if not access.may(DESCRIBE, GROUP, group.group_id):
            refused[index] = FetchedGroup(group_id=group.group_id, topics=[], error_code=FAILED[GROUP])
            continue
        if group.topics is not None:
            topics, entries = [], []
            for topic in group.topics:
                name = access.name_of(topic.name, topic.topic_id)
                if name and not access.may(DESCRIBE, TOPIC, name):
                    rows = [_unread(Topics.OffsetFetchResponsePartitions, number) for number in topic.partition_indexes]
                    entries.append(Topics(name=topic.name, topic_id=topic.topic_id, partitions=rows))
                else:
                    topics.append(topic)
                yield ASKED_US + len(topic.partition_indexes)
            hidden[len(kept)] = entries
            if entries:
                group = copy_with(group, "topics", topics)
        kept.append(group)

    def together(response: OffsetFetchResponse) -> InPieces[OffsetFetchResponse]:
        for index, group in enumerate(response.groups):
            if index in hidden:
                if group.error_code == Error.NONE:
                    group.topics = [*group.topics, *hidden[index]]
                continue
            shown = []
            for topic in group.topics:
                if access.could(DESCRIBE, TOPIC, access.name_of(topic.name, topic.topic_id)):
                    shown.append(topic)
                yield ASKED_US
            group.topics = shown
        found = iter(response.groups)
        response.groups = [refused[i] if i in refused else next(found) for i in range(len(asked))]
        return response

    return (yield from changed(handler(copy_with(request, "groups", kept), context), together))


def _unread(row: Any, number: int) -> Any:
    return row(partition_index=number, committed_offset=-1, metadata="", error_code=FAILED[TOPIC])


def _offsets_of_one(request: OffsetFetchRequest, context: Context, handler: Handler, access: Access) -> Work[Any]:
    Topic = OffsetFetchResponse.OffsetFetchResponseTopic
    hidden, kept = [], []
    for topic in request.topics or ():
        if access.may(DESCRIBE, TOPIC, topic.name):
            kept.append(topic)
        else:
            rows = [_unread(Topic.OffsetFetchResponsePartition, number) for number in topic.partition_indexes]
            hidden.append(Topic(name=topic.name, partitions=rows))
        yield ASKED_US + len(topic.partition_indexes)

    def together(response: OffsetFetchResponse) -> InPieces[OffsetFetchResponse]:
        if context.api_version >= GROUP_ERRORS_SINCE and response.error_code != Error.NONE:
            return response
        shown = []
        for topic in response.topics:
            if request.topics is not None or access.could(DESCRIBE, TOPIC, topic.name):
                shown.append(topic)
            yield ASKED_US
        response.topics = [*shown, *hidden]
        return response

    rest = copy_with(request, "topics", kept) if hidden else request
    return (yield from changed(handler(rest, context), together))


def offset_delete(request: OffsetDeleteRequest, context: Context, handler: Handler, access: Access) -> Work[Any]:
    """Forget the offsets of topics that one may read, in a group that one may delete; the group answers first."""
    api, version = request.api, context.api_version
    if not access.may(DELETE, GROUP, request.group_id):
        return answer_of(api, GROUP_FAILED)
    kept: list[Any] = []
    left: list[Any] = []
    for topic in request.topics:
        (kept if access.may(READ, TOPIC, topic.name) else left).append(topic)
        yield ASKED_US
    if not left:
        return (yield from answered(handler(request, context)))
    refusal = yield from refuse_in_pieces(copy_with(request, "topics", left), api, version, Fault(FAILED[TOPIC], None))

    def together(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        if response.error_code == Error.NONE:
            response.topics = [*refusal.topics, *response.topics]  # type: ignore[attr-defined]
        return response

    return (yield from changed(handler(copy_with(request, "topics", kept), context), together))


# Groups as others see them


def describe_groups(request: DescribeGroupsRequest, context: Context, handler: Handler, access: Access) -> Work[Any]:
    """Describe the groups that one may describe; those that one may not come first."""
    return (yield from _described(request, context, handler, access, "groups", None))


def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: Context, handler: Handler, access: Access
) -> Work[Any]:
    """Describe groups of the consumer protocol, if one may describe all that they are assigned."""
    if not context.node.groups.serves_consumer_protocol:
        return (yield from answered(handler(request, context)))

    def shown(group: Any) -> Any:
        if context.node.emulated.is_before_4 or _may_see_topics(group, access):
            return group
        return DescribedConsumerGroup(
            error_code=FAILED[TOPIC],
            error_message=TOPICS_HIDDEN,
            group_id=group.group_id,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=[],
        )

    return (yield from _described(request, context, handler, access, "group_ids", shown))


def _may_see_topics(group: Any, access: Access) -> bool:
    return all(
        access.may(DESCRIBE, TOPIC, topic.topic_name)
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    )


def _described(request: Any, context: Context, handler: Handler, access: Access, field: str, shown: Any) -> Work[Any]:
    def is_refused(name: str, topic_id: bytes, _: int | None) -> bool:
        return not access.may(DESCRIBE, GROUP, name)

    def told(response: DescribeGroupsResponse) -> InPieces[Response]:
        groups = list(response.groups)
        for index, group in enumerate(groups):
            if group.authorized_operations != NOT_ASKED:
                group.authorized_operations = access.operations(GROUP, group.group_id)
            if shown is not None and group.error_code == Error.NONE:
                groups[index] = shown(group)
            yield 5 * ASKED_US + ASKED_US * len(group.members)
        response.groups = groups
        return response

    def tell(rest: Any, context: Context) -> Any:
        return changed(handler(rest, context), told)

    return (yield from split(request, context, tell, is_refused, GROUP_FAILED, is_first=True))


def list_groups(request: ListGroupsRequest, context: Context, handler: Handler, access: Access) -> Work[Any]:
    """List the groups that one may describe."""
    if access.could_to_cluster(DESCRIBE):
        return (yield from answered(handler(request, context)))

    def only_describable(response: ListGroupsResponse) -> InPieces[ListGroupsResponse]:
        kept = []
        for group in response.groups:
            if access.could(DESCRIBE, GROUP, group.group_id):
                kept.append(group)
            yield ASKED_US
        response.groups = kept
        return response

    return (yield from changed(handler(request, context), only_describable))


def delete_groups(request: DeleteGroupsRequest, context: Context, handler: Handler, access: Access) -> Work[Any]:
    """Delete the groups that one may delete, each once."""

    def is_refused(name: str, topic_id: bytes, _: int | None) -> bool:
        return not access.may(DELETE, GROUP, name)

    once = copy_with(request, "groups_names", list(dict.fromkeys(request.groups_names)))
    return (yield from split(once, context, handler, is_refused, GROUP_FAILED))


def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: Context, handler: Handler, access: Access
) -> Work[Any]:
    """Have a member take part that may read the group, and describe what it subscribes to."""
    node = context.node
    if not node.groups.serves_consumer_protocol:
        return (yield from answered(handler(request, context)))
    code = Error.NONE
    if not access.may(READ, GROUP, request.group_id):
        code = FAILED[GROUP]
    elif not node.emulated.is_before_4:
        for name in request.subscribed_topic_names or ():
            if not access.may(DESCRIBE, TOPIC, name):
                code = FAILED[TOPIC]
                break
            yield ASKED_US
    if code != Error.NONE:
        return ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0, error_code=code, member_epoch=0, heartbeat_interval_ms=0, assignment=None
        )
    before = _timers_of(request.group_id, context)
    were_wanted = before is not None and before.patterns is not None
    made = yield from answered(handler(request, context))
    timers = _timers_of(request.group_id, context)
    if not were_wanted and timers is not None and timers.patterns is not None:
        timers.may_see = partial(
            access.could, DESCRIBE, TOPIC
        )  # regular expressions stand for what this member may see
    return made


def _timers_of(group_id: str, context: Context) -> Timers | None:
    try:
        group = context.node.groups.coordinator.find(group_id).shard.find(group_id)
    except KafkaError:
        return None
    return group.timers if isinstance(group, ConsumerGroup) else None
