"""Simulated tests of applications: known bugs are found, replayed elsewhere to the same trace, and made smaller."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import minibroker
from minibroker.simulation.loop import Stray

ROOT = Path(__file__).parent.parent.parent
APPS = "tests/embedded/simulated_apps.py"


def pytest_of(name: str, *options: str, hash_seed: int = 5) -> str:
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", f"{APPS}::{name}", *options]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False).stdout


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.parametrize(
    "name", ["test_commit_before_work", "test_duplicate_on_retry", "test_lost_update_on_rebalance"]
)
def test_a_known_bug_is_found_made_smaller_and_replayed_in_another_process(name: str) -> None:
    note = pytest_of(name, hash_seed=6)
    first = re.search(
        r"seed (\d+) fails \(trace (\w+)\); made smaller, from (\d+) faults to (\d+) \(trace (\w+)\)", note
    )
    assert first, note
    assert int(first[4]) <= int(first[3])
    assert int(first[1]) < 200
    again = pytest_of(name, f"--simulate-seed={first[1]}")
    assert first[0] in again
    assert f"again: pytest {APPS}::{name} --simulate-seed={first[1]}" in again


@pytest.mark.slow
@pytest.mark.interop
def test_an_application_without_the_bug_passes() -> None:
    assert "1 passed" in pytest_of("test_commit_after_work", "--simulate-seeds=10")


@pytest.mark.parametrize(
    ("escape", "words"),
    [
        (lambda: time.sleep(1), "time.sleep"),
        (lambda: threading.Thread(target=int).start(), "a thread runs in real time"),
        (lambda: subprocess.run(["true"], check=False), "another program"),
    ],
)
def test_what_escapes_virtual_time_is_named_with_its_line(escape: Any, words: str) -> None:
    @minibroker.simulate(seeds=1, faults=())
    async def escaping(world: Any) -> None:
        with contextlib.suppress(Stray):  # as foreign code may do
            escape()

    with pytest.raises(Stray, match=words) as refused:
        escaping()
    assert "test_simulated.py:" in str(refused.value)
    assert not getattr(refused.value, "__notes__", [])  # no fault has made it, so none is looked for


def test_what_fails_without_faults_is_said_to() -> None:
    @minibroker.simulate(seeds=1)
    async def wrong(world: Any) -> None:
        assert world.seed == 1

    with pytest.raises(AssertionError) as found:
        wrong()
    assert "it fails without any fault" in found.value.__notes__[-1]


def test_a_coroutine_that_could_run_but_once_is_refused() -> None:
    @minibroker.simulate(seeds=1, faults=())
    async def once(world: Any) -> None:
        async def worker() -> None: ...

        world.run(worker())

    with pytest.raises(TypeError, match="takes a function and its arguments"):
        once()
    with pytest.raises(ValueError, match="there is no 'kil app'"):
        minibroker.simulate(faults=["kil app"])


def failing(app: Any) -> Any:
    """Return a simulated test that runs a piece of an application, and would pass without it."""

    @minibroker.simulate(seeds=1, faults=())
    async def running(world: Any) -> None:
        world.run(app)
        await world.settle()

    return running


async def says_no() -> None:
    raise AssertionError("no")


async def says_no_in_a_task() -> None:
    task = asyncio.create_task(says_no())  # nobody awaits it
    await asyncio.sleep(5)
    del task


async def says_no_in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(says_no())


async def says_no_by_pytest() -> None:
    pytest.fail("no")


@pytest.mark.parametrize("app", [says_no, says_no_in_a_task, says_no_in_a_group, says_no_by_pytest])
def test_a_verdict_of_an_application_fails_the_test_with_its_seed(app: Any) -> None:
    with pytest.raises(BaseException) as found:  # pytest.fail raises no Exception
        failing(app)()
    assert "no" in repr(found.value)
    assert "--simulate-seed=0" in found.value.__notes__[-1]


@pytest.mark.parametrize("error", [RuntimeError("always"), asyncio.CancelledError("always")])
def test_an_application_that_always_ends_with_an_error_fails_with_that(error: BaseException) -> None:
    async def app() -> None:
        raise type(error)(*error.args)

    with pytest.raises(type(error)) as found:
        failing(app)()
    assert "all is healed" in found.value.__notes__[-1]


def test_a_test_that_fails_by_pytest_says_its_seed_and_one_that_skips_is_skipped() -> None:
    @minibroker.simulate(seeds=2, faults=())
    async def ending(world: Any, end: Any) -> None:
        end("so it is")

    with pytest.raises(pytest.fail.Exception) as found:
        ending(pytest.fail)
    assert "--simulate-seed=0" in found.value.__notes__[-1]
    with pytest.raises(pytest.skip.Exception, match="so it is"):
        ending(pytest.skip)


def test_who_stops_waiting_for_an_application_may_wait_again() -> None:
    @minibroker.simulate(seeds=1, faults=())
    async def waiting(world: Any) -> None:
        app = world.run(asyncio.sleep, 10, "done")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(app, 1)
        assert await app == "done"

    waiting()


def test_no_seed_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one, not from 0"):
        minibroker.simulate(seeds=0)


@pytest.mark.slow
@pytest.mark.interop
def test_a_consumer_that_commits_by_itself_comes_to_rest() -> None:
    aiokafka = pytest.importorskip("aiokafka")

    async def worker(servers: str) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            "orders", bootstrap_servers=servers, group_id="billing", auto_offset_reset="earliest"
        )
        await consumer.start()
        async for _ in consumer:
            pass

    @minibroker.simulate(seeds=1, faults=(), topics=["orders"])
    async def resting(world: Any) -> None:
        world.run(worker, world.bootstrap_servers)
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=world.bootstrap_servers)
        await producer.start()
        await producer.send_and_wait("orders", b"1")
        await producer.stop()
        await world.settle()  # or TimeoutError

    resting()
