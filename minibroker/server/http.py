"""A small HTTP answer on the same port: health, readiness, metrics. Enough of HTTP/1.1 for probes and curl."""

from __future__ import annotations

import asyncio

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.server.connection import Connection

REQUEST_BYTES_MAX = 8 * 1024


class HttpConnection(asyncio.Protocol):
    """A connection that began with `GET `; it gets one answer and is closed."""

    def __init__(self, connection: Connection):
        self.server = connection.server
        self.transport = connection.transport
        self.remote_address = connection.remote_address
        self.last_active_ms = connection.last_active_ms
        self.frame_begun_ms = connection.last_active_ms
        self.is_waiting = self.is_deaf = self.is_unread = self.is_closing = False
        self.closing_since_ms = 0
        self.task = None
        self._request = bytearray()

    @property
    def held_bytes(self) -> int:
        return len(self._request)

    came_bytes = held_bytes

    def data_received(self, data: bytes) -> None:
        if self.is_closing:
            return
        self._request += data
        if b"\r\n\r\n" in self._request or len(self._request) > REQUEST_BYTES_MAX:
            target = bytes(self._request.split(b" ", 2)[1]).decode("ascii", "replace")
            status, content_type, body = self.server.service.http(target.split("?")[0])
            head = (
                f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
                "Connection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.closed(self)

    def pause(self) -> None:
        """Take nothing more from the client. Answers are written with the request, so there are none to hold."""
        if not self.is_closing:
            self.transport.pause_reading()

    def resume(self) -> None:
        if not self.is_closing:
            self.transport.resume_reading()

    def close(self, reason: str = "") -> None:
        if not self.is_closing:
            self.is_closing = True
            self.closing_since_ms = self.server.now_ms()
            self.transport.close()
