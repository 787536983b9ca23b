"""Telling what happens to groups (event_kinds.py), so that whoever waits for one knows when to look.

A classic group says itself when its state or its members change. One of the consumer protocol is looked at before and
after an operation on it.
"""

from __future__ import annotations

from minibroker.event_kinds import Commit, Group
from minibroker.groups.classic_states import DEAD
from minibroker.groups.consumer import ConsumerGroup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from minibroker.groups.offsets import Mark
    from minibroker.groups.shard import Group as AnyGroup
    from minibroker.groups.shard import Shard
    from minibroker.parts import Parts

    Face = tuple[str, frozenset[str], bool]  # state, who is in, and whether it is of the consumer protocol

NOBODY: Face = ("Empty", frozenset(), True)


def tell(parts: Parts, group_id: str, before: str, after: str, why: str) -> None:
    if parts.events.observed:
        parts.events.emit(Group(parts.node_id, group_id, before, after, why))


def tell_commit(parts: Parts, mark: Mark) -> None:
    if "commit" in parts.events.wanted:
        group, (topic, partition), stored = mark
        offset = -1 if stored.value is None else stored.value.offset
        parts.events.emit(Commit(parts.node_id, topic, partition, group, offset))


def tell_loaded(parts: Parts, groups: Sequence[AnyGroup]) -> None:
    """Tell of groups that were read: another broker coordinated them before, or this one in another life."""
    for group in groups if parts.events.observed else ():
        tell(parts, group.group_id, group.state.name, group.state.name, f"broker {parts.node_id} coordinates it now")


def face_of(parts: Parts, shard: Shard, group_id: str) -> Face | None:
    """Return how a group looks, to be compared later; None: nobody wants to know."""
    if not parts.events.observed:
        return None
    group = shard.groups.get(group_id)
    if group is None:
        return NOBODY
    if isinstance(group, ConsumerGroup):
        return group.state.name, frozenset(group.state.members), True
    return group.state.name, frozenset(member.id for member in group.members), False


def tell_change(parts: Parts, shard: Shard, group_id: str, before: Face | None) -> None:
    """Tell of what has become of a consumer group, if anything has."""
    after = face_of(parts, shard, group_id)
    if before == after or before is None or after is None:
        return
    was = before[0] if before[2] else DEAD.name  # the classic group that it was has ended, and said so
    came, went = sorted(after[1] - before[1]), sorted(before[1] - after[1])
    whys = [f"{', '.join(came)} has joined"] if came else []
    whys += [f"{', '.join(went)} is gone"] if went else []
    tell(parts, group_id, was, after[0], " and ".join(whys) or WHYS.get(after[0], "its rows say so"))


WHYS = {
    "Assigning": "what its members are to have is not worked out yet",
    "Reconciling": "members have still to give up or to get what they are to have",
    "Stable": "every member has what it is to have",
}
