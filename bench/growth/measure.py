"""What grows with the number of elements: each row is done with few, with many, and with as many as one may have.

In the process, in virtual time and without sockets, with disks only where a row says so: what is measured is our work
alone. Each size of a row has a process of its own. What costs the same for each element at all sizes is flat; a ratio
is that of the largest size to the one before it, for the smallest has all that is done once.
What is counted: counting.py. What the rows do: rows.py. Every measurement is one line of JSON in build/bench, the table
goes to stdout; it prints and never fails.

    python -m bench.growth.measure [--quick] [--only 'group'] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

from bench.broker.rounds import Run, busy_seconds
from bench.growth.counting import Meter
from bench.growth.rows import ROWS, Row

QUICK_MAX = 1_000  # elements
TIMEOUT_S = 600


def measured(row: Row, size: int, *, counts_lines: bool) -> dict[str, float]:
    """Do a row in this process."""
    meter = Meter(counts_lines=counts_lines)
    meter.watch()
    row.measure(size, meter)
    return meter.figures()


def in_child(row: Row, size: int, *, counts_lines: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.growth.measure", "--child", row.name, str(size)]
    command += ["--lines"] if counts_lines else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it failed"])[-1])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """Return one line for each row: medians, smallest size first."""
    lines = [
        "| what | each | N | CPU µs | ratio | lines | ratio | syncs | longest turn, ms |",
        "|---|---|---|---|---:|---|---:|---|---:|",
    ]
    for row in ROWS:
        by_size: dict[int, dict[str, list[float]]] = {}
        for each in rows:
            if each["what"] == row.name:
                for name, value in each["figures"].items():
                    by_size.setdefault(each["size"], {}).setdefault(name, []).append(value)
        found = [(size, {key: statistics.median(value) for key, value in by_size[size].items()}) for size in by_size]
        if found:
            cells = [
                " / ".join(f"{size:,}" for size, _ in found),
                joined(found, "cpu_us"),
                ratio(found, "cpu_us"),
                joined(found, "lines"),
                ratio(found, "lines"),
                joined(found, "syncs") if any(figures.get("syncs") for _, figures in found) else "–",
                shown(found[-1][1].get("stretch_ms", 0)),
            ]
            more = f", {found[-1][1]['bytes']:,.0f} bytes" if "bytes" in found[-1][1] else ""
            lines.append(f"| {row.name} | {row.each}{more} | {' | '.join(cells)} |")
    return "\n".join(lines)


def joined(found: list[tuple[int, dict[str, float]]], name: str) -> str:
    return " / ".join(shown(figures[name]) if name in figures else "–" for _, figures in found)


def shown(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.2g}"


def ratio(found: list[tuple[int, dict[str, float]]], name: str) -> str:
    values = [figures.get(name) for _, figures in found[-2:]]
    return f"{values[1] / values[0]:.2f}" if len(values) == 2 and values[0] and values[1] else "–"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"at most {QUICK_MAX:,} elements, and once")
    parser.add_argument("--only", default="", help="a part of a row's name")
    parser.add_argument("--rounds", type=int, default=3, help="of processor time; lines are the same each time")
    parser.add_argument("--lines", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        name, size = arguments.child
        row = next(each for each in ROWS if each.name == name)
        print(json.dumps(measured(row, int(size), counts_lines=arguments.lines)))
        return
    rounds = 1 if arguments.quick else arguments.rounds
    log = Run("growth", rounds)
    for row in ROWS:
        if arguments.only not in row.name:
            continue
        for size in row.sizes:
            for number in range(rounds if not arguments.quick or size <= QUICK_MAX else 0):
                for counts_lines in (False, True) if number == 0 else (False,):
                    attempt(log, row, size, number, counts_lines=counts_lines)
    log.close()
    print(table(log.rows), log.said(arguments.quick), sep="\n\n")


def attempt(log: Run, row: Row, size: int, number: int, *, counts_lines: bool) -> None:
    """Measure once; a failure is a line of the log, and not the end of the run."""
    start, before = time.perf_counter(), busy_seconds() - used_seconds()
    try:
        figures = in_child(row, size, counts_lines=counts_lines)
    except (RuntimeError, subprocess.TimeoutExpired) as failure:
        log.note(row.name, "minibroker", number, {}, size=size, failed=str(failure)[:300])
        return
    others = (busy_seconds() - used_seconds() - before) / (time.perf_counter() - start)
    log.note(row.name, "minibroker", number, figures, size=size, others=round(others, 2))


def used_seconds() -> float:
    """Return how much processor time this process and its children took."""
    found = os.times()
    return found.user + found.system + found.children_user + found.children_system


if __name__ == "__main__":
    main()
