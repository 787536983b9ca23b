"""The clock in the hand: freeze, thaw, rate, advance, jump; mostly over a source of time that stands still."""

from __future__ import annotations

import asyncio
import threading
import time
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibroker.broker.broker import Node
from minibroker.client import Cluster, Producer
from minibroker.clock import CHORE, IDLE, REQUEST, SESSION, LoopClock
from minibroker.clock.steered import SteeredClock, duration_ms
from minibroker.config import BrokerConfig
from minibroker.log.memory_storage import MemoryStorage
from minibroker.simulation.run import World, simulate

DAY_MS = 86_400_000


def frozen(now_ms: int = 1000) -> SteeredClock:
    clock = SteeredClock(now_ms, source_ms=float)
    clock.freeze()
    return clock


async def test_a_frozen_clock_stands_and_advances_only_by_hand() -> None:
    clock = SteeredClock(1000)
    clock.freeze()
    shown = clock.now_ms()
    await asyncio.sleep(0.005)
    assert clock.now_ms() == shown
    await clock.advance(5)
    assert clock.now_ms() == shown + 5
    await clock.advance("7d")
    assert clock.now_ms() == shown + 5 + 7 * DAY_MS


async def test_advancing_fires_timers_in_order_each_at_its_time() -> None:
    clock = frozen()
    fired: list[tuple[str, int]] = []
    for name, delay_ms in [("c", 30), ("a", 10), ("b", 20), ("b2", 20), ("late", 41)]:
        clock.after(delay_ms, lambda name=name: fired.append((name, clock.now_ms())))  # type: ignore[misc]
    await clock.advance(40, sessions=True)
    assert fired == [("a", 1010), ("b", 1020), ("b2", 1020), ("c", 1030)]
    assert clock.now_ms() == 1040
    assert clock.next_due_ms == 1
    await clock.advance(1, sessions=True)
    assert fired[-1] == ("late", 1041)
    assert clock.next_due_ms is None


async def test_timers_that_did_nothing_take_no_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = frozen(0)
    settle, settled = clock.settle, []
    monkeypatch.setattr(clock, "settle", lambda: settled.append(clock.now_ms()) or settle())  # type: ignore[func-returns-value]
    woken = asyncio.Event()

    def look() -> object:
        clock.after(1000, look)
        return IDLE

    clock.after(1000, look)
    clock.after(750_500, woken.set)
    waiting = asyncio.create_task(woken.wait())
    await clock.advance(1_000_000, sessions=True)
    # Now and then it does get one all the same, for whoever came from outside; and whenever somebody did something.
    assert settled == [0, 500_000, 750_500, 1_000_000]
    assert waiting.done()


async def test_timers_set_on_the_way_fire_on_the_way() -> None:
    clock = frozen(0)
    fired: list[int] = []

    def again() -> None:
        fired.append(clock.now_ms())
        clock.after(100, again)

    clock.after(100, again)
    await clock.advance("1s", sessions=True)
    assert fired == list(range(100, 1001, 100))


async def test_the_loop_works_between_timers() -> None:
    clock = frozen(0)
    woken: list[int] = []

    async def sleeper() -> None:
        for _ in range(3):
            await clock.sleep(1000)
            await asyncio.sleep(0)
            await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
            woken.append(clock.now_ms())

    task = asyncio.get_running_loop().create_task(sleeper())
    await clock.advance("10s", sessions=True)
    assert woken == [1000, 2000, 3000]
    assert task.done()


async def test_a_cancelled_timer_does_not_fire() -> None:
    clock = frozen()
    timer = clock.after(10, lambda: pytest.fail("cancelled"))
    timer.cancel()
    await clock.advance(100, sessions=True)
    task = asyncio.get_running_loop().create_task(clock.sleep(10))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await clock.advance(100, sessions=True)
    assert clock.next_due_ms is None


async def test_deadlines_that_were_met_do_not_pile_up() -> None:
    clock = frozen()
    clock.after(1, int)
    for _ in range(10_000):
        clock.after(30_000, int).cancel()
    assert len(clock._sessions.heap) < 1000
    assert clock.next_due_ms == 1


async def test_sleeping_no_time_yields_even_when_time_stands() -> None:
    await frozen().sleep(0)


