"""Compares two brokers: `python -m tests.differential.compare EXPECTED ACTUAL [--groups] [--texts] [--transcript F]`.

Both should be empty, freshly started, and know themselves as node 1: the scenario creates its topics and sees all.
Exit status: 0 no differences, 1 some, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.differential import rules
from tests.differential.play import Exchange, Play, describe
from tests.differential.scenario import play_all
from tests.differential.scenario.groups import play_groups
from tests.differential.transcript import Transcript
from tests.differential.wire import Side


def compare(
    expected: str,
    actual: str,
    *,
    texts: bool = False,
    what: Callable[[Play], None] = play_all,
    watch: Callable[[Exchange], None] | None = None,
) -> Play:
    """Play everything, or a part, on two brokers given by their addresses; return the play with its differences."""
    sides = Side(expected), Side(actual)
    try:
        play = Play(*sides, texts=texts)
        play.watch = watch
        what(play)
        return play
    finally:
        for side in sides:
            side.close()


def summary(play: Play) -> str:
    """Return what was asked, in a line."""
    apis = {api for api, _ in play.asked}
    return f"{sum(play.asked.values())} requests, {len(apis)} APIs, {len(play.asked)} versions of them"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential.compare", description=__doc__)
    parser.add_argument("addresses", nargs="*", metavar="HOST:PORT")
    parser.add_argument("--texts", action="store_true", help="compare error messages and documentation word by word")
    parser.add_argument("--groups", action="store_true", help="play what concerns groups only")
    parser.add_argument("--transcript", type=Path, metavar="F", help="write down what the first one answered")
    parser.add_argument("--rules", action="store_true", help="print what may differ, and why")
    given = parser.parse_args(arguments)
    if given.rules:
        print(rules.table())
    if len(given.addresses) != 2:
        return 0 if given.rules else parser.error("two addresses are needed")
    started = time.monotonic()
    transcript = Transcript()
    what = play_groups if given.groups else play_all
    play = compare(*given.addresses, texts=given.texts, what=what, watch=transcript.add)
    if given.transcript:
        given.transcript.write_text(transcript.text(), "utf-8")
    print(describe(play.differences))
    for deviation, count in play.deviations.items():
        print(f"on purpose, {count} times: {deviation.api}, {deviation.step}: {deviation.reason}")
    print(f"{summary(play)}, {time.monotonic() - started:.1f} s")
    return 1 if play.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
