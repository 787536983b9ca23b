"""What a broker tells people, a line at a time, and errors of its own.

What must hold: what happens again and again is said ever more rarely, so that nothing a client or a disk does fills
the screen.
"""

from __future__ import annotations

import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    Place = tuple[type[Exception], str, int]  # the kind of an error, and the file and line that raised it


TOLD_COUNTS = frozenset(4**power for power in range(1, 16))  # of failures of one kind at one place
PLACES_MAX = 100  # so many are counted: there are no more unless something makes code


class Reporter:
    """Where lines for people go; by default to stderr."""

    def say(self, line: str) -> None:
        with suppress(OSError):  # nobody reads any more
            print(line, file=sys.stderr, flush=True)


class Unexpected:
    """The errors of one task."""

    def __init__(self, reporter: Reporter, name: str):
        self._reporter = reporter
        self._name = name
        self._counts: dict[Place, int] = {}

    def tell(self, error: Exception) -> None:
        import traceback

        place = _place_of(error)
        if place not in self._counts and len(self._counts) >= PLACES_MAX:
            self._counts.clear()
        self._counts[place] = count = self._counts.get(place, 0) + 1
        if count == 1 or count in TOLD_COUNTS:
            lines = "".join(traceback.format_exception(error))
            self._reporter.say(f"unexpected error of {self._name}, please report it\n{lines}")


def _place_of(error: Exception) -> Place:
    last = error.__traceback__
    if last is None:
        return type(error), "", 0
    while last.tb_next is not None:
        last = last.tb_next
    return type(error), last.tb_frame.f_code.co_filename, last.tb_lineno
