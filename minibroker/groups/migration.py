"""Migration of groups from the classic protocol to the consumer protocol and back while members are in (KIP-848).

    a consumer member joins a classic group   the group is upgraded: its members stay, as classic members of the new one
    a classic member joins a consumer group   it is served from there (classic_members_in_consumer_group.py)
    the last consumer member leaves           the group is downgraded to a classic one

A group is of one kind in the log: what changes it has the tombstones of the old one in front of the new one.
Not here: putting the new group in the place of the old one (shard.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from minibroker.config.resources import GroupConfig
from minibroker.coordinator.hashing import as_timeline
from minibroker.errors import Error, KafkaError, ProtocolError
from minibroker.groups import classic_members, classic_states
from minibroker.groups.classic import ClassicGroup
from minibroker.groups.classic_members import Members, Protocols
from minibroker.groups.consumer_protocol import CONSUMER, read_assignment, read_subscription, write_assignment
from minibroker.groups.consumer_state import (
    STABLE,
    ClassicMetadata,
    ConsumerState,
    Member,
    current_record,
    epoch_record,
    metadata_record,
    new_member,
    target_epoch_record,
    target_record,
)
from minibroker.groups.records import CoordinatorRecord
from minibroker.groups.topics import Topics, metadata_hash
from minibroker.stored.group_offsets import GroupMetadataKey, GroupMetadataValue


class Downgrade(NamedTuple):
    """The classic group that a consumer group becomes."""

    generation: int
    protocol: str
    members: Members  # with what each has been assigned
    rebalance: str | None  # why it must share out its partitions anew at once; None: it need not
    since_ms: int


def allows(config: GroupConfig, what: str) -> bool:
    """Say whether the broker lets groups `upgrade` or `downgrade`."""
    return str(config.broker["group.consumer.migration.policy"]).lower() in (what, "bidirectional")


# From classic to consumer


def upgrade(classic: ClassicGroup, *, topics: Topics, config: GroupConfig) -> list[CoordinatorRecord]:
    """Return the records of the group that a classic group with members becomes."""
    words = f"Cannot upgrade classic group {classic.group_id} to consumer group because "
    if not allows(config, "upgrade"):
        raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"{words}online upgrade is disabled.")
    if classic.protocol_type != CONSUMER:
        why = "the group does not use the consumer embedded protocol."
        raise KafkaError(Error.GROUP_ID_NOT_FOUND, words + why)
    if len(classic.members) > config.broker["group.consumer.max.size"]:
        why = "the group size exceeds the consumer group maximum size."
        raise KafkaError(Error.GROUP_ID_NOT_FOUND, words + why)
    found = {member.id: _upgraded(classic, member, topics, words) for member in classic.members}
    members = [found[member_id] for member_id in as_timeline(found)]
    group_id, epoch = classic.group_id, classic.generation
    names = {name for member in members for name in member.topic_names}
    return [
        *(metadata_record(group_id, member) for member in members),
        epoch_record(group_id, epoch, metadata_hash(names, topics)),
        *(
            target_record(group_id, member.member_id, {topic: list(parts) for topic, parts in member.held.items()})
            for member in members
        ),
        target_epoch_record(group_id, epoch, 0),
        *(current_record(group_id, member) for member in members),
    ]


def _upgraded(classic: ClassicGroup, each: classic_members.Member, topics: Topics, words: str) -> Member:
    malformed = KafkaError(Error.GROUP_ID_NOT_FOUND, f"{words}the embedded consumer protocol is malformed.")
    # A group that has not agreed on a protocol yet has assigned nothing; any of the member's will do.
    subscription = read_subscription(
        each.metadata(classic.protocol) or (each.protocols[0][1] if each.protocols else b"")
    )
    if subscription is None:
        raise malformed
    held: dict[bytes, dict[int, int]] = {}
    if each.assignment:
        try:
            assignment = read_assignment(each.assignment)
        except ProtocolError:
            raise malformed from None
        if assignment.user_data:
            why = "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"{words}{why}assignor before re-attempting the upgrade.")
        for part in assignment.assigned_partitions:
            topic = topics.find(part.topic)
            if topic is not None:
                held[topic.topic_id] = dict.fromkeys(part.partitions, classic.generation)
    protocols = [ClassicMetadata.ClassicProtocol(name=name, metadata=metadata) for name, metadata in each.protocols]
    return new_member(each.id)._replace(
        epoch=classic.generation,
        previous_epoch=classic.generation,
        state=STABLE,
        instance_id=each.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=each.rebalance_timeout_ms,
        client_id=each.client_id,
        client_host=each.client_host,
        topic_names=frozenset(subscription.topics),
        held=held,
        classic=ClassicMetadata(session_timeout_ms=each.session_timeout_ms, supported_protocols=protocols),
    )


# From consumer to classic


def must_downgrade(state: ConsumerState, gone: Collection[Member], config: GroupConfig) -> bool:
    """Say whether only classic members are left, and the broker and the group let them go on as a classic group."""
    left = len(state.members) - len(gone)
    return left > 0 and may_downgrade(state, gone, left, config)


def may_downgrade(state: ConsumerState, gone: Collection[Member], left: int, config: GroupConfig) -> bool:
    ids = {member.member_id for member in gone}
    others = (member for member_id, member in state.members.items() if member_id not in ids)
    is_classic = all(member.classic is not None for member in others)
    return is_classic and allows(config, "downgrade") and left <= config.broker["group.max.size"]


def downgrade(
    state: ConsumerState,
    gone: Collection[Member],
    joining: Member | None,
    rebalance: str | None,
    topics: Topics,
    now_ms: int,
) -> tuple[list[CoordinatorRecord], Downgrade]:
    """Return the records that make a classic group of this one, and what it is to be.

    joining: who takes the place of the only one in `gone`, and inherits its target. rebalance: why there must be one.
    """
    ids = {member.member_id for member in gone}
    staying = [state.members[each] for each in as_timeline(state.members, state.members_most) if each not in ids]
    members = Members()
    for member in [*staying, *([joining] if joining is not None else [])]:
        members.add(_downgraded(member))
    protocol = members.choose_protocol() or ""
    for each in members:
        is_joining = joining is not None and each.id == joining.member_id
        target = state.targets.get(next(iter(ids)) if is_joining else each.id, {})
        each.assignment = write_assignment(target, each.metadata(protocol), topics)
    value = GroupMetadataValue(
        protocol_type=CONSUMER,
        generation=state.epoch,
        protocol=protocol,
        leader=members.leader,
        current_state_timestamp=now_ms,
        members=[each.stored(protocol, each.assignment) for each in members],
    )
    rename = {next(iter(ids)): joining.member_id} if joining is not None else {}
    becomes = Downgrade(state.epoch, protocol, members, rebalance, now_ms)
    return [*state.tombstones(rename), (GroupMetadataKey(group=state.group_id), value)], becomes


def _downgraded(member: Member) -> classic_members.Member:
    assert member.classic is not None
    protocols: Protocols = [(each.name, bytes(each.metadata)) for each in member.classic.supported_protocols]
    return classic_members.Member(
        member.member_id,
        member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocol_type=CONSUMER,
        protocols=protocols,
    )


def classic_group(becomes: Downgrade, make: Callable[[], ClassicGroup], now_ms: int) -> ClassicGroup:
    """Return the classic group; make: an empty one of the same id."""
    group = make()
    group.has_record = True
    group.generation = becomes.generation
    group.protocol_type, group.protocol = CONSUMER, becomes.protocol
    group.members = becomes.members
    group.state, group.since_ms = classic_states.STABLE, becomes.since_ms
    group.note_topics()
    for member in group.members:
        group.beat(member, now_ms)
    if becomes.rebalance is not None:
        group.rebalance.begin(now_ms, becomes.rebalance)
    return group
