"""Tables and documents of groups: what kafka-consumer-groups.sh prints of them, and what has to be known for it.

Not here: verbs (groups.py, reset_offsets.py).
"""

from __future__ import annotations

from typing import NamedTuple

from minibroker.cli.connect import Refused
from minibroker.cli.status import FAILED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from minibroker.client.cluster import Cluster, Node, Topic, TopicPartition
    from minibroker.client.groups import CommittedOffset, GroupDescription, GroupMember, Groups
    from minibroker.errors import KafkaError

    Row = Mapping[str, object]

NOTHING = "-"
NO_CONSUMERS = "it is no consumer group, but one of the protocol type"
# Columns and how wide they are at least; 0: the last one, which nothing follows.
OFFSET_COLUMNS = {
    "GROUP": 15, "TOPIC": 15, "PARTITION": 10, "LEADER-EPOCH": 15, "CURRENT-OFFSET": 15, "LOG-END-OFFSET": 15,
    "LAG": 15, "CONSUMER-ID": 15, "HOST": 15, "CLIENT-ID": 0,
}  # fmt: skip
MEMBER_COLUMNS = {
    "GROUP": 15, "CONSUMER-ID": 15, "GROUP-INSTANCE-ID": 17, "HOST": 15, "CLIENT-ID": 15, "#PARTITIONS": 15,
    "CURRENT-EPOCH": 15, "CURRENT-ASSIGNMENT": 20, "TARGET-EPOCH": 15, "TARGET-ASSIGNMENT": 20, "UPGRADED": 0,
}  # fmt: skip
STATE_COLUMNS = {
    "GROUP": 15, "COORDINATOR (ID)": 25, "ASSIGNMENT-STRATEGY": 20, "STATE": 20,
    "GROUP-EPOCH": 15, "TARGET-ASSIGNMENT-EPOCH": 25, "#MEMBERS": 0,
}  # fmt: skip
RESET_COLUMNS = {"GROUP": 15, "TOPIC": 15, "PARTITION": 10, "NEW-OFFSET": 0}
DELETED_COLUMNS = {"TOPIC": 15, "PARTITION": 10, "STATUS": 0}
VERBOSE = (
    "LEADER-EPOCH", "CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT", "UPGRADED",
    "GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH",
)  # fmt: skip


class Progress(NamedTuple):
    """How far a group is in one partition."""

    topic: str
    partition: int
    committed: CommittedOffset | None
    end: int | None  # None: nobody can tell
    member: GroupMember | None  # who has it

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else self.end - self.committed.offset


