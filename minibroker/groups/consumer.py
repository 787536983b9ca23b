"""Consumer group of the newer protocol (KIP-848): heartbeats in, records and answers out.

Its state is the fold of its records. An operation returns records and leaves the state as it is; who calls it applies
them with `apply` and writes them. Only timers and the like, which no record holds, change at once.

    shard            group
    records of the log  apply(key, value)            also for what an operation has returned
                     loaded(now_ms, config)       after the last of them: members have a whole session again
    request          heartbeat(...)               -> records, answer; KafkaError if refused
    time             deadline_ms()                -> when something is due
                     expire(now_ms, ...)          -> records for what is due first; again until deadline_ms() is later
    topics changed   topics_changed(names)        the next heartbeat looks whether that concerns the group
    offsets          check_commit(...), check_fetch(...)
    admin            state.name, tombstones()

A group that is not in the log is made when a member joins, that is with epoch 0; other epochs are refused before
(`group_not_found`). An empty group stays until its tombstones are written.
An operation that leaves only members of the classic protocol sets `becomes`: its records end the group and begin a
classic one, which migration.classic_group makes. They are applied to the log's readers, not to this object.
Not here: members that speak the classic protocol (classic_members_in_consumer_group.py), changing the protocol
(migration.py), what others ask of groups (broker/handlers/group_admin.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain

from minibroker.config.resources import GroupConfig
from minibroker.errors import Error, KafkaError
from minibroker.groups import migration, patterns
from minibroker.groups.classic import ClassicGroup
from minibroker.groups.consumer_change import Change
from minibroker.groups.consumer_state import (
    JOINING,
    LEAVING,
    LEFT_FOR_A_WHILE,
    UNKNOWN_TIMEOUT,
    UNREVOKED,
    ConsumerState,
    Member,
    Owned,
    assignment_of,
    current_record,
    epoch_record,
    has_all,
    left_for_a_while,
    metadata_record,
    new_member,
    pattern_record,
    removal_records,
    target_epoch_record,
    target_record,
)
from minibroker.groups.records import CoordinatorRecord
from minibroker.groups.timers import REBALANCE, REFRESH, SESSION, Timers
from minibroker.groups.topics import Topics, metadata_hash
from minibroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from minibroker.stored.group_offsets import OffsetCommitValue
from minibroker.stored.kinds import CoordinatorKey, CoordinatorValue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

CheckPartition = Callable[[str, bytes, int], None]  # name and id of the topic, partition: raises if refused

UNCHANGED: Final = -1
MEMBER_MAKES_ITS_ID_SINCE: Final = 1  # ConsumerGroupHeartbeat
COMMIT_WITH_MEMBER_EPOCH_SINCE: Final = 9  # OffsetCommit
SPACES: Final = "".join(map(chr, range(0x21)))  # what Java's trim() takes away


class ConsumerGroup:
    """One group."""

    def __init__(self, group_id: str):
        self.group_id = group_id
        self.state = ConsumerState(group_id)
        self.timers = Timers()
        self.becomes: migration.Downgrade | None = None  # a classic group: the records of the last operation say so

    @classmethod
    def upgraded(
        cls, classic: ClassicGroup, *, topics: Topics, config: GroupConfig, now_ms: int
    ) -> tuple[list[CoordinatorRecord], ConsumerGroup]:
        """Return the group that a classic group with members becomes, with its records applied, and the records.

        Once a member has joined it, those who still wait in the classic group are to be told REBALANCE_IN_PROGRESS.
        """
        group, records = cls(classic.group_id), migration.upgrade(classic, topics=topics, config=config)
        for record in records:
            group.apply(*record)
        for each in classic.members:
            group.timers.set(SESSION, each.id, now_ms + each.session_timeout_ms)
        return [*classic.tombstones(), *records], group

    def apply(self, key: CoordinatorKey, value: CoordinatorValue | None) -> None:
        self.state.apply(key, value)

    def loaded(self, now_ms: int, config: GroupConfig) -> None:
        """Set the timers of all members: their heartbeats went to another coordinator so far."""
        for member in self.state.members.values():
            self._session_begins(member.member_id, now_ms, config)
            if member.state == UNREVOKED:
                self.timers.set(REBALANCE, member.member_id, now_ms + member.rebalance_timeout_ms, member.epoch)

    def resume(self, at_ms: int) -> None:
        """Set timers of members that have none: what was to be done for them could not be written."""
        for member in self.state.members.values():
            if self.timers.find(SESSION, member.member_id) is None:
                self.timers.set(SESSION, member.member_id, at_ms)
            if member.state == UNREVOKED and self.timers.find(REBALANCE, member.member_id) is None:
                self.timers.set(REBALANCE, member.member_id, at_ms, member.epoch)

    def topics_changed(self, names: Collection[str]) -> None:
        """Note that these topics were made, deleted or given partitions."""
        if not self.state.topic_names().isdisjoint(names):
            self.timers.topics_changed()

    # Heartbeats

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        *,
        version: int,
        client_id: str,
        client_host: str,
        now_ms: int,
        topics: Topics,
        config: GroupConfig,
        new_member_id: Callable[[], str],
    ) -> tuple[list[CoordinatorRecord], ConsumerGroupHeartbeatResponse]:
        """Take a member in, take note of what it says, move it on, or let it go."""
        check_heartbeat(request, version, config.broker["group.consumer.assignors"])
        if request.member_epoch in (LEAVING, LEFT_FOR_A_WHILE):
            return self._leave(request, topics, config, now_ms)
        self.check_room(request.member_id, request.instance_id, config)
        member_id = request.member_id or new_member_id()
        records, member = self._find_or_make(member_id, request)
        updated = _updated(member, request)._replace(client_id=client_id, client_host=client_host, classic=None)
        change = Change(self.state, self.timers, member, updated, records, now_ms=now_ms, topics=topics, config=config)
        change.note_member()
        change.raise_epoch(change.names_changed or change.matches_changed or change.assignor_changed)
        change.update_target()
        updated = change.reconcile(request.topic_partitions)
        self._session_begins(member_id, now_ms, config)
        response = ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=Error.NONE,
            member_id=updated.member_id,
            member_epoch=updated.epoch,
            heartbeat_interval_ms=config["consumer.heartbeat.interval.ms"],
        )
        is_full = (
            request.rebalance_timeout_ms != UNCHANGED
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        if request.member_epoch == JOINING or is_full or member.held != updated.held:
            response.assignment = assignment_of(updated)
        return records, response

    def _find_or_make(
        self, member_id: str, request: ConsumerGroupHeartbeatRequest
    ) -> tuple[list[CoordinatorRecord], Member]:
        """Return the member that speaks, and records that put it in the place of a static member that has left."""
        is_joining, instance_id = request.member_epoch == JOINING, request.instance_id
        if instance_id is None:
            known = self.state.members.get(member_id)
            member = known or (new_member(member_id) if is_joining else self.state.get_member(member_id))
        elif not is_joining:
            member = self.state.get_static_member(instance_id, member_id)
        else:
            before = self.state.static_member(instance_id)
            if before is None:
                return [], self.state.members.get(member_id) or new_member(member_id)
            if before.classic is None:
                check_released(before, instance_id, member_id)
            return self.replace(before, member_id)
        check_epoch(member, request.member_epoch, request.topic_partitions)
        return [], member

    def replace(self, before: Member, member_id: str) -> tuple[list[CoordinatorRecord], Member]:
        """Give a static member's place, with all that it holds and shall hold, to another member id."""
        member = before._replace(member_id=member_id, epoch=JOINING, previous_epoch=JOINING)
        return [
            *removal_records(self.group_id, before.member_id),
            metadata_record(self.group_id, member),
            target_record(self.group_id, member_id, self.state.targets.get(before.member_id, {})),
            current_record(self.group_id, member),
        ], member

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest, topics: Topics, config: GroupConfig, now_ms: int
    ) -> tuple[list[CoordinatorRecord], ConsumerGroupHeartbeatResponse]:
        if request.instance_id is None:
            member = self.state.get_member(request.member_id)
        else:
            member = self.state.get_static_member(request.instance_id, request.member_id)
        response = ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=Error.NONE,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=0,
        )
        if request.instance_id is not None and request.member_epoch == LEFT_FOR_A_WHILE:
            away = left_for_a_while(member)
            return [current_record(self.group_id, away)], response
        return self.remove([member], topics, config, now_ms), response

    def remove(
        self, members: Sequence[Member], topics: Topics, config: GroupConfig, now_ms: int
    ) -> list[CoordinatorRecord]:
        """Return records that let members go; the group epoch rises, for somebody must take their partitions.

        If only members of the classic protocol are left, the group becomes a classic one.
        """
        state = self.state
        if not members:
            return []
        if migration.must_downgrade(state, members, config):
            words = f"Downgrade group {self.group_id} from consumer to classic for member leaving."
            records, self.becomes = migration.downgrade(state, members, None, words, topics, now_ms)
            return records
        records = [record for member in members for record in removal_records(self.group_id, member.member_id)]
        ids = dict.fromkeys(member.member_id for member in members)
        gone = [state.members[member_id] for member_id in ids if member_id in state.members]
        lost = Counter(member.pattern for member in gone if member.pattern)
        dropped = frozenset(pattern for pattern, count in lost.items() if count == state.subscribers_of(pattern))
        records += [pattern_record(self.group_id, pattern) for pattern in sorted(dropped)]
        epoch = state.epoch + 1
        names = state.topic_names(gone, dropped=dropped)
        records.append(epoch_record(self.group_id, epoch, metadata_hash(names, topics)))
        if len(gone) == len(state.members):
            records.append(target_epoch_record(self.group_id, epoch, 0))
        for member in members:
            self.timers.cancel(member.member_id)
        return records

    # Time

    def deadline_ms(self) -> int | None:
        """Return when something is due, None if nothing is."""
        return self.timers.deadline_ms()

    def shift(self, by_ms: int) -> None:
        """The clock has been set: what is due is due so much later by it."""
        self.timers.shift(by_ms)

    def expire(self, now_ms: int, *, topics: Topics, config: GroupConfig) -> list[CoordinatorRecord]:
        """Return records for what is due first. Ask deadline_ms() again: more may be due, with these applied."""
        due = self.timers.pop(now_ms)
        if due is None:
            return []
        if due.kind == REFRESH:
            found = patterns.resolve(self.timers.patterns or (), topics.names())
            return self.patterns_resolved(found, topics.version, now_ms, topics)
        member = self.state.members.get(due.member_id)
        if member is None or (due.kind == REBALANCE and member.epoch != due.epoch):
            return []
        return self.remove([member], topics, config, now_ms)

    def _session_begins(self, member_id: str, now_ms: int, config: GroupConfig) -> None:
        self.timers.set(SESSION, member_id, now_ms + config["consumer.session.timeout.ms"])

    # Regular expressions

    def patterns_resolved(
        self, found: Mapping[str, frozenset[str]], version: int, now_ms: int, topics: Topics
    ) -> list[CoordinatorRecord]:
        """Return records for what expressions match; version: of the metadata that they were resolved with."""
        state, self.timers.patterns = self.state, None
        matches = dict(state.matches)
        records = []
        for pattern, matched in found.items():
            if state.subscribers_of(pattern):
                matches[pattern] = matched
                records.append(pattern_record(self.group_id, pattern, matched, version, now_ms))
        now_hash = metadata_hash({*state.names, *chain(*matches.values())}, topics)
        has_changed = any(matched != state.matches.get(pattern, frozenset()) for pattern, matched in matches.items())
        if has_changed or now_hash != state.metadata_hash:
            records.append(epoch_record(self.group_id, state.epoch + 1, now_hash))
            self.timers.topics_seen(now_ms, state.epoch + 1)
        return records

    # What is refused

    def check_room(self, member_id: str, instance_id: str | None, config: GroupConfig) -> None:
        """Refuse one member too many; who takes the place of a static member needs no room."""
        if member_id in self.state.members or instance_id in self.state.static:
            return
        members_max: int = config.broker["group.consumer.max.size"]
        if len(self.state.members) < members_max:
            return
        words = f"The consumer group has reached its maximum capacity of {members_max} members."
        raise KafkaError(Error.GROUP_MAX_SIZE_REACHED, words)

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, is_transactional: bool, version: int
    ) -> CheckPartition | None:
        """Refuse a commit, or return what each of its partitions must pass; None: nothing.

        An older epoch than the member's will do for what the member already had then and still has (KIP-1251).
        """
        if epoch < 0 and not self.state.members:
            return None
        if is_transactional and epoch == -1 and not member_id and instance_id is None:
            return None
        member = self.state.get_member(member_id)
        if not is_transactional and member.classic is None and version < COMMIT_WITH_MEMBER_EPOCH_SINCE:
            words = "OffsetCommit version 9 or above must be used by members using the consumer group protocol"
            raise KafkaError(Error.UNSUPPORTED_VERSION, words)
        if epoch == member.epoch:
            return None
        code, what = _by_protocol(member)
        if epoch > member.epoch:
            raise KafkaError(code, f"Received {what} {epoch} is newer than current member epoch {member.epoch}.")

        def check_partition(topic: str, topic_id: bytes, partition: int) -> None:
            given = member.held.get(topic_id, {}).get(partition)
            if given is None:
                given = member.to_revoke.get(topic_id, {}).get(partition)
            if given is None:
                words = f"Partition {topic}-{partition} is not assigned or pending revocation for member."
                raise KafkaError(code, words)
            if epoch < given:
                words = f"Received {what} {epoch} is older than assignment epoch {given} for partition "
                raise KafkaError(code, f"{words}{topic}-{partition}.")

        return check_partition

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Refuse to show offsets to a member that is not at this epoch; who names no member may see them."""
        if member_id is None and epoch < 0:
            return
        member = self.state.get_member(member_id or "")
        if epoch != member.epoch:
            code, what = _by_protocol(member)
            words = f"The received {what} {epoch} does not match the expected member epoch {member.epoch}."
            raise KafkaError(code, words)

    # What is asked of groups of both protocols (classic.py has the same)

    kind = "consumer"
    protocol_type = "consumer"

    @property
    def member_ids(self) -> Collection[str]:
        return self.state.members.keys()

    @property
    def is_idle(self) -> bool:
        """Whether nobody is in it, so that it goes with its last offset."""
        return not self.state.members

    def check_delete(self) -> None:
        """Raise unless the group can be deleted."""
        if self.state.members:
            raise KafkaError(Error.NON_EMPTY_GROUP, "The group is not empty.")

    def check_offset_delete(self) -> None:
        """Raise unless offsets can be deleted while members may be there: what they read is known."""

    def reads(self, topic: str) -> bool:
        """Whether a member reads a topic."""
        return topic in self.state.topic_names()

    def expiry_base_ms(self, topic: str, value: OffsetCommitValue) -> int | None:
        """Return since when nobody needs an offset, None: somebody does."""
        return None if self.reads(topic) else value.commit_timestamp

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return what deletes the group."""
        return self.state.tombstones()


