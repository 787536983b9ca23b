"""What tells two answers apart: ids that the brokers made themselves must agree in what they are and how they look."""

from __future__ import annotations

from minibroker.protocol.messages.heartbeat import HeartbeatRequest
from tests.differential.differ import Comparison, Found, Names

ONE, OTHER = "a-00000000-1111-2222-3333-444444444444", "a-55555555-6666-7777-8888-999999999999"
LETTERS, MORE_LETTERS = "AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB"


def joined(leader: str, *members: str) -> dict[str, object]:
    """Return what matters of an answer to JoinGroup."""
    return {"leader": leader, "members": [{"member_id": name, "metadata": name[:1].encode()} for name in members]}


def found(expected: dict[str, object], actual: dict[str, object], names: Names | None = None) -> list[Found]:
    comparison = Comparison("JoinGroupResponse", names or Names())
    comparison.compare(expected, actual)
    return comparison.found


def test_a_member_id_is_the_same_wherever_it_stands() -> None:
    assert not found(joined(ONE, ONE), joined(OTHER, OTHER))
    assert [one.path for one in found(joined(ONE, ONE), joined("", OTHER))] == ["leader"]


def test_ids_of_different_forms_are_different() -> None:
    names = Names()
    assert names.agree("member_id", LETTERS, MORE_LETTERS)
    assert not names.agree("member_id", ONE, "b" + OTHER[1:])
    assert not names.agree("member_id", ONE, LETTERS)


def test_an_id_has_one_partner() -> None:
    names = Names()
    assert names.agree("member_id", ONE, OTHER)
    assert not names.agree("member_id", ONE, OTHER.replace("5", "6"))


def test_the_last_member_without_partner_is_known_by_being_left() -> None:
    names = Names()
    names.learn("member_id", ONE, OTHER)
    third, fourth = ONE.replace("1", "7"), ONE.replace("1", "8")
    assert not found(joined(ONE, ONE, third), joined(OTHER, fourth, OTHER), names)
    assert names.known("member_id", third) == fourth


def test_members_that_differ_in_number_are_a_difference() -> None:
    assert [one.path for one in found(joined(ONE, ONE), joined(OTHER, OTHER, LETTERS))]


def test_a_request_is_asked_with_the_other_side_s_id() -> None:
    names = Names()
    names.learn("member_id", ONE, OTHER)
    asked = names.translate(HeartbeatRequest(group_id="g", generation_id=1, member_id=ONE))
    assert (asked.member_id, asked.group_id) == (OTHER, "g")
