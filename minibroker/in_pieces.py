"""Work that may be long, in pieces: a generator that yields now and then how many microseconds about it has taken.

What must hold: all that is long is written once, as such a generator, and whoever need not let others in has it done at
once by `finish`. So both ways give the same, and raise the same.
By what is counted and not by a clock, so that the same happens each time.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, Final, ParamSpec, TypeVar

    How = ParamSpec("How")
    Made = TypeVar("Made")
    InPieces = Generator[int, None, Made]

PIECE_US: Final = 500  # after so much others may have their turn
BATCH_US: Final = 2  # to look at a batch's header
BYTES_PER_US: Final = 1000  # to read it and take its checksum


def finish(work: Generator[Any, None, Made]) -> Made:
    """Do all of it now."""
    try:
        while True:
            next(work)
    except StopIteration as end:
        made: Made = end.value
        return made


def at_once(begin: Callable[How, Generator[Any, None, Made]]) -> Callable[How, Made]:
    """Return the function that does all of such work when it is called."""

    def do(*args: How.args, **how: How.kwargs) -> Made:
        return finish(begin(*args, **how))

    return do


class Pace:
    """Says when a piece of going through batches is over: `if pace.is_over(size_bytes): yield pace.take_us()`."""

    __slots__ = ("spent_us",)

    def __init__(self) -> None:
        self.spent_us = 0

    def is_over(self, size_bytes: int) -> bool:
        """Count another batch."""
        self.spent_us += BATCH_US + size_bytes // BYTES_PER_US
        return self.spent_us >= PIECE_US

    def take_us(self) -> int:
        spent_us, self.spent_us = self.spent_us, 0
        return spent_us
