"""TCP in memory: listeners by host and port, connections, and the time and trouble on them.

Bytes arrive after `delay_ms`, in pieces if `max_piece_bytes` is set. `cut(port)` lets a listener's connections hang as
a cable does that was pulled; `reset(port)` breaks them. An end of a connection does what asyncio's transports do:
protocols of both kinds, flow control in both directions, ends that are half closed.
What must hold: bytes that were handed to it arrive, in order and once, though their sender is killed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from random import Random
from typing import Any

from minibroker.simulation.processes import CURRENT

Address = tuple[str, int]

ACCEPTED_PORTS, FREE_PORTS = 50_000, 30_000
HERE = "127.0.0.1"
EVERYWHERE = ("", "0.0.0.0", "::")
WINDOW_BYTES = 256 * 1024  # so much is with the systems of both sides before a sender has to keep it
LIMIT_BYTES = 64 * 1024
FIN, RESET = b"fin", b"reset"  # told from data by identity
NO_PROCESS = Context()


class Sockets:
    """The network between clients and listeners in one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, chance: Random):
        self.delay_ms: tuple[float, float] = (0.05, 0.15)  # from, to; drawn for each piece
        self.max_piece_bytes = 0  # more is torn into pieces of 1 byte to so many; 0: as it was written
        self.watch: Callable[[SimulatedTransport, bytes], object] | None = None  # told of all that arrives
        self.sent_bytes = 0
        self._loop = loop
        self._chance = chance
        self._listeners: dict[Address, SimulatedServer] = {}
        self._next_port = FREE_PORTS
        self._next_client = ACCEPTED_PORTS
        self._cut: dict[int, None] = {}
        self.transports: dict[SimulatedTransport, None] = {}

    # Listening and connecting

    def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, start_serving: bool
    ) -> SimulatedServer:
        host = _plain(host)
        if not port:
            self._next_port += 1
            port = self._next_port
        if self._find(host, port) is not None or (host == "" and any(p == port for _, p in self._listeners)):
            raise OSError(98, f"address in use: {host}:{port}")
        server = SimulatedServer(self, factory, (host, port))
        self._listeners[host, port] = server
        if start_serving:
            server.is_open = True
        return server

    def forget(self, server: SimulatedServer) -> None:
        self._listeners.pop(server.address, None)

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[SimulatedTransport, asyncio.BaseProtocol]:
        await asyncio.sleep(2 * self.delay_s())
        while port in self._cut:  # the caller's patience ends this
            await asyncio.sleep(1)
        server = self._find(_plain(host), port)
        if server is None or not server.is_open:
            raise ConnectionRefusedError(111, f"nobody listens at {host}:{port}")
        self._next_client += 1
        here, there = (HERE, self._next_client), (_plain(host) or HERE, port)
        protocol = factory()
        client = SimulatedTransport(self, here, there, port)
        accepted = SimulatedTransport(self, there, here, port, context=server.context)
        client.other, accepted.other = accepted, client
        self._loop.call_soon(server.accept, accepted, context=server.context)
        client.begin(protocol)
        return client, protocol

    def _find(self, host: str, port: int) -> SimulatedServer | None:
        return self._listeners.get((host, port)) or self._listeners.get(("", port))

    # Trouble

    def delay_s(self) -> float:
        low, high = self.delay_ms
        return (low if low == high else self._chance.uniform(low, high)) / 1000

    def cut(self, port: int) -> None:
        """Let nothing pass to or from a listener, its connections included, until `heal`."""
        self._cut[port] = None

    def heal(self, port: int) -> None:
        """Let pass again; what was sent meanwhile arrives now."""
        self._cut.pop(port, None)
        for transport in list(self.transports):
            if transport.port == port:
                transport.wake()

    def is_cut(self, port: int) -> bool:
        return port in self._cut

    def reset(self, port: int) -> None:
        """Break every connection to a listener."""
        for transport in list(self.transports):
            if transport.port == port and transport in self.transports:
                transport.vanish()

    def close(self) -> None:
        """The loop is closed: what is thrown away later finds its connection closed."""
        for transport in list(self.transports):
            transport.forget()

    def pieces(self, data: bytes) -> Iterable[bytes]:
        if not self.max_piece_bytes or len(data) == 1:
            yield data
            return
        position = 0
        while position < len(data):
            size_bytes = self._chance.randint(1, self.max_piece_bytes)
            yield data[position : position + size_bytes]
            position += size_bytes


