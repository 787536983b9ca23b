"""Brings up our own broker as a user would: the command, another process, the address on its first line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def ours(log: Path, *arguments: str, settings: dict[str, str]) -> Iterator[str]:
    """Run `minibroker serve` and give its address; what it says goes into a file."""
    options = [option for name, value in settings.items() for option in ("-o", f"{name}={value}")]
    command = [sys.executable, "-m", "minibroker", "serve", "--port", "0", *arguments, *options]
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address, f"our broker did not start:\n{log.read_text()}"
            yield address
        finally:
            process.kill()
            process.communicate()


def tracebacks(log: Path) -> str:
    """Return what our broker said if an error of our own is in it."""
    said = log.read_text()
    return said if "Traceback" in said else ""
