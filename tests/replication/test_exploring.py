"""Random schedules of three replicas keep what must hold, and notice when a rule is broken."""

from __future__ import annotations

import pytest

from tests.planting import BUGS, planted

from .explore import explore

SCHEDULES = 300

# Each planted bug, and within how many schedules it has to be found. From four different beginnings it took at most a
# third of that.
BUDGETS = {
    "acks-before-hw": 20,
    "acks-ignore-min-isr": 60,
    "cuts-to-leaders-end-only": 600,
    "diverging-fetch-counts": 100,
    "epoch-is-not-noted": 600,
    "hw-beyond-own-log": 50,
    "hw-falls": 50,
    "hw-is-log-end": 20,
    "joins-below-epoch-start": 150,
    "joins-below-hw": 200,
    "leader-commits-its-log": 60,
    "no-divergence-check": 60,
    "pending-isr-does-not-count": 300,
    "rises-under-min-isr": 80,
    "shrink-counts-at-once": 20,
    "takes-old-answers": 200,
    "truncates-to-hw": 100,
}
# These need several things to go wrong one after another, in longer schedules. test_leader.py has each in a few lines,
# and "joining-is-not-waited-for", with which nothing is lost: followers of a busy leader just never get in.
LONG = 100
# Where it took long, the search begins near the first that finds it, so that a run of all is soon over.
RARE_BUDGETS = {
    "any-error-ends-proposal": range(3000, 6000),
    "old-broker-epoch-joins": range(7000, 12000),
    "progress-outlives-epoch": range(2000, 5000),
    "same-epoch-ends-proposal": range(3000),
    "stale-leader-accepts-fetch": range(1000),
}


@pytest.mark.parametrize("bug", BUGS)
def test_what_is_planted_is_gone_afterwards(bug: str) -> None:
    def planted_now() -> list[bool]:
        return [vars(owner).get(name) is broken for owner, name, broken in BUGS[bug]]

    with planted(bug):
        assert all(planted_now())
    assert not any(planted_now())


@pytest.mark.outside
def test_what_must_hold_holds_in_every_schedule() -> None:
    assert explore(range(SCHEDULES)) is None


@pytest.mark.parametrize("bug", BUDGETS)
@pytest.mark.usefixtures("plant")
def test_a_planted_bug_is_found_within_its_budget(bug: str) -> None:
    assert explore(range(BUDGETS[bug])) is not None


@pytest.mark.slow
@pytest.mark.parametrize("bug", RARE_BUDGETS)
@pytest.mark.usefixtures("plant")
def test_a_planted_bug_that_needs_bad_luck_is_found_within_its_budget(bug: str) -> None:
    assert explore(RARE_BUDGETS[bug], LONG) is not None


@pytest.mark.slow
def test_what_must_hold_holds_in_many_schedules() -> None:
    assert explore(range(SCHEDULES, SCHEDULES + 4_000)) is None
