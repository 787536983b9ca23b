"""The classic group protocol with dynamic members: joined, rebalanced, left, and every mistake on the way."""

from __future__ import annotations

from minibroker.protocol.messages.delete_groups import DeleteGroupsRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.join_group import JoinGroupRequest
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.differential.play import Play
from tests.differential.scenario.talk import Talk, assignment, offset_delete, subscription

REQUIRED_SINCE = 4  # JoinGroup: a member id has to be asked for
REBALANCE_TIMEOUT_SINCE = 1  # JoinGroup
SILENCE_SECONDS = 0.5
SHORT_MS = 400  # a rebalance that is to end without all members
ACCEPTED_BY_EMPTY_GROUPS = ("of another type", "with an unknown protocol")
RANGE, ROUND = ("range", subscription()), ("roundrobin", subscription("shared", "other"))
FIRST, SECOND = assignment({"shared": [0]}), assignment({"shared": [1]})


def find_coordinators(play: Play) -> None:
    """Ask who looks after groups and others, first of all: the topic of groups is made by that."""
    for version in play.versions(FindCoordinatorRequest):
        batches = version >= 4
        first = FindCoordinatorRequest(key="g", coordinator_keys=["g"])
        play.wait_for(
            "a coordinator",
            first,
            lambda answer: (answer.coordinators[0] if answer.coordinators else answer).error_code == 0,
            version,
        )
        for step, kind, keys in [
            ("a group", 0, ["g"]),
            ("a group without a name", 0, [""]),
            ("a transaction", 1, ["t"]),
            ("a share partition", 2, ["g:AAECAwQFBgcICQoLDA0ODw:0"]),
            ("a share partition by a bad key", 2, ["g"]),
            ("an unknown kind", 9, ["g"]),
            ("a negative kind", -1, ["g"]),
            *([("several", 0, ["a", "b", "a", ""]), ("nothing", 0, [])] if batches else []),
        ]:
            if kind == 0 or version >= 1:
                request = FindCoordinatorRequest(key=keys[0] if keys else "", key_type=kind, coordinator_keys=keys)
                if kind == 1:
                    play.wait_for(
                        "a coordinator of transactions",
                        request,
                        lambda found: (found.coordinators[0] if found.coordinators else found).error_code == 0,
                        version,
                    )
                play.ask(f"coordinator of {step}", request, version)


def one_member(play: Play, level: int) -> None:
    """Take a group through its life with one member; ask everything in every state."""
    talk = Talk(play, "one member", level)
    _ask_everything(talk, "before the group")
    talk.look("before the group")
    if talk.has(JoinGroupRequest, REQUIRED_SINCE):
        talk.rejoin("a", "a asks for an id")
        _ask_everything(talk, "while a has only an id")
        talk.ask("a", "sync without a generation", talk.sync("a", generation=-1))
        talk.ask("a", "heartbeat without a generation", talk.heartbeat("a", generation=-1))
        talk.look("while a has only an id")
    talk.enter("a")
    talk.look("joined, not synced")
    _ask_everything(talk, "joined, not synced", but=("sync",))
    talk.ask("a", "synced", talk.sync("a", {"a": FIRST}))
    talk.look("synced")
    talk.ask("a", "synced again, other assignment", talk.sync("a", {"a": SECOND}))
    _ask_everything(talk, "synced", but=("leave",))
    talk.ask("a", "everything fetched", talk.fetch(None)) if talk.level >= 2 else None
    talk.delete("deleted with a member")
    talk.ask("admin", "offsets deleted, subscribed", offset_delete(talk.group, {"shared": [0], "other": [0]}))
    talk.rejoin("a", "the leader joins again")
    talk.look("the leader joined again")
    talk.ask("a", "synced with an assignment for nobody", talk.sync("a", {"nobody": SECOND}))
    talk.rejoin("a", "a joins with another topic", protocols=[("range", subscription("other"))])
    talk.ask("a", "synced without assignments", talk.sync("a"))
    talk.ask("admin", "offsets deleted, subscribed to another", offset_delete(talk.group, {"shared": [0]}))
    talk.look("synced without assignments")
    if talk.has(JoinGroupRequest, REQUIRED_SINCE):
        # Leaves an id behind that never joined.
        talk.ask("b", "b asks for an id", talk.join("b", member_id=""))
        talk.look("another has an id")
    talk.ask("a", "a leaves", talk.leave("a", reason="it is enough"))
    talk.ask("a", "a leaves again", talk.leave("a"))
    talk.wait_for_state("Empty")
    talk.look("left")
    _ask_everything(talk, "left")
    talk.ask("", "committed by nobody", talk.commit("", {"shared": {0: 7}}))
    talk.ask("", "fetched", talk.fetch({"shared": [0, 1]}))
    talk.rejoin("a", "a joins with its old id")
    talk.member.clear()
    talk.enter("a")
    talk.ask("a", "synced in the next life", talk.sync("a", {"a": FIRST}))
    talk.ask("a", "a leaves for good", talk.leave("a"))
    talk.wait_for_state("Empty")
    talk.delete()
    talk.look("deleted")
    talk.delete("deleted again")
    _ask_everything(talk, "deleted")
    talk.finish()


