"""The clock of one broker: whom it asks for the time, and from when on."""

from __future__ import annotations

from minibroker.clock import LoopClock
from minibroker.clock.broker_clock import BrokerClock
from minibroker.clock.steered import SteeredClock

HOUR_MS = 3_600_000


class OtherClock(LoopClock):
    """A clock with a time of its own, as a simulation has."""

    def now_ms(self) -> int:
        return 1

    def steady_ms(self) -> int:
        return 2

    def elapsed_ms(self) -> int:
        return 3


def test_a_clock_that_is_derived_from_the_machines_is_asked() -> None:
    clock = BrokerClock(OtherClock())
    assert (clock.now_ms(), clock.steady_ms(), clock.elapsed_ms()) == (1, 2, 3)


def test_what_is_done_to_a_steered_clock_shows_from_then_on() -> None:
    steered = SteeredClock()
    clock = BrokerClock(steered)
    before_ms, steady_ms = clock.now_ms(), clock.steady_ms
    begun_ms = steady_ms()
    steered.jump("1h")
    assert clock.now_ms() >= before_ms + HOUR_MS
    assert 0 <= steady_ms() - begun_ms < HOUR_MS  # as if nothing had happened
    steered.freeze()
    assert clock.now_ms() == clock.now_ms() == steered.now_ms()


def test_a_clock_that_begins_at_a_given_time_is_asked_from_the_beginning() -> None:
    steered = SteeredClock(now_ms=HOUR_MS)
    clock = BrokerClock(steered)
    assert HOUR_MS <= clock.now_ms() < 2 * HOUR_MS
    assert clock.steady_ms() < HOUR_MS


def test_a_wrong_clock_shows_it_in_its_time_and_in_no_timer() -> None:
    clock = BrokerClock(OtherClock())
    clock.skew_ms = HOUR_MS
    assert (clock.now_ms(), clock.steady_ms()) == (HOUR_MS + 1, 2)