def _updated(member: Member, request: ConsumerGroupHeartbeatRequest) -> Member:
    """Return the member with what a request says of it; what it leaves out is as it was."""
    names = request.subscribed_topic_names
    timeout_ms = request.rebalance_timeout_ms
    return member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == UNCHANGED else timeout_ms,
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        topic_names=member.topic_names if names is None else frozenset(names),
        pattern=member.pattern if request.subscribed_topic_regex is None else request.subscribed_topic_regex,
    )


def group_not_found(group_id: str, *, is_leaving: bool = False) -> KafkaError:
    """Return what a heartbeat is answered with that does not join, if there is no group."""
    kind = "Group" if is_leaving else "Consumer group"
    return KafkaError(Error.GROUP_ID_NOT_FOUND, f"{kind} {group_id} not found.")


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    """Refuse a request that contradicts itself."""
    epoch = request.member_epoch
    if version >= MEMBER_MAKES_ITS_ID_SINCE or epoch > JOINING or epoch == LEAVING:
        _check_not_empty(request.member_id, "MemberId")
    _check_not_empty(request.group_id, "GroupId")
    _check_not_empty(request.instance_id, "InstanceId")
    _check_not_empty(request.rack_id, "RackId")
    if epoch == JOINING:
        if request.rebalance_timeout_ms == UNKNOWN_TIMEOUT:
            raise KafkaError(Error.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise KafkaError(Error.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            words = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            raise KafkaError(Error.INVALID_REQUEST, words)
    elif epoch == LEFT_FOR_A_WHILE:
        if request.instance_id is None:
            raise KafkaError(Error.INVALID_REQUEST, "InstanceId can't be null.")
    elif epoch < LEFT_FOR_A_WHILE:
        raise KafkaError(Error.INVALID_REQUEST, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        words = f"ServerAssignor {request.server_assignor} is not supported. "
        raise KafkaError(Error.UNSUPPORTED_ASSIGNOR, f"{words}Supported assignors: {', '.join(assignors)}.")


def _check_not_empty(text: str | None, name: str) -> None:
    if text is not None and not text.strip(SPACES):
        raise KafkaError(Error.INVALID_REQUEST, f"{name} can't be empty.")


def check_released(member: Member, instance_id: str, member_id: str) -> None:
    """Refuse to take the place of a static member that has not left."""
    if member.epoch != LEFT_FOR_A_WHILE:
        words = f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
        raise KafkaError(Error.UNRELEASED_INSTANCE_ID, f"{words}id is owned by {member.member_id} member.")


def check_epoch(member: Member, epoch: int, owned: Owned | None) -> None:
    """Refuse an epoch the member is not at.

    The one before is taken too if the member owns no more than it was given then: the last answer may be lost.
    """
    if epoch in (JOINING, member.epoch):
        return
    which = "greater" if epoch > member.epoch else "smaller"
    is_repeat = epoch < member.epoch and epoch == member.previous_epoch
    if is_repeat and owned is not None and has_all(member.held, owned):
        return
    words = f"The consumer group member has a {which} member epoch ({epoch}) than the one known by the group "
    words += f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
    raise KafkaError(Error.FENCED_MEMBER_EPOCH, words)


def _by_protocol(member: Member) -> tuple[Error, str]:
    if member.classic is not None:
        return Error.ILLEGAL_GENERATION, "generation id"
    return Error.STALE_MEMBER_EPOCH, "member epoch"