def _ask_everything(talk: Talk, when: str, but: tuple[str, ...] = ()) -> None:
    """Ask what needs a member as the member, as somebody unknown, as nobody, and with wrong generations."""
    for step, member_id, generation in [
        ("of a", None, None),
        ("of somebody unknown", "somebody", None),
        ("of nobody", "", None),
        ("of an older generation", None, talk.generation - 1),
        ("of a newer generation", None, talk.generation + 1),
        ("of an older generation of somebody unknown", "somebody", talk.generation - 1),
    ]:
        right = member_id is None and generation is None
        if not (right and "heartbeat" in but):
            heartbeat = talk.heartbeat("a", member_id=member_id, generation=generation)
            talk.ask("a", f"heartbeat {step}, {when}", heartbeat)
        if not (right and "sync" in but):
            sync = talk.sync("a", member_id=member_id, generation=generation)
            talk.ask("a", f"sync {step}, {when}", sync)
        commit = talk.commit("a", {"shared": {0: 5}}, member_id=member_id, generation=generation)
        talk.ask("a", f"commit {step}, {when}", commit)
    talk.ask("", f"commit by nobody, {when}", talk.commit("", {"shared": {1: 6}}))
    for step, kind, protocol in [
        ("another type", "connect", "range"),
        ("another protocol", "consumer", "sticky"),
        ("null", None, None),
        ("empty", "", ""),
    ]:
        if talk.level >= 5 and not (step == "null" and "sync" in but):
            talk.ask("a", f"sync with {step}, {when}", talk.sync("a", kind=kind, protocol=protocol))
    talk.ask("a", f"somebody leaves, {when}", talk.leave("somebody"))
    talk.ask("a", f"nobody leaves, {when}", talk.leave(""))