async def test_a_timer_that_fails_does_not_stop_the_others() -> None:
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    clock = frozen()
    fired: list[str] = []
    clock.after(1, lambda: 1 // 0)
    clock.after(1, lambda: fired.append("other"))
    await clock.advance(1, sessions=True)
    assert fired == ["other"]
    assert isinstance(told[0], ZeroDivisionError)


async def test_a_running_clock_fires_by_itself() -> None:
    clock = SteeredClock()
    clock.rate(1000)
    await clock.sleep(2000)  # 2 ms
    done = asyncio.Event()
    clock.freeze()
    clock.after(1000, done.set)
    assert not done.is_set()
    clock.thaw()
    await done.wait()


def test_rates_and_freezes_add_up() -> None:
    async def main(world: World) -> None:
        clock = SteeredClock(0, source_ms=lambda: world.loop.time() * 1000)
        shown = []
        for steer in (lambda: None, lambda: clock.rate(10), clock.freeze, clock.thaw, lambda: clock.rate(0.5)):
            steer()
            await asyncio.sleep(1)
            shown.append(round(clock.now_ms(), -1))
        assert shown == [1000, 11_000, 11_000, 21_000, 21_500]
        clock.rate(100)
        begun = world.loop.time()
        await clock.sleep(10_000)
        assert round(world.loop.time() - begun, 3) == 0.1
        await clock.advance("1h")
        assert round(clock.now_ms(), -2) == 21_500 + 10_000 + 3_600_000

    simulate(main, 1).check()


async def test_a_jump_changes_what_is_shown_and_no_timer() -> None:
    clock = frozen(0)
    fired: list[int] = []
    clock.after(1000, lambda: fired.append(clock.now_ms()))
    clock.jump("1h")
    assert clock.now_ms() == 3_600_000
    assert not fired
    await clock.advance(1000, sessions=True)
    assert fired == [3_601_000]
    clock.jump("-1h")
    assert clock.now_ms() == 1000


@pytest.mark.parametrize("sessions", [False, True])
async def test_a_broker_lives_by_it(sessions: bool) -> None:
    clock = SteeredClock()
    clock.freeze()
    config = BrokerConfig.from_sources({"listeners": "PLAINTEXT://127.0.0.1:0"})
    node = Node(config, MemoryStorage(clock.now_ms), clock=clock, chance=Random(1))
    await node.start()
    try:
        async with Cluster(node.bootstrap_servers) as cluster, Producer(cluster) as producer:
            before = await producer.send("orders", b"before")
            await clock.advance("1h", sessions=sessions)
            after = await producer.send("orders", b"after")
            assert (before.offset, after.offset) == (0, 1)
            connections = len(node.servers[0].connections)
            await clock.advance("11m", sessions=sessions)  # longer than connections.max.idle.ms
            assert len(node.servers[0].connections) == (0 if sessions else connections > 0 and connections)
    finally:
        await node.stop()


async def test_other_threads_may_steer() -> None:
    clock = SteeredClock(0)
    clock.attach()
    clock.freeze()
    shown = clock.now_ms()
    found: list[int] = []

    def other() -> None:
        clock.from_thread(clock.advance, "1d")
        found.append(clock.from_thread(clock.now_ms))

    thread = threading.Thread(target=other)
    thread.start()
    while thread.is_alive():
        await asyncio.sleep(0)
    thread.join()
    assert found == [shown + DAY_MS]


async def test_what_is_done_to_the_clock_is_told() -> None:
    clock = SteeredClock(0)
    told: list[tuple[str, float]] = []
    clock.watchers[lambda *what: told.append(what)] = None
    clock.freeze()
    await clock.advance("1s")
    clock.thaw()
    clock.rate(10)
    clock.jump(-5)
    assert told == [("freeze", 0), ("advance", 1000), ("thaw", 0), ("rate", 10), ("jump", -5)]


async def test_nonsense_is_refused() -> None:
    clock = frozen()
    with pytest.raises(ValueError, match="back"):
        await clock.advance(-1)
    with pytest.raises(ValueError, match="forward"):
        clock.rate(0)


NEVER = [float("nan"), float("inf"), -float("inf"), 1e308, -1e308, "9" * 400 + "d", "3000000d"]


@pytest.mark.parametrize("amount", [*NEVER, "-30000d"])
def test_a_jump_to_where_no_record_can_be_is_refused(amount: float | str) -> None:
    clock = SteeredClock()
    with pytest.raises(ValueError, match="1970 to 9999"):
        clock.jump(amount)
    assert clock.moved is None


@pytest.mark.parametrize("amount", NEVER)
async def test_an_advance_to_where_no_record_can_be_is_refused(amount: float | str) -> None:
    clock = frozen()
    before_ms = clock.now_ms()
    with pytest.raises(ValueError, match=r"1970 to 9999|no duration|back"):
        await clock.advance(amount)
    assert clock.now_ms() == before_ms


@pytest.mark.parametrize("factor", [float("nan"), float("inf"), -1, 1e300, 5e-324])
def test_a_rate_that_leaves_no_digits_is_refused(factor: float) -> None:
    clock = SteeredClock()
    with pytest.raises(ValueError, match="a clock runs"):
        clock.rate(factor)
    assert clock.moved is None


@pytest.mark.parametrize(
    ("text", "ms"),
    [("250ms", 250), ("250", 250), (3.5, 3.5), ("1.5h", 5_400_000), ("7d", 7 * DAY_MS), ("2 w", 14 * DAY_MS)],
)
def test_durations_are_written_as_people_do(text: str | float, ms: float) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "d", "7y", "7 days", "1h30m", "--1s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        duration_ms(text)


# Sessions, requests, chores


async def test_advancing_brings_what_is_due_and_lets_sessions_be() -> None:
    clock = frozen(0)
    fired: list[tuple[str, int]] = []
    for kind in (SESSION, REQUEST, CHORE):
        clock.after(1000, lambda kind=kind: fired.append((kind, clock.now_ms())), kind)  # type: ignore[misc]
    await clock.advance("1h")
    assert fired == [(REQUEST, 1000), (CHORE, 1000)]
    assert (clock.now_ms(), clock.elapsed_ms(), clock.steady_ms()) == (3_600_000, 3_600_000, 0)
    assert clock.next_due_ms == 1000
    await clock.advance(1000, sessions=True)
    assert fired[-1] == (SESSION, 3_601_000)
    assert (clock.now_ms(), clock.elapsed_ms(), clock.steady_ms()) == (3_601_000, 3_601_000, 1000)


async def test_a_client_that_asks_again_and_again_is_answered_once() -> None:
    clock = frozen(0)
    answered: list[int] = []

    def ask() -> None:
        clock.after(500, answer, REQUEST)

    def answer() -> None:
        answered.append(clock.now_ms())
        ask()

    ask()
    await clock.advance("7d")
    assert answered == [500]
    await clock.advance(499)
    assert answered == [500]  # it came while the clock was moved, and has its time from then on
    await clock.advance(1)
    assert answered == [500, 7 * DAY_MS + 500]


async def test_a_request_that_is_given_up_while_the_clock_is_moved_does_not_fire() -> None:
    clock = frozen(0)

    def ask_and_go() -> None:
        clock.after(500, lambda: pytest.fail("cancelled"), REQUEST).cancel()

    clock.after(10, ask_and_go, CHORE)
    await clock.advance("1h")
    await clock.advance("1h", sessions=True)
    assert clock.next_due_ms is None


@pytest.mark.parametrize("kind", [SESSION, REQUEST, CHORE])
async def test_what_somebody_has_said_already_is_heard_before_time_moves(kind: str) -> None:
    """A timer without a delay is a message on its way, or the answer to who does not want to wait."""
    clock = frozen(0)
    heard: list[int] = []
    clock.after(100, lambda: clock.after(0, lambda: heard.append(clock.now_ms()), kind), CHORE)
    await clock.advance("1h")
    assert heard == [100]


@settings(max_examples=100, deadline=None)
@given(
    timers=st.lists(st.tuples(st.integers(0, 50), st.sampled_from([SESSION, REQUEST, CHORE])), max_size=12),
    steps=st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=8),
)
def test_timers_fire_in_order_each_at_its_time_by_its_own_count(
    timers: list[tuple[int, str]], steps: list[tuple[int, bool]]
) -> None:
    async def main() -> None:
        clock = frozen(1000)
        fired: list[int] = []
        for number, (delay_ms, kind) in enumerate(timers):
            clock.after(delay_ms, lambda number=number: fired.append(number), kind)  # type: ignore[misc]
        left = {number: delay_ms for number, (delay_ms, _) in enumerate(timers)}
        expected: list[int] = []
        shown_ms = 1000
        for amount_ms, sessions in steps:
            await clock.advance(amount_ms, sessions=sessions)
            shown_ms += amount_ms
            due = []
            for number in list(left):
                moves = sessions or timers[number][1] != SESSION
                if left[number] <= (amount_ms if moves else 0):
                    due.append((left.pop(number), number))
                elif moves:
                    left[number] -= amount_ms
            expected += [number for _, number in sorted(due)]
            assert fired == expected
            assert clock.now_ms() == shown_ms

    asyncio.run(main())


