"""What keys do, on a stage in virtual time; and both commands at a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from minibroker.cli.watch import keys_of
from minibroker.cluster.snapshot import snapshot
from minibroker.lessons import load
from minibroker.lessons.commands import parse_command
from minibroker.lessons.running import Player, in_virtual_time
from minibroker.lessons.show import Show
from minibroker.lessons.stage import Stage
from minibroker.watch.frame import KEYS, key_lines

pytestmark = pytest.mark.outside


def test_a_cluster_is_seen_while_it_starts() -> None:
    async def main(stage: Stage) -> None:
        show, seen = Show(stage), []
        starting = asyncio.get_running_loop().create_task(stage.do(parse_command("start 2 brokers")))
        while not starting.done():
            seen.append(show.lines(80, 24, colour=False))
            await asyncio.sleep(0)
        await starting
        assert ["00:00:00.000", ">b1 starting  b2 starting"] in [lines[:2] for lines in seen]  # no port is open yet

    in_virtual_time(main)


def test_keys_move_a_cluster() -> None:
    async def main(stage: Stage) -> None:
        show = Show(stage)
        for line in ("start 3 brokers", "topic orders replicas=1,2,3"):
            await stage.do(parse_command(line))
        cluster = stage.on
        await show.press("right")
        await show.press("k")
        assert (show.chosen, cluster.states[2]) == (2, "killed")
        await show.press("k")
        await show.press("p")
        assert cluster.states[2] == "paused"
        await show.press("p")
        assert cluster.states[2] == "running"
        await show.press("s")
        assert "no step waits" in show.words[0]
        await show.press("h")
        await stage.do(parse_command('produce orders-0 "a" later'))
        assert cluster.waiting()
        await show.press("s")
        await show.press("r")
        assert not cluster.waiting()
        assert not show.words
        now_ms = stage.clock.now_ms()
        await show.press("a")
        assert stage.clock.now_ms() == now_ms + 5000
        await show.press("f")
        assert not stage.clock.is_frozen
        await show.press("left")
        await show.press("left")
        assert show.chosen == 3
        await show.press("?")
        assert any("Arrows choose" in line for line in show.lines(80, 40, colour=False))
        await show.press("x")
        await show.press("q")
        assert show.is_over
        assert json.loads(json.dumps(snapshot(cluster)))["brokers"][2]["id"] == 3

    in_virtual_time(main)


def test_a_lesson_is_played_step_by_step() -> None:
    async def main(stage: Stage) -> None:
        scenario = load("high-watermark")
        show = Show(stage, Player(scenario, stage))
        assert scenario.title in show.lines(80, 24, colour=False)
        for _ in range(len(scenario.steps) + 1):
            await show.press("n")
        lines = "\n".join(show.lines(80, 40, colour=False))
        assert "hw 1  leo 1" in lines
        assert "lesson" in lines

    in_virtual_time(main)


def test_arrows_are_keys_too() -> None:
    assert keys_of("s\x1b[C\x1b[Dq") == ["s", "right", "left", "q"]
    assert keys_of("\x03") == ["q"]


class Terminal:
    """A command at a terminal of its own."""

    def __init__(self, *words: str):
        self.end, other = pty.openpty()
        command = [sys.executable, "-m", "minibroker", *words]
        self.process = subprocess.Popen(
            command, stdin=other, stdout=other, stderr=other, env=os.environ | {"COLUMNS": "80", "LINES": "40"}
        )
        os.close(other)
        self.seen = ""

    def wait_for(self, pattern: str) -> str:
        """Read until a pattern comes; what was before it is forgotten."""
        while not (found := re.search(pattern, self.seen, re.DOTALL)):
            assert select.select([self.end], [], [], 20)[0], f"{pattern!r} did not come: {self.seen[-2000:]}"
            try:
                self.seen += os.read(self.end, 65_536).decode(errors="replace")
            except OSError:
                raise AssertionError(f"{pattern!r} did not come: {self.seen[-2000:]}") from None
        self.seen = self.seen[found.end() :]
        return found[0]

    def type(self, keys: str) -> None:
        os.write(self.end, keys.encode())


@contextmanager
def terminal(*words: str) -> Iterator[Terminal]:
    opened = Terminal(*words)
    try:
        yield opened
    finally:
        opened.process.kill()
        opened.process.wait()
        os.close(opened.end)


@pytest.mark.slow
def test_watch_at_a_terminal() -> None:
    with terminal("watch", "--brokers", "2", "--topic", "orders") as screen:
        screen.wait_for(r"\x1b\[\?1049h.*orders-0")
        screen.type("k")
        screen.wait_for("b1 killed")
        screen.type("q")
        screen.wait_for(r"\x1b\[\?1049l")
        assert screen.process.wait(20) == 0


@pytest.mark.slow
@pytest.mark.parametrize("has_colours", [True, False])
def test_a_lesson_at_a_terminal_obeys_no_color(has_colours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not has_colours:
        monkeypatch.setenv("NO_COLOR", "1")
    with terminal("lesson", "zombies") as screen:
        screen.wait_for(r": Enter\] ")
        screen.type("\n")
        assert ("\x1b[" in screen.wait_for(r".*orders-0.*: Enter\] ")) == has_colours


@pytest.mark.slow
def test_a_lesson_at_a_terminal_can_be_joined() -> None:
    with terminal("lesson", "committed-offset") as screen:
        screen.wait_for(r"start 3 brokers.*: Enter\] ")
        screen.type("\n")
        addresses = screen.wait_for(r"may join: [\d.:,]+").split(": ")[1]
        read = [sys.executable, "-m", "minibroker", "consume", "-b", addresses, "-t", "orders", "-e", "-o", "beginning"]
        done = subprocess.run(read, capture_output=True, text=True, timeout=30)
        assert done.stdout.split() == ["a", "b", "c"], done.stderr
        screen.wait_for(r": Enter\] ")
        screen.type("q\n")
        assert screen.process.wait(20) == 0


def test_topics_are_chosen_and_partitions_scrolled_by_keys() -> None:
    async def main(stage: Stage) -> None:
        show = Show(stage)
        for line in ("start 1 brokers", "topic mails", "topic orders partitions=15"):
            await stage.do(parse_command(line))
        assert "mails-0 " in "\n".join(show.lines(80, 24, colour=False))
        await show.press("t")
        await show.press("t")
        assert "orders-0 " in "\n".join(show.lines(80, 24, colour=False))
        for _ in range(10):
            await show.press(keys_of("\x1b[6~")[0])
        text = "\n".join(show.lines(80, 24, colour=False))
        assert "orders-14 " in text
        assert "orders-11 " not in text
        await show.press(keys_of("\x1b[5~")[0])
        assert "orders-11 " in "\n".join(show.lines(80, 24, colour=False))

    in_virtual_time(main)


def test_all_keys_are_seen_on_a_terminal_of_80_columns() -> None:
    lines = key_lines(KEYS, 80)
    assert "  ".join(lines) == KEYS
    assert max(map(len, lines)) <= 80
