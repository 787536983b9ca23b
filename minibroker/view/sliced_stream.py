"""A stream of server-sent events made by long work: slice by slice, with pauses, so that nobody is held up by it.

What must hold: a slice is short, and the pause after it so long that all streams together take a fifth of the processor
at most, and a tenth while the broker is asked by others. Nothing is done while the client does not read; the work ends
when he goes, or may not look any more. Of all searches and tails READERS_MAX go on at a time.
"""

from __future__ import annotations

import asyncio

from minibroker.clock import LoopClock
from minibroker.errors import KafkaError, ProtocolError
from minibroker.view.record_rows import encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, Final, Protocol

    from minibroker.view.feed import Feed
    from minibroker.view.viewer import Sink

    class Connection(Sink, Protocol):
        """What a stream is sent over."""

        def fail(self, error: Exception) -> None: ...

    Work = Generator[int, None, None]

READERS_MAX: Final = 4
SLICE_US: Final = 250
CHECK_MS: Final = 250  # so often it is asked whether he may still look
# So many times as long as a slice takes nothing is done, and while others ask.
PAUSES: Final = 4
BUSY_PAUSES: Final = 9
BUSY_MS: Final = 100  # behind a request


class SlicedStream:
    """One that begins with the connection that it is sent over, and ends with it."""

    content_type = "text/event-stream"

    def __init__(self, feed: Feed, may_look: Callable[[], bool], asked: Callable[[], int]):
        """asked: returns how many requests there have been, whosever they were."""
        self.clock = LoopClock()
        self._feed = feed
        self._may_look = may_look
        self._asked = asked
        self._asked_count = self._busy_until_ms = 0
        self._checked_ms = 0
        self.is_over = False  # he may not look any more
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._room: asyncio.Future[None] | None = None  # awaited

    def begin(self, connection: Connection) -> None:
        self._connection = connection
        if len(self._feed.readers) >= READERS_MAX:  # others were quicker
            connection.close()
            return
        self._feed.readers[self] = None
        self._task = asyncio.get_running_loop().create_task(self._run(connection))

    def go_on(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def end(self) -> None:
        self._feed.readers.pop(self, None)
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def _run(self, connection: Connection) -> None:
        try:
            await self.run()
        except (KafkaError, ProtocolError) as error:
            self.send("failure", {"error": str(error)})
        except Exception as error:
            connection.fail(error)
        connection.close()

    async def run(self) -> None:
        """Send all there is."""
        raise NotImplementedError

    def send(self, event: str, data: Any) -> None:
        """Send an event; data: a value, or its JSON."""
        if self._connection is not None:
            text = data if isinstance(data, str) else encode(data)
            self._connection.send(f"event: {event}\ndata: {text}\n\n".encode())

    def send_comment(self) -> None:
        if self._connection is not None:
            self._connection.send(b": still here\n\n")

    async def room(self) -> bool:
        """Return when the client has read what was sent; False: he may not look any more."""
        connection = self._connection
        while connection is not None and connection.is_full:
            self._room = asyncio.get_running_loop().create_future()
            await self._room
        now_ms = self.clock.steady_ms()
        if now_ms - self._checked_ms >= CHECK_MS:
            self._checked_ms = now_ms
            self.is_over = not self._may_look()
        return not self.is_over

    def _pauses(self) -> int:
        before, self._asked_count = self._asked_count, self._asked()
        now_ms = self.clock.steady_ms()
        if self._asked_count != before:
            self._busy_until_ms = now_ms + BUSY_MS
        return BUSY_PAUSES if now_ms < self._busy_until_ms else PAUSES

    async def slices(self, work: Work, tell: Callable[[], bool]) -> bool:
        """Do work; tell: called between slices, returns whether to go on. Return whether all of it is done."""
        spent_us = 0
        try:
            for step_us in work:
                spent_us += step_us
                if spent_us < SLICE_US:
                    continue
                if not tell():
                    return False
                await self.clock.sleep(spent_us * self._pauses() * len(self._feed.readers) / 1000)
                spent_us = 0
                if not await self.room():
                    return False
            return True
        finally:
            work.close()
