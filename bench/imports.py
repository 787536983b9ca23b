"""What importing costs over the bare interpreter, against the start-up budgets.

A command line and a test both pay for imports every time, so the budgets are small: 15 ms for `minibroker`, 10 ms for
the twelve message modules that nearly every client needs. Each round starts one interpreter per case, so that a busy
moment of the machine hits all of them; the figure is the median over the rounds of the difference to the bare one.
It prints and never fails: a figure in milliseconds says as much about the machine as about us.

    python bench/imports.py [ROUNDS]
"""

import os
import resource
import statistics
import subprocess
import sys
import time

TWELVE = (
    "produce",
    "fetch",
    "list_offsets",
    "metadata",
    "offset_commit",
    "offset_fetch",
    "find_coordinator",
    "join_group",
    "heartbeat",
    "sync_group",
    "api_versions",
    "create_topics",
)
CASES = {  # name -> what the interpreter runs, budget in ms
    "import minibroker": ("import minibroker", 15.0),
    "twelve common messages": (
        "import " + ", ".join(f"minibroker.protocol.messages.{name}" for name in TWELVE),
        10.0,
    ),
}
ROUNDS = 25

# Installed packages have their .pyc files; where the environment forbids to write ours, each run would compile again.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run(statement: str) -> tuple[float, float]:
    """Run one statement in a new interpreter and return its (wall, CPU) time in ms."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True, stderr=subprocess.PIPE, env=ENVIRONMENT)
    wall_ms = (time.perf_counter() - start) * 1e3
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall_ms, cpu_s * 1e3


def importable(name: str, statement: str) -> bool:
    """Run the statement once, which also writes its .pyc files, and say so if it fails."""
    try:
        run(statement)
    except subprocess.CalledProcessError as failure:
        print(f"{name:<24}  does not import: {failure.stderr.decode().strip().splitlines()[-1]}")
        return False
    return True


def main(rounds: int = ROUNDS) -> None:
    cases = {name: case for name, case in CASES.items() if importable(name, case[0])}
    run("pass")
    bare: list[tuple[float, float]] = []
    over: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for _ in range(rounds):
        base = run("pass")
        bare.append(base)
        for name, (statement, _budget) in cases.items():
            wall_ms, cpu_ms = run(statement)
            over[name].append((wall_ms - base[0], cpu_ms - base[1]))
    print(f"Python {sys.version.split()[0]}, medians of {rounds} interleaved runs, over the bare interpreter")
    print(f"{'':<24}  {'wall ms':>8}  {'CPU ms':>8}  {'budget':>7}")
    print(f"{'bare interpreter':<24}  {median(bare, 0):8.1f}  {median(bare, 1):8.1f}  {'':>7}")
    for name, (_statement, budget_ms) in cases.items():
        wall_ms = median(over[name], 0)
        verdict = "within" if wall_ms <= budget_ms else "OVER"
        print(f"{name:<24}  {wall_ms:8.1f}  {median(over[name], 1):8.1f}  {budget_ms:7.1f}  {verdict}")


def median(samples: list[tuple[float, float]], column: int) -> float:
    return statistics.median(sample[column] for sample in samples)


if __name__ == "__main__":
    main(max(15, int(sys.argv[1])) if len(sys.argv) > 1 else ROUNDS)
