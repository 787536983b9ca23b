"""Runs of clusters from seeds: what all kinds of them begin with, and their command line."""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, Protocol

from minibroker.cluster.cluster import Cluster
from minibroker.simulation.disk import SimulatedStorage
from minibroker.simulation.run import Outcome, World, simulate
from tests.planting import planted

from .runs import TraceReporter

HEAL_MS_MAX = 120_000  # until a cluster is in sync again
LIMIT_S = 3600.0  # virtual


class Run(Protocol):
    """One seed's."""

    def go(self) -> Coroutine[Any, Any, int]: ...


def drawn_settings(chance: Random, min_isr: int) -> dict[str, str]:
    return {
        "min.insync.replicas": str(min_isr),
        "broker.session.timeout.ms": str(chance.choice([3000, 9000])),
        "broker.heartbeat.interval.ms": str(chance.choice([300, 1000])),
        "replica.lag.time.max.ms": str(chance.choice([2000, 10_000])),
    }


def simulated_cluster(world: World, settings: dict[str, str]) -> Cluster:
    return Cluster(
        settings,
        lambda name: SimulatedStorage(world.clock.now_ms),
        clock=world.clock,
        chance=world.chance,
        events=world.events,
        reporter=TraceReporter(world),
    )


class Runs:
    """Runs of one kind, one for each seed: one again, many, or as many as a planted bug takes."""

    def __init__(self, new_run: Callable[..., Run], counted: str, what: str = ""):
        """new_run: takes the world, and `foreign` if there are such clients. counted: what the result is a number of.

        what: as `make sim` calls it.
        """
        self._new_run = new_run
        self._counted = counted
        self._what = what

    def run_seed(self, seed: int, *, foreign: bool = False, keep_lines: bool = False) -> Outcome:
        """foreign: the clients are unmodified aiokafka's, or such ones are there, too."""
        named = {"foreign": True} if foreign else {}
        return simulate(lambda world: self._new_run(world, **named).go(), seed, limit_s=LIMIT_S, keep_lines=keep_lines)

    def replay(self, seed: int, *, foreign: bool = False, bug: str = "") -> str:
        what = f" WHAT={self._what}" if self._what else ""
        planted_bug = f" ARGS='--bug {bug}'" if bug else ""
        return f"make sim{what} SEED={seed}{' CLIENT=aiokafka' if foreign else ''}{planted_bug}"

    def command(self, words: Sequence[str]) -> int:
        """Do what the words say."""
        parser = argparse.ArgumentParser("make sim")
        parser.add_argument("seed", type=int, nargs="?")
        parser.add_argument("--lines", action="store_true")
        parser.add_argument("--seeds", type=int, default=100)
        parser.add_argument("--first", type=int, default=0)
        parser.add_argument("--bug", default="")
        parser.add_argument("--client", choices=["own", "aiokafka"], default="own")
        options = parser.parse_args(words)
        logging.disable()  # what clients complain of is what the run is about
        with planted(*filter(None, [options.bug])):
            return self._run(options)

    def _run(self, options: argparse.Namespace) -> int:
        foreign = options.client == "aiokafka"
        if options.seed is not None:
            outcome = self.run_seed(options.seed, foreign=foreign, keep_lines=options.lines)
            print("\n".join(outcome.lines or ()))
            result = outcome.check()
            print(f"seed {options.seed}: {result} {self._counted}, {outcome.virtual_s:.0f} s, {outcome.trace_hash}")
            return 0
        begun, virtual_s, failed, count = time.perf_counter(), 0.0, 0, 0
        gc.freeze()  # what is there before is no garbage of a run
        for seed in range(options.first, options.first + options.seeds):
            outcome = self.run_seed(seed, foreign=foreign)
            gc.collect()  # a run makes much garbage, and collects none
            if (seed - options.first) % 100 == 99:
                print(
                    f"{seed - options.first + 1} of {options.seeds} seeds, {failed} failed", file=sys.stderr, flush=True
                )
            virtual_s += outcome.virtual_s
            if outcome.failure is None:
                count += outcome.result
                continue
            failed += 1
            print(f"seed {seed}: {type(outcome.failure).__name__}: {outcome.failure}", flush=True)
            print(f"    replay: {self.replay(seed, foreign=foreign, bug=options.bug)}", flush=True)
            if options.bug:
                print(f"found after {seed - options.first + 1} seeds")
                return 0
        took_s = time.perf_counter() - begun
        print(
            f"{options.seeds} seeds, {failed} failed, {count} {self._counted}; "
            f"{60 * options.seeds / took_s:.0f} seeds a minute, {virtual_s / took_s:.0f} virtual seconds a second"
        )
        return 1 if failed else 0
