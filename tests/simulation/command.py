"""The command line of programs that make a run from a seed: one seed again, many, or as many as a planted bug takes."""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
from collections.abc import Callable, Sequence

from minibroker.simulation.run import Outcome
from tests.planting import planted


def command(words: Sequence[str], run_seed: Callable[..., Outcome], replay: Callable[..., str], counted: str) -> int:
    """Do what the words say; replay: how one gets a seed again. counted: what the result of a run is the number of."""
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
        return _run(options, run_seed, replay, counted)


def _run(
    options: argparse.Namespace, run_seed: Callable[..., Outcome], replay: Callable[..., str], counted: str
) -> int:
    foreign = options.client == "aiokafka"
    if options.seed is not None:
        outcome = run_seed(options.seed, foreign=foreign, keep_lines=options.lines)
        print("\n".join(outcome.lines or ()))
        result = outcome.check()
        print(f"seed {options.seed}: {result} {counted}, {outcome.virtual_s:.0f} s, {outcome.trace_hash}")
        return 0
    begun, virtual_s, failed, count = time.perf_counter(), 0.0, 0, 0
    for seed in range(options.first, options.first + options.seeds):
        outcome = run_seed(seed, foreign=foreign)
        gc.collect()  # a run makes much garbage, and collects none
        if (seed - options.first) % 100 == 99:
            print(f"{seed - options.first + 1} of {options.seeds} seeds, {failed} failed", file=sys.stderr, flush=True)
        virtual_s += outcome.virtual_s
        if outcome.failure is None:
            count += outcome.result
            continue
        failed += 1
        print(f"seed {seed}: {type(outcome.failure).__name__}: {outcome.failure}", flush=True)
        print(f"    replay: {replay(seed, foreign=foreign)}", flush=True)
        if options.bug:
            print(f"found after {seed - options.first + 1} seeds")
            return 0
    took_s = time.perf_counter() - begun
    print(
        f"{options.seeds} seeds, {failed} failed, {count} {counted}; {60 * options.seeds / took_s:.0f} seeds a minute, "
        f"{virtual_s / took_s:.0f} virtual seconds a second"
    )
    return 1 if failed else 0
