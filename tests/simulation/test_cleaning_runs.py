"""Retention and compaction under faults in virtual time: what may not go stays, and what is left is served."""

from __future__ import annotations

import gc

import pytest

from .cleaning_bugs import BUGS
from .cleaning_run import RUNS
from .seeds import any_fails, trace_of

QUICK, SEEDS = 2, 16


def check(seed: int) -> None:
    outcome = RUNS.run_seed(seed)
    gc.collect()  # a run makes much garbage, and collects none
    if outcome.failure is not None:
        outcome.failure.add_note(f"replay: {RUNS.replay(seed)}")
    assert outcome.check() > 20
    assert outcome.left == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(QUICK))
def test_what_may_not_be_cleaned_stays_whatever_befalls_a_cluster(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(QUICK, SEEDS))
def test_what_may_not_be_cleaned_stays_in_many_more_seeds(seed: int) -> None:
    check(seed)


# Within how many seeds each must be found: so many that fewer than 1 in 100 of all ways to draw chances find none. One
# seed of eight finds the first, one of five the second, and at least every second the others. The first begins where
# it does not take long.
BUDGETS = {
    "cleans-above-hw": range(20, 75),
    "cleans-the-young": range(30),
    "retains-above-hw": range(5),
    "retains-too-little": range(5),
    "tombstones-go-early": range(20),
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUDGETS)
@pytest.mark.usefixtures("plant")
def test_a_planted_bug_is_found_within_its_budget(bug: str) -> None:
    assert any_fails(RUNS.run_seed, BUDGETS[bug])


def test_every_bug_that_can_be_planted_has_a_budget() -> None:
    assert BUGS.keys() == BUDGETS.keys()


@pytest.mark.slow
def test_a_seed_gives_the_same_trace_in_processes_with_other_hash_seeds() -> None:
    assert trace_of("cleaning_run", 2, 1) == trace_of("cleaning_run", 2, 2)
    assert trace_of("cleaning_run", 2, 1) != trace_of("cleaning_run", 4, 1)
