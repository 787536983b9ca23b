"""Bugs of groups that simulated runs must find (tests/planting.py says what a bug is).

tests/simulation/test_group_runs.py has their budgets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minibroker.coordinator.log import CoordinatorLog, Write
from minibroker.errors import Error
from minibroker.groups.classic import ClassicGroup
from minibroker.groups.classic_members import Member, Members
from minibroker.groups.classic_rebalance import Rebalance
from minibroker.groups.consumer import ConsumerGroup
from minibroker.groups.consumer_change import Step
from minibroker.groups.offsets_partition import OffsetsPartition

SESSION_MS = 1 << 40
assign, complete = Rebalance.assign, Rebalance._complete
check_member, check_instance = ClassicGroup._check, Members.check
check_commit, reconcile = ConsumerGroup.check_commit, Step._towards_target
append, take_offset, check_group = CoordinatorLog._append, OffsetsPartition._take_offset, OffsetsPartition.check


# The classic protocol


def complete_in_the_same_generation(rebalance: Rebalance, now_ms: int) -> None:
    group, generation = rebalance.group, rebalance.group.generation
    group.generation -= 1
    complete(rebalance, now_ms)
    group.generation = generation


def assign_before_it_is_written(rebalance: Rebalance, assignments: Mapping[str, bytes]) -> None:
    group, write = rebalance.group, rebalance.group.write

    def write_and_go_on(records: Any, done: Any) -> None:
        group.write = write
        write(records, lambda error: None)
        done(Error.NONE)

    group.write = write_and_go_on
    assign(rebalance, assignments)


def check_no_generation(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int) -> Member:
    return check_member(group, member_id, instance_id, group.generation)


def hear_nothing(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> Error:
    group._check(member_id, instance_id, generation)
    return group.state.heartbeat


def beat_for_ever(group: ClassicGroup, member: Member, now_ms: int) -> None:
    member.due_ms = now_ms + SESSION_MS
    group.wake_at(member.due_ms)


def check_either_instance(members: Members, member_id: str, instance_id: str | None) -> Member:
    current = members.of_instance(instance_id or "")
    return check_instance(members, member_id if current is None else current.id, instance_id)


# The consumer protocol


def give_before_it_is_revoked(step: Step, member: Any, epoch: int) -> Any:
    is_owned, step.is_owned = step.is_owned, lambda topic_id, partition: False
    try:
        return reconcile(step, member, epoch)
    finally:
        step.is_owned = is_owned


def check_members_only(group: ConsumerGroup, member_id: str, *given: Any, **named: Any) -> Any:
    return check_commit(group, member_id, *given, **named) if member_id in group.state.members else None


# The coordinator's log


def confirm_at_once(log: CoordinatorLog, writes: list[Write]) -> None:
    append(log, writes)
    for write in writes:
        log._answer(write, Error.NONE)


def show_at_once(log: CoordinatorLog, writes: list[Write]) -> None:
    append(log, writes)
    for write in writes:
        log._in_flight.remove(write)
        log._owner.committed(write)


def begin_before_it_is_safe(led: OffsetsPartition, group_id: str) -> None:
    unsafe, led._unsafe = led._unsafe, {}
    try:
        check_group(led, group_id)
    finally:
        led._unsafe = unsafe


def forget_what_is_unsafe(led: OffsetsPartition, group_id: str, mark: Any, is_safe: bool, offset: int) -> None:
    if is_safe:
        take_offset(led, group_id, mark, is_safe, offset)


BUGS: dict[str, list[tuple[object, str, object]]] = {
    "absent-members-stay": [(Rebalance, "_drop_absent", lambda rebalance: None)],
    "any-generation": [(ClassicGroup, "_check", check_no_generation)],
    "assigned-before-written": [(Rebalance, "assign", assign_before_it_is_written)],
    "begins-before-safe": [(OffsetsPartition, "check", begin_before_it_is_safe)],
    "confirms-unsafe-rows": [(CoordinatorLog, "_append", confirm_at_once)],
    "forgets-unsafe-offsets": [(OffsetsPartition, "_take_offset", forget_what_is_unsafe)],
    "generation-stays": [(Rebalance, "_complete", complete_in_the_same_generation)],
    "given-before-revoked": [(Step, "_towards_target", give_before_it_is_revoked)],
    "heartbeat-is-not-noted": [(ClassicGroup, "heartbeat", hear_nothing)],
    "old-instance-lives": [(Members, "check", check_either_instance)],
    "session-never-ends": [(ClassicGroup, "beat", beat_for_ever)],
    "shows-unsafe-offsets": [(CoordinatorLog, "_append", show_at_once)],
    "strangers-commit": [(ConsumerGroup, "check_commit", check_members_only)],
}
