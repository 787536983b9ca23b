"""Frames of a socket: bytes come into a buffer that is used again and again, whole frames go out.

Small frames are copied out of the buffer; one that does not fit into it gets memory of its own, which the socket then
fills directly, so large fetches are copied once, by the kernel.
What must hold: a length is judged before memory is taken for it; after a bad one nothing more is read.
Not here: what frames mean (connection.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from minibroker.errors import InvalidLength
from minibroker.protocol.framing import LENGTH

BUFFER_BYTES = 64 * 1024


class FrameStream(asyncio.BufferedProtocol):
    """Cuts what arrives into frames, without their lengths, and tells when sending should pause."""

    def __init__(
        self,
        on_frame: Callable[[bytes | bytearray], None],
        on_closed: Callable[[Exception | None], None],
        frame_bytes_max: int,
    ):
        self.transport: asyncio.Transport | None = None
        self._on_frame = on_frame
        self._on_closed = on_closed
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._end = 0  # what is in the buffer begins at 0
        self._large: bytearray | None = None  # a frame larger than the buffer, being filled
        self._filled = 0  # how much of it is there
        self._received = 0  # bytes of whole frames so far, for error messages
        self._failure: Exception | None = None  # why we closed, if it was us
        self._writable: asyncio.Future[None] | None = None  # there while the transport asks for a pause
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # uvloop's is none by class, though by its methods

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.resume_writing()
        self._on_closed(self._failure or exc)

    def eof_received(self) -> bool:
        return False  # the transport closes itself

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return memoryview(self._large)[self._filled :]
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._large is None:
            self._end += nbytes
            self._cut()
            return
        self._filled += nbytes
        if self._filled == len(self._large):
            frame, self._large = self._large, None
            self._deliver(frame)

    def fail(self, failure: Exception) -> None:
        """Close at once; `on_closed` is told this as the reason."""
        if self._failure is None and not self.closed and self.transport is not None:
            self._failure = failure
            self.transport.abort()

    def pause_writing(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    async def wait_until_writable(self) -> None:
        """Wait while the other side does not read."""
        while self._writable is not None:
            await asyncio.shield(self._writable)

    def _cut(self) -> None:
        start, end, view = 0, self._end, self._view
        while end - start >= LENGTH.size and self._failure is None:
            length: int = LENGTH.unpack_from(view, start)[0]
            if not 0 <= length <= self._frame_bytes_max:
                reason = f"{length} is not a length between 0 and {self._frame_bytes_max}"
                self.fail(InvalidLength(reason, self._received, "frame"))
                break
            body = start + LENGTH.size
            if body + length <= end:
                start = body + length
                self._deliver(bytes(view[body:start]))
                continue
            if length > BUFFER_BYTES - LENGTH.size:
                self._large = bytearray(length)
                self._filled = end - body
                self._large[: self._filled] = view[body:end]
                start = end
            break
        self._end = 0 if self._failure is not None else end - start
        if start and self._end:
            self._buffer[: self._end] = bytes(view[start:end])

    def _deliver(self, frame: bytes | bytearray) -> None:
        self._received += LENGTH.size + len(frame)
        if self._failure is None:
            self._on_frame(frame)
