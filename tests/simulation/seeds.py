"""What tests of all kinds of simulated runs do with seeds: look for a failure, and compare traces of processes."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def any_fails(run_seed: Callable[[int], Any], seeds: Iterable[int]) -> bool:
    """Return whether the run of a seed fails, which is what a planted bug must make it do."""
    return any(_fails(run_seed, seed) for seed in seeds)


def _fails(run_seed: Callable[[int], Any], seed: int) -> bool:
    has_failed = run_seed(seed).failure is not None
    gc.collect()  # or all those runs would lie in memory at the same time
    return has_failed


def trace_of(runs: str, seed: int, hash_seed: int) -> str:
    """Return what a run prints in a process of its own; runs: the module of this folder."""
    command = [sys.executable, "-m", f"tests.simulation.{runs}", str(seed)]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
