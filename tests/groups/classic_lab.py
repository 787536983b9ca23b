"""A classic group on a table: time by hand, answers in lists, rows that are safe when the test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from minibroker.errors import Error, KafkaError
from minibroker.groups.classic import ClassicGroup
from minibroker.groups.classic_members import Member
from minibroker.protocol.messages.join_group import JoinGroupResponse
from minibroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from minibroker.groups.records import CoordinatorRecord

SESSION_MS, REBALANCE_MS = 10_000, 30_000
PROTOCOLS = [("range", b"r"), ("sticky", b"s")]


class Lab:
    """One group."""

    def __init__(self, *, delay_ms: int = 0, size_max: int = 100, is_slow: bool = False):
        """is_slow: rows are safe when `settle` is called, and not before."""
        self.now_ms = 0
        self.is_slow = is_slow
        self.rows: list[CoordinatorRecord] = []
        self.unsettled: list[Callable[[Error], None]] = []
        self.changes: list[str] = []
        self.config = {"group.max.size": size_max, "group.initial.rebalance.delay.ms": delay_ms}
        self.group = ClassicGroup(
            "g", self.config, self.write, lambda: self.now_ms, lambda before, after, why: self.changes.append(after)
        )

    def write(self, rows: list[CoordinatorRecord], done: Callable[[Error], None]) -> None:
        self.rows += rows
        self.unsettled.append(done)
        if not self.is_slow:
            self.settle()

    def settle(self, error: Error = Error.NONE) -> None:
        waiting, self.unsettled = self.unsettled, []
        for done in waiting:
            done(error)

    def join(
        self,
        member_id: str,
        *,
        is_new: bool = False,
        instance_id: str | None = None,
        protocols: list[tuple[str, bytes]] = PROTOCOLS,
        protocol_type: str = "test",
        needs_id_first: bool = False,
        skips_assignment: bool = False,
        rebalance_ms: int = REBALANCE_MS,
    ) -> list[JoinGroupResponse]:
        """Ask to join; is_new: without an id, and this is the one that it gets."""
        answers: list[JoinGroupResponse] = []
        member = Member(
            member_id,
            instance_id,
            client_id="c",
            client_host="/127.0.0.1",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=protocols,
        )
        self.group.join(
            answers.append,
            member,
            has_id=not is_new,
            now_ms=self.now_ms,
            needs_id_first=needs_id_first,
            skips_assignment=skips_assignment,
        )
        return answers

    def sync(
        self, member_id: str, generation: int, *, instance_id: str | None = None, **given: bytes
    ) -> list[SyncGroupResponse]:
        """Ask for an assignment; given: what the leader gives to whom."""
        answers: list[SyncGroupResponse] = []
        Assignment = SyncGroupRequest.SyncGroupRequestAssignment
        request = SyncGroupRequest(
            group_id="g",
            member_id=member_id,
            group_instance_id=instance_id,
            generation_id=generation,
            assignments=[Assignment(member_id=name, assignment=assignment) for name, assignment in given.items()],
        )
        self.group.sync(answers.append, request)
        return answers

    def beat(self, member_id: str, generation: int, instance_id: str | None = None) -> Error:
        try:
            return self.group.heartbeat(member_id, instance_id, generation, self.now_ms)
        except KafkaError as error:
            return error.code

    def leave(self, member_id: str, instance_id: str | None = None) -> Error:
        try:
            self.group.leave(member_id, instance_id)
        except KafkaError as error:
            return error.code
        self.group.left(self.now_ms, "it left")
        return Error.NONE

    def commit(self, member_id: str, generation: int, instance_id: str | None = None) -> Error:
        try:
            self.group.check_commit(member_id, instance_id, generation, self.now_ms)
        except KafkaError as error:
            return error.code
        return Error.NONE

    def advance(self, to_ms: int) -> None:
        """Let time pass; what is due is done at its time."""
        while (due_ms := self.group.deadline_ms()) is not None and due_ms <= to_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.group.expire(self.now_ms)
        self.now_ms = to_ms

    def stable(self, *members: str, **instances: str) -> int:
        """Bring these into one generation, assigned; return it."""
        everybody = {**dict.fromkeys(members), **{member: name for name, member in instances.items()}}
        for member, instance_id in everybody.items():
            if member not in self.group.members:
                self.join(member, is_new=True, instance_id=instance_id)
        for member, instance_id in everybody.items():
            if self.group.state.name == "PreparingRebalance":
                self.join(member, instance_id=instance_id)
        generation = self.group.generation
        leader = self.group.members.leader or ""
        for member, instance_id in everybody.items():
            if member != leader:
                self.sync(member, generation, instance_id=instance_id)
        self.sync(leader, generation, instance_id=everybody[leader], **{each: each.encode() for each in everybody})
        self.settle()
        assert self.group.state.name == "Stable"
        return generation
