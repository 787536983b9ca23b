"""How much one request crosses is counted, not believed: docs/reading.py traces it, and makes a page of it."""

from __future__ import annotations

import asyncio

import pytest

from docs.reading import ROWS, Entered, FollowingLoop, size_of, ways
from minibroker.config.listeners import address, is_local
from minibroker.config.values import java_double
from minibroker.protocol.registry import snake_case

SLACK_FILES, SLACK_LINES = (
    2,
    300,
)  # a row may be so much larger than what is true, so that small changes need no new one


@pytest.mark.parametrize("name", ROWS)
def test_a_request_crosses_no_more_than_its_row(name: str) -> None:
    crossed, row = size_of(ways()[name]), ROWS[name]
    assert crossed.files <= row.files, f"more files than before: {sorted({each.file for each in ways()[name]})}"
    assert crossed.lines <= row.lines, "more lines than before, in all files that it crosses"


@pytest.mark.parametrize("name", ROWS)
def test_a_row_says_what_is_true(name: str) -> None:
    crossed, row = size_of(ways()[name]), ROWS[name]
    assert crossed.files >= row.files - SLACK_FILES, f"it crosses less now: write {crossed} into ROWS"
    assert crossed.lines >= row.lines - SLACK_LINES, f"it crosses less now: write {crossed} into ROWS"


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


def test_the_way_of_a_record_begins_at_the_socket_and_ends_in_a_file() -> None:
    way = ways()["Produce"]
    assert way[0] == Entered("server/connection.py", "Connection.get_buffer")
    files = [entered.file for entered in way]
    assert (
        files.index("broker/handlers/produce.py") < files.index("log/partition_log.py") < files.index("log/segment.py")
    )
