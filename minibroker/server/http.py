"""A small HTTP answer on the same port: health, metrics, control. Enough of HTTP/1.1 for probes, curl and scripts.

One request, one answer, and the connection is closed. A body has a Content-Length, which is judged before anything of
it is kept, and so is who sends it; there are no chunks. What has come of a request counts like an unfinished frame.
An answer may be a stream, which goes on until one of the two ends it: whoever sends it looks at `is_full` before, and
is told when there is room again, so that nothing is kept for a client that does not read.
What a path means, and who may ask, is the service's to know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping

from minibroker.server.buffers import PartialFrame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol, TypeAlias

    from minibroker.server.connection import Connection

    class HttpStream(Protocol):
        """An answer that goes on."""

        content_type: str

        def begin(self, connection: HttpConnection) -> None:
            """Send by `connection.send` from now on."""
            ...

        def go_on(self) -> None:
            """There is room again."""
            ...

        def end(self) -> None:
            """Nothing can be sent any more."""
            ...

    # Status, content type, body; the same with headers of its own; or what goes on.
    HttpAnswer: TypeAlias = "tuple[str, str, bytes] | PreparedAnswer | HttpStream"

HEAD_BYTES_MAX = 8 * 1024
BODY_BYTES_MAX = 1024 * 1024
STREAM_UNSENT_BYTES_MAX = 256 * 1024  # from here on a client of a stream has to read before it gets more
TEXT = "text/plain; charset=utf-8"
END_OF_HEAD = b"\r\n\r\n"
# Of answers that have none of their own: what others wrote is in them, and it is not for a browser to guess or to keep.
USUAL_HEADERS: Mapping[str, str] = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


class HttpRequest:
    """A request that has come completely."""

    __slots__ = ("address", "body", "connection", "headers", "method", "path", "query", "scheme")

    def __init__(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"", query: str = ""):
        self.method = method
        self.path = path  # without a query
        self.query = query  # what stands behind the question mark, as it came
        self.headers = headers  # names in lower case
        self.body = body
        self.address = ""  # from where it came
        self.scheme = "http"
        self.connection: HttpConnection | None = None

    @property
    def is_from_here(self) -> bool:
        """Whether it comes from this machine."""
        from ipaddress import IPv6Address, ip_address

        try:
            address = ip_address(self.address)
        except ValueError:
            return False
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return (mapped or address).is_loopback


class PreparedAnswer:
    """An answer with headers of its own."""

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(self, status: str, content_type: str, body: bytes, headers: Mapping[str, str]):
        self.status = status
        self.content_type = content_type
        self.body = body
        self.headers = headers


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
        self.remote_address, self.local_address = connection.remote_address, connection.local_address
        self.listener_name, self.principal = connection.listener_name, connection.principal
        self.last_active_ms = connection.last_active_ms
        self.is_reading_paused = self.is_unread = self.is_closing = False
        self.closing_since_ms = 0
        self.task: asyncio.Task[None] | None = None
        self._stream: HttpStream | None = None
        self._has_no_room = self._is_held = False
        self._received = bytearray()
        self.partial = PartialFrame(self.server, self)  # counts what has come, as of a frame
        self.partial.begun_ms = connection.last_active_ms
        self._request: HttpRequest | None = None  # as soon as its head is there
        self._body_bytes = 0

    @property
    def is_answering(self) -> bool:
        return self.task is not None or self._stream is not None

    @property
    def is_full(self) -> bool:
        """Whether the client has to read before a stream goes on."""
        return self._has_no_room or self._is_held or self.is_closing

    def data_received(self, data: bytes) -> None:
        if self.is_closing or self.is_answering:
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
            self._request.address = self.remote_address[0]
            if self.transport.get_extra_info("ssl_object") is not None:
                self._request.scheme = "https"
            self._request.connection = self
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
        headers: Mapping[str, str] = USUAL_HEADERS
        if isinstance(answer, tuple):
            status, content_type, body = answer
        elif isinstance(answer, PreparedAnswer):
            status, content_type, body, headers = answer.status, answer.content_type, answer.body, answer.headers
        else:
            self._begin(answer)
            return
        length = "" if status.startswith("304") else f"Content-Length: {len(body)}\r\n"  # that one has no body
        more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n{length}{more}Connection: close\r\n\r\n"
        is_head = self._request is not None and self._request.method == "HEAD"
        self.transport.write(head.encode() + (b"" if is_head else body))
        self.close()

    # Streams

    def _begin(self, stream: HttpStream) -> None:
        head = (
            f"HTTP/1.1 200 OK\r\nContent-Type: {stream.content_type}\r\nCache-Control: no-store\r\n"
            "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        )
        self.transport.set_write_buffer_limits(high=STREAM_UNSENT_BYTES_MAX)
        self.transport.write(head.encode())
        self._stream = stream
        stream.begin(self)

    def send(self, data: bytes) -> None:
        """Send the next piece of a stream."""
        if not self.is_closing:
            self.transport.write(data)

    def fail(self, error: Exception) -> None:
        """End a stream by an error of our own."""
        self.server.failed(self, error)
        self.close()

    def pause_writing(self) -> None:
        self._has_no_room = True

    def resume_writing(self) -> None:
        self._has_no_room = False
        self._go_on()

    def _go_on(self) -> None:
        if self._stream is not None and not self.is_full:
            self._stream.go_on()

    def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.end()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closing = True
        self._drop_received()
        self._end_stream()
        if self.task is not None:
            asyncio.get_running_loop().call_soon(self.task.cancel)  # it may not have been run yet
        self.server.closed(self)

    def pause(self) -> None:
        """Take nothing more from the client. Only of streams is there anything to hold: all else has been written."""
        self._is_held = True
        if not self.is_closing:
            self.transport.pause_reading()

    def resume(self) -> None:
        self._is_held = False
        if not self.is_closing:
            self.transport.resume_reading()
        self._go_on()

    def abort(self, reason: str) -> None:
        """Close the connection now; what it holds is free at once."""
        self.close(reason)
        self.transport.abort()

    def close(self, reason: str = "") -> None:
        if not self.is_closing:
            self.is_closing = True
            self._drop_received()
            self._end_stream()
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
    path, _, query = words[1].partition("?")
    return HttpRequest(words[0], path, headers, query=query)


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
