"""Which event loop a broker of ours runs on: uvloop's where it is installed. All else is the same without."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from typing import Any

TRACEBACKS_MAX = 5
TRACEBACK_SECONDS = 1.0


def new_loop() -> AbstractEventLoop:
    """Return a new loop, not running."""
    try:
        import uvloop
    except ImportError:
        import asyncio

        loop = asyncio.new_event_loop()
    else:
        loop = uvloop.new_event_loop()
    loop.set_exception_handler(FewTracebacks())
    return loop


class FewTracebacks:
    """Tells of errors in callbacks as a loop does, but not without end: strangers may be able to cause them."""

    def __init__(self) -> None:
        self._left = TRACEBACKS_MAX
        self._until = 0.0  # by the loop's time; then it counts anew

    def __call__(self, loop: AbstractEventLoop, context: dict[str, Any]) -> None:
        if loop.time() >= self._until:
            if self._left < 0:
                loop.default_exception_handler({"message": f"{-self._left} more errors like these"})
            self._left, self._until = TRACEBACKS_MAX, loop.time() + TRACEBACK_SECONDS
        self._left -= 1
        if self._left >= 0:
            loop.default_exception_handler(context)