def table(columns: Mapping[str, int], rows: Iterable[Row], verbose: bool = True) -> list[str]:
    """Return lines of aligned columns, names first; a row may know more columns than are shown."""
    shown = {column: least for column, least in columns.items() if verbose or column not in VERBOSE}
    cells = [list(shown)]
    cells += [[NOTHING if row[column] is None else str(row[column]) for column in shown] for row in rows]
    widths = [least and max(least, *(len(line[at]) for line in cells)) for at, least in enumerate(shown.values())]
    return [" ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]


def progress(
    group: GroupDescription,
    committed: Mapping[TopicPartition, CommittedOffset],
    ends: Mapping[TopicPartition, int],
) -> list[Progress]:
    """Return partitions of the busiest member first, last those that nobody has."""
    members = sorted(group.members, key=lambda member: -len(member.assignment))
    held: dict[TopicPartition, GroupMember | None] = {key: one for one in members for key in one.assignment}
    held |= {key: None for key in committed if key not in held}
    return [Progress(*key, committed.get(key), ends.get(key), member) for key, member in held.items()]


def offset_row(group: str, at: Progress) -> Row:
    return {
        "GROUP": group,
        "TOPIC": at.topic,
        "PARTITION": at.partition,
        "LEADER-EPOCH": at.committed and _epoch(at.committed.leader_epoch),
        "CURRENT-OFFSET": at.committed and at.committed.offset,
        "LOG-END-OFFSET": at.end,
        "LAG": at.lag,
        "CONSUMER-ID": at.member and at.member.id,
        "HOST": at.member and at.member.host,
        "CLIENT-ID": at.member and at.member.client_id,
    }


def member_columns(group: GroupDescription) -> dict[str, int]:
    """Return the columns that tell something: some are only for static members, or on the way between protocols."""
    columns = dict(MEMBER_COLUMNS)
    if not any(member.instance_id for member in group.members):
        del columns["GROUP-INSTANCE-ID"]
    if not {member.speaks_consumer for member in group.members} >= {True, False}:
        del columns["UPGRADED"]
    return columns


def member_row(group: GroupDescription, member: GroupMember) -> Row:
    return {
        "GROUP": group.id,
        "CONSUMER-ID": member.id,
        "GROUP-INSTANCE-ID": member.instance_id or "",
        "HOST": member.host,
        "CLIENT-ID": member.client_id,
        "#PARTITIONS": len(member.assignment),
        "CURRENT-EPOCH": _epoch(member.epoch),
        "CURRENT-ASSIGNMENT": _assignment(member.assignment),
        "TARGET-EPOCH": _epoch(group.target_epoch),
        "TARGET-ASSIGNMENT": _assignment(member.target or []),
        "UPGRADED": None if member.speaks_consumer is None else str(member.speaks_consumer).lower(),
    }


def state_row(group: GroupDescription, node: Node | None) -> Row:
    return {
        "GROUP": group.id,
        "COORDINATOR (ID)": f"{node.host}:{node.port}  ({node.id})" if node else f"({group.coordinator_id})",
        "ASSIGNMENT-STRATEGY": group.assignor or None,
        "STATE": group.state,
        "GROUP-EPOCH": _epoch(group.epoch),
        "TARGET-ASSIGNMENT-EPOCH": _epoch(group.target_epoch),
        "#MEMBERS": len(group.members),
    }


def document(group: GroupDescription, offsets: Iterable[Progress] | None) -> dict[str, Any]:
    """Return everything that is known of a group; offsets if they were asked for."""
    found: dict[str, Any] = {
        "group": group.id,
        "type": group.type,
        "state": group.state,
        "coordinator": group.coordinator_id,
        "assignor": group.assignor or None,
        "epoch": _epoch(group.epoch),
        "target_epoch": _epoch(group.target_epoch),
        "members": [
            {
                "member": member.id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host,
                "epoch": _epoch(member.epoch),
                "assignment": _pairs(member.assignment),
                "target": None if member.target is None else _pairs(member.target),
            }
            for member in group.members
        ],
    }
    if offsets is not None:
        found["offsets"] = [
            {
                "topic": at.topic,
                "partition": at.partition,
                "offset": at.committed and at.committed.offset,
                "leader_epoch": at.committed and _epoch(at.committed.leader_epoch),
                "metadata": at.committed and at.committed.metadata,
                "end": at.end,
                "lag": at.lag,
                "member": at.member and at.member.id,
            }
            for at in offsets
        ]
    return found


def _epoch(epoch: int) -> int | None:
    return None if epoch < 0 else epoch


def _assignment(partitions: Iterable[TopicPartition]) -> str | None:
    """Return partitions as in orders:0,2;users:1."""
    by_topic: dict[str, list[str]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(str(partition))
    return ";".join(f"{topic}:{','.join(numbers)}" for topic, numbers in by_topic.items()) or None


def _pairs(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": partition} for topic, partition in partitions]


def print_table(columns: Mapping[str, int], rows: Iterable[Row], verbose: bool = True) -> None:
    print("\n".join(["", *table(columns, rows, verbose)]))


# What is asked for them


async def described_groups(
    groups: Groups, names: Iterable[str]
) -> tuple[dict[str, GroupDescription], dict[str, KafkaError | str]]:
    """Return the consumer groups among these, sorted, and why the others are none."""
    from minibroker.client.descriptions import SomeFailed
    from minibroker.client.groups import CONSUMER_PROTOCOL

    missing: dict[str, KafkaError | str] = {}
    try:
        described = await groups.describe_groups(names)
    except SomeFailed as failed:
        described = dict(failed.results)
        missing |= failed.errors
    for name, group in list(described.items()):
        if group.protocol_type not in ("", CONSUMER_PROTOCOL):
            missing[name] = f"{NO_CONSUMERS} {group.protocol_type!r}"
            del described[name]
    return dict(sorted(described.items())), missing


async def partitions_named(cluster: Cluster, texts: Iterable[str]) -> list[TopicPartition]:
    """Return what --topic names; all partitions of a topic that is named alone."""
    from minibroker.cli.reset_plan import partitions_in

    try:
        chosen = [partitions_in(text) for text in texts]
    except ValueError as error:
        raise Refused(str(error)) from None
    topics = await cluster.metadata({topic for topic, _ in chosen})
    pairs = []
    for topic, numbers in chosen:
        if numbers is None and topics[topic].error:
            raise Refused(f"there is no topic {topic!r}; minibroker topics --list shows what there is", FAILED)
        pairs += [(topic, number) for number in (topics[topic].partitions if numbers is None else numbers)]
    return list(dict.fromkeys(pairs))


def has_leader(topic: Topic, partition: int) -> bool:
    return partition in topic.partitions and topic.partitions[partition].leader_id >= 0
