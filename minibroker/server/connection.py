"""One client: bytes in, frames handed on one after the other, answers out in the same order.

Bytes are received into a buffer that all connections of a loop share, and frames are handled where they lie. Only what
is left of an unfinished frame moves into a buffer of the connection's own (buffers.py), and the rest of that frame is
received straight into it. So an idle connection holds no buffer, and the records of a large request are never copied.

What must hold: one request at a time. While it waits, or while the client does not read its answers, nothing more is
taken from the socket: a slow client slows itself. A length is judged before anything is kept for it, and memory
grows with what has come, not with what was announced. Of requests that came together a share is answered in a turn of
the loop, so that others are not kept waiting, and none of a client that has gone.
A large answer leaves in pieces (large_answer.py).
Views of a frame are good until the handler returns or first waits; whoever needs them longer copies them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from struct import Struct as Layout
from typing import Any, Protocol

from minibroker.clock import REQUEST
from minibroker.clock.broker_clock import STRETCH_MS, Stretches
from minibroker.errors import ProtocolError, StorageError
from minibroker.security.principal import ANONYMOUS
from minibroker.server.buffers import RECEIVE_BYTES, PartialFrame
from minibroker.server.large_answer import JOIN_BYTES, LARGE_BYTES, PLAIN, TURN_BYTES, pieces_of
from minibroker.server.later import Later

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.clock import Timer
    from minibroker.security.sasl import Session
    from minibroker.server.http import HttpAnswer, HttpRequest
    from minibroker.server.large_answer import AnyChunk, Chunk
    from minibroker.server.server import Server
    from minibroker.turns import Shares

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
UNSENT_BYTES_MAX = 1024 * 1024  # from here on the client has to read before it gets more
HTTP_METHODS = {b"GET ", b"POST", b"PUT ", b"DELE", b"HEAD", b"OPTI"}  # as four bytes begin
TLS_HELLO = b"\x16\x03"
SHARE_REQUESTS = 64  # in one turn of the loop, or as many as begin within
SHARE_MS = 2
API = Layout(">4xh")


class Connection(asyncio.BufferedProtocol):
    """The protocol of one accepted socket."""

    may_be_toxic = True  # see faults/toxics.py
    is_admitted = False  # by the limits of connections, before it was one
    principal = ANONYMOUS  # who the client is, where it has said and proved it
    session: Session | None = None  # of its login by SASL, where the listener asks for one
    _muted_until_ms = 0

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
        self.closing_since_ms = 0
        self.partial = PartialFrame(server, self)  # an unfinished frame, or frames that wait for their turn
        self.task: asyncio.Task[None] | Later | None = None  # the request that waits
        self._may_write = True  # nothing is left of the last answer but what the transport has
        self.is_full = False  # the transport's buffer
        self._reads = True
        self._is_first = True
        self._rests = False  # until it is its turn again: much has come at once
        self._is_held = server.is_paused  # nothing is taken: that, or the client has used up a quota
        self._is_muted = False
        self._mute: Timer | None = None  # until that is over
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
        return self.partial.room() if self.partial.size_bytes else self.server.shared_buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.partial.size_bytes:
            self.partial.received(nbytes)
            if self.is_closing:
                return
            if nbytes == RECEIVE_BYTES and not self._rests:
                self._rest()  # there is more, and uvloop would go on receiving it
            self._take_partial()
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
        if self._mute is not None:
            self._mute.cancel()
        self.partial.drop()
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

    def _take_partial(self) -> None:
        received = self.partial.view()
        used = self._take(received)
        if used:
            self.partial.begun_ms = 0  # what is left is another frame
        self._keep(received[used:])

    def _keep(self, rest: memoryview) -> None:
        """Keep what cannot be handled now; more is not received before it can be."""
        if len(rest) and self._is_busy and self._reads:
            self.transport.pause_reading()
            self._reads = False
        self.partial.keep(rest)

    @property
    def is_answering(self) -> bool:
        """Whether it is our turn: a request is being answered, or will be."""
        return self.task is not None or self._rests or self._is_muted

    @property
    def is_reading_paused(self) -> bool:
        """Whether nothing is read now, so that we would not learn that the client has gone."""
        return not self._reads

    @property
    def is_unread(self) -> bool:
        """Whether the client has to read answers before we look at what it asks next."""
        return not self._may_write

    @property
    def has_received_nothing(self) -> bool:
        """Whether it may still turn out to be HTTP."""
        return self._is_first and not self.partial.size_bytes

    @property
    def _is_busy(self) -> bool:
        return self.task is not None or not self._may_write or self.is_closing or self._rests or self._is_held

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

    def _handle(self, frame: memoryview) -> None:
        try:
            answer = self.server.service.answer(frame, self)
        except Exception as error:
            self._fail(error, "read")
            return
        if type(answer) is list:  # nearly always
            self.write(answer)
        elif type(answer) is Later:
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
            self._send_pieces(self._pieces)
        if self._is_busy:
            return
        if self.partial.size_bytes:
            self._take_partial()
        if not self._reads and not self._is_busy:
            self._reads = True
            self.transport.resume_reading()

    def pause(self) -> None:
        """Take nothing more from the client."""
        self._is_held = True
        if self._reads and not self.is_closing:
            self.transport.pause_reading()
            self._reads = False

    def resume(self) -> None:
        """Send what has waited, and go on."""
        self._is_held = self._is_muted
        if not self.is_closing:
            self._send()
        self._go_on()

    def mute(self, delay_ms: int = 0) -> None:
        """Take nothing more from the client for so long, or until `unmute`; what it is answered leaves all the same.

        Of several delays the one that ends last counts.
        """
        self._is_muted = self._is_held = True
        if delay_ms:
            until_ms = self.server.clock.elapsed_ms() + delay_ms
            if until_ms <= self._muted_until_ms:
                return
            if self._mute is not None:
                self._mute.cancel()
            self._muted_until_ms = until_ms
            self._mute = self.server.clock.after(delay_ms, self.unmute, REQUEST)

    def unmute(self) -> None:
        """Go on with what has come meanwhile."""
        self._is_muted, self._mute, self._muted_until_ms = False, None, 0
        self._is_held = self.server.is_paused
        self.last_active_ms = self.server.steady_ms()
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
            self._pieces = pieces_of(chunks)
            self._may_write = False
            self._send_pieces(self._pieces)
            return
        self.server.sent_bytes += size_bytes
        if len(chunks) == 1:
            self.transport.write(chunks[0])  # type: ignore[arg-type]
        elif size_bytes <= JOIN_BYTES:
            self.transport.write(b"".join(chunks))  # type: ignore[arg-type]
        else:
            self.server.write_chunks(self.transport, chunks)  # type: ignore[arg-type]

    def _send_pieces(self, pieces: Iterator[list[Chunk]]) -> None:
        """Write what is left of a large answer, as long as there is room and for one turn of the loop."""
        server, left_bytes = self.server, TURN_BYTES
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
        self.partial.drop()
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
