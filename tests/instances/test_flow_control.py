"""Distribution of a promise: the article's cases, what its text leaves open, and what holds whatever is measured."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minibroker.instances.flow_control import (
    CKAFKA,
    EVEN,
    FAIR,
    RULES,
    SCALED,
    UNEVEN,
    Distribution,
    distribute,
    shares_total_max,
)

THREE = {1: 1, 2: 1, 3: 1}
HALF = 100 / 3

# partitions, flows, and by each rule the step and the shares of a promise of 100
CASES = {
    "below 80 %": ((2, 2, 2), (20, 20, 20), FAIR, (33.3, 33.3, 33.3), (33.3, 33.3, 33.3)),
    "one hot": ((2, 2, 2), (100 / 3, 5, 5), UNEVEN, (76.9, 19.2, 19.2), (66.7, 16.7, 16.7)),
    "one hot, 33 to the letter": ((2, 2, 2), (33, 5, 5), UNEVEN, (76.7, 19.3, 19.3), (66.5, 16.7, 16.7)),
    "all greedy, 4+1+1": ((4, 1, 1), (66.7, 16.7, 16.7), UNEVEN, (66.6, 23.3, 23.3), (58.8, 20.6, 20.6)),
    "alike": ((2, 2, 2), (33, 30, 27), EVEN, (36.7, 33.3, 30.0), (36.7, 33.3, 30.0)),
    "80 % of F exactly": ((1, 1), (40, 40), EVEN, (50.0, 50.0), (50.0, 50.0)),
    "80 % of the largest exactly": ((1, 1), (50, 40), EVEN, (55.6, 44.4), (55.6, 44.4)),
    "no flow": ((3, 1), (0, 0), FAIR, (75.0, 25.0), (75.0, 25.0)),
    "one broker": ((5,), (99,), EVEN, (100.0,), (100.0,)),
    "one uses all": ((1, 1, 1), (50, 0, 0), UNEVEN, (100.0, 10.0, 10.0), (83.3, 8.3, 8.3)),
    "no partitions, though a flow": ((1, 1, 0), (10, 10, 90), FAIR, (50.0, 50.0, 0.0), (50.0, 50.0, 0.0)),
    "no partitions, others busy": ((1, 1, 0), (50, 50, 90), EVEN, (50.0, 50.0, 0.0), (50.0, 50.0, 0.0)),
    "two largest": ((1, 1, 1), (50, 50, 0), UNEVEN, (50.0, 50.0, 5.0), (47.6, 47.6, 4.8)),
    "never more than the largest": ((1, 1), (50, 38), UNEVEN, (56.8, 48.9), (53.8, 46.2)),
    "never more than the largest, near 80 %": ((1, 1, 1), (40, 39, 31), UNEVEN, (36.4, 36.4, 31.8), (34.8, 34.8, 30.4)),
    "nobody has partitions": ((0, 0), (5, 0), FAIR, (0.0, 0.0), (0.0, 0.0)),
    "nobody": ((), (), FAIR, (), ()),
}


def by_broker(values: tuple[float, ...]) -> dict[int, float]:
    return dict(enumerate(values, 1))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("case", CASES)
def test_shares_are_those_of_the_article(case: str, rule: str) -> None:
    partitions, flows, step, literal, scaled = CASES[case]
    found = distribute(100, dict(enumerate(partitions, 1)), by_broker(flows), rule)
    assert found.step == step
    assert {broker: round(share, 1) for broker, share in found.shares.items()} == by_broker(
        literal if rule == CKAFKA else scaled
    )


def test_who_has_not_reported_counts_as_silent() -> None:
    assert distribute(90, THREE, {1: 5.0}) == Distribution(FAIR, {1: 30.0, 2: 30.0, 3: 30.0})


def test_a_flow_without_a_promise_is_unlimited() -> None:
    assert distribute(inf, {1: 2, 2: 0}, {1: 1e12}).shares == {1: inf, 2: inf}


def rounds(
    partitions: dict[int, int], demand: dict[int, float], rule: str, count: int
) -> list[tuple[Distribution, dict[int, float]]]:
    """Play rounds: each broker uses what it wants and may; return the distributions and what was used under each."""
    found = Distribution(FAIR, distribute(100, partitions, {}, rule).shares)
    history = []
    for _ in range(count):
        used = {broker: min(demand[broker], share) for broker, share in found.shares.items()}
        history.append((found, used))
        found = distribute(100, partitions, used, rule, found)
    return history


def test_greedy_brokers_come_to_be_even_after_six_rounds_and_never_use_more_than_the_promise() -> None:
    history = rounds({1: 4, 2: 1, 3: 1}, {1: 999, 2: 999, 3: 999}, SCALED, 9)
    assert [round(sum(used.values()), 6) for _, used in history] == [100.0] * 9
    assert [found.step for found, _ in history] == [FAIR, *[UNEVEN] * 6, EVEN, EVEN]
    assert [round(share, 1) for share in history[-1][0].shares.values()] == [37.0, 31.5, 31.5]


def test_the_articles_own_rule_promises_more_than_there_is() -> None:
    history = rounds({1: 4, 2: 1, 3: 1}, {1: 999, 2: 999, 3: 999}, CKAFKA, 2)
    assert [round(sum(used.values()), 1) for _, used in history] == [100.0, 113.3]


PARTITIONS = st.lists(st.integers(0, 12), min_size=1, max_size=9)


@given(PARTITIONS, st.lists(st.floats(0, 1e9), min_size=9, max_size=9), st.sampled_from(RULES))
def test_shares_come_to_the_promise_and_nobody_is_left_with_nothing(
    counts: list[int], measured: list[float], rule: str
) -> None:
    partitions = dict(enumerate(counts))
    shares = distribute(1000, partitions, dict(enumerate(measured)), rule).shares
    assert sum(shares.values()) <= shares_total_max(1000, partitions, rule) * (1 + 1e-12)
    if rule == SCALED and any(counts):
        assert sum(shares.values()) == pytest.approx(1000)
    assert all((share > 0) == (partitions[broker] > 0) for broker, share in shares.items())
    assert list(shares) == list(partitions)


@given(PARTITIONS, st.lists(st.floats(0, 300), min_size=9, max_size=9), st.sampled_from(RULES))
@example([1, 1], [999, 43] + [0] * 7, SCALED)  # goes round between steps 4 and 5 unless 4 holds on
@example([81, *[1] * 8], [999, *[0.9] * 8], SCALED)  # goes round between steps 2 and 5 unless a used up share counts
def test_the_shares_settle_if_demand_stays_as_it_is(counts: list[int], wanted: list[float], rule: str) -> None:
    partitions = dict(enumerate(counts))
    history = rounds(partitions, dict(enumerate(wanted)), rule, 400)
    (before, _), (last, _) = history[-2:]
    assert last.step == before.step
    assert last.shares == pytest.approx(before.shares, abs=0.01)
