"""How much one request crosses is counted, not believed: docs/reading.py traces it, and makes a page of it."""

from __future__ import annotations

import ast
import asyncio
import re
import threading

import pytest

from docs.reading import ROWS, Entered, FollowingLoop, reading_page, size_of, statements_in, ways
from minibroker.config.listeners import address, is_local
from minibroker.config.values import java_double
from minibroker.protocol.registry import snake_case

pytestmark = pytest.mark.pure  # what is compiled cannot be followed

# Of every row, up and down, so that small changes need no new one.
SLACK_FILES, SLACK_STATEMENTS = 1, 80


@pytest.mark.parametrize("name", ROWS)
def test_a_request_crosses_as_much_as_its_row_says(name: str) -> None:
    crossed, row = size_of(ways()[name]), ROWS[name]
    files = sorted({each.file for each in ways()[name]})
    assert crossed.files <= row.files + SLACK_FILES, f"more files than before: {files}"
    assert crossed.statements <= row.statements + SLACK_STATEMENTS, (
        f"more than before, in all files that it crosses: {files}"
    )
    assert crossed.files >= row.files - SLACK_FILES, f"it crosses less now: write {crossed} into ROWS"
    assert crossed.statements >= row.statements - SLACK_STATEMENTS, f"it crosses less now: write {crossed} into ROWS"


def test_explanations_cost_nothing() -> None:
    plain = "def a():\n    return 1\n"
    explained = '"""Words.\n\nMore."""\ndef a():\n    """Words."""\n    # why\n    return 1\n'
    assert statements_in(ast.parse(plain)) == statements_in(ast.parse(explained)) == 2


def test_what_a_request_calls_schedules_and_wakes_is_its_way_and_what_others_do_meanwhile_is_not() -> None:
    async def asked(woken: asyncio.Future[None]) -> None:
        address("a", 1)
        asyncio.get_running_loop().call_soon(is_local, "a")
        asyncio.get_running_loop().call_later(0, java_double, 1.0)  # a timer
        woken.set_result(None)

    async def waits(woken: asyncio.Future[None]) -> None:
        await woken
        snake_case("JoinGroup")

    async def follow() -> set[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, FollowingLoop)
        woken = loop.create_future()
        waiting = asyncio.create_task(waits(woken))
        await asyncio.sleep(0)
        await loop.follow(asked(woken), is_inside=True)
        await waiting
        return {entered.function for entered in loop.entered}

    with asyncio.Runner(loop_factory=FollowingLoop) as runner:
        entered = runner.run(follow())
    assert {"address", "is_local", "snake_case"} <= entered
    assert "java_double" not in entered


def test_what_a_thread_does_that_the_request_has_begun_is_its_way() -> None:
    async def asked() -> None:
        thread = threading.Thread(target=snake_case, args=("Fetch",))
        thread.start()
        thread.join()

    async def follow() -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, FollowingLoop)
        await loop.follow(asked(), is_inside=True)
        return [entered.function for entered in loop.entered]

    with asyncio.Runner(loop_factory=FollowingLoop) as runner:
        assert runner.run(follow()) == ["snake_case"]


def test_the_way_of_a_record_begins_at_the_socket_and_ends_in_a_file() -> None:
    way = [*ways()["Produce"]]
    assert way[0] == Entered("server/connection.py", "Connection.get_buffer")
    assert Entered("log/storage.py", "OsFile.append") in way
    assert not {each.file for each in way} & {"log/memory_storage.py", "clock/steered.py"}, (
        "that is not what serve runs"
    )


def test_the_page_shows_a_record_in_the_order_in_which_it_goes_and_each_file_below_its_caller() -> None:
    text = reading_page()
    lines = text[text.index("### Produce\n") : text.index("### Fetch\n")].splitlines()
    story = ("_take_frames", "produce", "append_as_leader", "validate_in_place", "OsFile.append", "advance", "_send")
    found = [next(n for n, line in enumerate(lines) if re.search(rf"`(\w+\.)?{name}`", line)) for name in story]
    assert found == sorted(found)
    depths = [len(lines[n]) - len(lines[n].lstrip()) for n in found]
    assert depths[:5] == sorted(depths[:5])
    assert depths[-1] == depths[0]
