"""Groups as others see them: DescribeGroups, ConsumerGroupDescribe, ListGroups, DeleteGroups.

Behaviour: each API describes groups of its own protocol, and knows no others. A group that was deleted is there until
the record that says so is committed; DeleteGroups is answered then.

Versions:
  DescribeGroups 0-6         v3: authorized operations; v4: static members; v6: a group that is not there is an error,
                             before it a dead one
  ConsumerGroupDescribe 0-1  v1: which protocol a member speaks
  ListGroups 0-5             v4: states, and only some of them; v5: types, and only some of them (KIP-848)
  DeleteGroups 0-3           v3: a message beside the error
"""

from __future__ import annotations

from minibroker.broker.handlers.groups import check_id
from minibroker.errors import Error, KafkaError, shortened
from minibroker.groups.classic import ClassicGroup
from minibroker.groups.classic_states import STABLE
from minibroker.groups.consumer import ConsumerGroup
from minibroker.groups.describe import described
from minibroker.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from minibroker.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from minibroker.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from minibroker.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from minibroker.server.later import Later

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.dispatch import Context
    from minibroker.turns import Work

DescribedGroup = DescribeGroupsResponse.DescribedGroup
DescribedConsumerGroup = ConsumerGroupDescribeResponse.DescribedGroup
DescribedMember = DescribedGroup.DescribedGroupMember
ListedGroup = ListGroupsResponse.ListedGroup
Deleted = DeleteGroupsResponse.DeletableGroupResult

NOT_FOUND_SINCE = 6  # DescribeGroups: says that there is no such group
NOT_ASKED = -(1 << 31)
DESCRIBED_US, MEMBER_US, LISTED_US, DELETED_US = 5, 20, 2, 50
OPERATIONS = (3, 6, 8)  # of a group: bit n is AclOperation n
CONFIG_OPERATIONS = (10, 11)  # groups have settings since 4.0


def all_operations(context: Context) -> int:
    """Return what everybody may do with a group, as there is no authorizer."""
    allowed = OPERATIONS if context.node.emulated.is_before_4 else OPERATIONS + CONFIG_OPERATIONS
    return sum(1 << operation for operation in allowed)


def describe_groups(request: DescribeGroupsRequest, context: Context) -> Work[DescribeGroupsResponse]:
    """Describe classic groups."""
    operations = all_operations(context) if request.include_authorized_operations else NOT_ASKED
    groups: dict[str, DescribedGroup] = {}
    context.node.groups.follow_clock()
    for group_id in request.groups:
        if group_id not in groups:
            found = groups[group_id] = _describe(group_id, operations, context)
            yield DESCRIBED_US + DESCRIBED_US * len(found.members)
    return DescribeGroupsResponse(groups=[groups[group_id] for group_id in request.groups])


def _describe(group_id: str, operations: int, context: Context) -> DescribedGroup:
    answer = DescribedGroup(
        error_code=Error.NONE, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=[]
    )
    try:
        group = context.node.groups.coordinator.find_now(group_id).shard.find_shown(group_id)
    except KafkaError as error:
        answer.error_code = error.code
        return answer
    if not isinstance(group, ClassicGroup):
        answer.group_state = "Dead"
        if context.api_version < NOT_FOUND_SINCE:
            answer.authorized_operations = operations
        else:
            what = "not found" if group is None else "is not a classic group"
            answer.error_code = Error.GROUP_ID_NOT_FOUND
            answer.error_message = shortened(f"Group {group_id} {what}.")
        return answer
    answer.authorized_operations = operations
    is_stable = group.state is STABLE
    answer.group_state = group.state.name
    answer.protocol_type = group.protocol_type or ""
    answer.protocol_data = (group.protocol or "") if is_stable else ""
    answer.members = [
        DescribedMember(
            member_id=member.id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol) if is_stable else b"",
            member_assignment=member.assignment if is_stable or not context.node.emulated.is_before_4 else b"",
        )
        for member in group.members
    ]
    return answer


def list_groups(request: ListGroupsRequest, context: Context) -> Work[ListGroupsResponse]:
    """List the groups that this broker coordinates."""
    states = {each.lower() for each in request.states_filter}
    kinds = {each.lower() for each in request.types_filter}
    error, found = Error.NONE, []
    for led in context.node.groups.led():
        if led.is_loading and led.failure is None:
            error = Error.COORDINATOR_LOAD_IN_PROGRESS
        found += [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.name,
                group_type=group.kind,
            )
            for group in led.shard.shown()
            if (not states or group.state.name.lower() in states) and (not kinds or group.kind.lower() in kinds)
        ]
        yield LISTED_US * len(led.shard.groups)
    return ListGroupsResponse(error_code=error, groups=found)


def delete_groups(request: DeleteGroupsRequest, context: Context) -> Work[DeleteGroupsResponse]:
    """Delete groups that nobody is in, with their offsets; answer when that is safe."""
    refused: list[Deleted] = []
    waits: list[tuple[Deleted, Later]] = []
    context.node.groups.follow_clock()
    for group_id in dict.fromkeys(request.groups_names):
        answer = Deleted(group_id=group_id, error_code=Error.NONE)
        try:
            led = context.node.groups.coordinator.find_now(group_id)
            records, group = led.shard.deletion(group_id)
            waits.append((answer, Later()))
            led.write(group_id, records, waits[-1][1], ending=[group], is_atomic=False)
        except KafkaError as error:
            answer.error_code = error.code
            refused.append(answer)
        yield DELETED_US
    response = DeleteGroupsResponse(throttle_time_ms=0, results=refused + [answer for answer, _ in waits])
    yield _deleted(waits)
    return response


async def _deleted(waits: list[tuple[Deleted, Later]]) -> None:
    for answer, written in waits:
        answer.error_code = await written


# Groups of the consumer protocol


def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: Context
) -> Work[ConsumerGroupDescribeResponse]:
    """Describe groups of this protocol, as they are when what they are made of is committed.

    Kafka: describes at once what is committed.
    """
    operations = all_operations(context) if request.include_authorized_operations else NOT_ASKED
    groups: dict[str, DescribedConsumerGroup] = {}
    context.node.groups.follow_clock()
    for group_id in request.group_ids:
        if group_id not in groups:
            found = groups[group_id] = _describe_consumer(group_id, operations, context)
            committed = None if found.error_code else _committed(group_id, context)
            if committed is not None:
                yield committed
                if committed.value != Error.NONE:
                    groups[group_id] = _undescribed(group_id, committed.value)
            yield DESCRIBED_US + MEMBER_US * len(found.members)
    return ConsumerGroupDescribeResponse(
        throttle_time_ms=0, groups=[groups[group_id] for group_id in request.group_ids]
    )


def _committed(group_id: str, context: Context) -> Later | None:
    """Return what is told when every record of a group is committed, or why that cannot be; None: it is so."""
    led = context.node.groups.coordinator.find_now(group_id)
    if led.is_safe(group_id):
        return None
    later = Later()
    led.write(group_id, [], later)
    return later


def _describe_consumer(group_id: str, operations: int, context: Context) -> DescribedConsumerGroup:
    if not context.node.groups.serves_consumer_protocol:
        return _undescribed(group_id, Error.UNSUPPORTED_VERSION)
    try:
        check_id(group_id)
        led = context.node.groups.coordinator.find_now(group_id)
        group = led.shard.find_shown(group_id)
    except KafkaError as error:
        return _undescribed(group_id, error.code, error.message if error.code == Error.GROUP_ID_NOT_FOUND else None)
    if not isinstance(group, ConsumerGroup):
        what = "not found" if group is None else "is not a consumer group"
        return _undescribed(group_id, Error.GROUP_ID_NOT_FOUND, shortened(f"Group {group_id} {what}."))
    answer = described(group, led.topics, led.settings_of(group_id))
    answer.authorized_operations = operations
    return answer


def _undescribed(group_id: str, error: Error, message: str | None = None) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )
