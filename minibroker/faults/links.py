"""A connection with toxics: what stands between its transport and its protocol.

    socket ── transport ── Link ─ upstream stages ──▶ Connection
                 ▲           └── downstream stages ◀──┘

To the transport a link is the protocol, to the connection the transport. It is there as long as one of its toxics is,
then the two are joined again. HTTP goes through untouched, or nobody could take a toxic away: so nothing happens
before the first four bytes tell what a connection is.
What must hold: bytes keep their order. Who writes too much is told so, and of a client that sends too much no more is
taken; what the stages hold stays below a mebibyte and a piece in each direction.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Iterable
from struct import Struct as Layout
from typing import Any

from minibroker.clock import CHORE
from minibroker.server.connection import HTTP_METHODS, Connection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random

    from minibroker.clock import Clock, Timer
    from minibroker.server.large_answer import Chunk

UPSTREAM, DOWNSTREAM = "upstream", "downstream"
BUFFER_BYTES = 64 * 1024
HELD_BYTES_MAX = 1024 * 1024
FIRST_BYTES = 4
LINGER = Layout("ii")  # on, seconds


class Stage:
    """One toxic on one direction of one connection. `feed` gets bytes, `finish` the end; both go on to the next."""

    def __init__(self, attributes: dict[str, int], clock: Clock, chance: Random):
        self.attributes = attributes
        self.clock = clock
        self.chance = chance
        # Set by the link: where the bytes go, how the connection is closed and how it is reset.
        self.out: Callable[[bytes], object]
        self.end: Callable[[], object]
        self.close: Callable[[], object]
        self.reset: Callable[[], object]
        self.held_bytes = 0
        self._held: deque[bytes] = deque()  # in order; an empty one is the end of the stream
        self._timer: Timer | None = None

    def start(self) -> None:
        """Begin: the connection is there, and is a client's."""

    def feed(self, data: bytes) -> None:
        self.out(data)

    def finish(self) -> None:
        if self._held:
            self._hold(b"")
        else:
            self.end()

    def leave(self) -> None:
        """Pass on what is held: the toxic has been taken away."""
        self.stop()
        while self._held:
            self._pass_one()

    def stop(self) -> None:
        """Do nothing more: the connection has gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hold(self, data: bytes) -> None:
        self._held.append(data)
        self.held_bytes += len(data)

    def _pass_one(self) -> None:
        """Pass on what has been held longest."""
        data = self._held.popleft()
        self.held_bytes -= len(data)
        if data:
            self.out(data)
        else:
            self.end()

    def _after(self, delay_ms: float, act: Callable[[], object]) -> None:
        def due() -> None:
            self._timer = None
            act()

        self._timer = self.clock.after(delay_ms, due, CHORE)  # also when time is moved: nobody is asked


class Link(asyncio.BufferedProtocol):
    """The stages of one connection."""

    def __init__(self, connection: Connection, gone: Callable[[Connection], object]):
        self.connection = connection
        self.transport = connection.transport
        self._gone = gone
        self._stages: dict[str, dict[str, Stage]] = {UPSTREAM: {}, DOWNSTREAM: {}}
        self._buffer = memoryview(bytearray(BUFFER_BYTES))  # TLS receives into slices of it
        self._first = bytearray()
        self._is_decided = not connection.has_received_nothing
        self._inbox: list[bytes] = []  # what the connection does not want to read now
        self._wants_pause = connection.is_reading_paused
        self._is_paused = connection.is_reading_paused  # the transport's reading
        self._is_full = connection.is_full  # the transport's buffer
        self._has_told_full = connection.is_full
        self._is_delivering = False
        self._is_closing = self._is_parted = self._is_leaving = False
        connection.transport = self  # type: ignore[assignment]
        self.transport.set_protocol(self)

    # Stages

    def add(self, name: str, stream: str, stage: Stage) -> None:
        self._stages[stream][name] = stage
        stage.close = self.transport.close
        stage.reset = self.reset
        self._join(stream)
        if self._is_decided:
            stage.start()

    def remove(self, name: str) -> None:
        for stream, stages in self._stages.items():
            stage = stages.get(name)
            if stage is not None:
                # Nobody may go on before the stage is out of the way: what he writes would land in it, or overtake.
                self._is_leaving = True
                stage.leave()
                self._is_leaving = False
                del stages[name]
                self._join(stream)
        self._update()
        self._leave_if_idle()

    def _join(self, stream: str) -> None:
        """Let each stage pass on to the next, and the last to where the bytes are meant to go."""
        out, end = (self._deliver, self.close) if stream == UPSTREAM else (self._send, self.transport.close)
        for stage in reversed(self._stages[stream].values()):
            stage.out, stage.end = out, end
            out, end = stage.feed, stage.finish

    def _first_of(self, stream: str) -> Stage | None:
        return next(iter(self._stages[stream].values()), None)

    def _held_bytes(self, stream: str) -> int:
        return sum(stage.held_bytes for stage in self._stages[stream].values())

    def _leave_if_idle(self) -> None:
        """Join transport and connection again when there is nothing left to do."""
        if not (any(self._stages.values()) or self._inbox or self._is_delivering or self._is_parted):
            first = bytes(self._first)
            self._part()
            if first:
                _give(self.connection, first)

    def _part(self) -> None:
        self._is_parted = True
        self._gone(self.connection)
        self.connection.transport = self.transport
        self.transport.set_protocol(self.connection)

    # From the transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._buffer[:nbytes])
        if not self._is_decided:
            self._first += data
            if len(self._first) < FIRST_BYTES:
                return
            data = bytes(self._first)
            self._first.clear()
            if data[:FIRST_BYTES] in HTTP_METHODS:
                self._part()
                _give(self.connection, data)
                return
            self._is_decided = True
            for stages in self._stages.values():
                for stage in stages.values():
                    stage.start()
        first = self._first_of(UPSTREAM)
        (self._deliver if first is None else first.feed)(data)
        self._update()

    def eof_received(self) -> bool:
        stage = self._first_of(UPSTREAM)
        if stage is None or not self._is_decided:
            return self.connection.eof_received()
        stage.finish()
        # The stages decide when it is closed; with TLS it is closed at once, whatever is said here.
        return self.transport.get_extra_info("sslcontext") is None

    def pause_writing(self) -> None:
        self._is_full = True
        self._update()

    def resume_writing(self) -> None:
        self._is_full = False
        self._update()

    def connection_lost(self, exc: Exception | None) -> None:
        for stages in self._stages.values():
            for stage in stages.values():
                stage.stop()
        self._gone(self.connection)
        self.connection.transport = self.transport
        self.connection.connection_lost(exc)

    # What the connection calls

    def write(self, data: Chunk) -> None:
        stage = self._first_of(DOWNSTREAM)
        (self._send if stage is None else stage.feed)(bytes(data))  # a view of a file need not be there later
        self._update()

    def writelines(self, chunks: Iterable[Chunk]) -> None:
        self.write(b"".join(chunks))

    def pause_reading(self) -> None:
        self._wants_pause = True
        self._update()

    def resume_reading(self) -> None:
        self._wants_pause = False
        if self._inbox:
            asyncio.get_running_loop().call_soon(self._deliver, b"")
        self._update()

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            stage = self._first_of(DOWNSTREAM)
            (self.transport.close if stage is None else stage.finish)()

    def abort(self) -> None:
        self.transport.abort()

    def reset(self) -> None:
        """End it as a machine that crashes does."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            # uvloop hands out something that knows no options.
            with socket.fromfd(sock.fileno(), sock.family, sock.type) as same:
                same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER.pack(1, 0))
        self.transport.abort()

    def is_closing(self) -> bool:
        return self._is_closing or self.transport.is_closing()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.transport.set_protocol(protocol)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.transport.get_extra_info(name, default)

    # Where the stages end

    def _send(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)
        self._update()

    def _deliver(self, data: bytes) -> None:
        """Hand bytes to the connection as long as it reads."""
        if data:
            self._inbox.append(data)
        if self._is_delivering:
            return
        self._is_delivering = True
        while self._inbox and not self._wants_pause and not self.connection.is_closing:
            self._inbox[0] = _give_some(self.connection, self._inbox[0])
            if not self._inbox[0]:
                del self._inbox[0]
        self._is_delivering = False
        self._update()
        self._leave_if_idle()

    def _update(self) -> None:
        """Pause and go on, on both sides, as far as what is held makes it necessary."""
        if self._is_leaving or self.transport.is_closing():
            return
        held_bytes = sum(map(len, self._inbox)) + self._held_bytes(UPSTREAM)
        has_to_pause = self._wants_pause or held_bytes > HELD_BYTES_MAX
        if has_to_pause != self._is_paused:
            self._is_paused = has_to_pause
            (self.transport.pause_reading if has_to_pause else self.transport.resume_reading)()
        is_full = self._is_full or self._held_bytes(DOWNSTREAM) > HELD_BYTES_MAX
        if is_full != self._has_told_full:
            self._has_told_full = is_full
            (self.connection.pause_writing if is_full else self.connection.resume_writing)()


def _give(connection: Connection, data: bytes) -> None:
    """Let a connection that reads take bytes."""
    while data and not connection.is_closing:
        data = _give_some(connection, data)


def _give_some(connection: Connection, data: bytes) -> bytes:
    """Let a connection take what it has room for; return the rest."""
    buffer = connection.get_buffer(-1)
    size_bytes = min(len(buffer), len(data))
    buffer[:size_bytes] = data[:size_bytes]
    connection.buffer_updated(size_bytes)
    return data[size_bytes:]
