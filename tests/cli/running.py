"""A broker of the tests of the command line, and commands run in this process as a shell would run them."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import NamedTuple
from unittest.mock import patch

from minibroker.cli import main

MINIBROKER = (sys.executable, "-m", "minibroker")


@contextmanager
def broker_running(*options: str) -> Iterator[str]:
    """Start a broker that keeps everything in memory; give its address."""
    command = [*MINIBROKER, "serve", "--port", "0", "--memory", "--quiet", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout
        try:
            yield broker.stdout.readline().strip()
        finally:
            broker.terminate()


class Ran(NamedTuple):
    """What came of a command."""

    status: int
    output: bytes
    errors: str

    @property
    def text(self) -> str:
        return self.output.decode()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


class Shell:
    """Runs commands; the broker is the one that MINIBROKER_BOOTSTRAP would name."""

    def __init__(self, address: str):
        self.address = address

    def __call__(self, *words: str, stdin: bytes = b"") -> Ran:
        """Run `minibroker` with these words."""
        output, errors = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        with tempfile.TemporaryFile() as file, redirect_stdout(output), redirect_stderr(errors):
            file.write(stdin)
            file.seek(0)
            with patch.dict("os.environ", MINIBROKER_BOOTSTRAP=self.address), patch("sys.stdin", file):
                try:
                    status = main(list(words))
                except SystemExit as end:  # argparse
                    status = int(end.code or 0)
        output.flush()
        return Ran(status, output.buffer.getvalue(), errors.getvalue())  # type: ignore[attr-defined]

    def good(self, *words: str, stdin: bytes = b"") -> Ran:
        """Run a command that must succeed."""
        ran = self(*words, stdin=stdin)
        assert ran.status == 0, ran.errors
        return ran
