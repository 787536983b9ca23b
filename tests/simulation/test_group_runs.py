"""Groups of consumers under faults in virtual time: offsets are registers, and no partition has two owners."""

from __future__ import annotations

import gc
import logging
import warnings
from math import inf

import pytest

from minibroker.groups.offsets_partition import OffsetsPartition

from .group_assignors import Wish, cooperative, decode_share, decode_wish, eager, encode_share, encode_wish
from .group_run import RUNS
from .invariants import Violation
from .registers import NOTHING, Register
from .seeds import any_fails, trace_of

QUICK, SEEDS, FOREIGN_SEEDS = 4, 40, 3


def check(seed: int, *, foreign: bool = False) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ResourceWarning
        )  # aiokafka's connections complain, of consumers that were killed
        outcome = RUNS.run_seed(seed, foreign=foreign)
        gc.collect()  # a run makes much garbage, and collects none
    if foreign and outcome.result is not None and type(outcome.failure).__module__ == "aiokafka.errors":
        outcome.failure = None  # the run has come to its end; this is a task of aiokafka's that nobody there waits for
    if outcome.failure is not None:
        outcome.failure.add_note(f"replay: {RUNS.replay(seed, foreign=foreign)}")
    assert outcome.check() > 10
    assert outcome.left == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(QUICK))
def test_groups_keep_what_must_hold_whatever_befalls_their_coordinators(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(QUICK, SEEDS))
def test_groups_keep_what_must_hold_in_many_more_seeds(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.parametrize("seed", range(FOREIGN_SEEDS))
def test_a_group_of_unmodified_aiokafka_reads_everything(seed: int) -> None:
    logging.disable()  # what aiokafka complains of is what the run is about, and a log would keep its connections
    try:
        check(seed, foreign=True)
    finally:
        logging.disable(logging.NOTSET)


# Planted bugs, and within how many seeds each must be found. From three different beginnings it took about half of that
# or less.
# Where it took long, the search begins near the first that finds it, so that a run of all is soon over.
BUDGETS = {
    "absent-members-stay": range(30),
    "any-generation": range(150, 228),
    "assigned-before-written": range(23, 60),
    "begins-before-safe": range(90, 180),
    "confirms-unsafe-rows": range(8),
    "forgets-unsafe-offsets": range(8),
    "generation-stays": range(8),
    "given-before-revoked": range(20),
    "heartbeat-is-not-noted": range(10),
    "old-instance-lives": range(40),
    "session-never-ends": range(15),
    "shows-unsafe-offsets": range(28, 160),
    "strangers-commit": range(13, 50),
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUDGETS)
@pytest.mark.usefixtures("plant")
def test_a_planted_bug_is_found_within_its_budget(bug: str) -> None:
    assert any_fails(RUNS.run_seed, BUDGETS[bug])


def begin_anyway(led: OffsetsPartition, offset: int, failure: Exception) -> None:
    led.log.is_loading = False
    led.loaded()


@pytest.mark.slow
def test_a_coordinator_that_begins_in_spite_of_damage_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five of the first sixty seeds find it, 20 and 22 first."""
    monkeypatch.setattr(OffsetsPartition, "unreadable", begin_anyway)
    assert any_fails(RUNS.run_seed, range(20, 30))


@pytest.mark.slow
def test_a_seed_gives_the_same_trace_in_processes_with_other_hash_seeds() -> None:
    assert trace_of("group_run", 3, 1) == trace_of("group_run", 3, 2)
    assert trace_of("group_run", 3, 1) != trace_of("group_run", 4, 1)


# What the runs judge by


class Written:
    """A register and a hand to fill it."""

    def __init__(self) -> None:
        self.register = Register("it")

    def write(self, start: float, end: float) -> int:
        value = self.register.attempt("somebody", start)
        self.register.writes[value].end = end
        return value

    def read(self, value: int, start: float, end: float, *, is_strict: bool = True) -> None:
        self.register.see(value, "somebody", start, end, is_strict=is_strict)


def test_a_register_may_show_either_of_two_values_while_the_second_is_written() -> None:
    written = Written()
    written.read(NOTHING, 0, 1)
    first, second = written.write(1, 2), written.write(3, 6)
    written.read(first, 3.5, 4)
    written.read(second, 4, 5)
    written.read(second, 7, 8)
    written.register.check()


def test_a_write_that_nobody_confirmed_may_count_late_or_never() -> None:
    written = Written()
    first, lost, late = written.write(1, 2), written.write(3, inf), written.write(4, inf)
    written.read(first, 5, 6)
    written.read(late, 9, 10)
    written.register.check()
    assert lost not in (value for value, *_ in written.register.reads)


def test_a_register_does_not_go_back() -> None:
    written = Written()
    first, second = written.write(1, 2), written.write(3, inf)
    written.read(second, 4, 5)
    written.read(first, 6, 7)
    with pytest.raises(Violation, match="G3"):
        written.register.check()


def test_what_was_confirmed_is_read() -> None:
    written = Written()
    first, _ = written.write(1, 2), written.write(3, 4)
    written.read(first, 5, 6)
    with pytest.raises(Violation, match="G3"):
        written.register.check()


def test_a_deposed_coordinator_may_show_what_was_but_nothing_that_never_was() -> None:
    written = Written()
    first, second = written.write(1, 2), written.write(3, 4)
    written.read(first, 5, 6, is_strict=False)
    written.register.check()
    with pytest.raises(Violation, match="nobody had committed"):
        written.read(second + 1, 5, 6, is_strict=False)
    written.register.writes[second].is_refused = True
    with pytest.raises(Violation, match="refused"):
        written.read(second, 5, 6, is_strict=False)


def test_the_eager_assignor_shares_out_everything() -> None:
    wishes = {"a": Wish(("orders",)), "b": Wish(("orders", "bills"))}
    shares = eager(wishes, {"orders": 3, "bills": 1}, 1)
    assert shares == {"a": [("orders", 1)], "b": [("bills", 0), ("orders", 0), ("orders", 2)]}


def test_the_cooperative_assignor_gives_nobody_what_another_one_has_still() -> None:
    both = frozenset((("orders", 0), ("orders", 1)))
    wishes = {"a": Wish(("orders",), both, 3), "b": Wish(("orders",))}
    assert cooperative(wishes, {"orders": 2}, 4) == {"a": [("orders", 0)], "b": []}
    wishes = {"a": Wish(("orders",), frozenset((("orders", 0),)), 4), "b": Wish(("orders",), frozenset(), 4)}
    assert cooperative(wishes, {"orders": 2}, 5) == {"a": [("orders", 0)], "b": [("orders", 1)]}


def test_members_understand_what_they_exchange() -> None:
    wish = Wish(("orders", "bills"), frozenset((("bills", 0),)), 7)
    assert decode_wish(encode_wish(wish)) == wish
    assert decode_share(encode_share([("orders", 2), ("bills", 0)])) == [("bills", 0), ("orders", 2)]
    assert decode_share(b"") == []
