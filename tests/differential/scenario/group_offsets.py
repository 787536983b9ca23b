"""Offsets of groups, committed, fetched and deleted by those who are no members; and groups listed and described."""

from __future__ import annotations

from minibroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from minibroker.protocol.messages.delete_groups import DeleteGroupsRequest
from minibroker.protocol.messages.describe_groups import DescribeGroupsRequest
from minibroker.protocol.messages.list_groups import ListGroupsRequest
from minibroker.protocol.messages.offset_commit import OffsetCommitRequest
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.differential.play import Play
from tests.differential.scenario.build import NO_ID
from tests.differential.scenario.talk import FETCH_BATCHES_SINCE, Talk, assignment, fetch_group, offset_delete

ALL_SINCE = 2  # OffsetFetch: null asks for everything
METADATA_MAX = 4096
BIG = (1 << 63) - 1
STATES = ["Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead", "Assigning", "Reconciling"]


def commit_and_fetch(play: Play, level: int) -> None:
    """Commit every kind of value, and fetch it again."""
    talk = Talk(play, "offsets", level)
    everything = {"shared": [0, 1, 2], "other": [3, 0], "unknown-topic": [0]}
    _fetch(talk, "before any commit", everything)
    talk.ask("", "a commit with a generation, no group", talk.commit("", {"shared": {0: 1}}, generation=3))
    for step, offsets, given in [
        ("two topics", {"shared": {0: 10, 1: 11}, "other": {3: 12}}, {}),
        ("again, lower", {"shared": {0: 3}}, {}),
        ("an unknown topic", {"unknown-topic": {0: 1}, "shared": {1: 12}}, {}),
        ("an unknown partition", {"shared": {2: 1, 1: 13, -1: 1}}, {}),
        ("nothing", {}, {}),
        ("no partition", {"shared": {}}, {}),
        ("null metadata", {"shared": {0: 4}}, {"metadata": None}),
        ("empty metadata", {"shared": {0: 5}}, {"metadata": ""}),
        ("the longest metadata", {"shared": {0: 6}}, {"metadata": "m" * METADATA_MAX}),
        ("metadata that is too long", {"shared": {0: 7}, "other": {0: 1}}, {"metadata": "m" * (METADATA_MAX + 1)}),
        ("two bytes a letter", {"shared": {0: 8}}, {"metadata": "ä" * (METADATA_MAX // 2 + 1)}),
        ("offset -1", {"other": {1: -1}}, {}),
        ("offset -2", {"other": {1: -2}}, {}),
        ("the largest offset", {"other": {2: BIG}}, {}),
        ("a leader epoch", {"other": {1: 9}}, {"epoch": 3}),
        ("a leader epoch of -5", {"other": {0: 9}}, {"epoch": -5}),
        ("a retention time", {"other": {0: 10}}, {"retention_ms": 3_600_000}),
        ("a generation", {"shared": {0: 100}}, {"generation": 0}),
        ("a member id", {"shared": {0: 100}}, {"member_id": "somebody"}),
        ("both", {"shared": {0: 100}}, {"member_id": "somebody", "generation": 1}),
        ("an instance id", {"shared": {0: 101}}, {"instance": "i"}),
        ("generation -2", {"shared": {0: 102}}, {"generation": -2}),
    ]:
        talk.ask("", f"committed: {step}", talk.commit("", offsets, **given))  # type: ignore[arg-type]
        _fetch(talk, step, everything, briefly=True)
    twice = talk.commit("", {"shared": {0: 20}})
    twice.topics = [*twice.topics, *talk.commit("", {"shared": {0: 21, 1: 22}}).topics]
    talk.ask("", "committed: a topic twice", twice)
    twice = talk.commit("", {"shared": {0: 23}})
    twice.topics[0].partitions *= 2
    twice.topics[0].partitions[1].committed_offset = 24
    talk.ask("", "committed: a partition twice", twice)
    if talk.version(OffsetCommitRequest) == 1:
        old = talk.commit("", {"shared": {0: 30}})
        old.topics[0].partitions[0].commit_timestamp = 1
        talk.ask("", "committed: long ago", old)
    if talk.version(OffsetCommitRequest) >= 10:
        nameless = talk.commit("", {"shared": {0: 25}})
        nameless.topics[0].topic_id = NO_ID
        talk.ask("", "committed: no topic id", nameless)
    _fetch(talk, "after all", everything)
    talk.look("after all")
    for step, topics in [
        ("one", {"shared": [1]}),
        ("unknown ones", {"shared": [7], "unknown-topic": [0]}),
        ("nothing", {}),
        ("no partition", {"shared": []}),
        ("a topic twice", {"shared": [0, 0]}),
        ("the rest", {"shared": [0], "other": [0, 1, 2, 3]}),
    ]:
        talk.ask("admin", f"offsets deleted: {step}", offset_delete(talk.group, topics))
        _fetch(talk, f"deleted: {step}", everything, briefly=True)
    talk.look("all deleted")
    talk.ask("admin", "offsets deleted in no group", offset_delete("no-such-group", {"shared": [0]}))
    talk.ask("", "committed: again", talk.commit("", {"shared": {0: 1}}))
    talk.finish()
    _fetch(talk, "deleted", everything)


def _fetch(talk: Talk, when: str, topics: dict[str, list[int]], *, briefly: bool = False) -> None:
    talk.ask("", f"fetched, {when}", talk.fetch(topics))
    if briefly:
        return
    version = talk.version(OffsetFetchRequest)
    if version >= ALL_SINCE:
        talk.ask("", f"everything fetched, {when}", talk.fetch(None))
    talk.ask("", f"nothing fetched, {when}", talk.fetch({}))
    talk.ask("", f"no partition fetched, {when}", talk.fetch({"shared": []}))
    talk.ask("", f"a partition twice fetched, {when}", talk.fetch({"shared": [0, 0]}))
    talk.ask("", f"no such group fetched, {when}", talk.fetch(topics, group="no-such-group"))
    talk.ask("", f"stable ones fetched, {when}", talk.fetch(topics, stable=True))
    if version >= 9:
        for member_id, epoch in [("somebody", 1), ("somebody", -1), ("", 0), ("", -1), (None, 5)]:
            step = f"fetched by {member_id!r} at {epoch}, {when}"
            talk.ask("", step, talk.fetch(topics, member_id=member_id, epoch=epoch))
    if version >= FETCH_BATCHES_SINCE:
        group = fetch_group(talk.play, talk.group, {"shared": [0]})
        for step, groups in [
            ("several groups", [group, fetch_group(talk.play, "no-such-group", None), group]),
            ("everything of several", [fetch_group(talk.play, name, None) for name in (talk.group, "none", "")]),
        ]:
            talk.ask("", f"{step} fetched, {when}", OffsetFetchRequest(groups=groups))


def look_at_groups(play: Play, level: int) -> None:
    """List and describe groups of all states, by every filter, and delete them."""
    empty, stable, joined = (Talk(play, f"{state} group", level) for state in ("empty", "stable", "joined"))
    connect = Talk(play, "connect group", level)
    empty.ask("", "committed", empty.commit("", {"shared": {0: 1}}))
    stable.enter("a")
    stable.ask("a", "synced", stable.sync("a", {"a": assignment({"shared": [0]})}))
    joined.enter("b")
    connect.enter("c", kind="connect", protocols=[("p", b"\1")])
    names = [talk.group for talk in (empty, stable, joined, connect)]
    for step, groups in [
        ("all", names),
        ("with unknown ones", [names[0], "no-such-group", ""]),
        ("one twice", [names[1], names[1]]),
        ("nothing", []),
    ]:
        for operations in (False, True):
            request = DescribeGroupsRequest(groups=groups, include_authorized_operations=operations)
            empty.ask("admin", f"described: {step}, operations {operations}", request)
            request = ConsumerGroupDescribeRequest(group_ids=groups, include_authorized_operations=operations)
            if play.versions(ConsumerGroupDescribeRequest):
                empty.ask("admin", f"described as consumer groups: {step}, operations {operations}", request)
    for states in [[], ["Stable"], ["Empty", "Stable"], ["stable"], ["PREPARINGREBALANCE"], ["Unknown"], [""], STATES]:
        for types in [[], ["classic"], ["Classic"], ["consumer"], ["classic", "consumer"], ["share"], ["none"], [""]]:
            if (types or states) and not stable.has(ListGroupsRequest, 5 if types else 4):
                continue
            request = ListGroupsRequest(states_filter=states, types_filter=types)
            empty.ask("admin", f"listed: states {states}, types {types}", request)
    for step, groups in [
        ("those that have members", [names[1], names[2]]),
        ("nothing", []),
        ("some unknown", ["no-such-group", "", names[0]]),
        ("one twice", [names[3], names[3]]),
    ]:
        empty.ask("admin", f"deleted: {step}", DeleteGroupsRequest(groups_names=groups))
    empty.look("deleted")
    for talk in (stable, joined, connect):
        talk.finish()
