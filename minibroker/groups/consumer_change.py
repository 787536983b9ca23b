"""Change: what one request of a member changes in its consumer group, in the order in which Kafka writes the records.

    note_member     what it says of itself, and what it subscribes to
    raise_epoch     if that, or the topics behind it, have changed
    update_target   compute a new target assignment, if the last one is not too fresh
    reconcile       move the member one step towards its target (KIP-848):

    STABLE ---- a newer target ----> to give up anything? -- yes --> UNREVOKED: the old epoch, less partitions
                                        |                                |
                                        no  <--- it owns them no more ---+
                                        v
                            all free that it is to get? -- no --> UNRELEASED: the new epoch, the rest comes later
                                        |                                |
                                        yes <--- released by others -----+
                                        v
                                     STABLE: the new epoch

What must hold: a partition goes to a member only when no other member has it or has still to confirm that it gave it
up; a member's epoch rises only when it owns nothing that the target takes away.
The state of the group stays as it is: later steps see what earlier ones changed through this object.
Not here: what the target is (target.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from minibroker.config.resources import GroupConfig
from minibroker.errors import Error, KafkaError
from minibroker.groups import patterns
from minibroker.groups.consumer_state import (
    STABLE,
    UNKNOWN,
    UNRELEASED,
    UNREVOKED,
    ConsumerState,
    Held,
    Member,
    Owned,
    Target,
    current_record,
    epoch_record,
    has_any,
    is_at,
    metadata_record,
    pattern_record,
)
from minibroker.groups.records import CoordinatorRecord
from minibroker.groups.target import (
    compute_target,
    default_assignor,
    is_homogeneous_group,
    subscribed_ids,
)
from minibroker.groups.timers import REBALANCE, Timers
from minibroker.groups.topics import Topics, metadata_hash
from minibroker.stored.consumer_groups import ConsumerGroupPartitionMetadataKey

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

PATTERNS_PAUSE_MS: Final = 10_000  # at least, between two resolutions of a group's regular expressions
IsOwned = Callable[[bytes, int], bool]


class Change:
    """One request on its way through."""

    def __init__(
        self,
        state: ConsumerState,
        timers: Timers,
        member: Member,
        updated: Member,
        records: list[CoordinatorRecord],
        *,
        now_ms: int,
        topics: Topics,
        config: GroupConfig,
    ):
        """member: as the group knows it; updated: as the request says; records: written before, extended here."""
        self.state = state
        self.timers = timers
        self.member = member
        self.updated = updated
        self.records = records
        self.now_ms = now_ms
        self.topics = topics
        self.config = config
        self._members: dict[str, Member] | None = None
        self.epoch = state.epoch
        self.target_epoch = state.target_epoch
        self.target: Target = state.target_of(updated.member_id, updated.instance_id)
        self.names_changed = False
        self.pattern_changed = False
        self.matches_changed = False  # what the pattern stands for is known, and not what the last one stood for

    @property
    def members(self) -> dict[str, Member]:
        """All of them, with the change. Most heartbeats have none, and do not ask."""
        if self._members is None:
            updated = self.updated
            self._members = {
                member_id: other
                for member_id, other in self.state.members.items()
                if member_id == updated.member_id
                or other.instance_id is None
                or other.instance_id != updated.instance_id
            }
            self._members[updated.member_id] = updated
        return self._members

    @property
    def _replaced(self) -> list[Member]:
        """The members that are no more with the change: this one as it was, and a static one whose place it takes."""
        state, updated = self.state, self.updated
        found = state.members.get(updated.member_id), state.static_member(updated.instance_id)
        return list({member.member_id: member for member in found if member is not None}.values())

    def note_member(self) -> None:
        if self.updated != self.member:
            self.records.append(metadata_record(self.state.group_id, self.updated))
        self.names_changed = self.updated.topic_names != self.member.topic_names
        old, new = self.member.pattern, self.updated.pattern
        self.pattern_changed = old != new
        is_new = False
        if self.pattern_changed:
            self.records += [pattern_record(self.state.group_id, pattern) for pattern in self._dropped()]
            if not new:
                self.matches_changed = bool(old)
            elif self.state.subscribers_of(new):
                self.matches_changed = new in self.state.matches
            else:
                patterns.check(new)
                is_new = True
        self._refresh_patterns(is_new)

    def _dropped(self) -> frozenset[str]:
        """Return the pattern that nobody has any more, if there is one."""
        old = self.member.pattern
        if old and old != self.updated.pattern and self.state.subscribers_of(old) == 1:
            return frozenset((old,))
        return frozenset()

    def _refresh_patterns(self, is_new: bool) -> None:
        """Have the patterns resolved if one is new, topics were made meanwhile, or the last time is long ago."""
        state = self.state
        if self.timers.patterns is not None or not (is_new or state.patterns):
            return
        last_ms = state.matched_ms
        if last_ms is not None and self.now_ms <= last_ms + PATTERNS_PAUSE_MS:
            return
        wanted = {member.pattern for member in self.members.values() if member.pattern}
        must_resolve = (
            is_new
            or last_ms is None
            or self.now_ms > last_ms + self.config.broker["group.consumer.regex.refresh.interval.ms"]
            or len(wanted) != len(state.matches)
            or state.matched_version < self.topics.last_created_version
        )
        if must_resolve and wanted:
            self.timers.want_patterns(wanted, self.now_ms)

    @property
    def assignor_changed(self) -> bool:
        if self.updated.assignor == self.member.assignor and self.updated.member_id in self.state.members:
            return False
        default = default_assignor(self.config)
        return self.state.assignor(default) != self.state.assignor(default, self._replaced, [self.updated])

    def raise_epoch(self, is_wanted: bool) -> None:
        """Raise the group epoch, if that is wanted or the topics are others than those last seen."""
        state = self.state
        if not is_wanted and not self.timers.must_see_topics(self.now_ms, state.epoch):
            return
        names = state.topic_names(self._replaced, [self.updated], self._dropped())
        topics_hash = metadata_hash(names, self.topics)
        if is_wanted or topics_hash != state.metadata_hash:
            self.epoch += 1
            self.records.append(epoch_record(state.group_id, self.epoch, topics_hash))
        self.timers.topics_seen(self.now_ms, self.epoch)
        if state.has_partition_metadata:
            self.records.append((ConsumerGroupPartitionMetadataKey(group_id=state.group_id), None))

    def update_target(self) -> None:
        """Compute the target assignment for the group epoch, unless the last one is only a moment old."""
        state = self.state
        if self.target_epoch >= self.epoch:
            return
        pause_ms = self.config["consumer.assignment.interval.ms"]
        # Kafka: waits for its clock, if that of the coordinator before was ahead.
        if state.target_ms and pause_ms and state.target_ms <= self.now_ms < state.target_ms + pause_ms:
            return
        member_id = self.updated.member_id
        targets = {other: state.targets[other] for other in self.members if other in state.targets}
        before = state.static_member(self.updated.instance_id)
        if before is not None and before.member_id in state.targets:
            targets[member_id] = state.targets[before.member_id]
        held = {
            (topic_id, part) for target in state.targets.values() for topic_id in target for part in target[topic_id]
        }
        dropped = self._dropped()
        matches = {pattern: names for pattern, names in state.matches.items() if pattern not in dropped}
        # Kafka: if this request has not raised the epoch it goes by how the members' wishes were before it, and may
        # then take members for alike that are not.
        records, shares = compute_target(
            state.group_id,
            self.epoch,
            state.assignor(default_assignor(self.config), self._replaced, [self.updated]),
            self.members,
            members_most=state.members_most,
            joining=None if member_id in state.members else member_id,
            targets=targets,
            is_held=lambda topic_id, partition: (topic_id, partition) in held,
            matches=state.matches,
            is_homogeneous=is_homogeneous_group(self.members.values(), matches),
            topics=self.topics,
            now_ms=self.now_ms,
        )
        self.records += records
        self.target_epoch, self.target = self.epoch, shares.get(member_id, {})

    def reconcile(self, owned: Owned | None) -> Member:
        """Move the member one step, and return it."""
        has_changed = self.names_changed or self.pattern_changed
        if not has_changed and is_at(self.updated, self.target_epoch):
            return self.updated
        state, before = self.state, self.updated
        step = Step(
            self.target_epoch,
            self.target,
            subscribed=set(subscribed_ids(before, state.matches, self.topics)),
            wants_any=bool(before.topic_names or state.matches.get(before.pattern or "")),
            is_owned=state.is_owned,
            owned=owned,
        )
        after = step.of(before, has_changed)
        if after != before:
            self.records.append(current_record(self.state.group_id, after))
            if after.classic is None:
                self.timers.cancel(after.member_id, REBALANCE)
                if after.state == UNREVOKED:
                    at_ms = self.now_ms + after.rebalance_timeout_ms
                    self.timers.set(REBALANCE, after.member_id, at_ms, after.epoch)
        self.updated = after
        return after


class Step:
    """What a member's step depends on."""

    __slots__ = ("is_owned", "owned", "subscribed", "target", "target_epoch", "wants_any")

    def __init__(
        self,
        target_epoch: int,
        target: Target,
        *,
        subscribed: Collection[bytes],
        wants_any: bool,
        is_owned: IsOwned,
        owned: Owned | None,
    ):
        self.target_epoch = target_epoch
        self.target = target
        self.subscribed = subscribed  # ids of the topics that the member wants and that exist
        self.wants_any = wants_any  # whether it wants topics at all, though they may not exist
        self.is_owned = is_owned  # whether somebody has a partition, or has still to give it up
        self.owned = owned  # what the member says it owns; None: it did not say, so it may own all

    def of(self, member: Member, has_subscription_changed: bool) -> Member:
        """Return the member after the step, the same one if there is nothing to do."""
        state = member.state
        if state == UNKNOWN:
            # A later release wrote a state that this one does not know. It starts from nothing.
            if self.owned is None or list(self.owned):
                words = "The consumer group member is in a unknown state. "
                raise KafkaError(
                    Error.FENCED_MEMBER_EPOCH, words + "The member must abandon all its partitions and rejoin."
                )
            return self._towards_target(member, self.target_epoch)
        waits = state == UNREVOKED and self._owns(member.to_revoke)
        if waits or (state == STABLE and member.epoch == self.target_epoch):
            return self._without_unwanted(member) if has_subscription_changed else member
        return self._towards_target(member, member.epoch)

    def _owns(self, held: Held) -> bool:
        return self.owned is None or has_any(held, self.owned)

    def _without_unwanted(self, member: Member) -> Member:
        """Take away at once what the member no longer wants: it need not wait for a new target."""
        unwanted = {topic_id: parts for topic_id, parts in member.held.items() if topic_id not in self.subscribed}
        if not unwanted and (self.wants_any or member.to_revoke):
            return member
        held = {topic_id: parts for topic_id, parts in member.held.items() if topic_id not in unwanted}
        to_revoke = dict(member.to_revoke)
        for topic_id, parts in unwanted.items():
            to_revoke[topic_id] = {**to_revoke.get(topic_id, {}), **parts}
        if to_revoke and self._owns(to_revoke):
            return _moved(member, member.epoch, UNREVOKED, held, to_revoke)
        return _moved(member, member.epoch, member.state, held, member.to_revoke)

    def _towards_target(self, member: Member, epoch: int) -> Member:
        """Revoke first; then take what is free. epoch: that the member keeps while it revokes."""
        held: dict[bytes, dict[int, int]] = {}
        to_revoke: dict[bytes, dict[int, int]] = {}
        to_get: dict[bytes, set[int]] = {}
        is_complete = True
        for topic_id in dict.fromkeys([*self.target, *member.held]):
            target = set(self.target.get(topic_id, ())) if topic_id in self.subscribed else set()
            parts = member.held.get(topic_id, {})
            kept = {partition: since for partition, since in parts.items() if partition in target}
            lost = {partition: since for partition, since in parts.items() if partition not in target}
            missing = target - kept.keys()
            mine = member.to_revoke.get(topic_id, {})
            free = {partition for partition in missing if partition in mine or not self.is_owned(topic_id, partition)}
            is_complete = is_complete and free == missing
            for place, found in ((held, kept), (to_revoke, lost)):
                if found:
                    place[topic_id] = found
            if free:
                to_get[topic_id] = free
        if to_revoke and self._owns(to_revoke):
            return _moved(member, epoch, UNREVOKED, held, to_revoke)
        for topic_id, free in to_get.items():
            held.setdefault(topic_id, {}).update(dict.fromkeys(free, self.target_epoch))
        return _moved(member, self.target_epoch, STABLE if is_complete else UNRELEASED, held, {})


def _moved(member: Member, epoch: int, state: int, held: Held, to_revoke: Held) -> Member:
    return member._replace(epoch=epoch, previous_epoch=member.epoch, state=state, held=held, to_revoke=to_revoke)
