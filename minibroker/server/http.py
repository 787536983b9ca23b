"""A small HTTP answer on the same port: health, metrics, control. Enough of HTTP/1.1 for probes, curl and scripts.

One request, one answer, and the connection is closed. A body has a Content-Length, which is judged before anything of
it is kept, and so is who sends it; there are no chunks. What has come of a request counts like an unfinished frame.
What a path means, and who may ask, is the service's to know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping

from minibroker.server.buffers import PartialFrame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.server.connection import Connection

    HttpAnswer = tuple[str, str, bytes]  # status, content type, body

HEAD_BYTES_MAX = 8 * 1024
BODY_BYTES_MAX = 1024 * 1024
TEXT = "text/plain; charset=utf-8"
END_OF_HEAD = b"\r\n\r\n"


class HttpRequest:
    """A request that has come completely."""

    __slots__ = ("body", "headers", "method", "path")

    def __init__(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b""):
        self.method = method
        self.path = path  # without a query
        self.headers = headers  # names in lower case
        self.body = body


class BadRequest(Exception):
    """A request that is none; the text is its status and what is wrong."""

    def __init__(self, status: str, reason: str):
        super().__init__(reason)
        self.status = status


class HttpConnection(asyncio.Protocol):
    """A connection that began with a method of HTTP; it gets one answer and is closed."""

    may_be_toxic = False

    def __init__(self, connection: Connection):
        self.server = connection.server
        self.transport = connection.transport
        self.remote_address = connection.remote_address
        self.last_active_ms = connection.last_active_ms
        self.is_reading_paused = self.is_unread = self.is_closing = False
        self.closing_since_ms = 0
        self.task: asyncio.Task[None] | None = None
        self._received = bytearray()
        self.partial = PartialFrame(self.server, self)  # counts what has come, as of a frame
        self.partial.begun_ms = connection.last_active_ms
        self._request: HttpRequest | None = None  # as soon as its head is there
        self._body_bytes = 0

    @property
    def is_answering(self) -> bool:
        return self.task is not None

    def data_received(self, data: bytes) -> None:
        if self.is_closing or self.task is not None:
            return
        self._received += data
        self.partial.received(len(data))
        try:
            request = self._take()
        except BadRequest as failure:
            self._write((failure.status, TEXT, f"{failure}\n".encode()))
            return
        except Exception as error:
            self._fail(error)
            return
        if request is None:
            return
        self._drop_received()
        try:
            answer = self.server.service.http(request)
        except Exception as error:
            self._fail(error)
            return
        if asyncio.iscoroutine(answer):
            self.task = asyncio.get_running_loop().create_task(self._finish(answer))
        else:
            self._write(answer)

    def _drop_received(self) -> None:
        self._received.clear()
        self.partial.drop()

    def _take(self) -> HttpRequest | None:
        """Return the request when all of it is there, and not if it is refused already or had to make room."""
        if self.is_closing:
            return None
        if self._request is None:
            end = self._received.find(END_OF_HEAD)
            if end > HEAD_BYTES_MAX or (end < 0 and len(self._received) > HEAD_BYTES_MAX):
                raise BadRequest("431 Request Header Fields Too Large", f"a head has up to {HEAD_BYTES_MAX} bytes")
            if end < 0:
                return None
            self._request = parse_head(bytes(self._received[:end]))
            del self._received[: end + len(END_OF_HEAD)]
            self._body_bytes = body_length(self._request.headers)
            refusal = self.server.service.http_refusal(self._request)
            if refusal is not None:
                self._write(refusal)
                return None
            if self._body_bytes and self._request.headers.get("expect", "").lower() == "100-continue":
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if len(self._received) < self._body_bytes:
            return None
        self._request.body = bytes(self._received[: self._body_bytes])
        return self._request

    async def _finish(self, waiting: Coroutine[None, None, HttpAnswer]) -> None:
        try:
            answer = await waiting
        except asyncio.CancelledError:
            return
        except Exception as error:
            self._fail(error)
            return
        finally:
            self.task = None
        self._write(answer)

    def _fail(self, error: Exception) -> None:
        self.server.failed(self, error)
        self._write(("500 Internal Server Error", TEXT, b"an error of our own; the broker's log says more\n"))

    def _write(self, answer: HttpAnswer) -> None:
        if self.is_closing:
            return
        status, content_type, body = answer
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        is_head = self._request is not None and self._request.method == "HEAD"
        self.transport.write(head.encode() + (b"" if is_head else body))
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closing = True
        self._drop_received()
        if self.task is not None:
            asyncio.get_running_loop().call_soon(self.task.cancel)  # it may not have been run yet
        self.server.closed(self)

    def pause(self) -> None:
        """Take nothing more from the client. Answers are written with the request, so there are none to hold."""
        if not self.is_closing:
            self.transport.pause_reading()

    def resume(self) -> None:
        if not self.is_closing:
            self.transport.resume_reading()

    def abort(self, reason: str) -> None:
        """Close the connection now; what it holds is free at once."""
        self.close(reason)
        self.transport.abort()

    def close(self, reason: str = "") -> None:
        if not self.is_closing:
            self.is_closing = True
            self._drop_received()
            if reason:
                self.server.say(f"{self.remote_address[0]}:{self.remote_address[1]}: closed: {reason}")
            self.closing_since_ms = self.server.steady_ms()
            self.transport.close()


def parse_head(head: bytes) -> HttpRequest:
    """Read the lines in front of a body."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequest("400 Bad Request", "the first line is to be: METHOD PATH HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or not name or name != name.strip():
            raise BadRequest("400 Bad Request", "a line of the head is to be: NAME: VALUE")
        if name in headers and name in ("host", "origin", "content-length", "content-type"):
            raise BadRequest("400 Bad Request", f"{name} stands there twice")
        headers[name] = value.strip()
    return HttpRequest(words[0], words[1].partition("?")[0], headers)


def body_length(headers: Mapping[str, str]) -> int:
    """Return how many bytes follow the head."""
    if "transfer-encoding" in headers:
        raise BadRequest("411 Length Required", "a body needs a Content-Length; chunks are not taken")
    text = headers.get("content-length", "0")
    if not (text.isascii() and text.isdigit()):
        raise BadRequest("400 Bad Request", "Content-Length is to be a number")
    if len(text) > 20 or int(text) > BODY_BYTES_MAX:
        raise BadRequest("413 Content Too Large", f"a body has up to {BODY_BYTES_MAX} bytes")
    return int(text)
