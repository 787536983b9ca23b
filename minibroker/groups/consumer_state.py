"""State of a consumer group (KIP-848) and of its members, as the fold of their records: nothing but what records say.

    group epoch        rises when members, their subscriptions or the topics they want change
      >= target epoch  the group epoch that the target assignment was computed for
      >= member epoch  how far each member is on the way to its target

A member goes through epochs. In each it holds partitions; before it enters the next one it must have given up what its
target assignment takes away. Members never change: an operation makes another one, and records bring it into the group.
What must hold: a partition has one owner, counting those that have still to confirm that they gave it up.
Not here: which records to write (consumer.py), what a member is to do next (consumer_change.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from minibroker.coordinator.hashing import as_filled, as_timeline
from minibroker.errors import Error, KafkaError
from minibroker.groups.records import CoordinatorRecord
from minibroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from minibroker.stored.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from minibroker.stored.kinds import CoordinatorKey, CoordinatorValue

TargetTopic = ConsumerGroupTargetAssignmentMemberValue.TopicPartition
HeldTopic = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
ClassicMetadata = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata
Assignment = ConsumerGroupHeartbeatResponse.Assignment
# By topic and partition: the epoch at which the member got it. A commit with an older one is refused.
Held = Mapping[bytes, Mapping[int, int]]
Owned = Iterable[ConsumerGroupHeartbeatRequest.TopicPartitions]
Target = Mapping[bytes, Sequence[int]]  # by topic the partitions that a member shall have

EMPTY: Final = "Empty"
ASSIGNING: Final = "Assigning"
RECONCILING: Final = "Reconciling"
ALL_STABLE: Final = "Stable"
FIRST_EPOCH: Final = 1  # of a group that has not been written yet, and of its empty target assignment
NO_TARGET_EPOCH: Final = -1
JOINING: Final = 0  # epochs with a meaning
LEAVING: Final = -1
LEFT_FOR_A_WHILE: Final = -2
STABLE: Final = 0  # states, as they are stored
UNREVOKED: Final = 1
UNRELEASED: Final = 2
UNKNOWN: Final = 127
UNKNOWN_TIMEOUT: Final = -1


class ConsumerState:
    """What the records of one consumer group say."""

    def __init__(self, group_id: str):
        self.group_id = group_id
        self.exists = False  # in the log: false again when the group has been deleted
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.target_epoch = FIRST_EPOCH
        self.target_ms = 0  # when the target was computed; 0: a new one need not wait
        self.members: dict[str, Member] = {}
        self.members_most = 0  # that there have been: the order of Kafka's table of members depends on it
        self.targets: dict[str, Target] = {}
        self.matches: dict[str, frozenset[str]] = {}  # by regular expression the topics that it matched
        self.matched_version = 0  # of the metadata that the expressions were resolved with
        self.matched_ms: int | None = None  # and when
        self.has_partition_metadata = False  # a record of a release before 4.1 that is to be deleted
        self.static: dict[str, str] = {}  # by instance id the id of the member
        self.patterns: dict[str, int] = {}  # by regular expression how many members have it
        self.assignors: dict[str, int] = {}  # by assignor how many members ask for it
        self.names: dict[str, int] = {}  # by topic how many members want it by name
        self.owners: dict[tuple[bytes, int], str] = {}

    def apply(self, key: CoordinatorKey, value: CoordinatorValue | None) -> None:
        """Take one record in: of the log while it is loaded, of an operation when it has been decided."""
        if value is not None:
            self.exists = True
        apply = APPLY.get(type(key))
        if apply is not None:
            apply(self, key, value)

    def _apply_member(self, key: Any, value: ConsumerGroupMemberMetadataValue | None) -> None:
        if value is not None:
            self._update(with_metadata(self.members.get(key.member_id) or new_member(key.member_id), value))
        elif key.member_id in self.members:
            self._forget(self.members.pop(key.member_id))

    def _apply_current(self, key: Any, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        if value is not None:
            self._update(with_current(self.members.get(key.member_id) or new_member(key.member_id), value))
        elif key.member_id in self.members:
            self._update(without_current(self.members[key.member_id]))

    def _apply_target(self, key: Any, value: ConsumerGroupTargetAssignmentMemberValue | None) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = {topic.topic_id: topic.partitions for topic in value.topic_partitions}

    def _apply_target_epoch(self, key: Any, value: ConsumerGroupTargetAssignmentMetadataValue | None) -> None:
        self.target_epoch, self.target_ms = NO_TARGET_EPOCH, 0
        if value is not None:
            self.target_epoch, self.target_ms = value.assignment_epoch, value.assignment_timestamp

    def _apply_epoch(self, key: Any, value: ConsumerGroupMetadataValue | None) -> None:
        if value is None:
            self.exists = False
        else:
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def _apply_partition_metadata(self, key: Any, value: object) -> None:
        self.has_partition_metadata = value is not None

    def _apply_pattern(self, key: Any, value: ConsumerGroupRegularExpressionValue | None) -> None:
        self.matches.pop(key.regular_expression, None)
        if value is not None:
            self.matches[key.regular_expression] = frozenset(value.topics)
            self.matched_version, self.matched_ms = value.version, value.timestamp
        elif not self.matches:
            self.matched_version, self.matched_ms = 0, None

    def _update(self, member: Member) -> None:
        old = self.members.get(member.member_id)
        if old is not None:
            self._forget(old)
        self.members[member.member_id] = member
        self._count(member, 1)
        self.members_most = max(self.members_most, len(self.members))
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        for held in (member.held, member.to_revoke):
            for topic_id, partitions in held.items():
                self.owners.update(dict.fromkeys(((topic_id, partition) for partition in partitions), member.member_id))

    def _count(self, member: Member, by: int) -> None:
        if member.pattern:
            _count(self.patterns, (member.pattern,), by)
        if member.assignor:
            _count(self.assignors, (member.assignor,), by)
        _count(self.names, member.topic_names, by)

    def _forget(self, member: Member) -> None:
        self._count(member, -1)
        if member.instance_id is not None and self.static.get(member.instance_id) == member.member_id:
            del self.static[member.instance_id]
        for held in (member.held, member.to_revoke):
            for topic_id, partitions in held.items():
                for partition in partitions:
                    if self.owners.get((topic_id, partition)) == member.member_id:
                        del self.owners[topic_id, partition]

    # What follows from it

    @property
    def name(self) -> str:
        """The group's state, by Kafka's name."""
        if not self.members:
            return EMPTY
        if self.epoch > self.target_epoch:
            return ASSIGNING
        if all(is_at(member, self.target_epoch) for member in self.members.values()):
            return ALL_STABLE
        return RECONCILING

    def assignor(self, default: str, gone: Iterable[Member] = (), come: Iterable[Member] = ()) -> str:
        """Return what most members ask for, were some gone and others there; of several the last by name.

        Kafka: with equally many for `range` and `uniform` it takes one when it looks at the group and the other one
        when it looks at a change, so that each heartbeat raises the group epoch until a member changes its mind.
        """
        counts = dict(self.assignors)
        for members, by in ((gone, -1), (come, 1)):
            _count(counts, (member.assignor for member in members if member.assignor), by)
        return max(counts, key=lambda name: (counts[name], name), default=default)

    def is_owned(self, topic_id: bytes, partition: int) -> bool:
        return (topic_id, partition) in self.owners

    def get_member(self, member_id: str) -> Member:
        member = self.members.get(member_id)
        if member is None:
            words = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(Error.UNKNOWN_MEMBER_ID, words)
        return member

    def get_static_member(self, instance_id: str, member_id: str) -> Member:
        """Return the member of an instance; raise if somebody else has taken its place."""
        member = self.static_member(instance_id)
        if member is None:
            raise KafkaError(Error.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        check_not_replaced(member, instance_id, member_id)
        return member

    def static_member(self, instance_id: str | None) -> Member | None:
        return None if instance_id is None else self.members.get(self.static.get(instance_id, ""))

    def target_of(self, member_id: str, instance_id: str | None) -> Target:
        """Return a member's target; one that takes the place of a static member gets what that one had."""
        return self.targets.get(member_id if instance_id is None else self.static.get(instance_id, ""), {})

    def subscribers_of(self, pattern: str) -> int:
        return self.patterns.get(pattern, 0)

    def topic_names(
        self, gone: Iterable[Member] = (), come: Iterable[Member] = (), dropped: frozenset[str] = frozenset()
    ) -> set[str]:
        """Return the topics that members want, were some gone and others there; expressions that are dropped want none.

        By name they are counted: a group has many members, and they mostly want the same.
        """
        names = dict(self.names)
        for members, by in ((gone, -1), (come, 1)):
            for member in members:
                _count(names, member.topic_names, by)
        return set(names).union(*(matched for pattern, matched in self.matches.items() if pattern not in dropped))

    def tombstones(self, renamed: Mapping[str, str] | None = None) -> list[CoordinatorRecord]:
        """Return what deletes the group; renamed: members whose records were just written under another id."""
        group_id = self.group_id
        ids = [(renamed or {}).get(each, each) for each in as_timeline(self.members, self.members_most)]
        records: list[CoordinatorKey] = [
            *(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id) for member_id in ids),
            *(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id) for member_id in ids),
            ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
            *(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id) for member_id in ids),
            *(
                ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)
                for pattern in self.matches
            ),
            ConsumerGroupPartitionMetadataKey(group_id=group_id),
            ConsumerGroupMetadataKey(group_id=group_id),
        ]
        return [(key, None) for key in records]


