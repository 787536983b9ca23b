"""Histories from the command line: written by a seed, and judged.

python -m tests.simulation.judge 7 > history.edn     what clients did and saw in a seed of transaction_run.py
python -m tests.simulation.judge history.edn         the verdict over a history, whoever has written it
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from minibroker.simulation.run import Outcome, World, simulate

from .history import History, from_edn, to_edn
from .history_checks import check
from .seeded_runs import LIMIT_S
from .transaction_run import Run


def history_of(seed: int) -> tuple[Outcome, History]:
    """Return what came of a seed, and what clients did in it."""
    made: list[Run] = []

    async def main(world: World) -> int:
        made.append(Run(world))
        return await made[0].go()

    outcome = simulate(main, seed, limit_s=LIMIT_S)
    return outcome, made[0].history


def judge(words: Sequence[str]) -> int:
    """Do what the words say; return 1 for a history in which something happened that may not."""
    (word,) = words
    if word.isdigit():
        logging.disable()
        outcome, history = history_of(int(word))
        print(to_edn(history.entries), end="")
        return outcome.failure is not None
    report = check(entry for entry in from_edn(Path(word).read_text()) if "type" in entry)
    for name, found in (report.violations | report.allowed).items():
        allowed = "" if name in report.violations else " (allowed)"
        print(f"{name}{allowed}: {len(found)}")
        print("".join(f"    {each}\n" for each in found[:5]), end="")
    if not report.violations:
        print("nothing happened that may not")
    return bool(report.violations)


if __name__ == "__main__":
    sys.exit(judge(sys.argv[1:]))
