"""How long the loop was held: every callback that took longer than it may is counted, by what it was.

Others wait meanwhile, so this is what their slowest answers are made of. By the steady clock, so a machine that has
other things to do shows, too; in a simulation, where no time passes within a callback, nothing is counted.
"""

from __future__ import annotations

from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

STRETCH_MS = 20  # as long as one request may hold the loop


def name_of(callback: Callable[[], object]) -> str:
    """Return what a callback is called in the source."""
    while isinstance(callback, partial):
        callback = callback.func
    name: str = getattr(callback, "__qualname__", type(callback).__qualname__)
    return name


class Stretches:
    """One for the life of a broker."""

    def __init__(self) -> None:
        self.counts: dict[int | str, int] = {}  # by API, or by the name of what else it was
        self.longest_ms: dict[int | str, int] = {}

    def note(self, what: int | str, took_ms: int) -> None:
        """Count a stretch of STRETCH_MS or more."""
        self.counts[what] = self.counts.get(what, 0) + 1
        self.longest_ms[what] = max(self.longest_ms.get(what, 0), took_ms)
