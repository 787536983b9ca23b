"""Progress of long work: one line on stderr that rewrites itself, on a terminal only."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from minibroker.clock import Clock

PAUSE_MS = 200  # between two pictures, and before the first


class Progress:
    """A context manager: leaving it removes the line."""

    def __init__(self, clock: Clock, done: str, is_wanted: bool = True):
        self._clock = clock
        self._done = done  # what has happened to the records: "read", "written"
        self._is_shown = is_wanted and sys.stderr.isatty()
        self._is_there = False
        self._records = self._bytes = 0
        self._begun_ms = self._drawn_ms = clock.now_ms()

    def add(self, records: int, size_bytes: int) -> None:
        self._records += records
        self._bytes += size_bytes
        if self._is_shown and self._clock.now_ms() - self._drawn_ms >= PAUSE_MS:
            self._draw()

    def say(self, text: str) -> None:
        """Print a line of its own."""
        self.clear()
        print(text, file=sys.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def _draw(self) -> None:
        self._drawn_ms = self._clock.now_ms()
        seconds = max(self._drawn_ms - self._begun_ms, 1) / 1000
        text = (
            f"{self._records:,} records {self._done}, {self._bytes / 1e6:,.1f} MB, "
            f"{self._records / seconds:,.0f} records/s, {self._bytes / 1e6 / seconds:,.1f} MB/s"
        )
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        self._is_there = True

    def clear(self) -> None:
        """Take the line away, for something else to be printed."""
        if self._is_there:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._is_there = False