def two_members(play: Play, level: int) -> None:
    """Let a second member come, both rebalance, and the leader go."""
    talk = Talk(play, "two members", level)
    talk.enter("a", protocols=[RANGE])
    talk.ask("a", "a synced", talk.sync("a", {"a": FIRST}))
    b = talk.enter_later("b", protocols=[RANGE])
    talk.wait_for_state("PreparingRebalance", 2)
    talk.look("b waits")
    talk.ask("a", "heartbeat while b waits", talk.heartbeat("a"))
    talk.ask("a", "sync while b waits", talk.sync("a"))
    talk.ask("a", "commit while b waits", talk.commit("a", {"shared": {0: 1}}))
    talk.ask("a", "commit of another generation while b waits", talk.commit("a", {"shared": {0: 1}}, generation=9))
    talk.ask("admin", "offsets deleted while b waits", offset_delete(talk.group, {"shared": [0], "other": [0]}))
    talk.delete("deleted while b waits")
    a = talk.rejoin_later("a", protocols=[RANGE])
    b.answer(), a.answer()
    talk.look("both joined")
    b = talk.ask_later("b", "b syncs first", talk.sync("b"))
    talk.ask("a", "heartbeat before the sync", talk.heartbeat("a"))
    talk.ask("a", "commit before the sync", talk.commit("a", {"shared": {0: 2}}))
    talk.ask("a", "a syncs for both", talk.sync("a", {"a": FIRST, "b": SECOND}))
    b.answer()
    talk.look("both synced")
    for who in ("a", "b"):
        talk.ask(who, f"heartbeat of {who}", talk.heartbeat(who))
        talk.ask(who, f"commit of {who}", talk.commit(who, {"shared": {0: 3}, "other": {0: 4}}))
    talk.rejoin("b", "a follower joins again, unchanged", protocols=[RANGE])
    talk.look("a follower joined again")
    talk.ask("b", "a follower syncs again", talk.sync("b"))

    b = talk.rejoin_later("b", protocols=[("range", subscription("other"))])
    talk.wait_for_state("PreparingRebalance", 2)
    talk.ask("a", "heartbeat while b changes", talk.heartbeat("a"))
    a = talk.rejoin_later("a", protocols=[RANGE])
    b.answer(), a.answer()
    # Somebody comes while the followers wait for the leader's assignments.
    b = talk.ask_later("b", "b waits for assignments", talk.sync("b"))
    c = talk.enter_later("c", protocols=[RANGE])
    talk.wait_for_state("PreparingRebalance", 3)
    b.answer()
    talk.ask("a", "a syncs too late", talk.sync("a", {"a": FIRST, "b": SECOND}))
    b = talk.rejoin_later("b", protocols=[RANGE])
    a = talk.rejoin_later("a", protocols=[RANGE])
    c.answer(), b.answer(), a.answer()
    talk.ask("a", "a syncs for two of three", talk.sync("a", {"a": FIRST, "b": SECOND}))
    talk.ask("c", "c syncs with nothing for it", talk.sync("c"))
    talk.ask("b", "b syncs after the leader", talk.sync("b"))

    talk.ask("a", "the leader leaves", talk.leave("a"))
    talk.look("the leader left")
    talk.ask("b", "heartbeat after the leader left", talk.heartbeat("b"))
    talk.ask("a", "heartbeat of the one who left", talk.heartbeat("a"))
    b = talk.rejoin_later("b", protocols=[RANGE])
    talk.ask("c", "c leaves meanwhile", talk.leave("c", "a"))
    b.answer()
    talk.look("one is left")
    talk.ask("b", "b syncs alone", talk.sync("b", {"b": FIRST}))
    talk.ask("b", "b leaves with others", talk.leave("b", "a", "c", "b"))
    talk.look("all left")
    talk.finish()


def votes(play: Play, level: int) -> None:
    """Let three members choose among protocols."""
    talk = Talk(play, "votes", level)
    third = ("sticky", b"")
    talk.enter("a", protocols=[RANGE, ROUND, third])
    talk.look("one voted")
    talk.ask("a", "a synced", talk.sync("a", {"a": FIRST}))
    b = talk.enter_later("b", protocols=[ROUND, RANGE])
    talk.wait_for_state("PreparingRebalance", 2)
    c = talk.enter_later("c", protocols=[ROUND, RANGE])
    talk.wait_for_state("PreparingRebalance", 3)
    talk.look("waiting for a")
    talk.ask("d", "no common protocol", talk.join("d", protocols=[third]))
    talk.ask("d", "another type", talk.join("d", kind="connect"))
    a = talk.rejoin_later("a", protocols=[RANGE, ROUND, third])
    b.answer(), c.answer(), a.answer()
    talk.look("three voted")
    talk.ask("a", "sync with the other protocol", talk.sync("a", {"a": FIRST}, protocol="range"))
    talk.ask("a", "sync with the chosen protocol", talk.sync("a", {"a": FIRST}, protocol="roundrobin"))
    talk.look("three, a synced")
    talk.ask("a", "joins again without the common ones", talk.join("a", protocols=[third]))
    talk.ask("b", "all leave", talk.leave("a", "b", "c"))
    talk.look("all left")
    for who in "abc":
        talk.ask(who, f"{who} leaves", talk.leave(who))
    talk.enter("e", kind="connect", protocols=[("sessioned", b"\0\1"), ("default", b"")])
    talk.look("another type in the empty group")
    talk.ask("e", "e leaves", talk.leave("e"))
    talk.finish()


