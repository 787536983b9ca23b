"""Rows of the view of consumer groups that HTTP, Python and lessons show; broker/group_view.py fills them in."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Place = tuple[str, int]  # topic and partition


class GroupRow(NamedTuple):
    """A group in the list of all."""

    group: str
    type: str  # "Classic" or "Consumer" (KIP-848)
    protocol_type: str  # "consumer", or what else the members are; "": it only holds offsets
    state: str
    members: int
    coordinator: int


class GroupMember(NamedTuple):
    """A member."""

    id: str
    instance_id: str | None  # None: not a static member
    client_id: str
    host: str
    epoch: int  # that it has reached; in a classic group the generation
    assignment: list[Place]  # what it has; in a classic group nothing is known of that before the group is stable
    target: list[Place] | None  # what it shall have, once others have let go; None: a classic group
    # What it believes to own and so reads, as far as its coordinator can know: what it was given last, until it says
    # something else. While a classic group rebalances, that is all there is.
    owned: list[Place]


class GroupPartition(NamedTuple):
    """A partition that a group has committed an offset of, or that a member has."""

    topic: str
    partition: int
    member: str | None  # who has it
    position: int | None  # the offset that its member asked for last, if one can tell who that was
    committed: int | None
    log_start_offset: int | None  # of the replica that leads; None, like the others, if none does
    last_stable_offset: int | None
    high_watermark: int | None
    log_end_offset: int | None
    lag_to_lso: int | None  # from the committed offset to what consumers of committed transactions may read
    lag_to_hw: int | None  # ... to what others may read
    lag_to_leo: int | None  # ... to all that the leader has


class GroupView(NamedTuple):
    """A group."""

    group: str
    type: str
    protocol_type: str
    state: str
    epoch: int  # of a classic group the generation
    assignor: str  # "" if there is none yet
    coordinator: int  # -1: nobody
    members: list[GroupMember]
    partitions: list[GroupPartition]

    def partition(self, topic: str, partition: int = 0) -> GroupPartition:
        """Return the row of a partition; KeyError if the group has nothing to do with it."""
        for row in self.partitions:
            if (row.topic, row.partition) == (topic, partition):
                return row
        raise KeyError(f"{self.group} has nothing to do with {topic}-{partition}")


def view_as_json(view: GroupView) -> dict[str, Any]:
    """Return what `json.dumps` takes, with every value by its name."""
    members = [member._asdict() for member in view.members]
    return {**view._asdict(), "members": members, "partitions": [row._asdict() for row in view.partitions]}


def view_from_json(found: dict[str, Any]) -> GroupView:
    """Return the view that `view_as_json` was given."""
    members = []
    for each in found["members"]:
        target = each["target"]
        members.append(
            GroupMember(
                **{
                    **each,
                    "assignment": [(topic, partition) for topic, partition in each["assignment"]],
                    "target": None if target is None else [(topic, partition) for topic, partition in target],
                    "owned": [(topic, partition) for topic, partition in each["owned"]],
                }
            )
        )
    return GroupView(
        **{**found, "members": members, "partitions": [GroupPartition(**each) for each in found["partitions"]]}
    )
