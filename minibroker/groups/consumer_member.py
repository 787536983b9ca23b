"""A member of a consumer group: what it told about itself, and what it holds.

A member goes through epochs. In each it holds partitions; before it enters the next one it must have given up what its
target assignment takes away. Members never change: an operation makes another one, and rows bring it into the group.
Not here: what a member is to do next (reconciliation.py), the group (consumer.py).
"""

from __future__ import annotations

from collections import namedtuple

from minibroker.groups.hash_order import as_filled
from minibroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from minibroker.stored.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import NamedTuple

    from minibroker.groups.records import Row
    from minibroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

    # By topic and partition: the epoch at which the member got it. A commit with an older one is refused.
    Held = Mapping[bytes, Mapping[int, int]]
    Owned = Iterable[ConsumerGroupHeartbeatRequest.TopicPartitions]
    ClassicMetadata = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata

    class Member(NamedTuple):
        """One member; compared as a whole to see whether a heartbeat has changed anything."""

        member_id: str
        epoch: int  # that it has reached; LEFT_FOR_A_WHILE: a static member that will be back
        previous_epoch: int  # accepted too: the answer that raised the epoch may have been lost
        state: int
        instance_id: str | None
        rack_id: str | None
        rebalance_timeout_ms: int  # that it may take to give partitions up
        client_id: str
        client_host: str
        topic_names: frozenset[str]
        pattern: str | None  # regular expression; None and "": none
        assignor: str | None  # that it asks for
        held: Held
        to_revoke: Held  # taken away, not yet confirmed; nobody else gets them before
        classic: ClassicMetadata | None  # what JoinGroup brought; None: it speaks ConsumerGroupHeartbeat
else:
    FIELDS = (
        "member_id epoch previous_epoch state instance_id rack_id rebalance_timeout_ms client_id client_host "
        "topic_names pattern assignor held to_revoke classic"
    )
    Member = namedtuple("Member", FIELDS)

JOINING, LEAVING, LEFT_FOR_A_WHILE = 0, -1, -2  # epochs with a meaning
STABLE, UNREVOKED, UNRELEASED, UNKNOWN = 0, 1, 2, 127  # states, as they are stored
UNKNOWN_TIMEOUT = -1

HeldTopic = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
Assignment = ConsumerGroupHeartbeatResponse.Assignment


def new_member(member_id: str) -> Member:
    """Return a member of which nothing is known yet."""
    return Member(
        member_id, JOINING, -1, STABLE, None, None, UNKNOWN_TIMEOUT, "", "", frozenset(), "", None, {}, {}, None
    )


def is_at(member: Member, target_epoch: int) -> bool:
    """Say whether the member has all that the target assignment of this epoch gives it, and nothing else."""
    return member.state == STABLE and member.epoch == target_epoch


def has_any(held: Held, owned: Owned) -> bool:
    """Say whether one of the owned partitions is held."""
    return any(partition in held.get(topic.topic_id, ()) for topic in owned for partition in topic.partitions)


def has_all(held: Held, owned: Owned) -> bool:
    """Say whether all owned partitions are held; of a topic that is not held not even none."""
    return all(
        topic.topic_id in held and all(partition in held[topic.topic_id] for partition in topic.partitions)
        for topic in owned
    )


def left_for_a_while(member: Member) -> Member:
    """Return what stays of a static member while it is away: its partitions wait for it."""
    held = {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in member.held.items()}
    return member._replace(epoch=LEFT_FOR_A_WHILE, held=held, to_revoke={})


def told_assignment(member: Member) -> Assignment:
    """Return what the member is told to hold."""
    return Assignment(
        topic_partitions=[
            Assignment.TopicPartitions(topic_id=topic_id, partitions=sorted(member.held[topic_id]))
            for topic_id in as_filled(member.held)
        ]
    )


# From and to rows


def with_metadata(member: Member, value: ConsumerGroupMemberMetadataValue) -> Member:
    return member._replace(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
        pattern=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=value.classic_member_metadata,
    )


def with_current(member: Member, value: ConsumerGroupCurrentMemberAssignmentValue) -> Member:
    return member._replace(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=value.state if value.state in (STABLE, UNREVOKED, UNRELEASED) else UNKNOWN,
        held=_held(value.assigned_partitions, value.member_epoch),
        to_revoke=_held(value.partitions_pending_revocation, value.member_epoch),
    )


def without_current(member: Member) -> Member:
    return member._replace(epoch=LEAVING, previous_epoch=LEAVING, held={}, to_revoke={})


def _held(topics: list[HeldTopic], member_epoch: int) -> Held:
    """Read partitions with their epochs; releases before 4.4 wrote none, then the member's counts."""
    held = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        held[topic.topic_id] = dict(zip(topic.partitions, epochs))
    return held


def metadata_row(group_id: str, member: Member) -> Row:
    return (
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topic_names),
            subscribed_topic_regex=member.pattern,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.assignor,
            classic_member_metadata=member.classic,
        ),
    )


def current_row(group_id: str, member: Member) -> Row:
    return (
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            assigned_partitions=_topics(member.held),
            partitions_pending_revocation=_topics(member.to_revoke),
        ),
    )


def _topics(held: Held) -> list[HeldTopic]:
    topics = []
    for topic_id in as_filled(held):
        partitions = sorted(held[topic_id])
        epochs = [held[topic_id][partition] for partition in partitions]
        topics.append(HeldTopic(topic_id=topic_id, partitions=partitions, assignment_epochs=epochs))
    return topics


def removal_rows(group_id: str, member_id: str) -> list[Row]:
    """Return what makes the group forget a member."""
    return [
        (ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        (ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        (ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]
