"""Members of groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup; ConsumerGroupHeartbeat (KIP-848).

Behaviour: an answer to JoinGroup waits until all have joined, one to SyncGroup until the leader's assignment is safe,
one to ConsumerGroupHeartbeat until the records that it has led to are. While groups are being read a Heartbeat is
answered without an error: nobody can say who is silent. A member that speaks the classic protocol, with the first four,
may be in a group of the consumer protocol: that takes it in as it is (groups/classic_members_in_consumer_group.py).

Versions:
  JoinGroup 0-9               v1: a rebalance timeout of its own, before it the session's; v4: who has no id is given
                              one and joins with it (KIP-394); v5: static members (KIP-345); v7: no protocol is null,
                              not ""; v8: a reason; v9: a leader that returns may keep the assignment (KIP-814)
  SyncGroup 0-5               v3: static members; v5: protocol and its type have to be named
  Heartbeat 0-4               v3: static members
  LeaveGroup 0-5              v3: many at once, static ones by their names; v5: a reason
  ConsumerGroupHeartbeat 0-1  v1: the member makes its id, and may subscribe by a regular expression
"""

from __future__ import annotations

from uuid import UUID

from minibroker.errors import Error, KafkaError
from minibroker.groups import classic_members_in_consumer_group as classic_in_consumer
from minibroker.groups.classic import ClassicGroup
from minibroker.groups.classic_members import Member, join_refused, sync_refused
from minibroker.groups.consumer import ConsumerGroup, check_heartbeat, group_not_found
from minibroker.groups.consumer_state import JOINING, LEAVING, LEFT_FOR_A_WHILE
from minibroker.log.checkpoints import format_id
from minibroker.metadata.bootstrap import random_id
from minibroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from minibroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from minibroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from minibroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from minibroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from minibroker.schema.varint import STRING_BYTES_MAX
from minibroker.server.later import Later

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random
    from typing import Any, Final

    from minibroker.broker.dispatch import Context
    from minibroker.config.resources import GroupConfig
    from minibroker.groups.offsets_partition import OffsetsPartition
    from minibroker.groups.records import CoordinatorRecord
    from minibroker.groups.shard import Group
    from minibroker.groups.topics import Topics

    Identities = Sequence[tuple[str, str | None]]  # member and instance ids

LeftMember = LeaveGroupResponse.MemberResponse

# First versions.
MEMBER_ID_FIRST_SINCE: Final = 4  # JoinGroup: an id is asked for before one joins
NULL_PROTOCOL_SINCE: Final = 7
SKIPS_ASSIGNMENT_SINCE: Final = 9
PROTOCOL_NAMED_SINCE: Final = 5  # SyncGroup
LEAVE_TOGETHER_SINCE: Final = 3


# An id of a member is a name, a hyphen and a UUID, and a record has room for so many bytes of it.
# Kafka: lets such a member join, and fails when its group is to be written down.
NAME_BYTES_MAX: Final = STRING_BYTES_MAX - 37


def _new_id(group: Group, name: str, chance: Random) -> str:
    """Return an id for a member, as Kafka makes it in a group of either protocol."""
    if isinstance(group, ConsumerGroup):
        return format_id(random_id(chance))
    return f"{name}-{UUID(int=chance.getrandbits(128), version=4)}"


def host_of(context: Context) -> str:
    """Return where a client is, as Java writes an address without a name."""
    return f"/{context.connection.remote_address[0]}"


def check_id(group_id: str) -> None:
    if not group_id:
        raise KafkaError(Error.INVALID_GROUP_ID, "a group needs a name")


# The classic protocol


