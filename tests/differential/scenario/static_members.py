"""Classic groups with static members: who comes back under an instance id, who is fenced, who leaves by it."""

from __future__ import annotations

from minibroker.protocol.messages.heartbeat import HeartbeatRequest
from minibroker.protocol.messages.join_group import JoinGroupRequest
from tests.differential.play import Play
from tests.differential.scenario.talk import STATIC_SINCE, Talk, assignment, subscription

FENCED = 82
SHORT_MS = 400  # a rebalance that is to end without all members
OTHER = [("range", subscription("other"))]
ROUND = [("roundrobin", subscription("other"))]
FIRST, SECOND = assignment({"shared": [0]}), assignment({"shared": [1]})


def play_static_members(play: Play, level: int) -> None:
    """Play all conversations with static members, where JoinGroup knows them."""
    if Talk(play, "static", level).has(JoinGroupRequest, STATIC_SINCE):
        _one_comes_back(play, level)
        _two(play, level)
        _replaced_while_waiting(play, level)
        _leave(play, level)
        _late(play, level)
        _session(play, level)


def _one_comes_back(play: Play, level: int) -> None:
    talk = Talk(play, "static member", level)
    talk.enter("a", instance="i")
    talk.look("joined")
    talk.ask("a", "synced", talk.sync("a", {"a": FIRST}, instance="i"))
    _ask_with_ids(talk, "synced", talk.member["a"])
    talk.rejoin("a", "a joins again with its id", instance="i")
    talk.ask("a", "synced again", talk.sync("a", {"a": FIRST}, instance="i"))
    old = talk.member["a"]
    talk.rejoin("a", "a comes back", member_id="", instance="i")
    talk.look("came back")
    _ask_with_ids(talk, "came back", old)
    talk.ask("a", "the old one joins again", talk.join("a", member_id=old, instance="i"))
    talk.ask("a", "came back and synced", talk.sync("a", {"a": FIRST}, instance="i"))
    old = talk.member["a"]
    talk.rejoin("a", "a comes back changed", member_id="", instance="i", protocols=OTHER)
    talk.look("came back changed")
    talk.ask("a", "heartbeat of the old one", talk.heartbeat("a", member_id=old, instance="i"))
    talk.ask("a", "synced with other topics", talk.sync("a", {"a": SECOND}, instance="i"))
    talk.rejoin("a", "a comes back with other timeouts", member_id="", instance="i", protocols=OTHER, session_ms=9999)
    talk.look("came back with other timeouts")
    talk.rejoin("a", "a comes back with another protocol", member_id="", instance="i", protocols=ROUND)
    talk.look("came back with another protocol")
    talk.ask("a", "the other protocol synced", talk.sync("a", {"a": FIRST}, instance="i", protocol="roundrobin"))
    talk.rejoin("a", "a comes back with the old one", member_id="", instance="i", protocols=OTHER)
    talk.rejoin("a", "a comes back before its sync", member_id="", instance="i", protocols=OTHER)
    talk.look("came back before its sync")
    talk.ask("b", "another type with the same instance", talk.join("b", instance="i", kind="connect"))
    talk.ask("b", "no common protocol, same instance", talk.join("b", instance="i", protocols=[("x", b"")]))
    talk.finish()


def _ask_with_ids(talk: Talk, when: str, old: str) -> None:
    """Ask with every mixture of ids."""
    for step, member_id, instance in [
        ("both ids", None, "i"),
        ("its member id alone", None, None),
        ("the old member id", old, "i"),
        ("the old member id alone", old, None),
        ("an unknown instance", None, "unknown"),
        ("an empty instance", None, ""),
        ("the instance alone", "", "i"),
        ("the instance and an unknown id", "somebody", "i"),
        ("nothing known", "somebody", "unknown"),
    ]:
        talk.ask("a", f"heartbeat with {step}, {when}", talk.heartbeat("a", member_id=member_id, instance=instance))
        commit = talk.commit("a", {"shared": {0: 1}}, member_id=member_id, instance=instance)
        talk.ask("a", f"commit with {step}, {when}", commit)
        if member_id is not None or instance != "i":  # a leader's sync would be taken
            sync = talk.sync("a", member_id=member_id, instance=instance)
            talk.ask("a", f"sync with {step}, {when}", sync)
        if member_id is not None and instance == "i" and member_id == "somebody":
            talk.ask("a", f"left with {step}, {when}", talk.leave(instances={instance: member_id}))
    outside = talk.commit("a", {"shared": {0: 1}}, member_id="", instance="i", generation=-1)
    talk.ask("a", f"commit with the instance outside of the group, {when}", outside)


