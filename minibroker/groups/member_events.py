"""Members of a group as events tell of them, and what each has as its coordinator sees it."""

from __future__ import annotations

from minibroker.errors import ProtocolError
from minibroker.groups.classic import ClassicGroup
from minibroker.groups.consumer_protocol import read_assignment
from minibroker.groups.describe import described

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.config.resources import GroupConfig
    from minibroker.groups.shard import Group
    from minibroker.groups.topics import Topics

    MemberRow = tuple[object, ...]  # its id, client id, epoch, and what it has, as orders-0


def member_rows(group: Group, topics: Topics, settings: GroupConfig) -> tuple[int, tuple[MemberRow, ...]]:
    """Return the epoch of a group, and its members."""
    if isinstance(group, ClassicGroup):
        is_known = group.state.name == "Stable" and group.protocol_type == "consumer"
        return group.generation, tuple(
            (each.id, each.client_id, group.generation, *(assigned_places(each.assignment) if is_known else ()))
            for each in group.members
        )
    found = described(group, topics, settings)
    return found.group_epoch, tuple(
        (
            *(each.member_id, each.client_id, each.member_epoch),
            *(
                f"{topic.topic_name}-{number}"
                for topic in each.assignment.topic_partitions
                for number in topic.partitions
            ),
        )
        for each in found.members
    )


def assigned_places(data: bytes) -> list[str]:
    """Return what a leader has given to a member; nothing if it said that in a way that is not known here."""
    try:
        topics = read_assignment(data).assigned_partitions
    except ProtocolError:
        return []
    return sorted(f"{topic.topic}-{number}" for topic in topics for number in topic.partitions)
