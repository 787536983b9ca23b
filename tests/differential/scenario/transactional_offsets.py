"""Offsets of groups that are committed in transactions: TxnOffsetCommit, and what others see of it meanwhile."""

from __future__ import annotations

from minibroker.protocol.messages.delete_groups import DeleteGroupsRequest
from minibroker.protocol.messages.describe_groups import DescribeGroupsRequest
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest
from minibroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.differential.play import Play
from tests.differential.scenario.talk import Talk, assignment, offset_delete
from tests.differential.scenario.transaction_talk import MEMBERS_SINCE, OTHER, SOMEBODY, TOPIC, Producer

METADATA_MAX = 4096
BIG = (1 << 63) - 1
EVERYTHING = {TOPIC: [0, 1], OTHER: [0], "no-such-topic": [0]}


def play_offsets(play: Play) -> None:
    """Play everything at every level."""
    for level in range(len(play.versions(TxnOffsetCommitRequest))):
        commit(play, level)
        commit_as_a_member(play, level)


def commit(play: Play, level: int) -> None:
    """Commit every kind of value, look at it while the transaction is open, and end it in both ways."""
    talk = Talk(play, "transactional offsets", level)
    producer = Producer(play, "offsets", level)
    group = talk.group
    producer.ask("an id", producer.init())
    producer.ask("not added", producer.commit_offsets(group=group))
    producer.ask("aborted", producer.end(commit=False))
    _look(talk, "refused, or aborted")
    producer.ask("added", producer.add_offsets(group=group))
    for step, offsets, given in [
        ("two topics", {TOPIC: {0: 10, 1: 11}, OTHER: {0: 12}}, {}),
        ("again, lower", {TOPIC: {0: 3}}, {}),
        ("unknown ones", {"no-such-topic": {0: 1}, TOPIC: {1: 12, 9: 1, -1: 1}}, {}),
        ("only unknown ones", {"no-such-topic": {0: 1}}, {}),
        ("no partition", {TOPIC: {}}, {}),
        ("null metadata", {TOPIC: {0: 4}}, {"metadata": None}),
        ("the longest metadata", {TOPIC: {0: 6}}, {"metadata": "m" * METADATA_MAX}),
        ("metadata that is too long", {TOPIC: {0: 7}, OTHER: {0: 1}}, {"metadata": "m" * (METADATA_MAX + 1)}),
        ("negative offsets", {TOPIC: {0: -1, 1: -2}}, {}),
        ("the largest offset", {OTHER: {0: BIG}}, {}),
        ("a leader epoch", {TOPIC: {1: 9}}, {"epoch": 3}),
        ("of another producer", {TOPIC: {1: 10}}, {"of": SOMEBODY}),
        ("of another group", {TOPIC: {1: 10}}, {"group": f"{group}-other"}),
        ("of a group without a name", {TOPIC: {1: 10}}, {"group": ""}),
    ]:
        producer.ask(step, producer.commit_offsets(offsets, **given))  # type: ignore[arg-type]
    if producer.has(TxnOffsetCommitRequest, MEMBERS_SINCE):
        for step, member in {
            "a generation": {"generation": 1},
            "a member id": {"member_id": "somebody"},
            "both": {"generation": 1, "member_id": "somebody"},
            "an instance id": {"instance": "i"},
        }.items():
            producer.ask(f"with {step}", producer.commit_offsets(group=group, **member))  # type: ignore[arg-type]
    _look(talk, "open")
    talk.ask("", "committed by nobody meanwhile", talk.commit("", {TOPIC: {0: 50}}))
    _look(talk, "open, with another commit")
    talk.ask("admin", "offsets deleted meanwhile", offset_delete(group, {OTHER: [0]}))
    producer.ask("committed", producer.end())
    _look(talk, "committed")
    producer.ask("added again", producer.add_offsets(group=group))
    producer.ask("offsets again", producer.commit_offsets({TOPIC: {0: 100}}, group=group))
    _look(talk, "open again")
    producer.ask("aborted at last", producer.end(commit=False))
    _look(talk, "aborted")
    producer.ask("added for the last time", producer.add_offsets(group=group))
    producer.ask("offsets of a group that is deleted", producer.commit_offsets({TOPIC: {0: 200}}, group=group))
    _delete(talk, group, f"{group}-other")
    _look(talk, "deleted")
    producer.ask("committed after all", producer.end())
    _look(talk, "deleted and committed")
    _delete(talk, group, f"{group}-other")


def commit_as_a_member(play: Play, level: int) -> None:
    """Commit offsets of a group with a member: rightly, of another generation, as somebody else, as nobody."""
    talk = Talk(play, "transactional member", level)
    talk.enter("a")
    talk.ask("a", "synced", talk.sync("a", {"a": assignment({TOPIC: [0]})}))
    producer = Producer(play, "member", level)
    producer.ask("an id", producer.init())
    producer.ask("added", producer.add_offsets(group=talk.group))
    own = {"generation": talk.generation, "member_id": talk.member["a"]}
    members = {
        "itself": own,
        "an older generation": {**own, "generation": talk.generation - 1},
        "a newer generation": {**own, "generation": talk.generation + 1},
        "somebody": {**own, "member_id": "somebody"},
        "no member": {**own, "member_id": ""},
        "no generation": {**own, "generation": -1},
        "an unknown instance": {**own, "instance": "i"},
    }
    for step, member in members.items() if producer.has(TxnOffsetCommitRequest, MEMBERS_SINCE) else ():
        producer.ask(step, producer.commit_offsets(group=talk.group, **member))  # type: ignore[arg-type]
    producer.ask("nobody", producer.commit_offsets({TOPIC: {1: 5}}, group=talk.group))
    talk.ask("a", "heartbeat", talk.heartbeat("a"))
    _look(talk, "open")
    producer.ask("committed", producer.end())
    _look(talk, "committed")
    talk.finish()


def _look(talk: Talk, when: str) -> None:
    for stable in (False, True) if talk.has(OffsetFetchRequest, 7) else (False,):
        talk.ask("", f"fetched, {when}, stable {stable}", talk.fetch(EVERYTHING, stable=stable))
        if talk.has(OffsetFetchRequest, 2):
            talk.ask("", f"everything fetched, {when}, stable {stable}", talk.fetch(None, stable=stable))
    talk.ask("", f"described, {when}", DescribeGroupsRequest(groups=[talk.group]))


def _delete(talk: Talk, *groups: str) -> None:
    talk.ask("admin", "deleted", DeleteGroupsRequest(groups_names=list(groups)))