def connect_workers(play: Play, level: int) -> None:
    """Work in a group that has nothing to do with consumers."""
    talk = Talk(play, "connect", level)
    talk.enter("a", kind="connect", protocols=[("sessioned", b"worker\0\xff"), ("compatible", b"")])
    talk.look("joined")
    talk.ask("a", "synced", talk.sync("a", {"a": b"\0\2tasks"}, kind="connect", protocol="sessioned"))
    talk.look("synced")
    talk.ask("b", "a consumer joins", talk.join("b"))
    talk.ask("a", "committed", talk.commit("a", {"shared": {0: 1}}))
    talk.ask("", "committed by nobody", talk.commit("", {"shared": {0: 2}}))
    talk.ask("admin", "offsets deleted", offset_delete(talk.group, {"shared": [0]}))
    talk.delete("deleted with a member")
    talk.ask("a", "left", talk.leave("a"))
    talk.look("left")
    talk.ask("admin", "offsets deleted after it left", offset_delete(talk.group, {"shared": [0, 9], "nowhere": [0]}))
    talk.finish()


def join_badly(play: Play, level: int) -> None:
    """Join with every value that cannot be, into nothing and into a group."""
    talk = Talk(play, "bad joins", level)
    for when in ("into nothing", "into a group", "into an empty group"):
        if when == "into a group":
            talk.enter("a")
            talk.ask("a", "synced", talk.sync("a", {"a": FIRST}))
        if when == "into an empty group":
            talk.ask("a", "left", talk.leave("a"))
        for step, given in [
            ("with an unknown id", {"member_id": "somebody"}),
            ("with a session that is too short", {"session_ms": 199}),
            ("with a session that is too long", {"session_ms": 1_800_001}),
            ("with a session of 0", {"session_ms": 0}),
            ("with a negative session", {"session_ms": -5}),
            ("of another type", {"kind": "connect", "protocols": [("unknown", b"")]}),
            ("without a type", {"kind": ""}),
            ("with an unknown protocol", {"protocols": [("unknown", b"")]}),
            ("with an id of another kind", {"member_id": "somebody", "kind": "connect"}),
        ]:
            if when == "into a group" or step not in ACCEPTED_BY_EMPTY_GROUPS:
                talk.ask("b", f"{step}, {when}", talk.join("b", **given))  # type: ignore[arg-type]
        nothing = talk.join("b")
        nothing.protocols = []
        talk.ask("b", f"without protocols, {when}", nothing)
        talk.look(when)
    nameless = talk.join("b")
    nameless.group_id = ""
    talk.ask("b", "into a group without a name", nameless)
    for step, request in [
        ("heartbeat", talk.heartbeat("b")),
        ("sync", talk.sync("b")),
        ("leave", talk.leave("somebody")),
        ("commit", talk.commit("b", {"shared": {0: 1}}, generation=1, member_id="x")),
        ("commit by nobody", talk.commit("", {"shared": {0: 1}})),
        ("fetch", talk.fetch({"shared": [0]}, group="")),
        ("offset delete", offset_delete("", {"shared": [0]})),
    ]:
        request.group_id = ""
        talk.ask("b", f"{step} in a group without a name", request)
    talk.ask("b", "the group without a name deleted", DeleteGroupsRequest(groups_names=[""]))
    talk.finish()


