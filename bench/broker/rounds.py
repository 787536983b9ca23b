"""Measuring in turn: each round of a load takes all the brokers, and begins with another one.

What must hold: every measurement is a line of JSON when it has been made, and one that fails does not end the run.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from bench.broker.brokers import BUILT, Broker

Figures = dict[str, float]
T = TypeVar("T")


class Run:
    """What was measured in one run: rows, which go to a file of JSON lines as they come, and the line that ends it."""

    def __init__(self, name: str, rounds: int):
        self.rounds = rounds
        self.rows: list[dict[str, Any]] = []
        BUILT.mkdir(parents=True, exist_ok=True)
        self.log = (BUILT / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}.jsonl").open("w")
        self.began = time.monotonic()

    def close(self) -> None:
        self.log.close()
        print(f"measurements: {self.log.name}", file=sys.stderr)

    def note(self, what: str, name: str, number: int, figures: Figures, **more: object) -> None:
        row = {"broker": name, "what": what, "round": number, "figures": figures, **more}
        self.rows.append(row)
        print(json.dumps(row), file=self.log, flush=True)
        shown = ", ".join(f"{key} {value:,.4g}" for key, value in figures.items())
        print(f"{time.monotonic() - self.began:6.1f} s  {what}  {name}: {shown or more}", file=sys.stderr, flush=True)

    def said(self, quick: bool) -> str:
        """Say how the figures came about."""
        others = [row["others"] for row in self.rows if "others" in row] or [0.0]
        return (
            f"{'Quick' if quick else 'Full'} run of {self.rounds} rounds in {time.monotonic() - self.began:.0f} s, "
            f"Python {platform.python_version()}, {os.cpu_count()} cores. Besides what was measured other processes "
            f"kept {statistics.median(others):.1f} cores busy (median)."
        )


class Rounds(Run):
    """A run over brokers that are up."""

    def __init__(self, name: str, rounds: int, only: str):
        super().__init__(name, rounds)
        self.only = only
        self.brokers: list[Broker] = []

    def stop(self) -> None:
        for broker in self.brokers:
            broker.stop()
        self.brokers = []

    def measure(self, what: str, load: Callable[[Broker], Figures]) -> None:
        """Do a load with every broker in every round."""
        if self.only not in what:
            return
        for number in range(self.rounds):
            for broker in in_turn(self.brokers, number):
                self.attempt(what, broker, number, load)

    def each_alone(self, what: str, step: Callable[[Broker], Figures]) -> None:
        for broker in self.brokers:
            self.attempt(what, broker, 0, step)

    def attempt(self, what: str, broker: Broker, number: int, step: Callable[[Broker], Figures]) -> None:
        """Do one thing with one broker; its failure is a cell of the table, not the end of the run."""
        start, others = time.perf_counter(), busy_seconds() - broker.cpu_seconds() - time.process_time()
        try:
            figures = step(broker)
        except Exception as failure:
            self.note(what, broker.name, number, {}, failed=f"{type(failure).__name__}: {failure}"[:300])
            return
        others = busy_seconds() - broker.cpu_seconds() - time.process_time() - others
        self.note(what, broker.name, number, figures, others=round(others / (time.perf_counter() - start), 2))


def in_turn(each: Sequence[T], number: int) -> Iterator[T]:
    first = number % len(each)
    yield from each[first:]
    yield from each[:first]


def busy_seconds() -> float:
    """Return how much CPU time everything on this machine took so far."""
    with open("/proc/stat") as stat:
        user, nice, system, _idle, _waiting, *interrupts = map(int, stat.readline().split()[1:8])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
