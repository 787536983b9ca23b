"""Which event loop a broker of ours runs on: uvloop's where it is installed. All else is the same without."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


def new_loop() -> AbstractEventLoop:
    """Return a new loop, not running."""
    try:
        import uvloop
    except ImportError:
        import asyncio

        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
