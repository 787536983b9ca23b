"""TCP in memory: listeners by host and port, and the time and trouble between them and their clients.

Bytes arrive after `delay_ms`, in pieces if `max_piece_bytes` is set. `cut(port)` lets a listener's connections hang as
a cable does that was pulled; `reset(port)` breaks them.
Not here: the two ends of a connection (transport.py).
"""

from __future__ import annotations

import asyncio
from contextvars import copy_context

from minibroker.simulation.processes import CURRENT
from minibroker.simulation.transport import SimulatedTransport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextvars import Context
    from random import Random

    from minibroker.simulation.loop import SimulatedLoop

    Address = tuple[str, int]

ACCEPTED_PORTS, FREE_PORTS = 50_000, 30_000
HERE = "127.0.0.1"
EVERYWHERE = ("", "0.0.0.0", "::")


class Sockets:
    """The network between clients and listeners in one loop."""

    def __init__(self, loop: SimulatedLoop, chance: Random):
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


def _plain(host: str) -> str:
    return "" if host in EVERYWHERE else HERE if host == "localhost" else host
