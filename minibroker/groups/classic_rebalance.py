"""Rebalance of a classic group: from one generation to the next, by joining and by what the leader assigns.

    begin       everybody has to join; newcomers may
    complete    those who have are the next generation, and hear of it; the others are gone
    assign      what the leader has worked out is written down, and each is told its part

A group that was empty waits for group.initial.rebalance.delay.ms, so that members which start together do not
rebalance for each of them, and again for as long while more come, up to their rebalance timeout.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from minibroker.errors import Error
from minibroker.groups.classic_members import Member, sync_refused
from minibroker.groups.classic_states import ASSIGN, BEGIN, COMPLETE, COMPLETING, EMPTY, PREPARING, VACATE

if TYPE_CHECKING:
    from minibroker.groups.classic import ClassicGroup


NEW_MEMBER_JOIN_MS: Final = 300_000  # who was never answered has so long: it may never hear of its id


class Rebalance:
    """The rebalances of one group."""

    def __init__(self, group: ClassicGroup):
        self.group = group
        self._has_newcomers = False  # since the present delay of an empty group began
        self._delay_ms: int | None = None  # while a group that was empty waits for more members
        self._delay_left_ms = 0  # by how much that can still be drawn out
        self._join_due_ms: int | None = None
        self._sync_due_ms: int | None = None

    def newcomer(self, member: Member, now_ms: int) -> None:
        """Have one more: a rebalance begins, or goes on with it."""
        self._has_newcomers = True
        member.due_ms = now_ms + NEW_MEMBER_JOIN_MS
        self.group.wake_at(member.due_ms)
        self.begin_or_complete(now_ms, f"{member.name} has joined")

    def begin_or_complete(self, now_ms: int, why: str) -> None:
        """Begin a rebalance if there is none, else see whether it can go on."""
        if self.group.state is PREPARING:
            self.group.told(PREPARING.name, PREPARING.name, why)
            self.complete_if_all_have_joined(now_ms)
        else:
            self.begin(now_ms, why)

    def begin(self, now_ms: int, why: str) -> None:
        """Have everybody join."""
        group = self.group
        if group.state is COMPLETING:
            self._refuse_syncs(Error.REBALANCE_IN_PROGRESS, now_ms)
        self._sync_due_ms = None
        is_first, delay_ms = group.state is EMPTY, group.config["group.initial.rebalance.delay.ms"]
        group.become(BEGIN, now_ms, why)
        if is_first and delay_ms > 0:
            self._delay_ms = delay_ms
            self._delay_left_ms = max(group.members.rebalance_timeout_ms - delay_ms, 0)
            self._has_newcomers = False
            self._join_due(now_ms + delay_ms)
        elif is_first:
            self._complete(now_ms)
        elif not self.complete_if_all_have_joined(now_ms):
            self._join_due(now_ms + group.members.rebalance_timeout_ms)

    def complete_if_all_have_joined(self, now_ms: int) -> bool:
        group = self.group
        if group.state is PREPARING and self._delay_ms is None and group.members.have_all_joined:
            self._complete(now_ms)
            return True
        return False

    def _complete(self, now_ms: int) -> None:
        """Begin a generation of those who have joined."""
        group, members = self.group, self.group.members
        self._delay_ms = self._join_due_ms = None
        self._drop_absent()
        if members and not members.elect():
            # Static members only, and none has come back: their sessions will end, or they join.
            self._join_due(now_ms + members.rebalance_timeout_ms)
            return
        group.generation += 1
        members.unsynced.clear()
        group.protocol = members.choose_protocol()
        group.note_topics()
        if not members:
            group.become(VACATE, now_ms, "nobody is left")
            group.write([group.record()], lambda error: None)
            return
        count = f"{len(members)} members have" if len(members) > 1 else "one member has"
        group.become(COMPLETE, now_ms, f"{count} joined generation {group.generation}")
        for member in members:
            reply = members.take_reply(member)
            group.beat(member, now_ms)
            member.is_new = False
            members.unsynced[member.id] = None
            if reply is not None:
                reply(group.joined(member))
        self._sync_due_ms = now_ms + members.rebalance_timeout_ms
        group.wake_at(self._sync_due_ms)

    def _drop_absent(self) -> None:
        """Go on without the dynamic members that have not joined."""
        members = self.group.members
        for member in list(members):
            if member.joining is None and member.instance_id is None:
                members.remove(member.id)

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Write down what the leader has worked out, then tell everybody."""
        group, generation = self.group, self.group.generation

        def written(error: Error) -> None:
            if group.state is not COMPLETING or group.generation != generation:
                return  # another rebalance has begun meanwhile
            now_ms = group.clock()
            if error != Error.NONE:
                self._refuse_syncs(error, now_ms)
                self.begin(now_ms, "the assignment could not be written")
                return
            for member in group.members:
                member.assignment = assignments.get(member.id, b"")
            group.become(ASSIGN, now_ms, f"the leader has said who gets what in generation {generation}")
            for member in group.members:
                reply, member.syncing = member.syncing, None
                if reply is not None:
                    group.beat(member, now_ms)
                    reply(group.synced(member))

        group.write([group.record(assignments)], written)

    def _refuse_syncs(self, error: Error, now_ms: int) -> None:
        for member in self.group.members:
            member.assignment = b""
            reply, member.syncing = member.syncing, None
            if reply is not None:
                self.group.beat(member, now_ms)  # it may have ended while it waited, and who waits is not dropped
                reply(sync_refused(error))

    # Time

    @property
    def dues(self) -> list[int]:
        return [due_ms for due_ms in (self._join_due_ms, self._sync_due_ms) if due_ms is not None]

    def shift(self, by_ms: int) -> None:
        if self._join_due_ms is not None:
            self._join_due_ms += by_ms
        if self._sync_due_ms is not None:
            self._sync_due_ms += by_ms

    def expire(self, now_ms: int) -> None:
        """Go on without those who have not joined, or not synced, in time."""
        group = self.group
        if self._join_due_ms is not None and now_ms >= self._join_due_ms:
            self._join_is_due(now_ms)
        if self._sync_due_ms is not None and now_ms >= self._sync_due_ms:
            self._sync_due_ms = None
            if group.members.unsynced:
                for member_id in list(group.members.unsynced):
                    group.drop(member_id)
                self.begin(now_ms, "members have not synced in time")

    def _join_due(self, due_ms: int) -> None:
        self._join_due_ms = due_ms
        self.group.wake_at(due_ms)

    def _join_is_due(self, now_ms: int) -> None:
        if self._delay_ms is None or not self._has_newcomers or not self._delay_left_ms:
            self._complete(now_ms)
            return
        delay_ms = min(self.group.config["group.initial.rebalance.delay.ms"], self._delay_left_ms)
        self._delay_left_ms = max(self._delay_left_ms - self._delay_ms, 0)
        self._delay_ms = delay_ms
        self._has_newcomers = False
        self._join_due(now_ms + delay_ms)
