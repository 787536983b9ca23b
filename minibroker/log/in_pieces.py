"""Work that may be long, in pieces: a generator that yields now and then how many microseconds about it has taken.

What must hold: all that is long is written once, as such a generator, and whoever need not let others in has it done at
once by `finish`. So both ways give the same, and raise the same.
By what is counted and not by a clock, so that the same happens each time.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, TypeVar

    Made = TypeVar("Made")
    InPieces = Generator[int, None, Made]

PIECE_US = 500  # after so much others may have their turn


def finish(work: Generator[Any, None, Made]) -> Made:
    """Do all of it now."""
    try:
        while True:
            next(work)
    except StopIteration as end:
        made: Made = end.value
        return made
