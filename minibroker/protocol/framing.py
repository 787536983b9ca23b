"""Bytes as they arrive -> frames -> header and message; and the way back.

    frame   length int32 | header | message          (the length counts what follows it)

No I/O: a connection feeds bytes in and takes whole frames out. A length is judged when its four bytes are there,
before anything is kept for it; a frame length can never look like "GET " or a TLS hello, as both exceed every limit.

Not here: what an unknown API or version deserves (ApiVersions is special there), which is the server's to decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct as Layout

from minibroker.errors import InvalidLength
from minibroker.protocol.headers import Request, RequestHeader, Response, ResponseHeader
from minibroker.protocol.registry import request_class, response_class

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

FRAME_BYTES_MAX: Final = 104857600  # Kafka's socket.request.max.bytes
LENGTH: Final = Layout(">i")
API_AND_VERSION: Final = Layout(">hh")


class FrameReader:
    """Cuts a stream into frames."""

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX):
        self.frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self._position = 0  # of the stream's first byte in the buffer, for error messages

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """Take bytes as they came and give every frame that they complete, without its length."""
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= LENGTH.size:
                end = start + LENGTH.size + self._length(start)
                if len(self._buffer) < end:
                    return
                frame = bytes(memoryview(self._buffer)[start + LENGTH.size : end])
                start = end
                yield frame
        finally:
            del self._buffer[:start]
            self._position += start

    @property
    def pending_bytes(self) -> int:
        """How many bytes of an unfinished frame are waiting for the rest."""
        return len(self._buffer)

    def _length(self, start: int) -> int:
        length: int = LENGTH.unpack_from(self._buffer, start)[0]
        if not 0 <= length <= self.frame_bytes_max:
            raise InvalidLength(
                f"{length} is not a length between 0 and {self.frame_bytes_max}", self._position + start, "frame"
            )
        return length


def decode_request(frame: bytes | memoryview) -> tuple[RequestHeader, Request]:
    """Read a request and its header from a frame without its length."""
    version, cls, header_version = identify(frame)
    header, position = RequestHeader.decode_from(frame, 0, header_version)
    return header, cls.decode(memoryview(frame)[position:], version)


def identify(frame: bytes | memoryview) -> tuple[int, type[Request], int]:
    """Return version, class and header version of a request from the first bytes of its frame."""
    if len(frame) < API_AND_VERSION.size:
        raise InvalidLength(f"a frame of {len(frame)} bytes has no room for a request header", 0, "RequestHeader")
    api, version = API_AND_VERSION.unpack_from(frame, 0)
    cls = request_class(api)
    return version, cls, cls.header_version(cls.schema.check(cls, version))


def decode_response(frame: bytes | memoryview, api: int, version: int) -> tuple[ResponseHeader, Response]:
    """Read the response to a request of this API and version: the frame alone does not tell."""
    cls = response_class(api)
    header, position = ResponseHeader.decode_from(frame, 0, cls.header_version(cls.schema.check(cls, version)))
    return header, cls.decode(memoryview(frame)[position:], version)


def encode_request(
    request: Request, version: int, correlation_id: int, client_id: str | None
) -> list[bytes | memoryview]:
    """Return a whole frame in pieces, `Records` values among them as they were given."""
    header = RequestHeader(
        request_api_key=request.api,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return _frame(header.encode(request.header_version(version)), request.encode_chunks(version))


def encode_response(response: Response, version: int, correlation_id: int) -> list[bytes | memoryview]:
    """Return a whole frame in pieces, `Records` values among them as they were given."""
    header = ResponseHeader(correlation_id=correlation_id)
    return _frame(header.encode(response.header_version(version)), response.encode_chunks(version))


def _frame(header: bytes, chunks: list[bytes | memoryview]) -> list[bytes | memoryview]:
    if len(chunks) == 1 and type(chunks[0]) is bytes:
        return [LENGTH.pack(len(header) + len(chunks[0])) + header + chunks[0]]
    length = len(header) + sum(map(len, chunks))
    return [LENGTH.pack(length) + header, *chunks]