def _two(play: Play, level: int) -> None:
    talk = Talk(play, "two static members", level)
    talk.enter("a", instance="i")
    talk.ask("a", "a synced", talk.sync("a", {"a": FIRST}, instance="i"))
    b = talk.enter_later("b", instance="j")
    talk.wait_for_state("PreparingRebalance", 2)
    talk.look("b waits")
    a = talk.rejoin_later("a", instance="i")
    b.answer(), a.answer()
    talk.ask("a", "a syncs for both", talk.sync("a", {"a": FIRST, "b": SECOND}, instance="i"))
    talk.ask("b", "b synced", talk.sync("b", instance="j"))
    for who, instance in (("b", "j"), ("a", "i")):
        talk.rejoin(who, f"{who} comes back", member_id="", instance=instance)
        talk.ask(who, f"{who} syncs again", talk.sync(who, {"a": FIRST, "b": SECOND}, instance=instance))
        talk.look(f"{who} came back")
    # The leader's assignments name members that are not there any more.
    c = talk.enter_later("c")
    talk.wait_for_state("PreparingRebalance", 3)
    b = talk.rejoin_later("b", member_id="", instance="j")
    old = talk.heartbeat("b", instance="j")
    play.wait_for("b to be replaced", old, lambda answer: answer.error_code == FENCED, talk.version(HeartbeatRequest))
    a = talk.rejoin_later("a", instance="i")
    c.answer(), b.answer(), a.answer()
    c = talk.ask_later("c", "c syncs first", talk.sync("c"))
    talk.ask("a", "a syncs for all", talk.sync("a", {"a": FIRST, "b": SECOND}, instance="i"))
    c.answer()
    talk.ask("b", "b syncs last", talk.sync("b", instance="j"))
    talk.look("three synced")
    talk.rejoin("b", "b comes back with other topics", member_id="", instance="j", protocols=OTHER)
    talk.look("b came back with other topics")
    b = talk.rejoin_later("b", instance="j")
    talk.wait_for_state("PreparingRebalance", 3)
    talk.look("b changes")
    c = talk.rejoin_later("c")
    a = talk.rejoin_later("a", instance="i")
    b.answer(), c.answer(), a.answer()
    talk.finish()


def _replaced_while_waiting(play: Play, level: int) -> None:
    talk = Talk(play, "static member replaced", level)
    talk.enter("a", instance="i")
    talk.ask("a", "a synced", talk.sync("a", {"a": FIRST}, instance="i"))
    b = talk.enter_later("b", instance="j")
    talk.wait_for_state("PreparingRebalance", 2)
    again = talk.enter_later("b again", instance="j")
    b.answer()
    talk.look("b replaced")
    a = talk.rejoin_later("a", instance="i")
    again.answer(), a.answer()
    talk.look("joined")
    waits = talk.ask_later("b again", "waits for its sync", talk.sync("b again", instance="j"))
    third = talk.enter_later("b once more", instance="j")
    waits.answer()
    talk.ask("a", "heartbeat of a", talk.heartbeat("a", instance="i"))
    a = talk.rejoin_later("a", instance="i")
    third.answer(), a.answer()
    talk.look("joined again")
    talk.ask("a", "a syncs", talk.sync("a", {"a": FIRST}, instance="i"))
    talk.ask("b once more", "b syncs", talk.sync("b once more", instance="j"))
    talk.finish()


def _leave(play: Play, level: int) -> None:
    talk = Talk(play, "static member leaves", level)
    talk.enter("a", instance="i")
    talk.ask("a", "a synced", talk.sync("a", {"a": FIRST}, instance="i"))
    for step, instances in [
        ("an unknown instance", {"unknown": ""}),
        ("an unknown id", {"i": "somebody"}),
        ("an empty instance", {"": ""}),
        ("an unknown instance with the right id", {"unknown": talk.member["a"]}),
        ("nobody", {}),
        ("the instance and others", {"unknown": "", "i": "", "more": "x"}),
        ("the instance again", {"i": ""}),
    ]:
        talk.ask("a", f"left: {step}", talk.leave(instances=instances))
        talk.look(step)
    talk.enter("a", instance="i")
    talk.ask("a", "left with both ids", talk.leave(instances={"i": talk.member["a"]}))
    talk.enter("a", instance="i")
    talk.ask("a", "left by the member id alone", talk.leave("a"))
    talk.look("left by the member id alone")
    talk.finish()


def _late(play: Play, level: int) -> None:
    """A rebalance goes on without a static member, who stays in the group."""
    talk = Talk(play, "static member is late", level)
    talk.enter("a", instance="i", rebalance_ms=SHORT_MS)
    talk.ask("a", "a synced", talk.sync("a", {"a": FIRST}, instance="i"))
    talk.enter_later("b", rebalance_ms=SHORT_MS).answer()
    talk.ask("b", "b synced", talk.sync("b", {"b": FIRST, "a": SECOND}))
    talk.look("a did not come")
    talk.ask("a", "heartbeat of a", talk.heartbeat("a", instance="i"))
    talk.ask("a", "a syncs without having joined", talk.sync("a", instance="i"))
    talk.finish()


def _session(play: Play, level: int) -> None:
    talk = Talk(play, "static member is silent", level)
    talk.enter("a", instance="i", session_ms=SHORT_MS, rebalance_ms=SHORT_MS)
    talk.wait_for_state("Empty")
    talk.look("a is gone")
    talk.ask("a", "heartbeat", talk.heartbeat("a", instance="i"))
    talk.rejoin("a", "a joins with its id", instance="i")
    talk.finish()
