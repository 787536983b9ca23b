"""The classic protocol's rules, one by one."""

from __future__ import annotations

import pytest

from minibroker.errors import Error, KafkaError
from minibroker.groups.classic import ClassicGroup
from minibroker.groups.classic_states import DEAD, EMPTY, END, EVENTS, STATES

from .classic_lab import REBALANCE_MS, SESSION_MS, Lab


def test_a_first_member_leads_and_hears_of_all() -> None:
    lab = Lab()
    (answer,) = lab.join("a", is_new=True)
    assert (answer.error_code, answer.generation_id) == (Error.NONE, 1)
    assert (answer.leader, answer.protocol_name) == ("a", "range")
    assert [(each.member_id, each.group_instance_id, each.metadata) for each in answer.members] == [("a", None, b"r")]
    (synced,) = lab.sync("a", 1, a=b"all")
    assert (synced.error_code, synced.assignment, synced.protocol_type) == (Error.NONE, b"all", "test")
    assert lab.changes == ["PreparingRebalance", "CompletingRebalance", "Stable"]


def test_without_an_id_one_is_given_first() -> None:
    lab = Lab()
    (answer,) = lab.join("a", is_new=True, needs_id_first=True)
    assert (answer.error_code, answer.member_id, answer.generation_id) == (Error.MEMBER_ID_REQUIRED, "a", -1)
    (answer,) = lab.join("a", needs_id_first=True)
    assert (answer.error_code, answer.generation_id) == (Error.NONE, 1)


def test_an_id_that_is_not_used_is_forgotten_after_a_session() -> None:
    lab = Lab()
    lab.join("a", is_new=True, needs_id_first=True)
    lab.advance(SESSION_MS - 1)
    assert "a" in lab.group.members.pending
    lab.advance(SESSION_MS)
    (answer,) = lab.join("a")
    assert answer.error_code == Error.UNKNOWN_MEMBER_ID


def test_a_second_member_makes_the_first_join_again() -> None:
    lab = Lab()
    lab.stable("a")
    waiting = lab.join("b", is_new=True)
    assert not waiting
    assert lab.beat("a", 1) == Error.REBALANCE_IN_PROGRESS
    assert lab.sync("a", 1)[0].error_code == Error.REBALANCE_IN_PROGRESS
    (first,) = lab.join("a")
    (second,) = waiting
    assert (first.generation_id, second.generation_id) == (2, 2)
    assert [each.member_id for each in first.members] == ["a", "b"]
    assert not second.members
    assert lab.beat("a", 1) == Error.ILLEGAL_GENERATION
    assert lab.beat("a", 2) == Error.NONE


def test_who_does_not_join_in_time_is_out() -> None:
    lab = Lab()
    lab.stable("a", "b")
    waiting = lab.join("c", is_new=True)
    lab.now_ms = SESSION_MS - 1
    for member in ("a", "b"):
        assert lab.beat(member, 2) == Error.REBALANCE_IN_PROGRESS
    lab.join("a")
    lab.now_ms += SESSION_MS - 1
    lab.beat("b", 2)
    lab.now_ms += SESSION_MS - 1
    lab.beat("b", 2)
    lab.advance(REBALANCE_MS - 1)
    assert not waiting
    lab.advance(REBALANCE_MS)
    assert waiting[0].error_code == Error.NONE
    assert lab.beat("b", 2) == Error.UNKNOWN_MEMBER_ID
    assert [each.id for each in lab.group.members] == ["a", "c"]


def test_a_session_ends_exactly_when_it_is_over() -> None:
    lab = Lab()
    generation = lab.stable("a", "b")
    lab.advance(4000)
    lab.beat("a", generation)
    lab.advance(SESSION_MS - 1)
    assert "b" in lab.group.members
    lab.advance(SESSION_MS)
    assert "b" not in lab.group.members
    assert lab.group.state.name == "PreparingRebalance"
    assert lab.beat("b", generation) == Error.UNKNOWN_MEMBER_ID
    lab.advance(SESSION_MS + 3999)
    assert "a" in lab.group.members
    lab.advance(SESSION_MS + 4000)
    assert lab.group.state.name == "Empty"
    assert lab.group.protocol is None


