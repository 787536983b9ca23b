"""Compares two brokers: `python -m tests.differential.compare EXPECTED ACTUAL [--texts] [--rules]`.

Both should be empty, freshly started, and know themselves as node 1: the scenario creates its topics and sees all.
Exit status: 0 no differences, 1 some, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.differential import rules
from tests.differential.play import Play, describe
from tests.differential.scenario import play_all
from tests.differential.wire import Side


def compare(expected: str, actual: str, *, texts: bool = False) -> Play:
    """Play everything on two brokers given by their addresses; return the play with its differences."""
    sides = Side(expected), Side(actual)
    try:
        play = Play(*sides, texts=texts)
        play_all(play)
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
    parser.add_argument("--rules", action="store_true", help="print what may differ, and why")
    given = parser.parse_args(arguments)
    if given.rules:
        print(rules.table())
    if len(given.addresses) != 2:
        return 0 if given.rules else parser.error("two addresses are needed")
    started = time.monotonic()
    play = compare(*given.addresses, texts=given.texts)
    print(describe(play.differences))
    for deviation, count in play.deviations.items():
        print(f"on purpose, {count} times: {deviation.api}, {deviation.step}: {deviation.reason}")
    print(f"{summary(play)}, {time.monotonic() - started:.1f} s")
    return 1 if play.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