APPLY: Final[dict[type, Any]] = {
    ConsumerGroupMemberMetadataKey: ConsumerState._apply_member,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerState._apply_current,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerState._apply_target,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerState._apply_target_epoch,
    ConsumerGroupRegularExpressionKey: ConsumerState._apply_pattern,
    ConsumerGroupPartitionMetadataKey: ConsumerState._apply_partition_metadata,
    ConsumerGroupMetadataKey: ConsumerState._apply_epoch,
}


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


def _count(counts: dict[str, int], names: Iterable[str], by: int) -> None:
    for name in names:
        count = counts.get(name, 0) + by
        if count:
            counts[name] = count
        else:
            del counts[name]


def check_not_replaced(member: Member, instance_id: str, member_id: str) -> None:
    if member.member_id != member_id:
        words = f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
        raise KafkaError(Error.FENCED_INSTANCE_ID, words)


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


def assignment_of(member: Member) -> Assignment:
    """Return what the member is told to hold."""
    return Assignment(
        topic_partitions=[
            Assignment.TopicPartitions(topic_id=topic_id, partitions=sorted(member.held[topic_id]))
            for topic_id in as_filled(member.held)
        ]
    )


# Members from and to records


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


def metadata_record(group_id: str, member: Member) -> CoordinatorRecord:
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


def current_record(group_id: str, member: Member) -> CoordinatorRecord:
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


def target_record(group_id: str, member_id: str, target: Target) -> CoordinatorRecord:
    topics = [TargetTopic(topic_id=topic_id, partitions=as_filled(parts)) for topic_id, parts in target.items()]
    return (
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics),
    )


def target_epoch_record(group_id: str, epoch: int, now_ms: int) -> CoordinatorRecord:
    """now_ms: when it was computed; 0: it need not wait for the next one."""
    return (
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms),
    )


def epoch_record(group_id: str, epoch: int, topics_hash: int) -> CoordinatorRecord:
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=topics_hash)
    return ConsumerGroupMetadataKey(group_id=group_id), value


def pattern_record(
    group_id: str, pattern: str, matched: frozenset[str] | None = None, version: int = 0, now_ms: int = 0
) -> CoordinatorRecord:
    """Return what an expression matches in a version of the metadata; None: nobody has it any more."""
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)
    if matched is None:
        return key, None
    topics = sorted(matched)
    return key, ConsumerGroupRegularExpressionValue(topics=topics, version=version, timestamp=now_ms)


def removal_records(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return what makes the group forget a member."""
    return [
        (ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        (ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        (ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]
