"""What a stretch of work takes: processor time, lines of our Python, syncs of a disk, the longest turn of the loop.

A row is run twice in its process, for to count lines takes many times as long as the work does:

    cpu_us        processor time of the process for each element, which others on the machine do not lengthen much
    stretch_ms    the longest callback of the loop, in processor time: so long nobody else had a turn
    syncs         of files and directories for each element
    lines         of minibroker that were run for each element: the same in every run
    stretch_lines of them in the longest callback

What C code does (a dict that is copied, a list that is sorted) is no line, so processor time has the last word.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

PACKAGE = f"{os.sep}minibroker{os.sep}"


class Meter:
    """Measures what is done within `elements`, be it once or many times."""

    def __init__(self, *, counts_lines: bool):
        self.counts_lines = counts_lines
        self.count = 0  # elements
        self.cpu_s = self.stretch_s = 0.0
        self.lines = self.stretch_lines = self.syncs = 0
        self.bytes_each = 0.0  # what stays for each element, where a row asks for it
        self._since_s: float | None = None  # when what is measured just now began

    @contextmanager
    def elements(self, count: int) -> Iterator[None]:
        """Measure work on so many elements; 0: what is only to be done once, to be warm."""
        if not count:
            yield
            return
        if not self.count:
            gc.collect()
            gc.freeze()  # as `minibroker serve` does with what there is at its start
            gc.disable()
        if self.counts_lines:
            sys.settrace(self._trace)
        self._since_s = time.process_time()
        try:
            yield
        finally:
            self.cpu_s = self._spent_s()
            sys.settrace(None)
            self._since_s = None
        self.count += count

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._trace_lines if PACKAGE in frame.f_code.co_filename else None

    def _trace_lines(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.lines += 1
        return self._trace_lines

    def _spent_s(self) -> float:
        return self.cpu_s + (0 if self._since_s is None else time.process_time() - self._since_s)

    def watch(self) -> None:
        """Look at each callback of any loop of asyncio, and at each sync, from now on."""
        run = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            spent_s, lines = self._spent_s(), self.lines
            run(handle)
            self.stretch_s = max(self.stretch_s, self._spent_s() - spent_s)
            self.stretch_lines = max(self.stretch_lines, self.lines - lines)

        asyncio.Handle._run = timed  # type: ignore[method-assign]
        for name in ("fsync", "fdatasync"):
            setattr(os, name, self._counting(getattr(os, name)))

    def _counting(self, sync: Any) -> Any:
        def counted(handle: int) -> None:
            self.syncs += self._since_s is not None
            sync(handle)

        return counted

    def figures(self) -> dict[str, float]:
        assert self.count, "nothing was measured"
        if self.counts_lines:
            found = {"lines": self.lines / self.count, "stretch_lines": float(self.stretch_lines)}
            return found | ({"bytes": self.bytes_each} if self.bytes_each else {})
        return {
            "cpu_us": self.cpu_s / self.count * 1e6,
            "stretch_ms": self.stretch_s * 1e3,
            "syncs": self.syncs / self.count,
        }
