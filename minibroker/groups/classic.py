"""Group of the classic protocol: members join, one of them leads and says who gets what, all sync and get their part.

The coordinator knows nothing of topics: what members send and get are bytes to it. It counts generations and drops who
is silent. classic_states.py has the states, classic_rebalance.py what happens between two generations.

What must hold: a generation has the members that joined it and no others; every one of them is answered; what the
members were given is in the log before the first of them is told; a member that is silent for its session timeout is
dropped then, and not earlier.
Pure: time is an argument, answers and records go out through what the group was given.
Not here: requests and their versions (broker/handlers/groups.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from minibroker.config import BrokerConfig
from minibroker.errors import Error, KafkaError
from minibroker.groups.classic_members import (
    JoinReply,
    Member,
    Members,
    Protocols,
    SyncReply,
    join_refused,
    sync_refused,
)
from minibroker.groups.classic_rebalance import Rebalance
from minibroker.groups.classic_states import COMPLETING, DEAD, EMPTY, END, EVENTS, PREPARING, STABLE, State
from minibroker.groups.consumer_protocol import CONSUMER, subscribed_topics
from minibroker.groups.records import CoordinatorRecord
from minibroker.protocol.messages.join_group import JoinGroupResponse
from minibroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from minibroker.stored.group_offsets import GroupMetadataKey, GroupMetadataValue, OffsetCommitValue

Done = Callable[[Error], None]
Write = Callable[[list[CoordinatorRecord], Done], None]
Clock = Callable[[], int]
Told = Callable[[str, str, str], None]  # state before and now, the same if it is about a member, and why


class ClassicGroup:
    """One group."""

    kind = "classic"

    def __init__(
        self,
        group_id: str,
        config: BrokerConfig,
        write: Write,
        clock: Clock,
        told: Told = lambda before, after, why: None,
    ):
        """write: takes records, and calls back when they are safe, or why they are not; clock: says when that is."""
        self.group_id = group_id
        self.config = config
        self.write = write
        self.state: State = EMPTY
        self.clock = clock
        self.since_ms = clock()  # the state
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members = Members()
        self.topics: frozenset[str] | None = None  # what all consumers of this generation read; None: not known
        self.rebalance = Rebalance(self)
        self._wake_ms: int | None = None
        self.told = told
        self.has_record = False  # one was written, or was about to be: what is in the log has to be deleted there

    # As the log tells

    def restore(self, value: GroupMetadataValue, now_ms: int) -> None:
        """Be as when the record was written; members have a session timeout to show up."""
        self.has_record = True
        self.generation, self.protocol = value.generation, value.protocol
        self.protocol_type = value.protocol_type or None
        if value.current_state_timestamp != -1:
            self.since_ms = value.current_state_timestamp
        for each in value.members:
            self.members.add(Member.from_stored(each, value.protocol or ""))
        self.members.leader = value.leader or self.members.leader
        self.state = STABLE if value.members else EMPTY
        self.note_topics()
        self.loaded(now_ms)

    def loaded(self, now_ms: int) -> None:
        """Begin all sessions anew."""
        for member in self.members:
            self.beat(member, now_ms)

    def record(self, assignments: Mapping[str, bytes] | None = None) -> CoordinatorRecord:
        """Return the group as it is written down; assignments: those that are not given out yet."""
        self.has_record = True
        given = {each.id: each.assignment for each in self.members} if assignments is None else assignments
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.members.leader,
            current_state_timestamp=self.since_ms,
            members=[each.stored(self.protocol, given.get(each.id, b"")) for each in self.members],
        )
        return GroupMetadataKey(group=self.group_id), value

    # Join

    def join(
        self,
        reply: JoinReply,
        member: Member,
        *,
        has_id: bool,
        now_ms: int,
        needs_id_first: bool = False,
        skips_assignment: bool = False,
    ) -> None:
        """Let somebody join, for the first time or again; the reply is called now, or when the members are known.

        has_id: it was told its id before; otherwise it is a new one. needs_id_first: who comes without an id is given
        one, and has to join with it (KIP-394). skips_assignment: a leader that returns understands that it need not
        assign again (KIP-814).
        """
        is_pending = has_id and member.id in self.members.pending
        if not self._has_room(member.id):
            reply(join_refused(Error.GROUP_MAX_SIZE_REACHED, ""))
        elif self.state is DEAD:
            reply(join_refused(Error.COORDINATOR_NOT_AVAILABLE, member.id if has_id else ""))
        elif not self._suits(member.protocol_type, member.protocols):
            reply(join_refused(Error.INCONSISTENT_GROUP_PROTOCOL, member.id if has_id else ""))
        elif has_id and not is_pending:
            self._join_again(reply, member, now_ms)
        elif is_pending or (member.instance_id is None and not needs_id_first):
            self._add(reply, member, now_ms)
        elif member.instance_id is None:
            self.members.pending[member.id] = now_ms + member.session_timeout_ms
            self.wake_at(now_ms + member.session_timeout_ms)
            reply(join_refused(Error.MEMBER_ID_REQUIRED, member.id))
        elif (old := self.members.of_instance(member.instance_id)) is not None:
            self._replace(reply, old, member, now_ms, skips_assignment=skips_assignment)
        else:
            self._add(reply, member, now_ms)
        self.rebalance.complete_if_all_have_joined(now_ms)

    def _has_room(self, member_id: str) -> bool:
        size_max: int = self.config["group.max.size"]
        if self.state is PREPARING:
            known = self.members.get(member_id)
            return (known is not None and known.joining is not None) or self.members.joining_count < size_max
        if self.state in (COMPLETING, STABLE):
            return member_id in self.members or len(self.members) < size_max
        return True

    def _suits(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether there is a protocol that all members have, this one too."""
        if self.state is EMPTY:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and any(self.members.have_all(name) for name, _ in protocols)

    def _add(self, reply: JoinReply, member: Member, now_ms: int) -> None:
        if not self.members:
            self.protocol_type = member.protocol_type
        member.is_new = True
        member.joining = reply
        self.members.add(member)
        self.rebalance.newcomer(member, now_ms)

    def _join_again(self, reply: JoinReply, new: Member, now_ms: int) -> None:
        try:
            member = self.members.check(new.id, new.instance_id)
        except KafkaError as error:
            reply(join_refused(error.code, new.id))
            return
        is_same = member.protocols == new.protocols
        if is_same and (self.state is COMPLETING or (self.state is STABLE and member.id != self.members.leader)):
            reply(self.joined(member))  # the answer to its last JoinGroup was lost
        elif self.state is EMPTY:
            reply(join_refused(Error.UNKNOWN_MEMBER_ID, new.id))
        else:
            if not is_same:
                self.members.change_protocols(member, new.protocols)
            member.session_timeout_ms = new.session_timeout_ms
            member.rebalance_timeout_ms = new.rebalance_timeout_ms
            self.members.wait_for_join(member, reply)
            self.rebalance.begin_or_complete(now_ms, f"{member.name} has joined again")

    def _replace(self, reply: JoinReply, old: Member, new: Member, now_ms: int, *, skips_assignment: bool) -> None:
        """Let a static member that has restarted take its own place, if possible without a rebalance."""
        leader_before = self.members.leader
        self.members.replace(old, new)
        self.beat(new, now_ms)
        if self.state is not STABLE or self.members.choose_protocol() != self.protocol:
            self.members.wait_for_join(new, reply)
            if self.state is not PREPARING:
                self.rebalance.begin(now_ms, f"static member {new.instance_id} has returned")
            return

        def written(error: Error) -> None:
            if error != Error.NONE:
                if self.members.get(new.id) is new:
                    self.members.replace(new, old)
                reply(join_refused(Error.UNKNOWN_MEMBER_ID, new.id))
                return
            joined = self.joined(new)
            if skips_assignment:
                joined.skip_assignment = new.id == self.members.leader
                joined.members = self.member_metadata() if joined.skip_assignment else []
            else:  # it must not take itself for the leader, and assign anew
                joined.leader = leader_before or ""
            reply(joined)

        self.write([self.record()], written)

    def joined(self, member: Member) -> JoinGroupResponse:
        """Return what a member is told that is in; the leader of a generation that begins hears of the others."""
        is_leader = member.id == self.members.leader
        return JoinGroupResponse(
            error_code=Error.NONE,
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.members.leader or "",
            member_id=member.id,
            members=self.member_metadata() if is_leader and self.state is not STABLE else [],
        )

    def member_metadata(self) -> list[JoinGroupResponse.JoinGroupResponseMember]:
        Joined = JoinGroupResponse.JoinGroupResponseMember
        return [
            Joined(member_id=each.id, group_instance_id=each.instance_id, metadata=each.metadata(self.protocol))
            for each in self.members
        ]

    def note_topics(self) -> None:
        """Look what the members read, if they say it in a way that is known here."""
        self.topics = None
        if self.protocol_type == CONSUMER and (self.protocol is not None or not self.members):
            self.topics = subscribed_topics(member.metadata(self.protocol) for member in self.members)

    # Sync

    def sync(self, reply: SyncReply, request: SyncGroupRequest) -> None:
        """Hand in what the leader has worked out, or ask for one's own part; the reply waits for the leader."""
        try:
            member = self._check(request.member_id, request.group_instance_id, request.generation_id)
            type_, name = request.protocol_type, request.protocol_name
            if type_ not in (None, self.protocol_type) or name not in (None, self.protocol):
                raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL, f"the group has {self.protocol}")
            if self.state.sync != Error.NONE:
                raise KafkaError(self.state.sync, f"the group is {self.state}")
        except KafkaError as error:
            reply(sync_refused(error.code))
            return
        self.members.unsynced.pop(member.id, None)
        if self.state is STABLE:
            reply(self.synced(member))
            return
        member.syncing = reply
        if member.id == self.members.leader:
            self.rebalance.assign({each.member_id: bytes(each.assignment) for each in request.assignments})

    def synced(self, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(
            error_code=Error.NONE,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignment=member.assignment,
        )

    # The others

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> Error:
        """Note that a member lives; return what it is told."""
        member = self._check(member_id, instance_id, generation)
        self.beat(member, now_ms)
        return self.state.heartbeat

    def leave(self, member_id: str, instance_id: str | None) -> None:
        """Let a member go. `left` has to be called when all have gone who go together."""
        if self.state is DEAD:
            raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE, "the group is gone")
        if member_id in self.members.pending:
            del self.members.pending[member_id]
            return
        if not member_id and instance_id is not None:
            found = self.members.of_instance(instance_id)
            if found is None:
                raise KafkaError(Error.UNKNOWN_MEMBER_ID, f"no member is called {instance_id}")
            member_id = found.id
        self.members.check(member_id, instance_id)
        self.drop(member_id)

    def left(self, now_ms: int, why: str) -> None:
        """Go on without those who are gone. Who only had an id may leave a group that nobody is in: it stays Empty."""
        if self.state not in (EMPTY, DEAD):
            self.rebalance.begin_or_complete(now_ms, why)

    def drop(self, member_id: str) -> None:
        """Take a member out, whatever it waits for."""
        self.members.remove(member_id).refuse(Error.UNKNOWN_MEMBER_ID)

    def end(self, error: Error, now_ms: int) -> None:
        """Enter Dead and fail all waiting joins and syncs: it is deleted, or its coordinator is another."""
        for member in self.members:
            member.refuse(error)
        self.become(END, now_ms, "it is gone")
        self._wake_ms = None

    def _check(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        """Return a member of this generation; raise if it is none."""
        if self.state is DEAD:
            raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE, "the group is gone")
        member = self.members.check(member_id, instance_id)
        if generation != self.generation:
            raise KafkaError(Error.ILLEGAL_GENERATION, f"generation {generation}, it is {self.generation}")
        return member

    # Time and state

    def deadline_ms(self) -> int | None:
        """Return when `expire` wants to be called, at the latest."""
        return self._wake_ms

    def beat(self, member: Member, now_ms: int) -> None:
        """Begin a member's session anew."""
        member.due_ms = now_ms + member.session_timeout_ms
        self.wake_at(member.due_ms)

    def wake_at(self, due_ms: int) -> None:
        if self._wake_ms is None or due_ms < self._wake_ms:
            self._wake_ms = due_ms

    def shift(self, by_ms: int) -> None:
        """The clock has been set: what is due is due so much later by it."""
        for member in self.members:
            member.due_ms += by_ms
        self.members.pending = {member_id: due_ms + by_ms for member_id, due_ms in self.members.pending.items()}
        self.rebalance.shift(by_ms)
        if self._wake_ms is not None:
            self._wake_ms += by_ms

    def expire(self, now_ms: int) -> None:
        """Do all that is due."""
        self.rebalance.expire(now_ms)
        for member_id, due_ms in list(self.members.pending.items()):
            if now_ms >= due_ms:
                del self.members.pending[member_id]
                self.rebalance.complete_if_all_have_joined(now_ms)
        for member in list(self.members):
            if now_ms >= member.due_ms and not member.is_waiting and self.members.get(member.id) is member:
                self.drop(member.id)
                self.left(now_ms, f"{member.name} has been silent for longer than its session timeout")
        dues = [*self.rebalance.dues, *self.members.pending.values()]
        # A member that waits gets a new deadline when it is answered.
        self._wake_ms = min(dues + [each.due_ms for each in self.members if not each.is_waiting], default=None)

    def become(self, event: str, now_ms: int, why: str) -> None:
        before, self.state, self.since_ms = self.state, EVENTS[event][self.state], now_ms
        self.told(before.name, self.state.name, why)

    # What is asked of its offsets

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now_ms: int,
        *,
        is_transactional: bool = False,
    ) -> None:
        """Raise unless offsets may be committed: by a member of this generation, or from outside while nobody is in.

        In a transaction who does not say who he is is believed: the oldest producers cannot.
        """
        if self.state is DEAD:
            raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE, "the group is gone")
        if generation < 0 and self.state is EMPTY:
            return
        if generation < 0 and not member_id and instance_id is None:
            if is_transactional:
                return
            raise KafkaError(Error.UNKNOWN_MEMBER_ID, "the group has members, and others cannot commit for it")
        member = self._check(member_id, instance_id, generation)
        if is_transactional:
            return
        self.beat(member, now_ms)
        if self.state.commit != Error.NONE:
            raise KafkaError(self.state.commit, f"the group is {self.state}")

    def check_delete(self) -> None:
        """Raise unless the group can be deleted."""
        if self.state is DEAD:
            raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"there is no group {self.group_id!r}")
        if self.state is not EMPTY:
            raise KafkaError(Error.NON_EMPTY_GROUP, f"the group is {self.state}")

    def check_offset_delete(self) -> None:
        """Raise unless offsets can be deleted while members may be there: it must be known what they read."""
        if self.state is not EMPTY and self.protocol_type != CONSUMER:
            raise KafkaError(Error.NON_EMPTY_GROUP, f"the group is {self.state}")

    def reads(self, topic: str) -> bool:
        """Whether a member reads a topic; all do, as long as that is not known."""
        return self.state is not EMPTY and (self.topics is None or topic in self.topics)

    def expiry_base_ms(self, topic: str, value: OffsetCommitValue) -> int | None:
        """Return since when nobody needs an offset, None: somebody does."""
        if self.protocol_type is None:
            return value.commit_timestamp
        if self.state is EMPTY:
            return self.since_ms
        is_unread = self.state is STABLE and self.topics is not None and topic not in self.topics
        return value.commit_timestamp if is_unread else None

    @property
    def member_ids(self) -> Collection[str]:
        return self.members.ids

    @property
    def is_idle(self) -> bool:
        """Whether nobody is in it, so that it goes with its last offset."""
        return self.state is EMPTY and not self.members.pending

    def tombstones(self) -> list[CoordinatorRecord]:
        return [(GroupMetadataKey(group=self.group_id), None)]
