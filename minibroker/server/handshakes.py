"""TLS of one listener: connections that have been accepted, and are connections of Kafka when their handshake is done.

    accepted ── limits ── a task for the handshake ── TlsConnection, to which all is as on a plain connection

The loop's own TLS does the work. What it leaves out is here: what became of a handshake, an alert for the client, one
line for people, and a limit to how many handshakes there are at once and how long each may take.
What must hold: until its handshake is done, a connection costs a socket, a task and what the loop receives into, and
nothing of it is read as a request. It counts as a connection from the beginning, and waits for its turn as others do;
of too many handshakes the oldest of the address with most of them ends, so that none shuts out others. None is left
behind when the listener stops.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from functools import partial
from socket import MSG_PEEK, fromfd, socket
from typing import Any

from minibroker.security.principal import ANONYMOUS
from minibroker.security.tls import HANDSHAKE, Handshake, ListenerTls
from minibroker.server.connection import Connection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.server.server import Server

HANDSHAKE_SECONDS = 10.0
SHUTDOWN_SECONDS = 10.0  # for the client to say goodbye, too
HANDSHAKES_MAX = 1000
SCRAP_BYTES = 64 * 1024

# What OpenSSL calls it: what it is, and what helps. Others are told in its words.
_PLAIN = "no TLS: the client has to be set to SSL (security.protocol=SSL)"
_DISTRUST = "the client does not trust our certificate: its truststore needs the CA of it"
REASONS = {
    "HTTP_REQUEST": "HTTP without TLS: the address begins with https://",
    "WRONG_VERSION_NUMBER": _PLAIN,
    "UNKNOWN_PROTOCOL": _PLAIN,
    "RECORD_LAYER_FAILURE": _PLAIN,
    "BAD_RECORD_TYPE": _PLAIN,
    "PACKET_LENGTH_TOO_LONG": _PLAIN,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client sends no certificate, and ssl.client.auth is required",
    "TLSV1_ALERT_UNKNOWN_CA": _DISTRUST,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _DISTRUST,
    "TLSV1_ALERT_CERTIFICATE_UNKNOWN": _DISTRUST,
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client takes our certificate for a bad one",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate has expired, says the client",
    "UNSUPPORTED_PROTOCOL": "the client offers no version of TLS that ssl.enabled.protocols allows",
    "NO_SHARED_CIPHER": "the client offers no cipher suite that ssl.cipher.suites allows",
}


class Handshakes:
    """The handshakes that are under way at one listener."""

    def __init__(self, server: Server, tls: ListenerTls):
        self.server = server
        self.tls = tls
        self._under_way: dict[asyncio.Task[None], _Watched] = {}
        self._of_address: dict[str, dict[asyncio.Task[None], None]] = {}  # those that go on, the oldest first
        self._resumed: asyncio.Event | None = None  # while the broker stands still
        self._has_stopped = False  # a socket that was accepted right before may be told of later

    def accepted(self) -> asyncio.BaseProtocol:
        """Return the protocol of a socket that has just been accepted."""
        return _Accepted(self)

    @property
    def requires_certificates(self) -> bool:
        """Whether only who shows a certificate gets in."""
        return self.tls.context.verify_mode == ssl.CERT_REQUIRED

    def begin(self, transport: asyncio.Transport) -> None:
        """Take the socket of a connection, of which nothing has been read, and begin its handshake."""
        accepted, peer = transport.get_extra_info("socket"), transport.get_extra_info("peername")
        if self._has_stopped or not peer:  # or he has gone already, and nobody knows from where he came
            transport.abort()
            return
        remote_address = peer[:2]
        try:
            own = fromfd(accepted.fileno(), accepted.family, accepted.type)
        except OSError as failure:  # there are too many
            self._say(remote_address, f"no handshake can begin: {failure.strerror}")
            return
        finally:
            transport.abort()  # closes the loop's handle, and not the connection: we hold another
        server, address = self.server, remote_address[0]
        refusal = server.refusal(address)
        if not refusal and (refusal := server.quotas.opened(server.listener_name, address)):
            server.quotas.closed(server.listener_name, address)
        if refusal:
            own.close()
            self._say(remote_address, refusal)
            return
        if len(self._under_way) >= HANDSHAKES_MAX:
            self._make_place(address)
        own.setblocking(False)
        handshake = _Watched(own, remote_address)
        task = asyncio.get_running_loop().create_task(self._shake_hands(handshake))
        self._under_way[task] = handshake
        self._of_address.setdefault(address, {})[task] = None
        task.add_done_callback(partial(self._done, handshake))

    def _make_place(self, comer: str) -> None:
        """End the oldest handshake of the address that most of them come from, with the one that comes now."""
        counts = {address: len(tasks) for address, tasks in self._of_address.items()}
        if counts:
            counts[comer] = counts.get(comer, 0) + 1
            busiest = max(counts, key=lambda address: (counts[address], address != comer))
            oldest = next(iter(self._of_address[busiest]))
            self._forget(oldest, busiest)
            oldest.cancel()
            self._say((busiest, 0), f"more than {HANDSHAKES_MAX} TLS handshakes at once, and most are of this address")

    def _forget(self, task: asyncio.Task[None], address: str) -> None:
        of_address = self._of_address.get(address, {})
        of_address.pop(task, None)
        if not of_address:
            self._of_address.pop(address, None)

    def _done(self, handshake: _Watched, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        self._forget(task, handshake.remote_address[0])
        self.server.gone(handshake)
        if handshake.is_counted:
            handshake.own.close()
            self.server.quotas.closed(self.server.listener_name, handshake.remote_address[0])
        if not task.cancelled() and (error := task.exception()) is not None:
            self.server.failed(self, error)  # type: ignore[arg-type]

    async def _shake_hands(self, handshake: _Watched) -> None:
        HANDSHAKE.set(handshake)
        try:
            if self._resumed is not None:
                await self._resumed.wait()
            if self.server.quotas.rates is not None:
                self.server.arrived(handshake)
                await handshake.come
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: TlsConnection(self.server, self.tls, handshake),
                handshake.own,
                ssl=self.tls.context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS,
            )
        except (OSError, EOFError) as failure:
            # Who connects and goes again, as probes of ports do, is not worth a line.
            if handshake.step_count > 1 or isinstance(failure, _TooFast):
                reason = _reason(failure)
                if _is_about_certificate(failure):
                    self.tls.tell(handshake.remote_address[0], "", reason)
                self._say(handshake.remote_address, reason)
        finally:
            handshake.socket = None

    def _say(self, remote_address: tuple[str, int], reason: str) -> None:
        self.server.say(f"{remote_address[0]}:{remote_address[1]}: closed: {reason}")

    def handles(self) -> list[socket]:
        return [handshake.own for handshake in self._under_way.values()]

    def check(self, config: Any) -> None:
        """Raise ConfigError if other settings of the broker could not take the place of those in force."""
        self.tls.check(config)

    def reload(self) -> None:
        """Let new connections have what settings and files say now."""
        self.tls.reload()

    def pause(self) -> None:
        """Begin no more handshakes until `resume`."""
        self._resumed = self._resumed or asyncio.Event()

    def resume(self) -> None:
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None

    async def stop(self) -> None:
        """Return when no handshake is under way."""
        self._has_stopped = True
        self.tls.close()
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


class TlsConnection(Connection):
    """A connection whose bytes come and go by TLS; it begins when the handshake is done."""

    is_admitted = True

    def __init__(self, server: Server, tls: ListenerTls, handshake: _Watched):
        super().__init__(server)
        self._tls = tls
        self._handshake = handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._handshake.is_counted = False  # it is us now
        reason = ""
        try:
            self.principal = self._tls.principal_of(transport.get_extra_info("ssl_object"))
        except ValueError as error:
            reason = str(error)
        super().connection_made(transport)
        if reason or self.principal is not ANONYMOUS:
            self._tls.tell(self.remote_address[0], "" if reason else str(self.principal), reason)
        if reason:
            self.close(reason)

    # A transport of TLS that is closed hands out what it has received, at once: in the middle of a request, perhaps,
    # whose bytes must not be written over.

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(bytearray(SCRAP_BYTES)) if self.is_closing else super().get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        if not self.is_closing:
            super().buffer_updated(nbytes)

    def eof_received(self) -> bool:
        """Return that the connection closes: TLS knows no half of one here."""
        return False


class _Accepted(asyncio.Protocol):
    """A socket of which nothing is read."""

    def __init__(self, handshakes: Handshakes):
        self._handshakes = handshakes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._handshakes.begin(transport)  # type: ignore[arg-type]


class _TooFast(OSError):
    """Too many connections have come from an address."""


class _Watched(Handshake):
    """A handshake, and before it begins who waits for his turn."""

    def __init__(self, own: socket, remote_address: tuple[str, int]):
        self.own = own
        self.socket: socket | None = own  # until it is over
        self.remote_address = remote_address
        self.is_counted = True  # as a connection, until it is one
        self.come: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_closing(self) -> bool:
        """Whether the client has gone."""
        try:
            return self.socket is None or not self.socket.recv(1, MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def unmute(self) -> None:
        if not self.come.done():
            self.come.set_result(None)

    def close(self, reason: str) -> None:
        if not self.come.done():
            self.come.set_exception(_TooFast(reason))

    def send_alert(self, alert: bytes) -> None:
        if self.socket is not None:
            with suppress(OSError):
                self.socket.send(alert)


def _is_about_certificate(failure: OSError | EOFError) -> bool:
    """Whether a client is refused for the certificate that it shows, or for showing none."""
    missing = isinstance(failure, ssl.SSLError) and failure.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE"
    return missing or isinstance(failure, ssl.SSLCertVerificationError)


def _reason(failure: Any) -> str:
    """Say what became of a handshake."""
    if isinstance(failure, _TooFast):
        return str(failure)
    if isinstance(failure, ssl.SSLCertVerificationError):
        return f"the client's certificate does not count: {failure.verify_message}"
    if isinstance(failure, ssl.SSLError):
        name = failure.reason or ""
        return REASONS.get(name) or f"no TLS: {name.replace('_', ' ').lower() or failure}"
    if isinstance(failure, ConnectionResetError):
        return "the client has gone in the middle of the TLS handshake: does it trust our certificate?"
    if isinstance(failure, ConnectionAbortedError | TimeoutError):
        return f"the TLS handshake takes longer than {HANDSHAKE_SECONDS:g} s"
    return f"no TLS: {failure}"
