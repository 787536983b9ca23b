"""A loop in a thread of its own, for programs that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from minibroker.server.loops import new_loop

T = TypeVar("T")


class BackgroundLoop:
    """Runs from its making until `finish`."""

    def __init__(self, name: str):
        self.loop = new_loop()
        # A program that ends without stopping its broker must end all the same.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what comes of the work, done in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def finish(self) -> None:
        """Return when the loop is closed and the thread has ended."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def finish_with(self, work: Coroutine[Any, Any, None]) -> None:
        """Do a last thing, then finish; also called by the collector of garbage, in whatever thread it runs."""

        async def last() -> None:
            try:
                await work
            finally:
                self.loop.stop()

        asyncio.run_coroutine_threadsafe(last(), self.loop)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()
