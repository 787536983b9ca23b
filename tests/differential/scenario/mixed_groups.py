"""Both protocols in one group: classic members among consumers, consumers among classic members, and the way back."""

from __future__ import annotations

from tests.differential.play import Play
from tests.differential.scenario.consumer_talk import LEAVE, ConsumerTalk
from tests.differential.scenario.talk import assignment, subscription


def play_mixed_groups(play: Play, level: int) -> None:
    """Let members of each kind come to a group of the other."""
    _classic_joins_consumers(play, level)
    _consumer_joins_classics(play, level)


def _classic_joins_consumers(play: Play, level: int) -> None:
    talk = ConsumerTalk(play, "classic joins consumers", level)
    talk.arrive("a", ["shared"])
    talk.confirm("a")
    protocols = [("range", subscription("shared"))]
    talk.ask("b", "b joins with another type", talk.join("b", kind="connect"), 5)
    talk.ask("b", "b joins with a broken subscription", talk.join("b", protocols=[("range", b"\0\1")]), 3)
    for version in (4, 4):
        answer = talk.ask("b", f"b joins by v{version}", talk.join("b", protocols=protocols), version)
        if answer is not None and answer.member_id:
            talk.member["b"] = answer.member_id
            talk.generation = answer.generation_id
    talk.see("b joined")
    talk.ask("b", "b syncs", talk.sync("b"), 3)
    talk.ask("b", "b heartbeats", talk.heartbeat("b"), 3)
    talk.say("a", "a is to give back")
    talk.confirm("a", "a gave back")
    talk.see("a gave back")
    for step in ("is told", "is told again"):
        talk.ask("b", f"b heartbeats and {step}", talk.heartbeat("b"), 3)
    answer = talk.ask("b", "b joins again", talk.join("b", protocols=protocols), 4)
    if answer is not None and answer.error_code == 0:
        talk.generation = answer.generation_id
    talk.ask("b", "b syncs with protocol and type", talk.sync("b", protocol="range"), 5)
    talk.ask("b", "b syncs with another protocol", talk.sync("b", protocol="sticky"), 5)
    talk.ask("b", "b heartbeats at the end", talk.heartbeat("b"), 3)
    talk.ask("b", "b commits", talk.commit("b", {"shared": {0: 1}}), 8)
    talk.ask("b", "b commits in another generation", talk.commit("b", {"shared": {0: 1}}, generation=99), 8)
    talk.see("balanced")
    talk.say("a", "a heartbeats")
    talk.ask("a", "the last consumer leaves", talk.beat("a", LEAVE))
    talk.epoch.pop("a", None), talk.member.pop("a", None)
    talk.see("only a classic one is left")
    talk.ask("b", "b heartbeats alone", talk.heartbeat("b"), 3)
    answer = talk.ask("b", "b joins alone", talk.join("b", protocols=protocols), 4)
    if answer is not None and answer.error_code == 0:
        talk.generation = answer.generation_id
    talk.ask("b", "b syncs alone", talk.sync("b", {"b": assignment({"shared": [0, 1]})}), 3)
    talk.see("b synced alone")
    talk.finish()


def _consumer_joins_classics(play: Play, level: int) -> None:
    talk = ConsumerTalk(play, "consumer joins too early", level)
    talk.enter("a", protocols=[("range", subscription("no-such-topic"))])
    talk.arrive("b", ["no-such-topic"])
    talk.see("before the sync")
    talk.ask("a", "a syncs", talk.sync("a", {"a": assignment({"no-such-topic": [0]})}))
    talk.ask("a", "a heartbeats", talk.heartbeat("a"))
    talk.finish()
    talk = ConsumerTalk(play, "consumer joins classics", level)
    talk.enter("a")
    talk.ask("a", "a syncs", talk.sync("a", {"a": assignment({"shared": [0, 1]})}))
    talk.arrive("c", ["shared"])
    talk.see("c joined")
    talk.ask("a", "a heartbeats", talk.heartbeat("a"))
    talk.rejoin("a", "a joins again", protocols=[("range", subscription("shared", owned={"shared": [0, 1]}))])
    talk.ask("a", "a syncs and is told", talk.sync("a"))
    talk.say("c", "c waits")
    talk.ask("a", "a heartbeats again", talk.heartbeat("a"))
    talk.rejoin("a", "a joins with less", protocols=[("range", subscription("shared", owned={"shared": [0]}))])
    talk.ask("a", "a syncs again", talk.sync("a"))
    talk.confirm("c")
    talk.see("balanced")
    talk.ask("a", "a leaves", talk.leave("a"))
    talk.member.pop("a", None)
    talk.say("c", "c gets all")
    talk.see("a left")
    talk.finish()
    connect = ConsumerTalk(play, "consumer joins connect", level)
    connect.enter("a", kind="connect", protocols=[("p", b"")])
    connect.ask("a", "a syncs", connect.sync("a", {"a": b"x"}, kind="connect", protocol="p"))
    connect.arrive("b", ["shared"])
    connect.see("b joined")
    connect.finish()
    empty = ConsumerTalk(play, "consumer joins offsets", level)
    empty.ask("", "committed", empty.commit("", {"shared": {0: 7}}))
    empty.arrive("a", ["shared"])
    empty.see("a joined")
    empty.ask("", "fetched", empty.fetch({"shared": [0]}))
    empty.ask("", "committed by nobody", empty.commit("", {"shared": {0: 8}}))
    empty.finish()
