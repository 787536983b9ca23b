"""A consumer group (KIP-848) as the fold of its rows: nothing here but what rows say, and what follows from it.

    group epoch        rises when members, their wishes or the topics they want change
      >= target epoch  the group epoch that the target assignment was computed for
      >= member epoch  how far each member is on the way to its target

What must hold: a partition has one owner, counting those that have still to confirm that they gave it up.
Not here: which rows to write (consumer.py).
"""

from __future__ import annotations

from minibroker.groups import consumer_member
from minibroker.groups.consumer_member import Member, is_at, new_member
from minibroker.groups.hash_order import as_timeline
from minibroker.groups.target import preferred_of
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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from minibroker.groups.records import Row
    from minibroker.groups.target import Target
    from minibroker.stored.kinds import CoordinatorKey, CoordinatorValue

EMPTY, ASSIGNING, RECONCILING, STABLE = "Empty", "Assigning", "Reconciling", "Stable"
FIRST_EPOCH = 1  # of a group that has not been written yet, and of its empty target assignment
NO_TARGET_EPOCH = -1


class ConsumerState:
    """What the rows of one consumer group say."""

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
        self.has_partition_metadata = False  # a row of a release before 4.1 that is to be deleted
        self.static: dict[str, str] = {}  # by instance id the id of the member
        self.patterns: dict[str, int] = {}  # by regular expression how many members have it
        self.assignors: dict[str, int] = {}  # by assignor how many members ask for it
        self.owners: dict[tuple[bytes, int], str] = {}

    def apply(self, key: CoordinatorKey, value: CoordinatorValue | None) -> None:
        """Take one row in: of the log while it is loaded, of an operation when it has been decided."""
        if value is not None:
            self.exists = True
        if isinstance(key, ConsumerGroupMemberMetadataKey):
            assert value is None or isinstance(value, ConsumerGroupMemberMetadataValue)
            self._apply_member(key.member_id, value)
        elif isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
            assert value is None or isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
            self._apply_current(key.member_id, value)
        elif isinstance(key, ConsumerGroupTargetAssignmentMemberKey):
            if value is None:
                self.targets.pop(key.member_id, None)
            else:
                assert isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
                self.targets[key.member_id] = {topic.topic_id: topic.partitions for topic in value.topic_partitions}
        elif isinstance(key, ConsumerGroupRegularExpressionKey):
            assert value is None or isinstance(value, ConsumerGroupRegularExpressionValue)
            self._apply_pattern(key.regular_expression, value)
        elif isinstance(key, ConsumerGroupMetadataKey):
            if value is None:
                self.exists = False
            else:
                assert isinstance(value, ConsumerGroupMetadataValue)
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
        elif isinstance(key, ConsumerGroupTargetAssignmentMetadataKey):
            self.target_epoch, self.target_ms = NO_TARGET_EPOCH, 0
            if value is not None:
                assert isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
                self.target_epoch, self.target_ms = value.assignment_epoch, value.assignment_timestamp
        elif isinstance(key, ConsumerGroupPartitionMetadataKey):
            self.has_partition_metadata = value is not None

    def _apply_member(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        if value is not None:
            self._update(consumer_member.with_metadata(self.members.get(member_id) or new_member(member_id), value))
        elif member_id in self.members:
            self._forget(self.members.pop(member_id))

    def _apply_current(self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        if value is not None:
            self._update(consumer_member.with_current(self.members.get(member_id) or new_member(member_id), value))
        elif member_id in self.members:
            self._update(consumer_member.without_current(self.members[member_id]))

    def _apply_pattern(self, pattern: str, value: ConsumerGroupRegularExpressionValue | None) -> None:
        self.matches.pop(pattern, None)
        if value is not None:
            self.matches[pattern] = frozenset(value.topics)
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
        for name, counts in ((member.pattern, self.patterns), (member.assignor, self.assignors)):
            if name:
                count = counts.get(name, 0) + by
                if count:
                    counts[name] = count
                else:
                    del counts[name]

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
            return STABLE
        return RECONCILING

    def assignor(self, default: str) -> str:
        return preferred_of(self.assignors, default)

    def is_owned(self, topic_id: bytes, partition: int) -> bool:
        return (topic_id, partition) in self.owners

    def static_member(self, instance_id: str | None) -> Member | None:
        return None if instance_id is None else self.members.get(self.static.get(instance_id, ""))

    def target_of(self, member_id: str, instance_id: str | None) -> Target:
        """Return a member's target; one that takes the place of a static member gets what that one had."""
        return self.targets.get(member_id if instance_id is None else self.static.get(instance_id, ""), {})

    def subscribers_of(self, pattern: str) -> int:
        return self.patterns.get(pattern, 0)

    def topic_names(self, members: Mapping[str, Member], dropped: frozenset[str] = frozenset()) -> set[str]:
        """Return the topics that these members want, by name or by expressions other than those dropped."""
        names = {name for member in members.values() for name in member.topic_names}
        return names.union(*(matched for pattern, matched in self.matches.items() if pattern not in dropped))

    def tombstones(self, renamed: Mapping[str, str] | None = None) -> list[Row]:
        """Return what deletes the group; renamed: members whose rows were just written under another id."""
        group_id = self.group_id
        ids = [(renamed or {}).get(each, each) for each in as_timeline(self.members, self.members_most)]
        rows: list[CoordinatorKey] = [
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
        return [(key, None) for key in rows]