def test_who_waits_for_the_others_does_not_expire() -> None:
    lab = Lab()
    generation = lab.stable("a", "b")
    lab.join("c", is_new=True)
    lab.join("a")
    for at_ms in range(0, REBALANCE_MS, 5000):
        lab.advance(at_ms)
        lab.beat("b", generation)
    assert [each.id for each in lab.group.members] == ["a", "b", "c"]


def test_a_newcomer_that_is_never_answered_is_forgotten_after_five_minutes() -> None:
    lab = Lab()
    generation = lab.stable("a")
    lab.join("b", is_new=True, rebalance_ms=900_000)
    for at_ms in range(0, 300_000, 5000):
        lab.advance(at_ms)
        lab.beat("a", generation)
    assert "b" in lab.group.members
    lab.beat("a", generation)
    lab.advance(300_000)
    assert "b" not in lab.group.members


def test_who_has_joined_and_does_not_sync_is_out() -> None:
    lab = Lab()
    lab.join("a", is_new=True)
    lab.join("b", is_new=True)
    lab.join("a")
    assert lab.group.generation == 2
    lab.sync("a", 2, a=b"1", b=b"2")
    for at_ms in range(5000, REBALANCE_MS + 1, 5000):
        lab.beat("a", 2)
        lab.beat("b", 2)
        lab.advance(at_ms)
    assert "b" not in lab.group.members
    assert "a" in lab.group.members


def test_a_member_that_leaves_makes_the_others_join() -> None:
    lab = Lab()
    generation = lab.stable("a", "b")
    assert lab.leave("b") == Error.NONE
    assert lab.leave("b") == Error.UNKNOWN_MEMBER_ID
    assert lab.beat("a", generation) == Error.REBALANCE_IN_PROGRESS
    (answer,) = lab.join("a")
    assert answer.generation_id == generation + 1
    assert lab.leave("a") == Error.NONE
    assert lab.group.state.name == "Empty"
    assert lab.rows[-1][1].members == []


def test_who_only_had_an_id_leaves_an_empty_group_as_it_is() -> None:
    lab = Lab(delay_ms=3000)
    (refused,) = lab.join("a", is_new=True, needs_id_first=True)
    assert refused.error_code == Error.MEMBER_ID_REQUIRED
    assert lab.leave("a") == Error.NONE
    assert (lab.group.state.name, lab.group.generation, lab.rows, lab.changes) == ("Empty", 0, [], [])
    lab.group.check_delete()


def test_the_leader_leaves_and_another_leads() -> None:
    lab = Lab()
    lab.stable("a", "b")
    lab.leave("a")
    (answer,) = lab.join("b")
    assert answer.leader == "b"
    assert answer.members


def test_the_protocol_is_the_one_that_most_want_of_those_that_all_have() -> None:
    lab = Lab()
    lab.join("a", is_new=True, protocols=[("x", b""), ("y", b""), ("z", b"")])
    lab.join("b", is_new=True, protocols=[("y", b""), ("z", b"")])
    (answer,) = lab.join("a", protocols=[("x", b""), ("y", b""), ("z", b"")])
    assert answer.protocol_name == "y"
    (refused,) = lab.join("c", is_new=True, protocols=[("x", b"")])
    assert refused.error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    (refused,) = lab.join("c", is_new=True, protocols=[("y", b"")], protocol_type="other")
    assert refused.error_code == Error.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("protocols", "protocol_type"), [([], "test"), ([("x", b"")], "")])
def test_an_empty_group_takes_nobody_without_protocols(protocols: list[tuple[str, bytes]], protocol_type: str) -> None:
    (refused,) = Lab().join("a", is_new=True, protocols=protocols, protocol_type=protocol_type)
    assert refused.error_code == Error.INCONSISTENT_GROUP_PROTOCOL


def test_a_full_group_takes_nobody() -> None:
    lab = Lab(size_max=1)
    lab.stable("a")
    (refused,) = lab.join("b", is_new=True)
    assert (refused.error_code, refused.member_id) == (Error.GROUP_MAX_SIZE_REACHED, "")


def test_a_lost_answer_is_given_again() -> None:
    lab = Lab()
    generation = lab.stable("a", "b")
    (answer,) = lab.join("b")
    assert (answer.error_code, answer.generation_id, answer.members) == (Error.NONE, generation, [])
    lab.join("a")
    assert lab.group.state.name == "PreparingRebalance"  # the leader wants to assign anew


