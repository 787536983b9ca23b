"""One client: bytes in, frames handed on one after the other, answers out in the same order.

Bytes are received into a buffer that all connections of a loop share, and frames are handled where they lie. Only what
is left of an unfinished frame moves into a buffer of the connection's own, and the rest of that frame is received
straight into it. So an idle connection holds no buffer, and the records of a large request are never copied. A frame
of many megabytes has the whole of its buffer when its first bytes are there, as a map whose pages come when they are
written: nothing is copied as it grows, and a turn of the loop receives a bounded piece of it.

What must hold: one request at a time. While it waits, or while the client does not read its answers, nothing more is
taken from the socket: a slow client slows itself. A length is judged before anything is kept for it, and memory
grows with what has come, not with what was announced. Of requests that came together a share is answered in a turn of
the loop, so that others are not kept waiting, and none of a client that has gone.
What an answer has of files is read as it is sent: a piece when the transport has room for it, a few in one turn of the
loop. So a client that does not read costs a piece or two, whatever it has asked for.
Views of a frame are good until the handler returns or first waits; whoever needs them longer copies them.
"""

from __future__ import annotations

import asyncio
from struct import Struct as Layout

from minibroker.clock.stretches import STRETCH_MS
from minibroker.errors import ProtocolError, StorageError
from minibroker.server.later import Later

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Mapping, Sequence
    from typing import Any, Protocol

    from minibroker.clock.stretches import Stretches
    from minibroker.server.buffers import Buffer
    from minibroker.server.http import HttpAnswer, HttpRequest
    from minibroker.server.server import Server
    from minibroker.turns import Shares

    class Stored(Protocol):
        """Bytes that are read when they are to be sent."""

        def __len__(self) -> int: ...

        def read(self, start: int, size_bytes: int) -> memoryview:
            """Return a piece; StorageError if it is not there any more."""
            ...

    Chunk = bytes | bytearray | memoryview
    AnyChunk = Chunk | Stored

    class Service(Protocol):
        """What a server does with whole frames."""

        shares: Shares
        stretches: Stretches

        def answer(self, frame: memoryview, connection: Connection) -> Answer: ...

        def disk_failed(self, failure: Exception) -> None:
            """Take note that a disk has refused something, so that there is no answer."""
            ...

        def http_refusal(self, request: HttpRequest) -> HttpAnswer | None:
            """Return what is answered to a head alone, whatever its body will be."""
            ...

        def http(self, request: HttpRequest) -> HttpAnswer | Coroutine[None, None, HttpAnswer]:
            """Return status, content type and body."""
            ...

    Answer = Sequence[AnyChunk] | None | Later | Coroutine[None, None, Sequence[AnyChunk] | None]

LENGTH = Layout(">i")
SHARED_BYTES = 256 * 1024
OWN_BYTES_MIN = 4 * 1024
FIRST_BYTES = 16 * 1024  # of a longer frame have to come before it gets its whole buffer
RECEIVE_BYTES = 1024 * 1024  # of a long frame in one turn of the loop
UNSENT_BYTES_MAX = 1024 * 1024  # from here on the client has to read before it gets more
JOIN_BYTES = 64 * 1024  # small answers leave in one piece
PIECE_BYTES = 1024 * 1024  # of large ones: read and written at once
TURN_BYTES = 1024 * 1024  # of them in one turn of the loop
LARGE_BYTES = PIECE_BYTES + JOIN_BYTES  # from here on: a piece and what stands around it leave together
PLAIN = {bytes, bytearray, memoryview}
HTTP_METHODS = {b"GET ", b"POST", b"PUT ", b"DELE", b"HEAD", b"OPTI"}  # as four bytes begin
TLS_HELLO = b"\x16\x03"
SHARE_REQUESTS = 64  # in one turn of the loop, or as many as begin within
SHARE_MS = 2
API = Layout(">4xh")


