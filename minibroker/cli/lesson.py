"""`minibroker lesson`: replication and transactions step by step, on a cluster that one's own clients may join.

At a terminal each step waits for Enter, and the brokers listen on ports. Else, or with --run, the lesson is played at
once and in virtual time: it prints the same each time, and there is nothing to join.
"""

from __future__ import annotations

import os
import sys

from minibroker.cli.status import DONE, FAILED, USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from minibroker.lessons.running import Outcome
    from minibroker.lessons.scenario import Scenario

DESCRIPTION = "Learn how Kafka works, step by step, on a real cluster. Without a name: list the lessons."
JOIN = "The clock stands still between steps.\nYour own clients may join: {}\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="a lesson, or a file with one of your own")
    parser.add_argument("--run", action="store_true", help="do not wait for Enter, and open no ports")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="of broker 1; the others take the next ones")
    parser.add_argument("--text", action="store_true", help="print its text, to be changed and played as a file")
    parser.add_argument("--all", action="store_true", help="tell every event, messages between brokers too")


def run(options: argparse.Namespace) -> int:
    from minibroker.lessons import LESSONS, load

    if options.name is None:
        for name in LESSONS:
            print(f"  {name:24}{load(name).title}")
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
    """Play a lesson on sockets, a step for each Enter."""
    from random import Random

    from minibroker.events import EventStream
    from minibroker.lessons.running import Player, new_clock
    from minibroker.lessons.stage import Stage
    from minibroker.lessons.telling import tell_outcome, tell_step, tell_title, tell_words

    clock = new_clock()
    ports = range(port, port + 100) if port else ()
    stage = Stage(clock, EventStream(clock.now_ms), Random(1), ports=ports)
    player = Player(scenario, stage)
    status = DONE
    _print(tell_title(scenario))
    try:
        for step in scenario.steps:
            _print(tell_step(step))
            if not await _enter():
                return status
            had_cluster = stage.cluster is not None
            outcome = await player.play(step)
            _print(
                tell_outcome(
                    outcome, colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ, everything=everything
                )
            )
            if outcome.failures:
                status = FAILED  # a client that joined may be why, so go on
            if not had_cluster and stage.cluster is not None:
                _print([JOIN.format(stage.cluster.bootstrap_servers)])
        _print(tell_words(scenario.last_words))
        if await _enter("[Enter to end] "):
            _print([])
    finally:
        await stage.close()
    return status


def _print(lines: list[str]) -> None:
    print("\n".join(lines), flush=True)


async def _enter(prompt: str = "[Enter] ") -> bool:
    """Wait for a line, while the cluster lives on; return whether to go on."""
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
        line = await typed
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return line != "" and line.strip().lower() not in ("q", "quit", "exit")