class SimulatedSocket:
    """What is asked of the sockets of a server."""

    def __init__(self, address: Address):
        self._address = address

    def getsockname(self) -> Address:
        return self._address


class SimulatedServer(asyncio.AbstractServer):
    """A listener."""

    def __init__(self, sockets: Sockets, factory: Callable[[], asyncio.BaseProtocol], address: Address):
        self.address = address
        self.sockets = (SimulatedSocket((address[0] or "0.0.0.0", address[1])),)
        self.is_open = False
        self.context: Context = copy_context()
        self._all = sockets
        self._factory = factory
        self._process = CURRENT.get()
        if self._process is not None:
            self._process.listening[self.close] = None

    def accept(self, transport: SimulatedTransport) -> None:
        if self.is_open:
            transport.begin(self._factory())
        else:
            transport.vanish()

    def close(self) -> None:
        self.is_open = False
        self._all.forget(self)
        if self._process is not None:
            self._process.listening.pop(self.close, None)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._all._loop

    def is_serving(self) -> bool:
        return self.is_open

    async def start_serving(self) -> None:
        self.is_open = True

    async def wait_closed(self) -> None:
        await asyncio.sleep(0)

    async def serve_forever(self) -> None:
        await self.start_serving()
        await self.get_loop().create_future()


class SimulatedTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, sockets: Sockets, here: Address, there: Address, port: int, *, context: Context | None = None):
        super().__init__({"sockname": here, "peername": there})
        self.here, self.there = here, there
        self.port = port  # of the listener that made the connection
        self.other: SimulatedTransport
        self._sockets = sockets
        self._loop = sockets._loop
        self._context = context
        self._protocol: Any = None
        self._arriving: deque[tuple[float, bytes]] = deque()  # with the times of arrival
        self._pump: Any = None  # the timer of the first of them
        self._unread: deque[bytes] = deque()
        self._untaken_bytes = 0  # written, and not yet taken by the other side's program
        self._high, self._low = LIMIT_BYTES, LIMIT_BYTES // 4
        self._wants_pause = False
        self._is_reading = True
        self._is_closing = False
        self._has_ended = False  # our end was told to be closed
        self._sent_end = False
        self._is_silent = False  # the machine is off: nobody answers for the program that is gone
        process = CURRENT.get() if context is None else context.get(CURRENT)
        self._process = process
        if process is not None:
            process.connections[self.vanish] = None
        sockets.transports[self] = None

    def __repr__(self) -> str:
        return f"<{self.here[0]}:{self.here[1]} to {self.there[0]}:{self.there[1]}>"

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """The connection is made."""
        self._protocol = protocol
        if self._context is None:
            self._context = copy_context()
        protocol.connection_made(self)
        self.wake()

    # What programs call

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol  # type: ignore[no-any-return]

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._loop.call_soon(self._feed, context=self._context)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high if high is not None else 4 * low if low is not None else LIMIT_BYTES
        self._low = low if low is not None else self._high // 4
        self._weigh()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return max(0, self._untaken_bytes - WINDOW_BYTES)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._sent_end or self._is_closing or not data:
            return
        copied = bytes(data)
        self._untaken_bytes += len(copied)
        self._sockets.sent_bytes += len(copied)
        for piece in self._sockets.pieces(copied):
            self.other.expect(piece)
        self._weigh()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._sent_end:
            self._sent_end = True
            self.other.expect(FIN)

    def close(self) -> None:
        """Close; what was written still arrives."""
        if not self._is_closing:
            self._is_closing = True
            self.write_eof()
            self._loop.call_soon(self._end, None, context=self._context)

    def abort(self) -> None:
        if self._has_ended:
            return
        self._is_closing = True
        self.write_eof()
        self._loop.call_soon(self._end, None, context=self._context)

    # What the network does

    def vanish(self, *, silent: bool = False) -> None:
        """The program behind this end is gone, or its connection is broken."""
        self._is_silent = silent
        if not silent and not self._sent_end:
            self._sent_end = True
            self.other.expect(RESET)
        self._is_closing = True
        if self._process is not None and self._process.is_dead:
            self._gone()
        else:
            self._loop.call_soon(self._end, _reset(), context=self._context)

    def forget(self) -> None:
        """End without telling anybody."""
        self._is_closing = True
        self._gone()

    def expect(self, piece: bytes) -> None:
        """Take what the other end sends; it arrives later."""
        arrival = self._loop.time() + self._sockets.delay_s()
        if self._arriving:
            arrival = max(arrival, self._arriving[-1][0])
        self._arriving.append((arrival, piece))
        self.wake()

    def wake(self) -> None:
        """See to it that the first of what is under way arrives in time."""
        if self._pump is None and self._arriving and not self._sockets.is_cut(self.port):
            if self._protocol is None and not self._has_ended and not self._is_closing:
                return  # begin() comes back to this
            # Not in the context of the process: the system of a paused one goes on taking bytes.
            self._pump = self._loop.call_at(self._arriving[0][0], self._arrive, context=NO_PROCESS)

    def _arrive(self) -> None:
        self._pump = None
        now = self._loop.time() + 1e-9
        came = False
        while self._arriving and self._arriving[0][0] <= now and not self._sockets.is_cut(self.port):
            piece = self._arriving.popleft()[1]
            if self._has_ended:  # nobody is there: the system says so
                if piece is not RESET and piece is not FIN and not self._is_silent:
                    self.other.expect(RESET)
                continue
            self._unread.append(piece)
            came = True
        if came:
            self._loop.call_soon(self._feed, context=self._context)
        self.wake()

    def _feed(self) -> None:
        """Hand the program what has come."""
        while self._unread and not self._has_ended:
            if self._unread[0] is RESET:
                self._unread.clear()
                self._is_closing = self._sent_end = True
                self._end(_reset())
                return
            if not self._is_reading or self._is_closing:
                return
            piece = self._unread.popleft()
            if piece is FIN:
                if not self._protocol.eof_received():
                    self.close()
                continue
            taken = self._give(piece)
            if taken < len(piece):
                self._unread.appendleft(piece[taken:])
            self.other.taken(taken)

    def _give(self, piece: bytes) -> int:
        if self._sockets.watch is not None:
            self._sockets.watch(self, piece)
        if not isinstance(self._protocol, asyncio.BufferedProtocol):
            self._protocol.data_received(piece)
            return len(piece)
        buffer = memoryview(self._protocol.get_buffer(len(piece)))
        size_bytes = min(len(buffer), len(piece))
        buffer[:size_bytes] = piece[:size_bytes]
        self._protocol.buffer_updated(size_bytes)
        return size_bytes

    def taken(self, size_bytes: int) -> None:
        """The other side's program has taken so much of what we sent."""
        self._untaken_bytes -= size_bytes
        if self._wants_pause:
            self._loop.call_soon(self._weigh, context=self._context)

    def _weigh(self) -> None:
        kept_bytes = self.get_write_buffer_size()
        if self._has_ended or self._protocol is None:
            return
        if kept_bytes > self._high and not self._wants_pause:
            self._wants_pause = True
            self._protocol.pause_writing()
        elif kept_bytes <= self._low and self._wants_pause:
            self._wants_pause = False
            self._protocol.resume_writing()

    def _end(self, failure: Exception | None) -> None:
        if self._has_ended:
            return
        self._gone()
        if self._protocol is not None:
            self._protocol.connection_lost(failure)

    def _gone(self) -> None:
        self._has_ended = True
        self._unread.clear()
        self._sockets.transports.pop(self, None)
        if self._process is not None:
            self._process.connections.pop(self.vanish, None)


def _plain(host: str) -> str:
    return "" if host in EVERYWHERE else HERE if host == "localhost" else host


def _reset() -> ConnectionResetError:
    return ConnectionResetError(104, "connection reset by peer")
