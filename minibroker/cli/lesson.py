"""`minibroker lesson`: replication and transactions step by step, on a cluster that one's own clients may join.

At a terminal each step waits for Enter, one can go back, and the brokers listen on ports and serve the page. Else, or
with --run, the lesson is played at once and in virtual time: it prints the same each time, and nobody can join.
"""

from __future__ import annotations

import os
import sys

from minibroker.cli.status import DONE, FAILED, USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from minibroker.lessons.running import Outcome
    from minibroker.lessons.scenario import Scenario

DESCRIPTION = "Learn how Kafka works, step by step, on a real cluster. Without a name: list the lessons."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="a lesson, or a file with one of your own")
    parser.add_argument("--run", action="store_true", help="do not wait for Enter, and open no ports")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="of broker 1; the others take the next ones")
    parser.add_argument("--text", action="store_true", help="print its text, to be changed and played as a file")
    parser.add_argument("--all", action="store_true", help="tell every event, messages between brokers too")


def run(options: argparse.Namespace) -> int:
    if options.name is None:
        from minibroker.taught import titles

        for name, title in titles().items():
            print(f"  {name:24}{title}")
        print("\nminibroker lesson NAME plays one.")
        return DONE
    if options.text:
        return _print_text(options.name)
    scenario = find_scenario(options.name, "lesson")
    if scenario is None:
        return USAGE
    if options.run or not sys.stdin.isatty():
        return _run(scenario, everything=options.all)
    import asyncio

    return asyncio.run(_play(scenario, options.port, everything=options.all))


def find_scenario(name: str, command: str) -> Scenario | None:
    """Return a lesson, or one's own from a file; None: what is wrong has been said."""
    from minibroker.lessons import NoSuchLesson, load
    from minibroker.lessons.scenario import ScenarioError, parse_scenario

    try:
        if not name.endswith(".txt"):
            return load(name)
        with open(name, encoding="utf-8") as file:
            return parse_scenario(file.read(), name)
    except OSError as error:
        print(f"minibroker {command}: {name}: {error.strerror}", file=sys.stderr)
    except (NoSuchLesson, ScenarioError) as error:
        print(f"minibroker {command}: {error}", file=sys.stderr)
    return None


def _print_text(name: str) -> int:
    from minibroker.lessons import NoSuchLesson, text_of

    try:
        sys.stdout.write(text_of(name))
    except NoSuchLesson as error:
        print(f"minibroker lesson: {error}", file=sys.stderr)
        return USAGE
    return DONE


def _run(scenario: Scenario, *, everything: bool) -> int:
    """Play a lesson in virtual time, telling it as it goes."""
    from minibroker.lessons.running import rehearse
    from minibroker.lessons.telling import tell_outcome, tell_step, tell_title, tell_words

    def tell(outcome: Outcome) -> None:
        _print([*tell_step(outcome.step), *tell_outcome(outcome, everything=everything)])

    _print(tell_title(scenario))
    outcome = rehearse(scenario, tell)[-1]
    if outcome.failures:
        return FAILED
    _print(tell_words(scenario.last_words)[:-1])
    return DONE


async def _play(scenario: Scenario, port: int, *, everything: bool) -> int:
    """Play a lesson on sockets, as somebody wants who types."""
    from random import Random

    from minibroker.events import EventStream
    from minibroker.lessons.guide import Guide
    from minibroker.lessons.on_page import OnPage
    from minibroker.lessons.running import new_clock
    from minibroker.lessons.session import Session
    from minibroker.lessons.stage import Stage

    def new_stage(ports: Sequence[int]) -> Stage:
        clock = new_clock()
        return Stage(clock, EventStream(clock.now_ms), Random(1), ports=ports)

    guide = Guide(scenario, new_stage, range(port, port + 100) if port else ())
    try:
        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        session = Session(guide, lambda text: print(text, flush=True), colour=colour, everything=everything)
        OnPage(session, guide, print, lambda: print(session.prompt, end="", flush=True))
        while not session.is_over:
            await session.type(await _line(session.prompt))
    finally:
        await guide.close()
    return FAILED if session.has_failed else DONE


def _print(lines: list[str]) -> None:
    print("\n".join(lines), flush=True)


async def _line(prompt: str) -> str:
    """Return what is typed, while the cluster lives on; empty: there will be no more."""
    import asyncio

    print(prompt, end="", flush=True)
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        line = sys.stdin.readline()
        if not typed.done():
            typed.set_result(line)

    loop.add_reader(sys.stdin.fileno(), read)
    try:
        return await typed
    finally:
        loop.remove_reader(sys.stdin.fileno())
