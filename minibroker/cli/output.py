"""Standard output whose failures are nobody else's: a full disk and a reader that has gone are no trouble of a network.

Commands catch OSError of files and of brokers; what happens to their own output is OutputFailed, which only the command
line itself catches. What must hold: it writes the bytes that it is given, when Python's own would.
"""

from __future__ import annotations

import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class OutputFailed(Exception):
    """Nothing more can be written; `failure` says why."""

    def __init__(self, failure: OSError):
        super().__init__(f"standard output: {failure.strerror or failure}")
        self.failure = failure


class Output(io.RawIOBase):
    """A file, written to."""

    def __init__(self, raw: io.RawIOBase):
        self._raw = raw

    def write(self, data: Any, /) -> int | None:
        try:
            return self._raw.write(data)
        except OSError as failure:
            raise OutputFailed(failure) from None

    def fileno(self) -> int:
        return self._raw.fileno()

    def isatty(self) -> bool:
        return self._raw.isatty()

    def writable(self) -> bool:
        return True


def guard_output() -> None:
    """Let failures of standard output be OutputFailed from now on, if it is a file of this process."""
    out = sys.stdout
    if out is not sys.__stdout__ or not isinstance(out, io.TextIOWrapper):
        return
    out.flush()
    raw: Any = getattr(out.buffer, "raw", out.buffer)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(Output(raw)),
        out.encoding,
        out.errors,
        line_buffering=out.line_buffering,
        write_through=out.write_through,
    )


def give_up_output() -> None:
    """Let what has not been written go nowhere: Python would complain at the end if it could not be."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