def test_a_member_with_other_wishes_makes_a_rebalance() -> None:
    lab = Lab()
    generation = lab.stable("a", "b")
    assert not lab.join("b", protocols=[("range", b"other")])
    assert lab.beat("a", generation) == Error.REBALANCE_IN_PROGRESS


def test_nobody_is_told_before_the_assignment_is_safe() -> None:
    lab = Lab(is_slow=True)
    lab.join("a", is_new=True)
    waiting = lab.sync("a", 1, a=b"all")
    assert not waiting
    assert lab.group.state.name == "CompletingRebalance"
    assert lab.commit("a", 1) == Error.REBALANCE_IN_PROGRESS
    lab.settle()
    assert waiting[0].assignment == b"all"
    assert lab.commit("a", 1) == Error.NONE


def test_an_assignment_that_cannot_be_written_is_no_assignment() -> None:
    lab = Lab(is_slow=True)
    lab.join("a", is_new=True)
    waiting = lab.sync("a", 1, a=b"all")
    lab.settle(Error.COORDINATOR_NOT_AVAILABLE)
    assert waiting[0].error_code == Error.COORDINATOR_NOT_AVAILABLE
    (answer,) = lab.join("a")
    assert answer.generation_id == 2


def test_a_group_that_was_empty_waits_for_more_members() -> None:
    lab = Lab(delay_ms=3000)
    first = lab.join("a", is_new=True)
    lab.advance(2000)
    second = lab.join("b", is_new=True)
    lab.advance(3000)
    assert not first
    assert not second
    lab.advance(5999)
    assert not first
    lab.advance(6000)
    assert first[0].generation_id == second[0].generation_id == 1


def test_the_delay_ends_with_the_rebalance_timeout() -> None:
    lab = Lab(delay_ms=1700)
    first = lab.join("m0", is_new=True, rebalance_ms=4300)
    for number in range(1, 100):
        lab.advance(number * 100)
        lab.join(f"m{number}", is_new=True, rebalance_ms=4300)
        if first:
            break
    assert 4300 <= lab.now_ms < 4400


class TestStaticMembers:
    def test_a_restart_needs_no_rebalance(self) -> None:
        lab = Lab()
        generation = lab.stable("a", i="b")
        (answer,) = lab.join("b2", is_new=True, instance_id="i")
        assert (answer.error_code, answer.generation_id, answer.member_id) == (Error.NONE, generation, "b2")
        assert lab.group.state.name == "Stable"
        assert lab.beat("a", generation) == Error.NONE
        (synced,) = lab.sync("b2", generation, instance_id="i")
        assert synced.assignment == b"b"
        assert lab.beat("b", generation, "i") == Error.FENCED_INSTANCE_ID
        assert lab.beat("b", generation) == Error.UNKNOWN_MEMBER_ID
        assert lab.commit("b", generation, "i") == Error.FENCED_INSTANCE_ID

    @pytest.mark.parametrize("skips", [False, True])
    def test_a_leader_that_returns_does_not_assign_anew(self, skips: bool) -> None:
        lab = Lab()
        generation = lab.stable(i="a")
        (answer,) = lab.join("a2", is_new=True, instance_id="i", skips_assignment=skips)
        assert answer.generation_id == generation
        assert answer.skip_assignment is skips
        assert answer.leader == ("a2" if skips else "a")
        assert bool(answer.members) is skips

    def test_it_is_not_dropped_when_it_joins_late_but_when_its_session_ends(self) -> None:
        lab = Lab()
        generation = lab.stable("a", i="b")
        lab.leave("a")
        lab.advance(SESSION_MS - 1)
        assert "b" in lab.group.members
        lab.advance(SESSION_MS)
        assert lab.group.state.name == "Empty"
        assert lab.group.generation == generation + 1

    def test_who_cannot_be_written_is_who_it_was(self) -> None:
        lab = Lab(is_slow=True)
        generation = lab.stable(i="a")
        waiting = lab.join("a2", is_new=True, instance_id="i")
        lab.settle(Error.NOT_COORDINATOR)
        assert waiting[0].error_code == Error.UNKNOWN_MEMBER_ID
        assert lab.beat("a", generation, "i") == Error.NONE

    def test_it_leaves_by_its_name(self) -> None:
        lab = Lab()
        lab.stable(i="a")
        assert lab.leave("", "j") == Error.UNKNOWN_MEMBER_ID
        assert lab.leave("x", "i") == Error.FENCED_INSTANCE_ID
        assert lab.leave("", "i") == Error.NONE
        assert lab.group.state.name == "Empty"