class Connection(asyncio.BufferedProtocol):
    """The protocol of one accepted socket."""

    may_be_toxic = True  # see faults/toxics.py

    def __init__(self, server: Server) -> None:
        self.server = server
        self.transport: asyncio.Transport = None  # type: ignore[assignment]  # until connection_made
        self.frame_bytes_max = server.frame_bytes_max
        self.local_address: tuple[str, int] = ("", 0)
        self.remote_address: tuple[str, int] = ("", 0)
        self.listener_name = server.listener_name
        self.client_software: tuple[str, str] = ("", "")  # name and version, from ApiVersions
        self.last_fetch: tuple[str | None, Mapping[Any, Any]] | None = (
            None  # client id, and what it wants, fetch_offset each
        )
        self.is_closing = False
        self.last_active_ms = server.steady_ms()
        self.frame_begun_ms = 0  # when the first byte of an unfinished frame came; 0: there is none
        self.closing_since_ms = 0
        self._own: Buffer = bytearray()  # an unfinished frame, or frames that wait for their turn
        self._own_end = 0
        self.held_bytes = 0  # of memory, by `_own`, as the server counts it
        self.task: asyncio.Task[None] | Later | None = None  # the request that waits
        self._may_write = True  # nothing is left of the last answer but what the transport has
        self.is_full = False  # the transport's buffer
        self._reads = True
        self._is_first = True
        self._rests = False  # until it is its turn again: much has come at once
        self._is_taking = False  # answers are collected, to leave together when all that has come is handled
        self._unsent: list[AnyChunk] = []
        self._unsent_bytes = 0
        self._pieces: Iterator[list[Chunk]] | None = None  # what is left of a large answer
        self._has_ended = False  # the client sends nothing any more, and is still to get the rest of an answer

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        self.local_address = (transport.get_extra_info("sockname") or ("", 0))[:2]
        self.remote_address = (transport.get_extra_info("peername") or ("", 0))[:2]
        self.server.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._own_end:
            return memoryview(self._own)[self._own_end : self._own_end + RECEIVE_BYTES]
        return self.server.shared_buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._own_end:
            self._own_end += nbytes
            if self._own_end > self.held_bytes:
                self._hold(self._own_end)
                if self.is_closing:
                    return
            if nbytes == RECEIVE_BYTES and not self._rests:
                self._rest()  # there is more, and uvloop would go on receiving it
            self._take_own()
        else:
            received = self.server.shared_buffer[:nbytes]
            used = self._take(received)
            if used < nbytes:
                self._keep(received[used:])

    def eof_received(self) -> bool:
        """Return whether the connection stays open: until the rest of an answer has left."""
        self._has_ended = self._pieces is not None
        return self._has_ended

    def pause_writing(self) -> None:
        self.is_full = True
        self._may_write = False

    def resume_writing(self) -> None:
        self.is_full = False
        self._may_write = self._pieces is None
        self.last_active_ms = self.server.steady_ms()
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closing = True
        if self.task is not None:
            # Not now: a task that was never run would leave behind what it was to wait for.
            asyncio.get_running_loop().call_soon(self.task.cancel)
        self._drop_own()
        self._pieces = None
        self._unsent = []
        self.server.closed(self)

    # Frames

    def _take(self, received: memoryview) -> int:
        """Handle every whole frame as long as none waits; return how many bytes are done with."""
        self._is_taking = True
        position = self._take_frames(received)
        self._is_taking = False
        self._send()
        return position

    def _take_frames(self, received: memoryview) -> int:
        position, end, count = 0, len(received), SHARE_REQUESTS
        steady_ms = self.server.steady_ms
        begun_ms = now_ms = self.last_active_ms = steady_ms()
        while not self._is_busy and end - position >= 4:
            if now_ms - begun_ms >= SHARE_MS or not count:
                self._rest()
                break
            if position and self.transport.is_closing():
                break  # an answer could not be written: we shall be told that the client has gone
            if self._is_first and not self._is_kafka(received):
                return end
            (length,) = LENGTH.unpack_from(received, position)
            if not 0 <= length <= self.frame_bytes_max:
                self.close(f"a frame of {length} bytes; {self.frame_bytes_max} are allowed")
                return end
            frame_end = position + 4 + length
            if frame_end > end:
                break
            self._handle(received[position + 4 : frame_end])
            before_ms, now_ms = now_ms, steady_ms()
            if now_ms - before_ms >= STRETCH_MS:
                self.server.service.stretches.note(API.unpack_from(received, position)[0], now_ms - before_ms)
            position = frame_end
            count -= 1
        return end if self.is_closing else position

    def _take_own(self) -> None:
        used = self._take(memoryview(self._own)[: self._own_end])
        if used:
            self.frame_begun_ms = 0  # what is left is another frame
        self._keep(memoryview(self._own)[used : self._own_end])

    @property
    def is_waiting(self) -> bool:
        """Whether it is our turn: a request is being answered, or will be."""
        return self.task is not None or self._rests

    @property
    def is_deaf(self) -> bool:
        """Whether nothing is read now, so that we would not learn that the client has gone."""
        return not self._reads

    @property
    def is_unread(self) -> bool:
        """Whether the client has to read answers before we look at what it asks next."""
        return not self._may_write

    @property
    def is_fresh(self) -> bool:
        """Whether nothing has come yet, so that it may still turn out to be HTTP."""
        return self._is_first and not self._own_end

    @property
    def came_bytes(self) -> int:
        """How much of an unfinished frame there is."""
        return self._own_end

    @property
    def _is_busy(self) -> bool:
        return self.task is not None or not self._may_write or self.is_closing or self._rests or self.server.is_paused

    def _rest(self) -> None:
        """Let others have their turn before the next frame."""
        self._rests = True
        self.server.service.shares.add(self._end_rest)

    def _end_rest(self) -> None:
        self._rests = False
        self._go_on()

    def _is_kafka(self, received: memoryview) -> bool:
        """Look at the first bytes of all: no frame length can look like these."""
        self._is_first = False
        if bytes(received[:4]) in HTTP_METHODS:
            from minibroker.server.http import HttpConnection

            http = HttpConnection(self)
            self.transport.set_protocol(http)
            self.server.replaced(self, http)
            self.is_closing = True
            http.data_received(bytes(received))
            return False
        if received[:2] == TLS_HELLO:
            self.close("a TLS hello on a plaintext port: the client has to be set to PLAINTEXT")
            return False
        return True

    def _keep(self, rest: memoryview) -> None:
        """Move what is left to the front of a buffer of our own, with room for the frame that it begins."""
        size_bytes = len(rest)
        if not size_bytes:
            self._drop_own()
            return
        if self._is_busy and self._reads:
            self.transport.pause_reading()
            self._reads = False
        wanted_bytes = OWN_BYTES_MIN
        if size_bytes >= 4:
            wanted_bytes = LENGTH.unpack_from(rest)[0] + 4
            if wanted_bytes > FIRST_BYTES > size_bytes:
                wanted_bytes = FIRST_BYTES
        wanted_bytes = max(wanted_bytes, size_bytes + 1)
        begun_ms = self.frame_begun_ms or self.last_active_ms
        if rest.obj is self._own and len(self._own) >= wanted_bytes:
            if rest.nbytes != self._own_end:
                self._own[:size_bytes] = bytes(rest)
        else:
            try:
                buffer, held_bytes = self.server.buffers.take(wanted_bytes)
            except (OSError, MemoryError):
                self._drop_own()
                self.close(f"there is no memory for a request of {wanted_bytes} bytes")
                return
            buffer[:size_bytes] = rest
            self._drop_own()
            self._own = buffer
            self._hold(max(held_bytes, size_bytes))
            if self.is_closing:  # to make room for it
                return
        self._own_end = size_bytes
        self.frame_begun_ms = begun_ms

    def _hold(self, size_bytes: int) -> None:
        """Let the server know how much is held now; we may be closed for it."""
        more_bytes, self.held_bytes = size_bytes - self.held_bytes, size_bytes
        self.server.hold(more_bytes, self)

    def _drop_own(self) -> None:
        if self._own:
            self.server.buffers.give(self._own, self.held_bytes)
            self._own = bytearray()
            self._hold(0)
        self._own_end = 0
        self.frame_begun_ms = 0

    def _handle(self, frame: memoryview) -> None:
        try:
            answer = self.server.service.answer(frame, self)
        except Exception as error:
            self._fail(error, "read")
            return
        if type(answer) is Later:
            self.task = answer
            answer.then(self._take_answer)
        elif asyncio.iscoroutine(answer):
            self.task = asyncio.get_running_loop().create_task(self._finish(answer))
        elif answer is not None:
            self.write(answer)  # type: ignore[arg-type]

    async def _finish(self, waiting: Coroutine[None, None, Sequence[AnyChunk] | None]) -> None:
        try:
            answer = await waiting
        except asyncio.CancelledError:
            return
        except Exception as error:
            self._fail(error, "answer")
            return
        finally:
            self.task = None
        self._answered(answer)

    def _take_answer(self, later: Later) -> None:
        self.task = None
        try:
            answer = later.result()
        except Exception as error:
            self._fail(error, "answer")
            return
        self._answered(answer)

    def _fail(self, error: Exception, doing: str) -> None:
        if isinstance(error, ProtocolError):
            self.close(f"cannot {doing} a request: {error}")
        elif isinstance(error, StorageError):
            self.server.service.disk_failed(error)
            self.close("its request cannot be answered: nobody knows what the disk holds")
        else:
            self.server.failed(self, error)
            self.close("an error of our own")

    def _answered(self, answer: Sequence[AnyChunk] | None) -> None:
        if not self.is_closing:
            self.last_active_ms = self.server.steady_ms()
            if answer is not None:
                self.write(answer)
            self._go_on()

    def _go_on(self) -> None:
        """Send the rest of an answer, then handle the frames that have come meanwhile."""
        if self._pieces is not None:
            self._send_pieces()
        if self._is_busy:
            return
        if self._own_end:
            self._take_own()
        if not self._reads and not self._is_busy:
            self._reads = True
            self.transport.resume_reading()

    def pause(self) -> None:
        """Take nothing more from the client."""
        if self._reads and not self.is_closing:
            self.transport.pause_reading()
            self._reads = False

    def resume(self) -> None:
        """Send what has waited, and go on."""
        if not self.is_closing:
            self._send()
        self._go_on()

    # Answers

    def write(self, chunks: Sequence[AnyChunk]) -> None:
        """Send the chunks in order; large ones are not joined. Before what is to be read comes something else."""
        for chunk in chunks:
            self._unsent_bytes += len(chunk)
        self._unsent += chunks
        if not self._is_taking or self._unsent_bytes > JOIN_BYTES:
            self._send()

    def _send(self) -> None:
        if not self._unsent or self.server.is_paused or self._pieces is not None:
            return
        chunks, size_bytes = self._unsent, self._unsent_bytes
        self._unsent, self._unsent_bytes = [], 0
        if size_bytes > LARGE_BYTES or (len(chunks) > 1 and not PLAIN.issuperset(map(type, chunks))):
            self._pieces = _in_pieces(chunks)
            self._may_write = False
            self._send_pieces()
            return
        self.server.sent_bytes += size_bytes
        if len(chunks) == 1:
            self.transport.write(chunks[0])  # type: ignore[arg-type]
        elif size_bytes <= JOIN_BYTES:
            self.transport.write(b"".join(chunks))  # type: ignore[arg-type]
        else:
            self.server.write_chunks(self.transport, chunks)  # type: ignore[arg-type]

    def _send_pieces(self) -> None:
        """Write what is left of a large answer, as long as there is room and for one turn of the loop."""
        pieces, server, left_bytes = self._pieces, self.server, TURN_BYTES
        assert pieces is not None
        try:
            while not (self.is_full or server.is_paused or self.transport.is_closing()):
                if left_bytes <= 0:
                    if not self._rests:
                        self._rest()
                    return
                piece = next(pieces, None)
                if piece is None:
                    self._end_pieces()
                    return
                size_bytes = sum(map(len, piece))
                left_bytes -= size_bytes
                server.sent_bytes += size_bytes
                if len(piece) == 1:
                    self.transport.write(piece[0])
                else:
                    server.write_chunks(self.transport, piece)
        except StorageError as failure:
            self._pieces, self._unsent = None, []
            self.close(f"the rest of an answer cannot be read: {failure}")
            self.transport.close()  # who was closing already, too

    def _end_pieces(self) -> None:
        self._pieces = None
        self._may_write = not self.is_full
        self._send()
        if (self.is_closing or self._has_ended) and self._pieces is None:
            self.transport.close()

    def abort(self, reason: str) -> None:
        """Close the connection now, and not when its answers have been read; what it holds is free at once."""
        self.close(reason)
        self._drop_own()
        self.transport.abort()

    def close(self, reason: str = "") -> None:
        """Close the connection; what has been written still leaves."""
        if not self.is_closing:
            self._send()
            self.is_closing = True
            self.closing_since_ms = self.server.steady_ms()
            if reason:
                self.server.say(f"{self.remote_address[0]}:{self.remote_address[1]}: closed: {reason}")
            if self._pieces is None:
                self.transport.close()


def _in_pieces(chunks: Sequence[AnyChunk]) -> Iterator[list[Chunk]]:
    """Yield what is written at once; what is to be read is read then."""
    piece: list[Chunk] = []
    left_bytes = PIECE_BYTES
    for chunk in chunks:
        position, end = 0, len(chunk)
        while position < end:
            size_bytes = min(end - position, left_bytes)
            if type(chunk) not in PLAIN:
                piece.append(chunk.read(position, size_bytes))  # type: ignore[union-attr]
            elif size_bytes == end:
                piece.append(chunk)  # type: ignore[arg-type]
            else:
                piece.append(memoryview(chunk)[position : position + size_bytes])  # type: ignore[arg-type]
            position += size_bytes
            left_bytes -= size_bytes
            if not left_bytes:
                yield piece
                piece, left_bytes = [], PIECE_BYTES
    if piece:
        yield piece


def read_whole(chunk: AnyChunk) -> Chunk:
    """Return all bytes of a chunk of an answer."""
    return chunk if type(chunk) in PLAIN else chunk.read(0, len(chunk))  # type: ignore[union-attr, return-value]
