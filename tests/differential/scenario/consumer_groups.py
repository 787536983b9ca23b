"""The consumer protocol (KIP-848): joined, reconciled, fenced, left, by names and by patterns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minibroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from minibroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minibroker.protocol.messages.describe_configs import DescribeConfigsRequest
from minibroker.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.differential.play import Play
from tests.differential.scenario import mixed_groups
from tests.differential.scenario.build import create_request, new_topic
from tests.differential.scenario.consumer_talk import LEAVE, LEAVE_STATIC, OWN_ID_SINCE, REBALANCE_MS, ConsumerTalk
from tests.differential.scenario.talk import offset_delete

Changed = IncrementalAlterConfigsRequest.AlterConfigsResource
Change = Changed.AlterableConfig
SET, DELETE, GROUP = 0, 1, 32
HEARTBEAT_MS, SESSION_MS = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
DEFAULTS = {HEARTBEAT_MS: "5000", SESSION_MS: "45000"}
SHORT_MS = 400


def play_consumer_groups(play: Play, level: int) -> None:
    """Play all conversations of the consumer protocol, at levels that differ in it."""
    if level >= len(play.versions(ConsumerGroupHeartbeatRequest)):
        return
    served = _one(play, level)
    _badly(play, level)
    if not served:  # announced and switched off
        return
    _two(play, level)
    _assignors(play, level)
    _static(play, level)
    if level >= OWN_ID_SINCE:
        _patterns(play, level)
    _topics_come(play, level)
    _timeouts(play, level)
    mixed_groups.play_mixed_groups(play, level)


def _one(play: Play, level: int) -> bool:
    talk = ConsumerTalk(play, "one consumer", level, random_ids=True)
    talk.see("before the group")
    for step, epoch in [("ahead", 5), ("leaves", LEAVE), ("leaves as static", LEAVE_STATIC)]:
        talk.ask("a", f"no group: {step}", talk.beat("a", epoch, member_id="member-a"))
    talk.arrive("a", ["shared"])
    talk.see("joined")
    _offsets(talk, "joined")
    talk.say("a", "a heartbeat")
    talk.confirm("a")
    talk.say("a", "everything said again", topics=["shared"], owned=talk.learnt.get("a", {}), rebalance_timeout_ms=5000)
    talk.say("a", "the same topics", topics=["shared"])
    talk.say("a", "the topics twice", topics=["shared", "shared"])
    talk.say("a", "more topics", topics=["shared", "other", "no-such-topic"])
    talk.see("more topics")
    _offsets(talk, "more topics")
    talk.say("a", "the epoch before, as if the answer was lost", talk.epoch.get("a", 1) - 1, owned={"shared": [0, 1]})
    talk.confirm("a")
    talk.ask("a", "the epoch before, owning more", talk.beat("a", talk.epoch.get("a", 1) - 1, owned={"other": [0]}))
    talk.ask("a", "two epochs before", talk.beat("a", talk.epoch.get("a", 2) - 2))
    talk.ask("a", "the next epoch", talk.beat("a", talk.epoch.get("a", 0) + 1))
    talk.ask("a", "epoch 50", talk.beat("a", 50))
    talk.ask("a", "somebody unknown", talk.beat("a", member_id="somebody"))
    talk.ask("a", "somebody unknown leaves", talk.beat("a", LEAVE, member_id="somebody"))
    talk.ask("a", "owning what it does not", talk.beat("a", owned={"shared": [0, 1, 9]}))
    talk.say("a", "another rack", rack_id="r")
    talk.say("a", "the other assignor", server_assignor="range")
    talk.see("another rack and assignor")
    talk.confirm("a")
    talk.say("a", "fewer topics", topics=["other"])
    talk.see("fewer topics")
    talk.confirm("a")
    talk.say("a", "no topics", topics=[])
    talk.see("no topics")
    talk.confirm("a")
    talk.see("no topics, confirmed")
    talk.arrive("a", ["shared"])
    talk.see("joined again")
    talk.delete("deleted with a member")
    talk.ask("a", "left", talk.beat("a", LEAVE))
    talk.ask("a", "left again", talk.beat("a", LEAVE))
    talk.see("left")
    _offsets(talk, "left")
    talk.ask("a", "a heartbeat after it left", talk.beat("a"))
    talk.finish()
    return bool(talk.epoch)


def _offsets(talk: ConsumerTalk, when: str) -> None:
    """Commit and fetch as a member, with right and wrong epochs."""
    epoch = talk.epoch.get("a", 1)
    for step, given in [
        ("in its epoch", {"generation": epoch}),
        ("in an older epoch", {"generation": epoch - 1}),
        ("in a newer epoch", {"generation": epoch + 1}),
        ("in no epoch", {"generation": -1}),
        ("in no epoch by nobody", {"generation": -1, "member_id": ""}),
        ("by somebody unknown", {"generation": epoch, "member_id": "somebody"}),
    ]:
        talk.ask("a", f"committed {step}, {when}", talk.commit("a", {"shared": {0: 1}}, **given))  # type: ignore[arg-type]
        fetch = talk.fetch(
            {"shared": [0]}, member_id=given.get("member_id", talk.member.get("a", "")), epoch=given["generation"]
        )  # type: ignore[arg-type]
        for version in {9, 10} & set(talk.play.versions(type(fetch))):
            talk.ask("a", f"fetched {step}, {when}", fetch, version)
        commit = talk.commit("a", {"shared": {0: 1}}, **given)  # type: ignore[arg-type]
        for version in {8, 9, 10} & set(talk.play.versions(type(commit))):
            talk.ask("a", f"committed {step}, {when}", commit, version)
    talk.ask("admin", f"offsets deleted, {when}", offset_delete(talk.group, {"shared": [0], "other": [0]}))


def _two(play: Play, level: int) -> None:
    talk = ConsumerTalk(play, "two consumers", level)
    talk.arrive("a", ["shared"])
    talk.confirm("a")
    talk.arrive("b", ["shared"])
    talk.see("b joined")
    talk.say("b", "b has to wait")
    talk.say("a", "a is to give back")
    talk.see("a is to give back")
    talk.say("b", "b still has to wait")
    talk.ask("a", "a commits meanwhile", talk.commit("a", {"shared": {0: 1}}, generation=talk.epoch.get("a", 1)))
    talk.confirm("a", "a gave back")
    talk.see("a gave back")
    talk.say("b", "b gets it")
    talk.see("b got it")
    talk.confirm("b")
    talk.see("balanced")
    talk.say("a", "a heartbeat when balanced")
    talk.ask("a", "a leaves", talk.beat("a", LEAVE))
    talk.see("a left")
    talk.say("b", "b gets all")
    talk.confirm("b")
    talk.epoch.pop("a", None), talk.member.pop("a", None)
    # Three members that change their subscriptions while others still give back.
    for who in ("c", "d"):
        talk.arrive(who, ["shared", "other"])
    for turn in range(6):
        for who in ("b", "c", "d"):
            talk.confirm(who, f"{who} confirms in turn {turn}")
    talk.see("three members")
    talk.say("b", "b changes", topics=["other"])
    talk.ask("c", "c leaves", talk.beat("c", LEAVE))
    talk.see("b changed and c left")
    talk.epoch.pop("c", None), talk.member.pop("c", None)
    for turn in range(4):
        for who in ("b", "d"):
            talk.confirm(who, f"{who} confirms in turn {turn} without c")
    talk.see("two members again")
    talk.finish()


def _assignors(play: Play, level: int) -> None:
    for assignor in ("range", "uniform"):
        talk = ConsumerTalk(play, f"{assignor} assignor", level)
        topics = {"a": ["shared", "other"], "b": ["other", "more-topics"], "c": ["other", "shared", "more-topics"]}
        for who, names in topics.items():
            talk.arrive(who, names, server_assignor=assignor)
        talk.see("joined")
        for turn in range(6):
            for who in topics:
                talk.confirm(who, f"{who} confirms in turn {turn}")
        talk.see("balanced")
        for who in topics:  # not all agree
            talk.say(who, f"{who} prefers uniform", server_assignor="uniform" if who != "b" else None)
        talk.see("preferring another")
        talk.finish()


def _badly(play: Play, level: int) -> None:
    talk = ConsumerTalk(play, "bad consumers", level)
    good: dict[str, Any] = {"topics": ["shared"], "owned": {}, "rebalance_timeout_ms": REBALANCE_MS}
    with_pattern = level >= OWN_ID_SINCE
    for when in ("no group", "a group"):
        if when == "a group":
            talk.arrive("a", ["shared"])
        for step, epoch, given in [
            ("no group name", 0, good | {"group": ""}),
            ("epoch -3", -3, good),
            ("no rebalance timeout", 0, good | {"rebalance_timeout_ms": -1}),
            ("a rebalance timeout of 0", 0, good | {"rebalance_timeout_ms": 0, "member_id": "zero"}),
            ("owning something", 0, good | {"owned": {"shared": [0]}}),
            ("owned null", 0, good | {"owned": None}),
            ("topics null", 0, good | {"topics": None}),
            ("topics null and an empty pattern", 0, good | {"topics": None, "subscribed_topic_regex": ""}),
            ("an empty instance", 0, good | {"instance_id": ""}),
            ("an empty rack", 0, good | {"rack_id": ""}),
            ("an empty assignor", 0, good | {"server_assignor": ""}),
            ("an unknown assignor", 0, good | {"server_assignor": "sticky"}),
            ("no member id", 0, good | {"member_id": ""}),
            ("no member id in an epoch", 3, {"member_id": ""}),
            ("leaving without member id", LEAVE, {"member_id": ""}),
            ("leaving as static without instance", LEAVE_STATIC, {"member_id": "x"}),
            ("leaving with everything", LEAVE, good),
            ("a topic without name", 0, good | {"topics": [""], "member_id": "nameless"}),
            ("an impossible topic", 0, good | {"topics": ["a/b"], "member_id": "impossible"}),
            ("a rebalance timeout of -5 in an epoch", 1, {"rebalance_timeout_ms": -5}),
            *(
                [
                    ("a broken pattern", 0, good | {"topics": None, "subscribed_topic_regex": "sha(red"}),
                    ("a pattern for Java only", 0, good | {"topics": None, "subscribed_topic_regex": "(?=a)b"}),
                ]
                if with_pattern
                else []
            ),
        ]:
            given = {"member_id": "member-b", **given}
            answer = talk.ask("b", f"{step}, {when}", talk.beat("b", epoch, **given))
            own = (answer and answer.member_id) or given["member_id"]
            talk.ask("b", f"after {step}, {when}: leaves", talk.beat("b", LEAVE, member_id=own))
        if when == "no group":
            talk.delete("deleted in between")
    talk.see("after all")
    talk.finish()


def _static(play: Play, level: int) -> None:
    talk = ConsumerTalk(play, "static consumer", level, random_ids=True)
    talk.arrive("a", ["shared"], instance_id="i")
    talk.confirm("a")
    talk.see("joined")
    own = "another" if level >= OWN_ID_SINCE else ""
    again: dict[str, Any] = {"topics": ["shared"], "owned": {}, "rebalance_timeout_ms": REBALANCE_MS}
    talk.ask("b", "the instance is taken", talk.beat("b", 0, member_id=own, instance_id="i", **again))
    talk.ask("a", "a heartbeat with the instance", talk.beat("a", instance_id="i"))
    talk.ask("a", "a heartbeat with another instance", talk.beat("a", instance_id="j"))
    talk.ask("b", "a heartbeat of another with the instance", talk.beat("b", 1, member_id="another", instance_id="i"))
    talk.ask("b", "another leaves with the instance", talk.beat("b", LEAVE, member_id="another", instance_id="i"))
    talk.ask("b", "another leaves for a while", talk.beat("b", LEAVE_STATIC, member_id="another", instance_id="i"))
    talk.ask("a", "left for a while, without instance", talk.beat("a", LEAVE_STATIC))
    talk.ask("a", "left for a while, unknown instance", talk.beat("a", LEAVE_STATIC, instance_id="j"))
    talk.ask("a", "left for a while", talk.beat("a", LEAVE_STATIC, instance_id="i"))
    talk.see("left for a while")
    talk.ask("a", "a heartbeat while it is away", talk.beat("a", instance_id="i"))
    old = talk.member.pop("a", "")
    talk.arrive("a", ["shared"], member_id=own, instance_id="i")
    talk.see("came back")
    talk.ask("a", "the old one speaks", talk.beat("a", member_id=old, instance_id="i"))
    talk.ask(
        "a", "the old one commits", talk.commit("a", {"shared": {0: 1}}, member_id=old, generation=2, instance="i")
    )
    talk.confirm("a")
    talk.ask("a", "left for a while again", talk.beat("a", LEAVE_STATIC, instance_id="i"))
    talk.member.pop("a", None)
    talk.arrive("a", ["other"], member_id=own + "2" if own else "", instance_id="i")
    talk.see("came back changed")
    talk.arrive("c", ["other"])
    talk.say("a", "a gives back", instance_id="i")
    talk.confirm("a")
    talk.confirm("c")
    talk.see("with a dynamic one")
    talk.ask("a", "left for good", talk.beat("a", LEAVE, instance_id="i"))
    talk.epoch.pop("a", None), talk.member.pop("a", None)
    talk.see("left for good")
    talk.finish()


def _patterns(play: Play, level: int) -> None:
    # One pattern for each group: Kafka looks for another one ten seconds after the last at the earliest.
    for number, (pattern, topics, finds) in enumerate(
        [
            ("sha.*", None, True),
            ("sha.*|oth.r", None, True),
            ("red", None, False),
            (".*hare.", ["shared"], True),
            ("more-topics", ["shared"], True),
            ("[os][ht].*[^z]", ["other"], True),
            ("(?i)SHARED", None, True),
        ]
    ):
        talk = ConsumerTalk(play, f"pattern {number}", level)
        talk.arrive("a", topics, subscribed_topic_regex=pattern)
        if finds:
            epoch = talk.epoch.get("a", 0)
            request = ConsumerGroupDescribeRequest(group_ids=[talk.group], include_authorized_operations=False)
            play.wait_for(f"{pattern!r} to be found", request, _is_beyond(epoch))
        talk.say("a", f"a is told of {pattern!r}")
        talk.confirm("a", f"a confirms {pattern!r}")
        talk.see(f"{pattern!r}")
        talk.arrive("b", ["other"], subscribed_topic_regex=pattern)
        talk.confirm("a")
        talk.confirm("b")
        talk.see("b says the same")
        talk.say("b", "b has no pattern", subscribed_topic_regex="")
        talk.see("b has no pattern")
        talk.say("a", "a has no pattern", subscribed_topic_regex="", topics=["shared"])
        talk.see("nobody has a pattern")
        talk.finish()


def _is_beyond(epoch: int) -> Callable[[Any], bool]:
    return lambda answer: answer.groups[0].group_epoch > epoch


def _topics_come(play: Play, level: int) -> None:
    talk = ConsumerTalk(play, "coming topic", level)
    name = f"coming-{level}"
    talk.arrive("a", [name, "shared"])
    talk.confirm("a")
    talk.see("before it came")
    play.ask("create it", create_request(new_topic(name, 2)))
    play.settle(name)
    epoch = talk.epoch.get("a", 0)
    beat = talk.beat("a")  # with a heartbeat the coordinator looks whether topics have changed
    told = play.wait_for(f"{name} to be noticed", beat, lambda answer: answer.member_epoch > epoch)
    talk.epoch["a"] = told[0].member_epoch
    everything = {"topics": [name, "shared"], "owned": talk.learnt["a"], "rebalance_timeout_ms": 5000}
    talk.say("a", "a is told of it", **everything)
    talk.confirm("a")
    talk.see("it came")
    talk.finish()


def _timeouts(play: Play, level: int) -> None:
    """Give a group settings of its own, and let its members be dropped."""
    talk = ConsumerTalk(play, "short timeouts", level)

    def set_to(step: str, *changes: tuple[str, str | None], accepted: bool = True) -> None:
        rows = [Change(name=name, config_operation=SET if value else DELETE, value=value) for name, value in changes]
        resource = Changed(resource_type=GROUP, resource_name=talk.group, configs=rows)
        play.ask(f"{talk.subject}: {step}", IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
        described = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=GROUP, resource_name=talk.group, configuration_keys=[name for name, _ in changes]
        )
        request = DescribeConfigsRequest(resources=[described])
        if accepted:  # Kafka's controller answers before its brokers know
            wanted = {name: value or DEFAULTS[name] for name, value in changes}
            play.wait_for(step, request, lambda answer: _values(answer) == wanted)
        play.ask(f"{talk.subject}: {step}, described", request)

    def hear(interval_ms: int) -> None:
        wait_to_hear(interval_ms, talk.beat("a"))
        talk.say("a", f"a hears of {interval_ms} ms")

    def arrive_at(interval_ms: int, rebalance_ms: int) -> None:
        given = {"member_id": "member-a", "topics": ["shared"], "rebalance_timeout_ms": rebalance_ms}
        wait_to_hear(interval_ms, talk.beat("a", 0, owned={}, **given))
        talk.arrive("a", **given)

    def wait_to_hear(interval_ms: int, beat: ConsumerGroupHeartbeatRequest) -> None:
        play.wait_for(f"{interval_ms} ms", beat, lambda answer: answer.heartbeat_interval_ms == interval_ms)

    def wait_for_members(count: int) -> None:
        request = ConsumerGroupDescribeRequest(group_ids=[talk.group], include_authorized_operations=False)
        play.wait_for(f"{count} members", request, lambda answer: len(answer.groups[0].members) == count)

    set_to("set too low", (HEARTBEAT_MS, "1"), accepted=False)
    set_to("set too high", (SESSION_MS, "60001"), accepted=False)
    set_to("set to nonsense", (SESSION_MS, "soon"), accepted=False)
    set_to("set an unknown one", ("consumer.size", "1"), accepted=False)
    set_to("set well", (HEARTBEAT_MS, "7000"), (SESSION_MS, "50000"))
    arrive_at(7000, REBALANCE_MS)
    set_to("removed", (HEARTBEAT_MS, None))
    hear(5000)
    set_to("set short", (HEARTBEAT_MS, "100"), (SESSION_MS, f"{SHORT_MS}"))
    hear(100)
    wait_for_members(0)
    talk.see("a was silent")
    talk.ask("a", "a heartbeat after its session", talk.beat("a"))
    set_to("set long", (HEARTBEAT_MS, None), (SESSION_MS, None))
    arrive_at(5000, SHORT_MS)
    talk.confirm("a")
    talk.arrive("b", ["shared"])
    talk.say("a", "a does not give back")
    wait_for_members(1)
    talk.see("a did not give back")
    talk.ask("a", "a gives back too late", talk.beat("a", owned={"shared": [0]}))
    talk.say("b", "b gets all")
    talk.finish()


def _values(answer: Any) -> dict[str, str]:
    """Return described settings by name."""
    return {row.name: row.value for row in answer.results[0].configs}
