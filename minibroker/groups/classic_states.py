"""The states of a classic group, as data: how one follows another, and what members are told in each.

The picture in docs/groups.md is drawn from this table.
"""

from __future__ import annotations

from collections.abc import Iterable

from minibroker.errors import Error


class State:
    """One state; `tell` with Error.NONE means that the request is looked at further."""

    def __init__(self, name: str, what: str, *, after: Iterable[str], heartbeat: Error, sync: Error, commit: Error):
        self.name = name
        self.what = what
        self.after = frozenset(after)  # the states from which it is reached
        self.heartbeat = heartbeat  # what a member is answered
        self.sync = sync
        self.commit = commit

    def __repr__(self) -> str:
        return self.name


EMPTY = State(
    "Empty",
    "nobody is in it; its offsets wait, and expire",
    after=["PreparingRebalance"],
    heartbeat=Error.UNKNOWN_MEMBER_ID,
    sync=Error.UNKNOWN_MEMBER_ID,
    commit=Error.NONE,
)
PREPARING = State(
    "PreparingRebalance",
    "members join, or have to join again",
    after=["Empty", "Stable", "CompletingRebalance"],
    heartbeat=Error.REBALANCE_IN_PROGRESS,
    sync=Error.REBALANCE_IN_PROGRESS,
    commit=Error.NONE,
)
COMPLETING = State(
    "CompletingRebalance",
    "all have joined, and the leader works out who gets what",
    after=["PreparingRebalance"],
    heartbeat=Error.NONE,
    sync=Error.NONE,
    commit=Error.REBALANCE_IN_PROGRESS,
)
STABLE = State(
    "Stable",
    "every member has its assignment",
    after=["CompletingRebalance"],
    heartbeat=Error.NONE,
    sync=Error.NONE,
    commit=Error.NONE,
)
DEAD = State(
    "Dead",
    "it is deleted, or its coordinator has moved",
    after=["Empty", "PreparingRebalance", "CompletingRebalance", "Stable"],
    heartbeat=Error.COORDINATOR_NOT_AVAILABLE,
    sync=Error.COORDINATOR_NOT_AVAILABLE,
    commit=Error.COORDINATOR_NOT_AVAILABLE,
)
STATES = (EMPTY, PREPARING, COMPLETING, STABLE, DEAD)
