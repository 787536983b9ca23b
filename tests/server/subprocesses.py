"""A broker as people start it: its own process, on a directory or on memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STOP_SECONDS_MAX = 60


class BrokerProcess:
    """`minibroker serve` and what it said."""

    def __init__(self, *arguments: str, log: Path | None = None):
        self.started = time.perf_counter()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
        self._log = log.open("ab") if log else None
        self.process = subprocess.Popen(
            [sys.executable, "-m", "minibroker", "serve", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log or subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        assert self.process.stdout
        line = self.process.stdout.readline().strip()
        assert ":" in line, f"it did not start: {line!r}, exit status {self.process.poll()}"
        host, _, port = line.rpartition(":")
        self.address = host, int(port)
        self.start_seconds = time.perf_counter() - self.started

    def stop(self) -> int:
        """Ask it to stop; return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self._end()

    def kill(self) -> None:
        self.process.kill()
        self._end()

    def _end(self) -> int:
        status = self.process.wait(STOP_SECONDS_MAX)
        if self.process.stdout:
            self.process.stdout.close()
        if self._log:
            self._log.close()
        return status

    def status_bytes(self, name: str) -> int:
        """Return VmRSS or VmHWM of the process."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise KeyError(name)


@contextmanager
def broker_process(*arguments: str, log: Path | None = None) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(*arguments, log=log)
    try:
        yield broker
    finally:
        if broker.process.poll() is None:
            broker.kill()
