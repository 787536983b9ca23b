"""Files of segments that are no longer part of a log, removed file.delete.delay.ms later: readers may still be at them.

What a broker leaves when it stops is removed when it opens the log again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from heapq import heappop, heappush

from minibroker.cleaner.pieces import Pieces, Work
from minibroker.clock import CHORE
from minibroker.errors import StorageError
from minibroker.parts import Parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.clock import Timer

FILES_A_PIECE = 16


class Purging:
    """What one broker is about to remove."""

    def __init__(self, parts: Parts):
        self.parts = parts
        self._due: list[tuple[int, int, Sequence[str]]] = []  # a heap: when by elapsed_ms, its number, paths
        self._count = 0
        self._timer: Timer | None = None
        self._pieces: Pieces | None = None

    def stop(self) -> None:
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._pieces is not None:
            self._pieces.stop()

    def add(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remove files after a while."""
        if paths:
            self._count += 1
            heappush(self._due, (self.parts.clock.elapsed_ms() + delay_ms, self._count, paths))
            if self._pieces is None or self._pieces.is_over:
                self._arm()

    def _arm(self) -> None:
        """Wake up for the first of them."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due:
            delay_ms = max(self._due[0][0] - self.parts.clock.elapsed_ms(), 0)
            self._timer = self.parts.clock.after(delay_ms, self._begin, CHORE)

    def _begin(self) -> None:
        self._timer = None
        self._pieces = Pieces(self.parts.clock, self._purge())

    def _purge(self) -> Work:
        from minibroker.log.pruning import purge

        while self._due and self._due[0][0] <= self.parts.clock.elapsed_ms():
            _, _, paths = heappop(self._due)
            for start in range(0, len(paths), FILES_A_PIECE):
                remove = partial(purge, self.parts.storage, paths[start : start + FILES_A_PIECE])
                try:
                    if self.parts.storage.is_slow:
                        yield remove
                    else:
                        remove()
                        yield 0
                except StorageError as failure:
                    self.parts.disk_failed(failure)
        self._arm()
