"""Rates over samples, and buckets: the numbers of Kafka's RateTest and TokenBucketTest, and what follows from them."""

from __future__ import annotations

import math

import pytest

from minibroker.quotas.rates import THROTTLE_MS_MAX, Rate, SimpleRate, TokenBucket


def test_a_young_rate_is_as_if_all_but_one_of_its_windows_had_passed() -> None:
    rate = Rate(11, 1000)
    rate.record(100, 5000)
    assert rate.span_ms(5000) == 10_000
    assert rate.per_second(5000) == 10
    assert rate.span_ms(5999) == 10_999  # and what of the present one is over


def test_samples_that_overlap_the_window_are_counted_and_older_ones_forgotten() -> None:
    rate = Rate(2, 1000)
    for at_ms in (0, 900, 1000, 2500):
        rate.record(10, at_ms)
    assert rate.per_second(2500) == 40 * 1000 / 2500  # of the first sample, the later half lies in the window
    assert rate.per_second(2900) == 20 * 1000 / 1900
    assert rate.per_second(4500) == 0


def test_what_is_recorded_in_a_new_sample_leaves_the_old_ones() -> None:
    rate = Rate(2, 1000)
    for second in range(10):
        rate.record(second, second * 1000)
    assert rate.per_second(9000) == 8 + 9
    assert rate.span_ms(9000) == 1000


def test_a_throttle_time_brings_the_rate_down_to_the_limit() -> None:
    rate = Rate(11, 1000)
    rate.record(1500, 0)
    assert rate.throttle_ms(150, 0) == 0
    assert rate.throttle_ms(100, 0) == 5000
    assert rate.throttle_ms(1e-9, 0) == THROTTLE_MS_MAX
    assert rate.throttle_ms(math.nan, 0) == 0  # Kafka takes such a limit, and nobody waits for it


def test_what_is_taken_back_was_never_there() -> None:
    rate = Rate(11, 1000)
    rate.record(1500, 0)
    rate.record(-1500, 0)
    assert rate.per_second(0) == 0


def test_a_simple_rate_is_that_of_the_time_that_has_passed() -> None:
    rate = SimpleRate(11, 1000)
    rate.record(100, 0)
    assert rate.per_second(0) == 100
    assert rate.per_second(4000) == 25


@pytest.mark.parametrize(("limit", "most"), [(5, 50), (0.5, 5)])
def test_a_bucket_begins_full_and_fills_by_the_limit_up_to_its_window(limit: float, most: float) -> None:
    bucket = TokenBucket(10, 1000)
    assert bucket.tokens(limit, 0) == most
    bucket.take(most + 2 * limit, limit, 0)
    assert bucket.tokens(limit, 0) == -2 * limit
    assert bucket.throttle_ms(limit, 0) == 2000
    assert bucket.throttle_ms(limit, 1500) == 500
    assert bucket.throttle_ms(limit, 2000) == 0
    assert bucket.tokens(limit, 1_000_000) == most


def test_a_bucket_takes_back_no_more_than_fits() -> None:
    bucket = TokenBucket(10, 1000)
    bucket.take(-100, 1, 0)
    assert bucket.tokens(1, 0) == 10