def unusual_joins(play: Play, level: int) -> None:
    """Join with what is unusual and allowed; each in a group of its own."""
    for step, given in [
        ("a protocol without a name", {"protocols": [("", b"")]}),
        ("no subscription", {"protocols": [("range", b"")]}),
        (
            "a subscription of a new version",
            {"protocols": [("range", b"\0\x09" + subscription(version=3)[2:] + b"more")]},
        ),
        ("the shortest session", {"session_ms": SHORT_MS * 20}),
        ("a reason", {"reason": "r" * 300}),
    ]:
        talk = Talk(play, f"joins with {step}", level)
        talk.enter("a", **given)
        talk.look("joined")
        talk.ask("a", "synced", talk.sync("a", {"a": FIRST}))
        talk.ask("", "committed", talk.commit("a", {"shared": {0: 1}, "other": {1: 1}}))
        talk.ask("admin", "offsets deleted", offset_delete(talk.group, {"shared": [0], "other": [1]}))
        talk.ask("a", "fetched", talk.fetch({"shared": [0], "other": [1]}))
        talk.ask("a", "left", talk.leave("a"))
        talk.finish()
    for step, group in [("a long name", "g" * 300), ("a strange name", "ä /\n\0 %s")]:
        talk = Talk(play, step, level)
        talk.group = f"{group}{level}"
        talk.enter("a")
        talk.ask("a", "synced", talk.sync("a", {"a": FIRST}))
        talk.ask("a", "left", talk.leave("a"))
        talk.finish()


def dropped(play: Play, level: int) -> None:
    """Let members be dropped because they do not rejoin in time, or say nothing for too long."""
    talk = Talk(play, "dropped", level)
    if talk.has(JoinGroupRequest, REBALANCE_TIMEOUT_SINCE):
        talk.enter("a", rebalance_ms=SHORT_MS)
        talk.ask("a", "a synced", talk.sync("a", {"a": FIRST}))
        b = talk.enter_later("b", rebalance_ms=SHORT_MS)
        b.answer()
        talk.ask("b", "b synced", talk.sync("b", {"b": SECOND}))
        talk.look("a did not come")
        talk.ask("a", "heartbeat of the one who was dropped", talk.heartbeat("a"))
        talk.rejoin("a", "the one who was dropped comes with its id", rebalance_ms=SHORT_MS)
        talk.ask("b", "b leaves", talk.leave("b"))
    talk.member.clear()
    talk.enter("c", session_ms=SHORT_MS, rebalance_ms=SHORT_MS)
    talk.wait_for_state("Empty")
    talk.look("c said nothing before the sync")
    talk.ask("c", "heartbeat after the session", talk.heartbeat("c"))
    talk.member.clear()
    talk.enter("c", session_ms=SHORT_MS, rebalance_ms=SHORT_MS)
    talk.ask("c", "c synced", talk.sync("c", {"c": FIRST}))
    talk.wait_for_state("Empty")
    talk.look("c said nothing")
    for rebalance_ms in (SHORT_MS, 0, -1):
        if talk.has(JoinGroupRequest, REBALANCE_TIMEOUT_SINCE):
            talk.member.clear()
            talk.enter("d", rebalance_ms=rebalance_ms)
            talk.wait_for_state("Empty")
            talk.look(f"d did not sync within {rebalance_ms} ms")
            talk.ask("d", "d syncs too late", talk.sync("d", {"d": FIRST}))
    talk.finish()


def never_answered(play: Play) -> None:
    """Ask what 3.9 forgets to answer, because it fails inside."""
    for step, protocols in [
        ("a protocol twice", [("range", b"1"), ("range", b"2")]),
        ("a broken subscription", [("range", b"\0\1\0\0\0\5\0\1")]),
        ("a subscription that is too long", [("range", b"\0\0\x7f\xff\xff\xff")]),
    ]:
        talk = Talk(play, f"joins with {step}", 0)
        request = talk.join("a", protocols=protocols)
        play.ask_silence(f"unanswered: joins with {step}", request, 3, SILENCE_SECONDS)
    for version in play.versions(OffsetFetchRequest, 8):
        play.ask_silence("unanswered: offsets of no group", OffsetFetchRequest(groups=[]), version, SILENCE_SECONDS)
