"""What befalls an application and its brokers: a list of faults, drawn from a seed before anything runs.

What must hold: the seed alone decides, and no fault depends on another being there, so that any part of a plan is a
plan, too: shrinking.py leaves faults out.
A fault strikes at a time, or right after the n-th event of a kind: what goes wrong between two requests of a client,
such as a commit and the work that it is about, would hardly ever be hit by the clock.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

# The faults by their names, and how often each is drawn beside the others.
KILL_APP, PAUSE_APP, KILL_BROKER, PAUSE_BROKER = "kill app", "pause app", "kill broker", "pause broker"
RESET, CUT, SLOW, REQUEST, MOVE_LEADER = "reset", "cut", "slow", "request", "move leader"
WEIGHTS = {
    KILL_APP: 4,
    PAUSE_APP: 3,
    REQUEST: 4,
    KILL_BROKER: 2,
    RESET: 2,
    PAUSE_BROKER: 1,
    CUT: 1,
    SLOW: 1,
    MOVE_LEADER: 2,
}
NEEDS_BROKERS = (MOVE_LEADER,)  # more than one

FAULTS_MAX = 6
HARM_MS = 12_000.0  # those that strike at a time do so within
# Events that faults wait for, beside "": the clock. Each with the highest number that is drawn.
AFTER = {"": 0, "append": 12, "commit": 10, "group": 6}
SESSION_MS = 10_000.0  # of aiokafka's consumers, unless somebody sets another
CALM_MS = (0.05, 0.15)
NETWORKS_MS = (CALM_MS, CALM_MS, (1.0, 30.0), (20.0, 80.0))
PIECE_BYTES = (0, 0, 0, 60)

# What requests meet, as rules of docs/faults.md, once each. Of each the client has to get over: Kafka answers so.
RULES: tuple[dict[str, object], ...] = (
    {"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER"},
    {"api": "Produce", "error": "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "after": True},
    {"api": "Produce", "close": "after"},
    {"api": "Produce", "close": "after"},
    {"api": "Produce", "close": "before"},
    {"api": "Fetch", "error": "NOT_LEADER_OR_FOLLOWER"},
    {"api": "Fetch", "close": "after"},
    {"api": "OffsetCommit", "error": "COORDINATOR_LOAD_IN_PROGRESS"},
    {"api": "OffsetCommit", "error": "NOT_COORDINATOR"},
    {"api": "OffsetCommit", "close": "after"},
    {"api": "Heartbeat", "error": "NOT_COORDINATOR"},
    {"api": "Heartbeat", "error": "UNKNOWN_MEMBER_ID"},
    {"api": "Heartbeat", "error": "REBALANCE_IN_PROGRESS"},
    {"api": "JoinGroup", "error": "NOT_COORDINATOR"},
    {"api": "SyncGroup", "close": "after"},
    {"api": "FindCoordinator", "error": "COORDINATOR_NOT_AVAILABLE"},
    {"api": "EndTxn", "close": "after"},
)


class Fault(NamedTuple):
    """One thing that goes wrong."""

    kind: str
    after: str  # the kind of event that it waits for; "": none
    nth: int  # how many of these
    delay_ms: float  # after that, or after the beginning
    for_ms: float  # how long it lasts, or until what was killed is started again
    choice: float  # which of those that it can strike: 0 the first, just below 1 the last
    rule: int  # which of RULES


class Plan(NamedTuple):
    """All that goes wrong in one run."""

    faults: tuple[Fault, ...] = ()
    delay_ms: tuple[float, float] = CALM_MS  # of the network, from and to
    piece_bytes: int = 0  # the longest piece in which frames arrive; 0: as they were written


def drawn_plan(seed: int, kinds: tuple[str, ...]) -> Plan:
    """Return what befalls a run from a seed; kinds: the faults that there may be, in the order of WEIGHTS."""
    chance = Random(f"faults {seed}")
    weights = [WEIGHTS[kind] for kind in kinds]
    count = chance.randint(1, FAULTS_MAX) if kinds else 0
    faults = tuple(_drawn_fault(chance, chance.choices(kinds, weights)[0]) for _ in range(count))
    return Plan(faults, chance.choice(NETWORKS_MS), chance.choice(PIECE_BYTES))


def _drawn_fault(chance: Random, kind: str) -> Fault:
    after = chance.choice([*AFTER])
    count = chance.randint(1, AFTER[after]) if after else 0
    delay_ms = chance.uniform(0, chance.choice([0, 1, 30, 400]) if after else HARM_MS)
    for_ms = chance.uniform(0, 3000)
    if kind == PAUSE_APP and chance.random() < 0.5:
        for_ms += SESSION_MS  # its group goes on without it, and it does not know
    return Fault(kind, after, count, delay_ms, for_ms, chance.random(), chance.randrange(len(RULES)))
