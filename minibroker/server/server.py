"""A listener with its connections, and the limits that they share.

Limits: how long a connection may be silent, or take to finish a frame; how many bytes unfinished frames may hold
together; how many connections there are (connection_quotas.py). Whoever passes one is closed with a line that says so.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from socket import (
    AF_INET,
    AF_INET6,
    IPPROTO_IPV6,
    IPV6_V6ONLY,
    SO_RCVBUF,
    SO_REUSEADDR,
    SO_SNDBUF,
    SOCK_STREAM,
    SOL_SOCKET,
    gaierror,
    inet_pton,
    socket,
)
from typing import Any, Protocol, TypeAlias

from minibroker.clock import REQUEST
from minibroker.server.buffers import Buffers
from minibroker.server.connection import SHARED_BYTES, Connection
from minibroker.server.connection_quotas import ConnectionQuotas

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.clock import Clock, Timer
    from minibroker.reporter import Reporter
    from minibroker.server.connection import Service
    from minibroker.server.http import HttpConnection
    from minibroker.server.large_answer import Chunk

    AnyConnection: TypeAlias = Connection | HttpConnection

    class Toxics(Protocol):
        """Who wants to stand between connections and their transports."""

        def opened(self, connection: Connection) -> None: ...

    class Handshakes(Protocol):
        """Who makes connections of what has been accepted, where they use TLS: handshakes.py."""

        @property
        def requires_certificates(self) -> bool: ...

        def accepted(self) -> asyncio.BaseProtocol: ...

        def handles(self) -> list[socket]: ...

        def check(self, config: Any) -> None: ...

        def reload(self) -> None: ...

        def pause(self) -> None: ...

        def resume(self) -> None: ...

        async def stop(self) -> None: ...

    class AllowList(Protocol):
        """Who may connect."""

        def allows(self, address: str) -> bool: ...

    class Arrival(Protocol):
        """Who waits to be let in: a muted connection, or one whose TLS handshake has not begun."""

        remote_address: tuple[str, int]

        @property
        def is_closing(self) -> bool: ...

        def unmute(self) -> None: ...

        def close(self, reason: str) -> None: ...

    class Logins(Protocol):
        """Who waits for the logins of connections."""

        def opened(self, connection: Connection) -> None: ...


HELD_BYTES_MIN = 64 * 1024 * 1024
SWEEP_MS = 1000
LINES_A_SWEEP = 20
BIND_TRIES = 10
FRAME_MS = 10_000  # a frame may take this long, and a second more for each KiB that has come
PACE_MS_MIN = 1_000  # younger frames are taken to be that old: they may not have got going yet
# Who waits with more behind than the system takes: the end of the stream lies behind that, so we cannot see it, and
# we may not read on and forget. So nobody waits like that for longer than Kafka lets a connection be idle.
DEAF_MS = 600_000
UNSENT_MS = 10_000  # so long a connection that closes may take to get rid of its last answers
FRAME_BYTES_PER_MS = 1.024


class Limits:
    """What a client may take."""

    def __init__(
        self,
        *,
        frame_bytes_max: int = 104_857_600,
        idle_ms: int = 600_000,
        held_bytes_max: int = 0,
        backlog: int = 1024,
        receive_buffer_bytes: int = -1,
        send_buffer_bytes: int = -1,
    ):
        self.frame_bytes_max = frame_bytes_max
        self.idle_ms = idle_ms
        # By unfinished frames of all connections: two of the longest, by default 200 MiB.
        self.held_bytes_max = held_bytes_max or max(2 * frame_bytes_max, HELD_BYTES_MIN)
        self.backlog = backlog  # connections that the system holds until they are accepted
        self.receive_buffer_bytes = receive_buffer_bytes  # of a socket; -1: the system's choice
        self.send_buffer_bytes = send_buffer_bytes


class Server:
    """One listening socket."""

    def __init__(
        self,
        service: Service,
        clock: Clock,
        limits: Limits,
        listener_name: str,
        reporter: Reporter,
        quotas: ConnectionQuotas | None = None,
    ):
        self.service = service
        self.clock = clock
        self.limits = limits
        self.quotas = quotas or ConnectionQuotas()
        self.listener_name = listener_name
        self.reporter = reporter
        self.toxics: Toxics | None = None
        self.handshakes: Handshakes | None = None  # of TLS, before a connection is one
        self.logins: Logins | None = None  # where clients have to log in
        self.allow_list: AllowList | None = None  # where not everybody may connect
        self.refused_count = 0  # connections from elsewhere
        self.steady_ms = clock.steady_ms  # silence is measured in it: what the clock is set to is no concern of it
        self.frame_bytes_max = limits.frame_bytes_max
        self.shared_buffer = memoryview(bytearray(SHARED_BYTES))
        self.connections: dict[AnyConnection, None] = {}  # a dict keeps the order in which they came
        self.host, self.port = "", 0
        self.asked_host = ""  # as the listener's setting has it: a name perhaps
        self.buffers = Buffers()
        self.held_bytes = 0
        self.siblings: Sequence[Server] = ()  # all listeners of the broker
        self._arrivals: dict[Arrival, None] = {}  # who wait for their turn to be let in
        self._arrival: Timer | None = None  # until the next one is
        self.sent_bytes = 0
        self.accepted_count = 0
        self.is_paused = False  # nothing is read, and nothing sent
        self._lines_left = LINES_A_SWEEP
        self._listener: asyncio.Server | None = None
        self._sweep: Timer | None = None  # while there is a connection
        self._begun_ms = 0  # by the steady clock; every so often since then it looks around
        self._all_closed: asyncio.Event | None = None

    # Starting and stopping

    async def bind(self, host: str, port: int) -> None:
        """Take an address; port 0 takes a free one, which `port` names then."""
        wanted, self.asked_host = port, host
        for tries_left in range(BIND_TRIES, -1, -1):
            try:
                listener = await self._bind(host, wanted)
            except OSError:
                if wanted == port or not tries_left:
                    raise
                wanted = port
                continue
            self.host, self.port = listener.sockets[0].getsockname()[:2]
            if all(each.getsockname()[1] == self.port for each in listener.sockets):
                self._listener = listener
                self._size_buffers(listener.sockets)
                return
            # A name with several addresses (localhost, all) got a free port at each: take one that is free at all.
            listener.close()
            wanted = self.port
        raise OSError(f"no port is free at all addresses of {host or 'this machine'}")

    async def _bind(self, host: str, port: int) -> asyncio.Server:
        loop, backlog = asyncio.get_running_loop(), self.limits.backlog
        # uvloop would ask libuv's threads for an address even if it is one: time at each start, and a process that was
        # forked from this one dies when it ends, waiting for threads that it does not have.
        family = _family(host) if type(loop).__module__.startswith("uvloop") else None
        if family is None:
            try:
                return await loop.create_server(
                    self._accepted, host or None, port, backlog=backlog, start_serving=False
                )
            except gaierror as failure:
                raise OSError(f"no address of the host {host!r} is known: {failure.strerror}") from None
        bound = socket(family, SOCK_STREAM)
        try:
            bound.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
            if family == AF_INET6:
                bound.setsockopt(IPPROTO_IPV6, IPV6_V6ONLY, 1)
            try:
                bound.bind((host, port))
            except OSError as failure:  # in the words of asyncio
                why = (failure.strerror or str(failure)).lower()
                words = f"error while attempting to bind on address {(host, port)!r}: {why}"
                raise OSError(failure.errno, words) from None
            return await loop.create_server(self._accepted, sock=bound, backlog=backlog, start_serving=False)
        except BaseException:
            bound.close()
            raise

    def _accepted(self) -> asyncio.BaseProtocol:
        return Connection(self) if self.handshakes is None else self.handshakes.accepted()

    def _size_buffers(self, listeners: Iterable[socket]) -> None:
        """Size the buffers of the sockets that will be accepted: they have those of their listener."""
        sizes = ((SO_RCVBUF, self.limits.receive_buffer_bytes), (SO_SNDBUF, self.limits.send_buffer_bytes))
        for listener in listeners:
            for option, size_bytes in sizes:
                if size_bytes > 0:
                    listener.setsockopt(SOL_SOCKET, option, size_bytes)

    async def listen(self) -> None:
        """Take connections."""
        assert self._listener is not None, "bind() comes first"
        await self._listener.start_serving()
        self._begun_ms = self.clock.steady_ms()

    def stop_listening(self) -> None:
        """Take no new connections."""
        if self._listener is not None:
            self._listener.close()

    def handles(self) -> list[int]:
        """Return the numbers of all sockets that are open."""
        sockets = [] if self._listener is None else [*self._listener.sockets]
        accepted = [each.transport.get_extra_info("socket") for each in self.connections]
        sockets += [each for each in accepted if each is not None]
        if self.handshakes is not None:
            sockets += self.handshakes.handles()
        return [each.fileno() for each in sockets if each.fileno() >= 0]

    def abort(self) -> None:
        """Reset every connection now; `stop` still has to follow."""
        self.stop_listening()
        for connection in list(self.connections):
            connection.transport.abort()

    def pause(self) -> None:
        """Take nothing from any client and send nothing, as a machine that hangs or whose cable is cut."""
        if not self.is_paused:
            self.is_paused = True
            if self.handshakes is not None:
                self.handshakes.pause()
            for connection in self.connections:
                connection.pause()

    def resume(self) -> None:
        """Go on where every connection stood."""
        if self.is_paused:
            self.is_paused = False
            if self.handshakes is not None:
                self.handshakes.resume()
            for connection in list(self.connections):
                connection.resume()

    async def stop(self) -> None:
        """Close every socket; return when the last one is."""
        self.stop_listening()
        for timer in (self._sweep, self._arrival):
            if timer is not None:
                timer.cancel()
        self._all_closed = asyncio.Event()
        tasks = [each.task for each in self.connections if isinstance(each.task, asyncio.Task)]
        for connection in list(self.connections):
            connection.transport.abort()
        if self.handshakes is not None:
            await self.handshakes.stop()
        await self.clock.sleep(0)  # who has been accepted, but not yet told of, comes to `opened` now
        if self.connections:
            await self._all_closed.wait()
        if tasks:
            await asyncio.wait(tasks)  # closing has cancelled them
        if self._listener is not None:
            await self._listener.wait_closed()

    # What connections tell

    def opened(self, connection: Connection) -> None:
        address = connection.remote_address[0]
        self.connections[connection] = None
        self.accepted_count += 1
        is_admitted = connection.is_admitted
        too_many = "" if is_admitted else self.quotas.opened(self.listener_name, address) or self.refusal(address)
        self._begin_sweep()
        # Who has gone before he was told of may have no address any more: no rule could speak of him.
        if self._all_closed is not None or not address:
            connection.is_closing = True
            connection.transport.abort()
        elif too_many:
            connection.close(too_many)
        elif self.toxics is not None and connection.may_be_toxic:
            self.toxics.opened(connection)
        if self.logins is not None and not connection.is_closing:
            self.logins.opened(connection)
        if self.is_paused:
            connection.pause()
        if self.quotas.is_exceeded and not connection.is_closing:
            self._make_place()
        if self.quotas.rates is not None and not is_admitted and not connection.is_closing:
            connection.mute()  # it is too young to be anything but this
            self.arrived(connection)

    def refusal(self, address: str) -> str:
        """Say why nobody from an address is let in; nothing if they are."""
        if self.allow_list is None or self.allow_list.allows(address):
            return ""
        self.refused_count += 1
        return f"no network that may connect to listener {self.listener_name} has this address"

    def _make_place(self) -> None:
        """Close the connection that was idle for longest at a listener that is not the brokers' own."""
        others = [each for server in self.siblings if server is not self for each in server.connections]
        idle = min((each for each in others if not each.is_closing), key=lambda each: each.last_active_ms, default=None)
        if idle is not None:
            idle.close("it was idle for longest, and the listener of brokers needs the place")

    def arrived(self, arrival: Arrival) -> None:
        """Let somebody in when it is his turn, unless he has gone by then."""
        self._arrivals[arrival] = None
        if self._arrival is None:
            self._let_in()

    def gone(self, arrival: Any) -> None:
        self._arrivals.pop(arrival, None)

    def _next_arrival(self) -> Arrival | None:
        """Return who waits longest and is still there."""
        while self._arrivals:
            arrival = next(iter(self._arrivals))
            if not arrival.is_closing:
                return arrival
            del self._arrivals[arrival]
        return None

    def _let_in(self) -> None:
        """Let in who has come, one after the other, each when it is time."""
        rates, is_protected = self.quotas.rates, self.listener_name == self.quotas.protected
        assert rates is not None
        while (arrival := self._next_arrival()) is not None:
            delay_ms = rates.delay_ms(self.listener_name, self.clock.elapsed_ms(), is_protected=is_protected)
            if delay_ms:
                self._arrival = self.clock.after(delay_ms, self._go_on_letting_in, REQUEST)
                return
            self._welcome(arrival)

    def _go_on_letting_in(self) -> None:
        self._arrival = None
        if (arrival := self._next_arrival()) is not None:
            self._welcome(arrival)
        self._let_in()

    def _welcome(self, connection: Arrival) -> None:
        """Take requests from a connection, unless its address has had too many."""
        del self._arrivals[connection]
        rates, is_protected = self.quotas.rates, self.listener_name == self.quotas.protected
        assert rates is not None
        address, now_ms = connection.remote_address[0], self.clock.elapsed_ms()
        refusal_ms = rates.refusal_ms(self.listener_name, address, now_ms, is_protected=is_protected)
        if refusal_ms:
            words = f"connections come too fast from {address}"
            self.clock.after(refusal_ms, lambda: connection.close(words), REQUEST)
        else:
            connection.unmute()

    def replaced(self, old: AnyConnection, new: AnyConnection) -> None:
        del self.connections[old]
        self.connections[new] = None

    def closed(self, connection: AnyConnection) -> None:
        if self.connections.pop(connection, self) is self:
            return
        self.quotas.closed(self.listener_name, connection.remote_address[0])
        if self._arrivals:
            self.gone(connection)
        if not self.connections and self._all_closed is not None:
            self._all_closed.set()

    def failed(self, connection: AnyConnection, error: Exception) -> None:
        """Tell of an error that nobody expected: ours."""
        import traceback

        self.say(f"unexpected error, please report it\n{''.join(traceback.format_exception(error))}")

    def say(self, line: str) -> None:
        """Tell people; what is said too often, as a client can make us, is only counted."""
        self._lines_left -= 1
        if self._lines_left >= 0:
            self.reporter.say(line)
        self._begin_sweep()

    # What unfinished requests hold

    def hold(self, more_bytes: int, connection: AnyConnection) -> None:
        """Count what unfinished requests hold; connections are closed if it is too much, this one too."""
        self.held_bytes += more_bytes
        if more_bytes > 0 and self.held_bytes > self.limits.held_bytes_max:
            self._make_room(connection)

    def _make_room(self, asking: AnyConnection) -> None:
        """Close connections whose unfinished frames get on worst, of those that hold more than a trifle.

        Not the largest: that may be an honest producer among many that have begun something and do nothing.
        """
        now_ms = self.steady_ms()
        holding = [each for each in self.connections if each.partial.held_bytes and not each.is_closing]
        trifle_bytes = self.limits.held_bytes_max / (4 * max(len(holding), 1))
        holding = [each for each in holding if each.partial.held_bytes >= trifle_bytes]

        def pace(connection: AnyConnection) -> float:
            return connection.partial.size_bytes / max(now_ms - connection.partial.begun_ms, PACE_MS_MIN)

        limit_bytes = self.limits.held_bytes_max
        for number, slow in enumerate(
            sorted((each for each in holding if each.partial.held_bytes >= trifle_bytes), key=pace)
        ):
            if slow is asking and number:
                return  # it gets on better than others did: what is too much is the buffer that it takes
            slow.abort(f"unfinished requests hold more than {limit_bytes} bytes, and this one comes most slowly")
            if slow is asking or self.held_bytes <= limit_bytes:
                return

    def write_chunks(self, transport: asyncio.Transport, chunks: Sequence[Chunk]) -> None:
        """Write without joining where the loop can."""
        if _gathers(transport):
            transport.writelines(chunks)
        else:
            for chunk in chunks:
                transport.write(chunk)

    def _begin_sweep(self) -> None:
        if self._sweep is None and self._all_closed is None:
            late_ms = (self.clock.steady_ms() - self._begun_ms) % SWEEP_MS
            self._sweep = self.clock.after(SWEEP_MS - late_ms, self._look_around)

    def _look_around(self) -> None:
        """Close who is silent for too long, feeds a frame by the drop, or has gone while nobody listened."""
        if self._lines_left < 0:
            self.reporter.say(f"{-self._lines_left} more lines like these")
        self._lines_left = LINES_A_SWEEP
        now_ms = self.steady_ms()
        deaf = [connection for connection in self.connections if connection.is_reading_paused]
        for connection in _gone(deaf) if deaf else ():
            connection.transport.abort()
        for connection in list(self.connections):
            if connection.is_closing:
                if now_ms - connection.closing_since_ms > UNSENT_MS:
                    connection.transport.abort()
            elif connection.is_answering:
                if connection.is_reading_paused and now_ms - connection.last_active_ms > DEAF_MS:
                    connection.close("its turn does not come, and nobody could tell whether the client is still there")
            elif 0 <= self.limits.idle_ms < now_ms - connection.last_active_ms:  # below 0: never, as with Kafka
                connection.close()
            elif (
                connection.partial.begun_ms
                and not connection.is_unread
                and now_ms - connection.partial.begun_ms > FRAME_MS + connection.partial.size_bytes / FRAME_BYTES_PER_MS
            ):
                connection.close("the rest of a request does not come")
        self._sweep = self.clock.after(SWEEP_MS, self._look_around) if self.connections else None


def _gone(connections: Sequence[AnyConnection]) -> list[AnyConnection]:
    """Return those whose client has closed or reset the connection, where the system can tell.

    It cannot tell as long as there is more before the end of the stream than it has room for.
    """
    import select

    if not hasattr(select, "poll"):
        return []
    poll = select.poll()
    by_handle = {}
    for connection in connections:
        sock = connection.transport.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            by_handle[sock.fileno()] = connection
            poll.register(sock.fileno(), getattr(select, "POLLRDHUP", 0))
    return [by_handle[handle] for handle, _ in poll.poll(0)]


def _family(host: str) -> int | None:
    """Return the family of an address, None for a name."""
    for family in (AF_INET, AF_INET6):
        with suppress(OSError):
            inet_pton(family, host)
            return family
    return None


def _gathers(transport: asyncio.Transport) -> bool:
    """Whether writelines sends without joining: uvloop does, asyncio since Python 3.12."""
    return sys.version_info >= (3, 12) or type(transport).__module__.startswith("uvloop")
