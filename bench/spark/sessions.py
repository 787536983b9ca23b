"""A session of Spark in processes of its own, and what they use: CPU time and memory of the JVM and of Python workers.

What must hold: a worker that has ended is counted too. Spark's daemon does not wait for its children, so the kernel
adds their time to nobody; they are looked at every LOOK_SECONDS, and what one used last is kept.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.broker.brokers import ROOT
from tests.interop.spark import class_path, pyspark_folder

LOOK_SECONDS = 0.05
JVM, WORKERS, DRIVER = "jvm", "workers", "driver"


class Failed(Exception):
    """What was asked of Spark ended with an error; the text is that of its stack."""


class Session:
    """One that runs; it does one thing at a time."""

    def __init__(self, said: Path, *, master: str = "local[2]", memory: str = "2g", **settings: str):
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        environment["PYTHONPATH"] = os.pathsep.join([str(pyspark_folder()), str(ROOT)])
        environment["PYTHONWARNINGS"] = "ignore"
        told = {
            "spark.driver.memory": memory,
            "spark.driver.extraClassPath": class_path(),
            "spark.local.dir": str(said.parent),
            **settings,
        }
        with said.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.spark.worker", master, json.dumps(told)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd=ROOT,
                text=True,
            )
        self._said = said
        self._used: dict[int, tuple[str, float]] = {}  # pid -> what it is, CPU seconds
        self._peaks: dict[int, tuple[str, float]] = {}  # pid -> what it is, MB
        self._over = threading.Event()
        self.version = self._answer()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def call(self, what: str, **arguments: Any) -> Any:
        """Do something of queries.py: `ask` and so on."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"call": f"bench.spark.{what}", "arguments": arguments}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def cpu_seconds(self) -> dict[str, float]:
        """Return the CPU time so far, of the JVM, the Python workers, and the driver's Python."""
        self._look()
        used = {JVM: 0.0, WORKERS: 0.0, DRIVER: 0.0}
        for kind, seconds in list(self._used.values()):
            used[kind] += seconds
        return used

    def forget_peaks(self) -> None:
        """From now on `peaks` are those of what comes."""
        for pid in self._tree():
            with suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")
        self._peaks.clear()

    def peaks(self) -> dict[str, float]:
        """Return the most resident memory in MB of the JVM and of a Python worker, and how many workers there were."""
        self._look()
        found = list(self._peaks.values())
        workers = [size for kind, size in found if kind == WORKERS]
        return {
            "jvm_mb": max((size for kind, size in found if kind == JVM), default=0.0),
            "worker_mb": max(workers, default=0.0),
            "workers": len(workers),
        }

    def stop(self) -> None:
        self._over.set()
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise Failed(f"Spark has ended with {self._process.wait()}: {self._said.read_text()[-2000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer["returned"]

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        for pid, kind in self._tree().items():
            try:
                if kind == WORKERS and Path(f"/proc/{pid}/comm").read_text().startswith("java"):
                    continue  # of the JVM, and on its way to be a command of a shell, as Hadoop's: still as large
                # The clock of a process, as clock_getcpuclockid names it.
                self._used[pid] = kind, time.clock_gettime(~pid << 3 | 2)
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            _, is_there, behind = status.partition("VmHWM:")
            if is_there:
                self._peaks[pid] = kind, int(behind.split()[0]) / 1024

    def _tree(self) -> dict[int, str]:
        """Return the processes of the session. The driver's child is the JVM, what that starts are Python's."""
        found, left = {self._process.pid: DRIVER}, [self._process.pid]
        while left:
            pid = left.pop()
            for child in _children(pid):
                found[child] = JVM if found[pid] == DRIVER else WORKERS
                left.append(child)
        return found


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in _of_task(task)]
    except OSError:
        return []


def _of_task(task: Path) -> list[str]:
    try:
        return (task / "children").read_text().split()
    except OSError:
        return []
