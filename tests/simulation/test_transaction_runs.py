"""Transactions under faults in virtual time: everything once or never, whatever befalls brokers and producers."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from tests.transactions.bugs import BUGS

from . import transaction_run
from .history import from_edn, to_edn
from .history_checks import check as verdict
from .judge import history_of, judge
from .seeds import any_fails, trace_of
from .transaction_run import CLASSIC, RUNS, Run

QUICK, SEEDS = 4, 20


def check(seed: int) -> None:
    outcome = RUNS.run_seed(seed)
    gc.collect()  # a run makes much garbage, and collects none
    if outcome.failure is not None:
        outcome.failure.add_note(f"replay: {RUNS.replay(seed)}")
    outcome.check()
    assert outcome.left == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(QUICK))
def test_transactions_are_whole_or_nothing_whatever_befalls_a_cluster(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(QUICK, SEEDS))
def test_transactions_are_whole_or_nothing_in_many_more_seeds(seed: int) -> None:
    check(seed)


# Planted bugs, and within how many seeds each must be found. From three different beginnings it took about half of that
# or less; where it took long, the search begins near the first that finds it, so that a run of all is soon over.
BUDGETS = {
    "aborted-before-are-not-told": range(8),
    "aborted-lost-in-truncation": range(40, 140),
    "answered-before-decided": range(4),
    "complete-before-marked": range(3),
    "end-applies-to-the-next": range(20),
    "end-raises-no-epoch": range(16),
    "every-marker-commits": range(4),
    "fence-raises-no-epoch": range(12),
    "lso-ignores-lost-markers": range(3),
    "new-leader-forgets-open": range(16),
    "offsets-have-no-marker": range(8),
    "offsets-of-aborted-count": range(16),
    "one-marker-is-enough": range(3),
    "pending-offsets-are-plain-when-loaded": range(315, 415),
    "pending-offsets-show": range(12),
    "preparation-is-forgotten": range(36),
    "reads-to-high-watermark": range(3),
    "verification-is-not-heeded": range(16),
}
LATE_SEEDS = 12


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUDGETS)
@pytest.mark.usefixtures("plant")
def test_a_planted_bug_is_found_within_its_budget(bug: str) -> None:
    assert any_fails(RUNS.run_seed, BUDGETS[bug])


def test_every_bug_that_can_be_planted_has_a_budget() -> None:
    assert BUGS.keys() == BUDGETS.keys()


@pytest.mark.slow
def test_late_requests_harm_classic_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with Kafka (KIP-890): what comes late ends, or goes into, the next transaction of the same epoch.

    In transactions v2 the same requests come late in every seed above, and nothing comes of it.
    """
    monkeypatch.setattr(Run, "repeats_classic", True)
    monkeypatch.setattr(transaction_run, "PROTOCOLS", [CLASSIC])
    assert any_fails(RUNS.run_seed, range(LATE_SEEDS))


@pytest.mark.slow
def test_the_history_of_a_seed_is_judged_alike_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome, history = history_of(1)
    outcome.check()
    text = to_edn(history.entries)
    assert from_edn(text) == history.entries
    assert {entry["f"] for entry in history.entries} >= {"txn", "poll", "assign"}
    assert verdict(from_edn(text)).violations == {}
    path = tmp_path / "history.edn"
    path.write_text(text)
    assert judge([str(path)]) == 0
    assert "nothing happened that may not" in capsys.readouterr().out
    path.write_text(text.replace(":type :ok, :process", ":type :fail, :process"))
    assert judge([str(path)]) == 1
    assert "G1a: " in capsys.readouterr().out


@pytest.mark.slow
def test_a_seed_gives_the_same_trace_in_processes_with_other_hash_seeds() -> None:
    assert trace_of("transaction_run", 3, 1) == trace_of("transaction_run", 3, 2)
    assert trace_of("transaction_run", 3, 1) != trace_of("transaction_run", 4, 1)
