"""States of a classic group, as data: which event leads from one to another, and what members are told in each.

The picture in docs/groups.md is drawn from these tables.
"""

from __future__ import annotations

from typing import NamedTuple

from minibroker.errors import Error

UNKNOWN, GONE = Error.UNKNOWN_MEMBER_ID, Error.COORDINATOR_NOT_AVAILABLE
GOES_ON, REBALANCING = Error.NONE, Error.REBALANCE_IN_PROGRESS


class State(NamedTuple):
    """One state; an answer of Error.NONE means that the request is looked at further."""

    name: str
    what: str
    heartbeat: Error  # what a member is answered
    sync: Error
    commit: Error

    def __repr__(self) -> str:
        return self.name


EMPTY = State("Empty", "nobody is in it; its offsets wait, and expire", UNKNOWN, UNKNOWN, GOES_ON)
PREPARING = State("PreparingRebalance", "members join, or have to join again", REBALANCING, REBALANCING, GOES_ON)
COMPLETING = State(
    "CompletingRebalance",
    "all have joined, and the leader works out who gets what",
    *(GOES_ON, GOES_ON, REBALANCING),
)
STABLE = State("Stable", "every member has its assignment", GOES_ON, GOES_ON, GOES_ON)
DEAD = State("Dead", "it is deleted, or its coordinator has moved", GONE, GONE, GONE)
STATES = (EMPTY, PREPARING, COMPLETING, STABLE, DEAD)

BEGIN = "a rebalance begins"
COMPLETE = "all have joined"
VACATE = "nobody has joined"
ASSIGN = "the assignment is written"
END = "the group ends"
EVENTS = {  # from which state to which one; in any other state the event is an error of ours
    BEGIN: {EMPTY: PREPARING, COMPLETING: PREPARING, STABLE: PREPARING},
    COMPLETE: {PREPARING: COMPLETING},
    VACATE: {PREPARING: EMPTY},
    ASSIGN: {COMPLETING: STABLE},
    END: {EMPTY: DEAD, PREPARING: DEAD, COMPLETING: DEAD, STABLE: DEAD},
}