def join_group(request: JoinGroupRequest, context: Context) -> JoinGroupResponse | Later:
    """Let a member join; it is answered when all have."""
    node, version = context.node, context.api_version
    reply = Later()
    try:
        check_id(request.group_id)
        config = node.config
        low, high = config["group.min.session.timeout.ms"], config["group.max.session.timeout.ms"]
        if not low <= request.session_timeout_ms <= high:
            raise KafkaError(
                Error.INVALID_SESSION_TIMEOUT, f"{request.session_timeout_ms} ms is not within {low} to {high}"
            )
        led = node.groups.coordinator.find(request.group_id)
        now_ms = context.now_ms
        if request.member_id and led.shard.find(request.group_id) is None:
            raise KafkaError(Error.UNKNOWN_MEMBER_ID, f"there is no group {request.group_id!r}")
        instance_id = request.group_instance_id
        rebalance_ms = request.session_timeout_ms if version == 0 else request.rebalance_timeout_ms
        client_id = context.client_id or ""
        name = client_id if instance_id is None else instance_id
        if not request.member_id and len(name.encode()) > NAME_BYTES_MAX:
            raise KafkaError(Error.INVALID_REQUEST, f"an id made of {len(name)} letters is too long to be written down")
        group = _group_to_join(led, request.group_id)
        member = Member(
            request.member_id or _new_id(group, name, node.chance),
            instance_id,
            client_id=client_id,
            client_host=host_of(context),
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=request.protocol_type,
            protocols=[(each.name, bytes(each.metadata)) for each in request.protocols],
        )
        has_id, needs_id_first = bool(request.member_id), version >= MEMBER_ID_FIRST_SINCE
        if isinstance(group, ConsumerGroup):
            records, joined = classic_in_consumer.join(
                group,
                member,
                has_id=has_id,
                needs_id_first=needs_id_first,
                now_ms=now_ms,
                topics=node.groups.coordinator.topics,
                config=led.settings_of(request.group_id),
            )
            answer_when_safe(led, group, records, reply, joined, lambda error: join_refused(error, member.id))
        else:
            group.join(
                reply,
                member,
                has_id=has_id,
                now_ms=now_ms,
                needs_id_first=needs_id_first,
                skips_assignment=version >= SKIPS_ASSIGNMENT_SINCE,
            )
            led.shard.drop_unwritten(request.group_id, now_ms)  # made for one who was refused
        led.arm(request.group_id)
    except KafkaError as error:
        return _joined(join_refused(error.code, request.member_id), version)
    return reply.into(lambda joined: _joined(joined, version))


def _group_to_join(led: OffsetsPartition, group_id: str) -> Group:
    """Return the group, which is made if there is none; one of the consumer protocol that is empty is none."""
    group = led.shard.find(group_id)
    if isinstance(group, ConsumerGroup) and group.is_idle:
        led.end_consumer_group(group)
    return led.shard.find_or_make(group_id)


def answer_when_safe(
    led: OffsetsPartition,
    group: ConsumerGroup,
    records: list[CoordinatorRecord],
    reply: Callable[[Any], None],
    answer: object,
    refused: Callable[[Error], object],
) -> None:
    """Change a consumer group, and answer when that is safe."""
    if records or not led.is_safe(group.group_id):
        led.change(group, records, lambda error: reply(answer if error == Error.NONE else refused(error)))
    else:
        reply(answer)


def _joined(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    response.protocol_name = response.protocol_name or (None if version >= NULL_PROTOCOL_SINCE else "")
    return response


def sync_group(request: SyncGroupRequest, context: Context) -> SyncGroupResponse | Later:
    """Hand in the leader's assignments, or wait for one's own."""
    reply = Later()
    try:
        check_id(request.group_id)
        if context.api_version >= PROTOCOL_NAMED_SINCE and None in (request.protocol_type, request.protocol_name):
            raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL, "protocol and type have to be named")
        led = context.node.groups.coordinator.find(request.group_id)
        group = known_group(led, request.group_id)
        if isinstance(group, ConsumerGroup):
            topics = context.node.groups.coordinator.topics
            reply(classic_in_consumer.sync(group, request, now_ms=context.now_ms, topics=topics))
        else:
            group.sync(reply, request)
        led.arm(request.group_id)
    except KafkaError as error:
        return sync_refused(error.code)
    return reply


