"""`minibroker watch`: a cluster, its replicas as lanes, and keys to push it about.

The cluster is one of this process, or with -b one of another.
What must hold: however it ends, the terminal is as it was. With --once and without -b nothing listens and no time
passes: a frame is the same each time.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager

from minibroker.cli.connect import Refused, addresses_in, complain, silence
from minibroker.cli.status import DONE, FAILED, USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from minibroker.lessons.scenario import Scenario
    from minibroker.lessons.show import Show
    from minibroker.lessons.stage import Stage
    from minibroker.watch.screen import Screen

DESCRIPTION = "Watch the replicas of a cluster, and step, kill and pause its brokers by keys."
EPILOG = "Without -b a cluster is started for it; minibroker serve --brokers 3 starts one that -b can watch."
REFRESH_MS = 100  # at most so often, and once in a while because the clock runs
IDLE_MS = 500
ARROWS = {"\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left"}
PAGES = {"\x1b[5~": "page up", "\x1b[6~": "page down"}
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # another screen, no cursor
ONCE_WIDTH, ONCE_HEIGHT = 80, 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        dest="bootstrap",
        metavar="HOST[:PORT],...",
        help="watch the cluster that these brokers belong to, in whatever process it runs",
    )
    parser.add_argument("--brokers", type=int, default=None, metavar="N", help="how many brokers (3)")
    parser.add_argument(
        "--topic", action="append", default=[], metavar="NAME[:PARTITIONS]", help="make a topic at the start"
    )
    parser.add_argument("--lesson", metavar="NAME", help="play a lesson in it, or a file with one of your own")
    parser.add_argument(
        "--port", type=int, default=None, metavar="N", help="of broker 1; the others take the next ones"
    )
    parser.add_argument("--once", action="store_true", help="print one frame and end; of a lesson, its end")


def run(options: argparse.Namespace) -> int:
    if options.bootstrap is not None:
        return _run_remote(options)
    from minibroker.cli.lesson import find_scenario

    scenario = None
    if options.lesson is not None:
        scenario = find_scenario(options.lesson, "watch")
        if scenario is None:
            return USAGE
    commands = _commands(options) if scenario is None else []
    if options.once:
        return _once(scenario, commands)
    if not _is_terminal():
        return USAGE
    import asyncio

    return asyncio.run(_watch(scenario, commands, options.port or 0))


def _is_terminal() -> bool:
    if sys.stdin.isatty() and sys.stdout.isatty():
        return True
    complain("watch", "this is no terminal; --once prints one frame")
    return False


def _run_remote(options: argparse.Namespace) -> int:
    """Watch the cluster of another process."""
    import asyncio

    from minibroker.client.control import Refusal

    if options.lesson or options.topic or options.brokers is not None or options.port is not None:
        complain("watch", "--brokers, --topic, --lesson and --port are for a cluster that is started here, without -b")
        return USAGE
    if not (options.once or _is_terminal()):
        return USAGE
    try:
        asyncio.run(_watch_remote(addresses_in(options.bootstrap), is_once=options.once))
    except (Refused, Refusal) as failure:
        complain("watch", str(failure))
        return failure.status if isinstance(failure, Refused) else FAILED
    except OSError as failure:
        complain("watch", silence(options.bootstrap, failure, "minibroker serve --brokers 3"))
        return FAILED
    return DONE


async def _watch_remote(addresses: list[tuple[str, int]], *, is_once: bool) -> None:
    from minibroker.cli.remote_screen import RemoteScreen

    screen = RemoteScreen(addresses)
    if is_once:
        await screen.look()
        print("\n".join(screen.lines(ONCE_WIDTH, ONCE_HEIGHT, colour=False, keys=False)))
        return
    async with screen:
        with _raw_terminal():
            await _loop(screen)


def _commands(options: argparse.Namespace) -> list[str]:
    """Return how the cluster begins, in the words of a lesson."""
    lines = [f"start {3 if options.brokers is None else options.brokers} brokers"]
    for text in options.topic:
        name, _, count = text.partition(":")
        lines.append(f"topic {name} partitions={count or 1}")
    return lines


async def _begin(stage: Stage, scenario: Scenario | None, commands: Sequence[str]) -> Show:
    from minibroker.lessons.commands import parse_command
    from minibroker.lessons.running import Player
    from minibroker.lessons.show import Show

    show = Show(stage, None if scenario is None else Player(scenario, stage))
    for line in commands:
        await stage.do(parse_command(line))
    return show


def _once(scenario: Scenario | None, commands: Sequence[str]) -> int:
    from minibroker.errors import KafkaError
    from minibroker.lessons.running import in_virtual_time

    async def main(stage: Stage) -> list[str]:
        show = await _begin(stage, scenario, commands)
        if scenario is not None:
            await show.play_all()
        return show.lines(ONCE_WIDTH, ONCE_HEIGHT, colour=False, keys=False)

    try:
        lines = in_virtual_time(main)
    except (KafkaError, ValueError) as error:
        print(f"minibroker watch: {error}", file=sys.stderr)
        return FAILED
    print("\n".join(lines))
    return DONE


async def _watch(scenario: Scenario | None, commands: Sequence[str], port: int) -> int:
    from random import Random

    from minibroker.events import EventStream
    from minibroker.lessons.running import new_clock
    from minibroker.lessons.stage import Stage

    clock = new_clock()
    ports = range(port, port + 100) if port else ()
    stage = Stage(clock, EventStream(clock.now_ms), Random(1), ports=ports)
    try:
        show = await _begin(stage, scenario, commands)
        if scenario is None:
            clock.thaw()
        with _raw_terminal():
            await _loop(show)
        show.close()
    finally:
        await stage.close()
    return DONE


async def _loop(show: Screen) -> None:
    """Draw when something has happened, and do what keys say."""
    import asyncio

    from minibroker.clock import LoopClock

    loop, clock = asyncio.get_running_loop(), LoopClock()
    keys: asyncio.Queue[str] = asyncio.Queue()
    changed = asyncio.Event()

    def read() -> None:
        for key in keys_of(os.read(sys.stdin.fileno(), 64).decode(errors="ignore")):
            keys.put_nowait(key)

    async def press() -> None:
        while not show.is_over:
            await show.press(await keys.get())
            changed.set()

    loop.add_reader(sys.stdin.fileno(), read)
    pressing = loop.create_task(press())
    show.changed = changed.set
    try:
        while not pressing.done():
            _draw(show)
            changed.clear()
            timer = clock.after(IDLE_MS, changed.set)
            await changed.wait()
            timer.cancel()
            await clock.sleep(REFRESH_MS)
        await pressing  # its error, if it had one
    finally:
        pressing.cancel()
        loop.remove_reader(sys.stdin.fileno())


def keys_of(typed: str) -> list[str]:
    """Return the keys that characters stand for."""
    found = []
    while typed:
        arrow = typed[:3]
        if arrow in ARROWS:
            found.append(ARROWS[arrow])
            typed = typed[3:]
        elif typed[:4] in PAGES:
            found.append(PAGES[typed[:4]])
            typed = typed[4:]
        else:
            found.append("q" if typed[0] == "\x03" else typed[0])
            typed = typed[1:]
    return found


def _draw(show: Screen) -> None:
    from shutil import get_terminal_size

    size = get_terminal_size()
    lines = show.lines(size.columns, size.lines, colour="NO_COLOR" not in os.environ)
    # Each line clears what was behind it, and the last one all below: no flicker.
    sys.stdout.write("\x1b[H" + "\x1b[K\r\n".join(lines) + "\x1b[K\x1b[J")
    sys.stdout.flush()


@contextmanager
def _raw_terminal() -> Iterator[None]:
    """Get keys as they are pressed, on a screen of its own."""
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin)
        sys.stdout.write(ENTER)
        yield
    finally:
        sys.stdout.write(LEAVE)
        sys.stdout.flush()
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