def test_nobody_steers_and_the_machine_is_set() -> None:
    """As a laptop that slept: its monotonic clock stood still, and who went by it would call all records too new."""
    clock = SteeredClock()
    real, hour_ns = time.time_ns, 3_600_000_000_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: real() + hour_ns)
        assert abs(clock.now_ms() - LoopClock().now_ms()) < 1000
        clock.jump("1m")
        assert 59_000 < clock.now_ms() - LoopClock().now_ms() < 61_000
        patch.setattr(time, "time_ns", lambda: real() + 2 * hour_ns)
        assert 59_000 < clock.now_ms() - LoopClock().now_ms() < 61_000
        clock.freeze()
        patch.setattr(time, "time_ns", lambda: real() + 3 * hour_ns)
        assert clock.now_ms() - LoopClock().now_ms() < -3_000_000


@pytest.mark.parametrize("now_ms", [None, 1000])
async def test_a_clock_that_is_reset_is_as_new(now_ms: int | None) -> None:
    clock = SteeredClock(now_ms)
    clock.freeze()
    clock.jump("1d")
    clock.rate(10)
    await clock.advance("7d")
    clock.after(10, lambda: pytest.fail("of another life"))
    clock.reset()
    assert clock.next_due_ms is None
    assert not clock.is_frozen
    assert abs(clock.now_ms() - (now_ms or LoopClock().now_ms())) < 60_000
