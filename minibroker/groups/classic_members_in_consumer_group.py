"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup of theirs.

JoinGroup is to them what a heartbeat is to the others: it carries, in the bytes of the consumer protocol, what they
want and what they own. SyncGroup gives them what they hold. They wait for nobody: Heartbeat sends them
to join again when they have to give something up or can get something.
Not here: groups that change their protocol altogether (migration.py), waiting for answers.
"""

from __future__ import annotations

from collections.abc import Iterable

from minibroker.config.resources import GroupConfig
from minibroker.errors import Error, KafkaError
from minibroker.groups import classic_members
from minibroker.groups.classic_members import join_refused
from minibroker.groups.consumer import ConsumerGroup
from minibroker.groups.consumer_change import Change
from minibroker.groups.consumer_protocol import CONSUMER, read_subscription, write_assignment
from minibroker.groups.consumer_state import (
    UNKNOWN_TIMEOUT,
    UNRELEASED,
    UNREVOKED,
    ClassicMetadata,
    Member,
    check_not_replaced,
    new_member,
)
from minibroker.groups.migration import allows, downgrade, may_downgrade
from minibroker.groups.records import CoordinatorRecord
from minibroker.groups.timers import JOIN, SESSION, SYNC
from minibroker.groups.topics import Topics
from minibroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minibroker.protocol.messages.join_group import JoinGroupResponse
from minibroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

Owned = ConsumerGroupHeartbeatRequest.TopicPartitions


def join(
    group: ConsumerGroup,
    new: classic_members.Member,
    *,
    has_id: bool,
    needs_id_first: bool,
    now_ms: int,
    topics: Topics,
    config: GroupConfig,
) -> tuple[list[CoordinatorRecord], JoinGroupResponse]:
    """Let a classic member join, or join again to move on.

    has_id: it was told its id before; otherwise new.id is one that was made for it.
    """
    state = group.state
    if not (allows(config, "upgrade") or allows(config, "downgrade")):
        words = f"Cannot join the consumer group {group.group_id} with the classic protocol because the group migration"
        raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL, f"{words} is disabled.")
    group.check_room(new.id, new.instance_id, config)
    _check_protocols(group, new)
    if needs_id_first and not has_id and new.instance_id is None:
        return [], join_refused(Error.MEMBER_ID_REQUIRED, new.id)
    records, member = _find_or_make(group, new, has_id)
    subscription = read_subscription(new.protocols[0][1])
    if subscription is None:
        words = "Malformed embedded consumer protocol in subscription deserialization."
        raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL, words)
    protocols = [ClassicMetadata.ClassicProtocol(name=name, metadata=metadata) for name, metadata in new.protocols]
    timeout_ms = new.rebalance_timeout_ms
    updated = member._replace(
        instance_id=new.instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == UNKNOWN_TIMEOUT else timeout_ms,
        topic_names=frozenset(subscription.topics),
        pattern="",
        client_id=new.client_id,
        client_host=new.client_host,
        classic=ClassicMetadata(session_timeout_ms=new.session_timeout_ms, supported_protocols=protocols),
    )
    owned = [
        Owned(topic_id=topic.topic_id, partitions=part.partitions)
        for part in subscription.owned_partitions
        if (topic := topics.find(part.topic)) is not None
    ]
    change = Change(state, group.timers, member, updated, records, now_ms=now_ms, topics=topics, config=config)
    change.note_member()
    change.raise_epoch(change.names_changed or change.pattern_changed)
    before = state.static_member(new.instance_id)
    if before is not None and before.classic is None and may_downgrade(state, [before], len(state.members), config):
        is_stale = state.target_epoch < change.epoch
        updated = change.updated if is_stale else change.reconcile(owned)
        words = f"Downgrade group {group.group_id} from consumer to classic with stale assignment."
        becoming, group.becomes = downgrade(state, [before], updated, words if is_stale else None, topics, now_ms)
        records += becoming
    else:
        change.update_target()
        updated = change.reconcile(owned)
        group.timers.set(SESSION, updated.member_id, now_ms + new.session_timeout_ms)
        group.timers.set(SYNC, updated.member_id, now_ms + timeout_ms)
    group.timers.cancel(updated.member_id, JOIN)
    return records, JoinGroupResponse(
        error_code=Error.NONE,
        generation_id=updated.epoch,
        protocol_type=CONSUMER,
        protocol_name=protocols[0].name,
        leader="",
        member_id=updated.member_id,
        members=[],
    )


def _check_protocols(group: ConsumerGroup, new: classic_members.Member) -> None:
    """Refuse a member that has no protocol in common with the other classic members."""
    others = [set(_names(member)) for member in group.state.members.values() if member.classic is not None]
    names = {name for name, _ in new.protocols}
    if new.protocol_type != CONSUMER or not names.intersection(*others):
        words = f"Member {new.id}'s protocols are not supported."
        raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL, words)


def _names(member: Member) -> list[str]:
    return [] if member.classic is None else [protocol.name for protocol in member.classic.supported_protocols]


def _find_or_make(
    group: ConsumerGroup, new: classic_members.Member, has_id: bool
) -> tuple[list[CoordinatorRecord], Member]:
    state = group.state
    if new.instance_id is None:
        return [], state.members.get(new.id) or new_member(new.id)
    if has_id:
        return [], state.get_static_member(new.instance_id, new.id)
    before = state.static_member(new.instance_id)
    if before is None:
        return [], state.members.get(new.id) or new_member(new.id)
    return group.replace(before, new.id)


def sync(group: ConsumerGroup, request: SyncGroupRequest, *, now_ms: int, topics: Topics) -> SyncGroupResponse:
    """Tell a classic member what it holds."""
    member, classic = _check(group, request.member_id, request.group_instance_id, request.generation_id)
    member_id, protocol_type, protocol = member.member_id, request.protocol_type, request.protocol_name
    mine = classic.supported_protocols[0]
    if protocol_type not in (None, CONSUMER):
        words = f"The protocol type {protocol_type} from member {member_id} request is not equal to the group protocol "
        raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL, f"{words}type {CONSUMER}.")
    if protocol not in (None, mine.name):
        words = f"The protocol name {protocol} from member {member_id} request is not equal to the protocol name "
        raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL, f"{words}{mine.name} returned in the join response.")
    if group.state.target_epoch > member.epoch and member.state != UNREVOKED:
        group.timers.set_if_absent(JOIN, member_id, now_ms + member.rebalance_timeout_ms)
        words = f"A new rebalance is triggered in group {group.group_id} and member {member_id} should rejoin to catch "
        raise KafkaError(Error.REBALANCE_IN_PROGRESS, f"{words}up.")
    group.timers.cancel(member_id, SYNC)
    group.timers.set(SESSION, member_id, now_ms + classic.session_timeout_ms)
    assignment = write_assignment(member.held, mine.metadata, topics)
    return SyncGroupResponse(
        error_code=Error.NONE, protocol_type=protocol_type, protocol_name=protocol, assignment=assignment
    )


def heartbeat(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> Error:
    """Note that a classic member lives; send it to join again if it has to give up or can get something."""
    member, classic = _check(group, member_id, instance_id, generation)
    group.timers.set(SESSION, member_id, now_ms + classic.session_timeout_ms)
    if (
        member.epoch < group.state.target_epoch
        or member.state == UNREVOKED
        or (member.state == UNRELEASED and not _waits_for_others(group, member))
    ):
        group.timers.set_if_absent(JOIN, member_id, now_ms + member.rebalance_timeout_ms)
        return Error.REBALANCE_IN_PROGRESS
    return Error.NONE


def leave(
    group: ConsumerGroup,
    members: Iterable[tuple[str, str | None]],
    *,
    topics: Topics,
    config: GroupConfig,
    now_ms: int,
) -> tuple[list[CoordinatorRecord], list[Error]]:
    """Let members go, by id or instance id; return an error for each."""
    gone: dict[str, Member] = {}
    errors = []
    for member_id, instance_id in members:
        try:
            if instance_id is None:
                member = group.state.get_member(member_id)
            else:
                known = group.state.static.get(instance_id, "")
                member = group.state.get_static_member(instance_id, member_id or known)
            gone[member.member_id] = member
            errors.append(Error.NONE)
        except KafkaError as error:
            errors.append(error.code)
    return group.remove(list(gone.values()), topics, config, now_ms), errors


def _check(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[Member, ClassicMetadata]:
    if instance_id is None:
        member = group.state.get_member(member_id)
    else:
        known = group.state.static_member(instance_id)
        if known is None:
            words = f"Member with instance id {instance_id} is not a member of group {group.group_id}."
            raise KafkaError(Error.UNKNOWN_MEMBER_ID, words)
        check_not_replaced(known, instance_id, member_id)
        member = known
    if member.classic is None:
        raise KafkaError(Error.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    if member.epoch != generation:
        words = f"The request generation id {generation} is not equal to the member epoch {member.epoch} of member "
        raise KafkaError(Error.ILLEGAL_GENERATION, f"{words}{member_id}.")
    return member, member.classic


def _waits_for_others(group: ConsumerGroup, member: Member) -> bool:
    """Say whether a partition that the member shall get is still somebody else's."""
    return any(
        partition not in member.held.get(topic_id, ()) and group.state.is_owned(topic_id, partition)
        for topic_id, partitions in group.state.targets.get(member.member_id, {}).items()
        for partition in partitions
    )