class TestCommits:
    def test_from_outside_only_while_nobody_is_in(self) -> None:
        lab = Lab()
        assert lab.commit("", -1) == Error.NONE
        generation = lab.stable("a")
        assert lab.commit("", -1) == Error.UNKNOWN_MEMBER_ID
        assert lab.commit("a", generation) == Error.NONE
        assert lab.commit("a", generation + 1) == Error.ILLEGAL_GENERATION
        assert lab.commit("z", generation) == Error.UNKNOWN_MEMBER_ID

    def test_a_commit_is_a_sign_of_life(self) -> None:
        lab = Lab()
        generation = lab.stable("a")
        lab.advance(6000)
        lab.commit("a", generation)
        lab.advance(SESSION_MS + 5999)
        assert "a" in lab.group.members

    def test_members_may_commit_while_others_join(self) -> None:
        lab = Lab()
        generation = lab.stable("a")
        lab.join("b", is_new=True)
        assert lab.commit("a", generation) == Error.NONE


def test_a_group_is_read_back_as_it_was_written() -> None:
    lab = Lab()
    generation = lab.stable("a", i="b")
    _, value = lab.rows[-1]
    again = ClassicGroup("g", lab.config, lab.write, lambda: 5000)
    again.restore(value, 5000)  # type: ignore[arg-type]
    assert again.record() == lab.group.record()
    assert again.heartbeat("a", None, generation, 6000) == Error.NONE
    assert again.deadline_ms() == 5000 + SESSION_MS
    with pytest.raises(KafkaError):
        again.check_delete()


def test_the_leader_that_is_read_back_is_the_one_that_was_written() -> None:
    lab = Lab()
    lab.stable("a", b="b")
    _, value = lab.rows[-1]
    value.leader = "b"  # type: ignore[union-attr]
    again = ClassicGroup("g", lab.config, lab.write, lambda: 0)
    again.restore(value, 0)  # type: ignore[arg-type]
    assert again.members.leader == "b", "and not the member that is read first"


def test_who_waits_is_told_when_the_coordinator_moves() -> None:
    lab = Lab()
    lab.stable("a")
    waiting = lab.join("b", is_new=True)
    lab.group.end(Error.NOT_COORDINATOR, 0)
    assert waiting[0].error_code == Error.NOT_COORDINATOR
    assert lab.beat("a", 1) == Error.COORDINATOR_NOT_AVAILABLE


def test_every_state_is_reached_from_another_and_answers_all() -> None:
    for state in STATES:
        assert state.what
        assert [before for after in EVENTS.values() for before, reached in after.items() if reached is state]
        assert EVENTS[END][state] is DEAD if state is not DEAD else DEAD not in EVENTS[END]


def test_an_event_in_a_state_that_it_cannot_happen_in_is_an_error() -> None:
    lab = Lab()
    for event, after in EVENTS.items():
        if EMPTY not in after:
            with pytest.raises(KeyError):
                lab.group.become(event, 0, "it cannot be")
    assert lab.group.state is EMPTY


def test_a_session_begins_when_the_assignment_is_told_however_long_that_took() -> None:
    lab = Lab(is_slow=True)
    lab.join("a", is_new=True)
    waiting = lab.sync("a", 1, a=b"all")
    lab.advance(SESSION_MS * 2)
    assert not waiting
    lab.settle()
    assert waiting[0].assignment == b"all"
    lab.advance(SESSION_MS * 3 - 1)
    assert "a" in lab.group.members
    lab.advance(SESSION_MS * 3)
    assert "a" not in lab.group.members


def test_a_session_begins_when_the_assignment_is_refused_and_ends() -> None:
    lab = Lab(is_slow=True)
    lab.join("a", is_new=True)
    waiting = lab.sync("a", 1, a=b"all")
    lab.advance(SESSION_MS * 2)
    lab.settle(Error.COORDINATOR_NOT_AVAILABLE)
    assert waiting[0].error_code == Error.COORDINATOR_NOT_AVAILABLE
    lab.advance(SESSION_MS * 3 - 1)
    assert "a" in lab.group.members
    lab.advance(SESSION_MS * 3)  # before the rebalance that has begun ends
    assert "a" not in lab.group.members
