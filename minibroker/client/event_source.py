"""Server-sent events of a broker: `GET /api/events`, read as they come.

    async with await EventSource.open(host, port, "/api/events", clock=clock, timeout_ms=1500) as source:
        event, id, data = await source.next(timeout_ms=2500)

What must hold: who waits for longer than he says gets a ConnectionError, as if the broker had gone.
"""

from __future__ import annotations

import asyncio

from minibroker.client.control import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Self

    from minibroker.clock import Clock

EVENT_BYTES_MAX = 64 * 1024 * 1024


class EventSource:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, clock: Clock):
        self._reader = reader
        self._writer = writer
        self._clock = clock

    @classmethod
    async def open(
        cls, host: str, port: int, path: str, *, clock: Clock, timeout_ms: float, last_id: str = ""
    ) -> EventSource:
        """Return when the broker has answered; Refusal with its words, or OSError if there is no answer."""
        from minibroker.client.control import host_header

        reader, writer = await asyncio.open_connection(host, port, limit=EVENT_BYTES_MAX)
        source = cls(reader, writer, clock)
        again = f"Last-Event-ID: {last_id}\r\n" if last_id else ""
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {host_header(writer, port)}\r\n{again}\r\n".encode())
            head = (await source._until(b"\r\n\r\n", timeout_ms)).split(b"\r\n")[0].split(b" ", 2)
            if len(head) < 3 or not head[0].startswith(b"HTTP/1."):
                raise ConnectionError(f"{host}:{port} gives no answer to HTTP: is it a minibroker?")
            if head[1] != b"200":
                await source._refuse(int(head[1]), timeout_ms)
        except BaseException:
            source.close()
            raise
        return source

    async def _refuse(self, status: int, timeout_ms: float) -> None:
        import json

        text = await self._within(self._reader.read(), timeout_ms)
        try:
            refusal = Refusal(json.loads(text)["error"])
        except (ValueError, KeyError):
            refusal = Refusal(text.decode("utf-8", "replace").strip() or f"status {status}")
        refusal.status = status
        raise refusal

    async def next(self, *, timeout_ms: float) -> tuple[str, str, Any]:
        """Return the next event: its name, its id and its data."""
        import json

        fields = {}
        for line in (await self._until(b"\n\n", timeout_ms)).decode().split("\n"):
            name, _, value = line.partition(": ")
            fields[name] = value
        return fields["event"], fields["id"], json.loads(fields["data"])

    async def _until(self, end: bytes, timeout_ms: float) -> bytes:
        try:
            return await self._within(self._reader.readuntil(end), timeout_ms)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as failure:
            raise ConnectionError("the connection has ended") from failure

    async def _within(self, reading: Any, timeout_ms: float) -> bytes:
        timer = self._clock.after(timeout_ms, self._writer.transport.abort)
        try:
            found: bytes = await reading
            return found
        finally:
            timer.cancel()

    def close(self) -> None:
        self._writer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
