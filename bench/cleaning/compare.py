"""Our cleaner beside a real Kafka's, over the same logs, and what a broker that cleans is like to its clients.

    compaction   one pass over a log that was never cleaned: ten values of each key, of which one stays
    latency      round trips of a produce and a fetch, while the broker idles and while it compacts another topic
    retention    one look at the segments of 1,000 partitions, with nothing to do and with something in each

Kafka cleans in a JVM of its own with one thread: "cold" is the first pass of that JVM, "warm" one after it has cleaned
smaller logs of the same kind. Rounds take all in turn; figures are medians over the rounds, ratios the medians of the
ratios within each round. Of each pass only the cleaning is timed, without the opening of the log. It prints and never
fails. Kafka needs java, javac and mvn, and is left out without them.

    python -m bench.cleaning.compare [--quick] [--rounds N] [--only 'compaction, 1 KiB']
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.broker.brokers import ROOT
from bench.broker.rounds import Figures, Run, busy_seconds, in_turn
from bench.cleaning.kafka import RELEASES, KafkaCleaner, missing
from bench.cleaning.latency import latency
from bench.cleaning.logs import Kind, Written, copy, write
from bench.cleaning.retention import retention

KINDS = [Kind(1024, "none"), Kind(1024, "lz4"), Kind(100, "none"), Kind(100, "lz4")]
MAP_BYTES = 192 << 20  # log.cleaner.dedupe.buffer.size: room for all keys of every log on both sides, so one pass does
WARM_UPS = 6
OURS = "minibroker"
PARTITIONS = 1000
Pass = Callable[[Written], Figures]


def ours(work: Path, written: Written) -> dict[str, float]:
    root = copy(written, work / "ours")
    command = [sys.executable, "-m", "bench.cleaning.ours", str(root), str(MAP_BYTES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def cold(release: str, work: Path, written: Written) -> dict[str, float]:
    with KafkaCleaner(release) as cleaner:
        return cleaner.clean(copy(written, work / "cold"), MAP_BYTES)


def warm(release: str, work: Path, small: Written, written: Written) -> dict[str, float]:
    with KafkaCleaner(release) as cleaner:
        for _ in range(WARM_UPS):
            cleaner.clean(copy(small, work / "small"), MAP_BYTES)
        return cleaner.clean(copy(written, work / "warm"), MAP_BYTES)


class Measured:
    """From its making on: how many cores others keep busy, besides this process and those that it has started."""

    def __init__(self) -> None:
        self._start, self._busy, self._own = time.perf_counter(), busy_seconds(), sum(os.times()[:4])

    def others(self) -> float:
        busy = busy_seconds() - self._busy - (sum(os.times()[:4]) - self._own)
        return round(busy / (time.perf_counter() - self._start), 2)


def compaction(work: Path, kinds: list[Kind], size_bytes: int, rounds: int, note: Callable[..., None]) -> None:
    for kind in kinds:
        small = write(work / "few", kind, size_bytes // 8)
        written = write(work / "many", kind, size_bytes)
        passes: dict[str, Pass] = {OURS: partial(ours, work)}
        for release in () if missing() else RELEASES:
            passes[f"Kafka {release}, warm"] = partial(warm, release, work, small)
            passes[f"Kafka {release}, cold"] = partial(cold, release, work)
        for number in range(rounds):
            for name in in_turn(list(passes), number):
                measured = Measured()
                figures = passes[name](written)
                figures["mb_s"] = written.size_bytes / figures["seconds"] / 1e6
                figures["records_s"] = written.records / figures["seconds"]
                note(f"compaction, {kind}", name, number, figures, others=measured.others())
        shutil.rmtree(work / "many")
        shutil.rmtree(work / "few")


def round_trips(work: Path, kinds: list[Kind], size_bytes: int, rounds: int, note: Callable[..., None]) -> None:
    for kind in kinds:
        for number in range(rounds):
            measured = Measured()
            found = latency(work, kind, size_bytes)
            for what, figures in found.items():
                note(f"latency, {kind}", what, number, figures, others=measured.others())
            shutil.rmtree(work / "latency")


def retention_of_many(work: Path, rounds: int, note: Callable[..., None]) -> None:
    for number in range(rounds):
        measured = Measured()
        for what, figures in retention(work, PARTITIONS).items():
            note(f"retention, {PARTITIONS:,} partitions", what, number, figures, others=measured.others())
        shutil.rmtree(work / "retention")


def plain_table(rows: list[dict[str, Any]]) -> str:
    """Return the medians of what is not compared with Kafka."""
    groups: dict[tuple[str, str], list[Figures]] = {}
    for row in rows:
        groups.setdefault((row["what"], row["broker"]), []).append(row["figures"])
    lines = ["| what | meanwhile | figures |", "|---|---|---|"]
    for (what, name), found in groups.items():
        shown = ", ".join(f"{key} {statistics.median(each[key] for each in found):,.4g}" for key in found[0])
        lines.append(f"| {what} | {name} | {shown} |")
    return "\n".join(lines)


def times_its_usual(rows: list[dict[str, Any]]) -> str:
    """Say how many times longer round trips take while the broker compacts."""
    p99 = {(row["what"], row["round"], row["broker"]): row["figures"]["p99_ms"] for row in rows}
    by_what: dict[str, list[float]] = {}
    for (what, number, name), value in p99.items():
        if name == "compacting":
            by_what.setdefault(what, []).append(value / p99[what, number, "idle"])
    return ", ".join(f"{what}: p99 {statistics.median(found):.2f} times its usual" for what, found in by_what.items())


def table(rows: list[dict[str, Any]]) -> str:
    """Return the medians, and ours over Kafka's: by the time a pass takes, and by CPU time of the process."""
    names = list(dict.fromkeys(row["broker"] for row in rows))
    others = names[1:]
    lines = [
        f"| log | MB/s | records/s | CPU s | {' | '.join(f'{name}, MB/s | ratio (CPU)' for name in others)} |",
        f"|---|{'---:|' * (3 + 2 * len(others))}",
    ]
    for what in dict.fromkeys(row["what"] for row in rows):
        by_name: dict[str, dict[int, dict[str, float]]] = {}
        for row in rows:
            if row["what"] == what:
                by_name.setdefault(row["broker"], {})[row["round"]] = row["figures"]
        mine = by_name[OURS]
        cells = [f"{median(mine, key):,.4g}" for key in ("mb_s", "records_s", "cpu_seconds")]
        for name in others:
            theirs = by_name[name]
            ratios = [
                statistics.median(theirs[number][key] / mine[number][key] for number in mine)
                for key in ("seconds", "cpu_seconds")
            ]
            cells += [f"{median(theirs, 'mb_s'):,.4g}", "{:.2f} ({:.2f})".format(*ratios)]
        lines.append(f"| {what.removeprefix('compaction, ')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def median(by_round: dict[int, dict[str, float]], key: str) -> float:
    return statistics.median(figures[key] for figures in by_round.values())


def pieces(rows: list[dict[str, Any]]) -> str:
    """Say how long our pieces took, and how much memory a pass."""
    found = [row["figures"] for row in rows if row["broker"] == OURS]
    middle, most, longest = (max(each[f"piece_{key}_ms"] for each in found) for key in ("p50", "p999", "max"))
    memory = max(each["grown_mb"] for each in found)
    return (
        f"Our pieces: the middle one {middle:.2f} ms, one in a thousand {most:.2f} ms, the longest of all "
        f"{longest:.1f} ms. Memory of a pass: up to {memory:.0f} MB with a map of {MAP_BYTES >> 20} MB."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="logs of 128 MB instead of 1 GB, two rounds")
    parser.add_argument("--rounds", type=int, default=0, help="how often each is measured (5)")
    parser.add_argument("--only", default="", help="a part of what a measurement is called")
    arguments = parser.parse_args()
    rounds, size_bytes = (2, 128 << 20) if arguments.quick else (5, 1 << 30)
    rounds = arguments.rounds or rounds
    if lacking := missing():
        print(f"Kafka is left out: needs {lacking}", file=sys.stderr)
    run = Run("cleaning", rounds)
    work = Path(tempfile.mkdtemp(prefix="bench-cleaning-"))
    note = run.note
    only = arguments.only
    try:
        compaction(work, [kind for kind in KINDS if only in f"compaction, {kind}"], size_bytes, rounds, note)
        round_trips(
            work,
            [kind for kind in KINDS[::2] if only in f"latency, {kind}"],
            max(size_bytes // 4, 64 << 20),
            rounds,
            note,
        )
        if only in "retention":
            retention_of_many(work, rounds, note)
    finally:
        run.close()
        shutil.rmtree(work, ignore_errors=True)
    if compared := [row for row in run.rows if row["what"].startswith("compaction")]:
        print(table(compared), f"\n{pieces(compared)}\n", sep="\n")
    if plain := [row for row in run.rows if row not in compared]:
        print(plain_table(plain))
        print(times_its_usual([row for row in plain if row["what"].startswith("latency")]))
    print(f"\n{run.said(arguments.quick)}")


if __name__ == "__main__":
    main()