def known_group(led: OffsetsPartition, group_id: str) -> Group:
    """Return a group that somebody says to be a member of."""
    group = led.shard.find(group_id)
    if group is None:
        raise KafkaError(Error.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")
    return group


def heartbeat(request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    """Note that a member lives."""
    try:
        check_id(request.group_id)
        led = context.node.groups.coordinator.find(request.group_id)
        group = known_group(led, request.group_id)
        member_id, instance_id, generation = request.member_id, request.group_instance_id, request.generation_id
        if isinstance(group, ConsumerGroup):
            error = classic_in_consumer.heartbeat(group, member_id, instance_id, generation, context.now_ms)
            led.arm(request.group_id)
        else:
            error = group.heartbeat(member_id, instance_id, generation, context.now_ms)
    except KafkaError as refused:
        # While groups are being read nobody can say who is silent.
        error = Error.NONE if refused.code == Error.COORDINATOR_LOAD_IN_PROGRESS else refused.code
    return HeartbeatResponse(error_code=error)


def leave_group(request: LeaveGroupRequest, context: Context) -> LeaveGroupResponse | Later:
    """Let members go."""
    if context.api_version < LEAVE_TOGETHER_SINCE:
        asked: list[tuple[str, str | None]] = [(request.member_id, None)]
    else:
        asked = [(each.member_id, each.group_instance_id) for each in request.members]
    reply = Later()
    try:
        check_id(request.group_id)
        coordinator = context.node.groups.coordinator
        led = coordinator.find(request.group_id)
        group = led.shard.find(request.group_id)
        if isinstance(group, ConsumerGroup):
            records, errors = classic_in_consumer.leave(
                group,
                asked,
                topics=coordinator.topics,
                config=led.settings_of(request.group_id),
                now_ms=context.now_ms,
            )
            answer_when_safe(led, group, records, reply, errors, lambda error: [error] * len(asked))
        else:
            reply(_leave_classic(group, asked, context.now_ms))
            led.shard.drop_unwritten(request.group_id, context.now_ms)
        led.arm(request.group_id)
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    return reply.into(lambda errors: _left(errors, asked, context.api_version))


def _left(errors: list[Error], asked: Identities, version: int) -> LeaveGroupResponse:
    if version < LEAVE_TOGETHER_SINCE:
        return LeaveGroupResponse(error_code=errors[0])
    members = [
        LeftMember(member_id=member_id, group_instance_id=instance_id, error_code=error)
        for (member_id, instance_id), error in zip(asked, errors)
    ]
    return LeaveGroupResponse(error_code=Error.NONE, members=members)


def _leave_classic(group: ClassicGroup | None, asked: Identities, now_ms: int) -> list[Error]:
    errors = []
    for member_id, instance_id in asked:
        try:
            if group is None:
                raise KafkaError(Error.UNKNOWN_MEMBER_ID, "there is no such group")
            group.leave(member_id, instance_id)
            errors.append(Error.NONE)
        except KafkaError as error:
            errors.append(error.code)
    if group is not None and Error.NONE in errors:
        group.left(now_ms, "a member has left")
    return errors


# The consumer protocol


def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: Context
) -> ConsumerGroupHeartbeatResponse | Later:
    """Take note of what a member says, and tell it what it shall have; answer when that is safe."""
    node = context.node
    try:
        if not node.groups.serves_consumer_protocol:
            return _heartbeat_refused(Error.UNSUPPORTED_VERSION)
        if request.member_epoch == JOINING:
            node.groups.allow_consumer_group()
        coordinator = node.groups.coordinator
        led = coordinator.find(request.group_id)
        settings = led.settings_of(request.group_id)
        applied, group = _consumer_group(led, request, coordinator.topics, settings, context)
        records, response = group.heartbeat(
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
        return _heartbeat_refused(error.code, error.message)
    if not records and led.is_safe(request.group_id):
        led.arm(request.group_id)
        return response
    later = Later()
    led.change(group, records, later, applied=applied)
    return later.into(lambda error: _heartbeat_refused(error, Error(error).name) if error else response)


def _heartbeat_refused(error: Error, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=error, error_message=message, member_epoch=0, heartbeat_interval_ms=0
    )


def _consumer_group(
    led: OffsetsPartition, request: ConsumerGroupHeartbeatRequest, topics: Topics, config: GroupConfig, context: Context
) -> tuple[list[CoordinatorRecord], ConsumerGroup]:
    """Return the group, and what has to be written before it speaks this protocol, if it did not so far."""
    group = led.shard.find(request.group_id)
    if isinstance(group, ConsumerGroup):
        return [], group
    check_heartbeat(request, context.api_version, config.broker["group.consumer.assignors"])  # as a group does itself
    if request.member_epoch != JOINING:
        raise group_not_found(request.group_id, is_leaving=request.member_epoch in (LEAVING, LEFT_FOR_A_WHILE))
    if group is None or group.is_idle:
        return [] if group is None else group.tombstones(), ConsumerGroup(request.group_id)
    return ConsumerGroup.upgraded(group, topics=topics, config=config, now_ms=context.now_ms)
