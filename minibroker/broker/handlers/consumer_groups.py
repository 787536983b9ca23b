"""Groups of the consumer protocol (KIP-848): ConsumerGroupHeartbeat, ConsumerGroupDescribe."""

from __future__ import annotations

from minibroker.broker.handlers.group_admin import NOT_ASKED, all_operations
from minibroker.broker.handlers.groups import check_id, host_of
from minibroker.errors import Error, KafkaError, shortened
from minibroker.groups.consumer import ConsumerGroup, group_not_found
from minibroker.groups.consumer_checks import check_heartbeat
from minibroker.groups.migration import upgrade
from minibroker.log.checkpoints import format_id
from minibroker.metadata.bootstrap import random_id
from minibroker.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from minibroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from minibroker.server.later import Later

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.dispatch import Context
    from minibroker.config.group import GroupConfig
    from minibroker.groups.offsets_partition import OffsetsPartition
    from minibroker.groups.records import Row
    from minibroker.groups.topics import Topics
    from minibroker.turns import Work

DescribedGroup = ConsumerGroupDescribeResponse.DescribedGroup
DESCRIBED_US, MEMBER_US = 5, 20
JOINING, LEAVING, LEFT_FOR_A_WHILE = 0, -1, -2  # epochs


def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: Context
) -> ConsumerGroupHeartbeatResponse | Later:
    """Take note of what a member says, and tell it what it shall have; answer when that is safe."""
    node = context.node
    try:
        if not node.groups.serves_consumer_protocol:
            return _refused(Error.UNSUPPORTED_VERSION)
        if request.member_epoch == JOINING:
            node.groups.allow_consumer_group()
        coordinator = node.groups.coordinator
        led = coordinator.find(request.group_id)
        settings = coordinator.settings_of(request.group_id)
        applied, group = _group_of(led, request, coordinator.topics, settings, context)
        rows, response = group.heartbeat(
            request,
            version=context.api_version,
            client_id=context.client_id or "",
            client_host=host_of(context),
            now_ms=context.now_ms,
            topics=coordinator.topics,
            config=settings,
            new_member_id=lambda: format_id(random_id(node.chance)),
        )
    except KafkaError as error:
        return _refused(error.code, error.message)
    if not rows and led.is_safe(request.group_id):
        led.arm(request.group_id)
        return response
    later = Later()
    led.change(group, rows, later, applied=applied)
    return later.into(lambda error: _refused(error, Error(error).name) if error else response)


def _refused(error: Error, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=error, error_message=message, member_epoch=0, heartbeat_interval_ms=0
    )


def _group_of(
    led: OffsetsPartition, request: ConsumerGroupHeartbeatRequest, topics: Topics, config: GroupConfig, context: Context
) -> tuple[list[Row], ConsumerGroup]:
    """Return the group, and what has to be written before it speaks this protocol, if it did not so far."""
    group = led.shard.find(request.group_id)
    if isinstance(group, ConsumerGroup):
        return [], group
    check_heartbeat(request, context.api_version, config.broker["group.consumer.assignors"])  # as a group does itself
    if request.member_epoch != JOINING:
        raise group_not_found(request.group_id, is_leaving=request.member_epoch in (LEAVING, LEFT_FOR_A_WHILE))
    if group is None or group.is_idle:
        return [] if group is None else group.tombstones(), ConsumerGroup(request.group_id)
    return upgrade(group, topics=topics, config=config, now_ms=context.now_ms)


def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: Context
) -> Work[ConsumerGroupDescribeResponse]:
    """Describe groups of this protocol, as they are when what they are made of is committed.

    Kafka: describes at once what is committed.
    """
    operations = all_operations(context) if request.include_authorized_operations else NOT_ASKED
    groups: dict[str, DescribedGroup] = {}
    context.node.groups.follow_clock()
    for group_id in request.group_ids:
        if group_id not in groups:
            found = groups[group_id] = _describe(group_id, operations, context)
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
    """Return what is told when every row of a group is committed, or why that cannot be; None: it is so."""
    led = context.node.groups.coordinator.find_now(group_id)
    if led.is_safe(group_id):
        return None
    later = Later()
    led.write(group_id, [], later)
    return later


def _describe(group_id: str, operations: int, context: Context) -> DescribedGroup:
    if not context.node.groups.serves_consumer_protocol:
        return _undescribed(group_id, Error.UNSUPPORTED_VERSION)
    try:
        check_id(group_id)
        coordinator = context.node.groups.coordinator
        group = coordinator.find_now(group_id).shard.find_shown(group_id)
    except KafkaError as error:
        return _undescribed(group_id, error.code, error.message if error.code == Error.GROUP_ID_NOT_FOUND else None)
    if not isinstance(group, ConsumerGroup):
        what = "not found" if group is None else "is not a consumer group"
        return _undescribed(group_id, Error.GROUP_ID_NOT_FOUND, shortened(f"Group {group_id} {what}."))
    answer = group.describe(coordinator.topics, coordinator.settings_of(group_id))
    answer.authorized_operations = operations
    return answer


def _undescribed(group_id: str, error: Error, message: str | None = None) -> DescribedGroup:
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )
