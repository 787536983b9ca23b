"""Between any client and any broker: frames go through, and addresses of brokers in answers become our own.

    client ── a listener for each broker ── Forwarding ── a connection for each of the client's ── broker

What must hold: clients stay behind the proxy, whichever broker they are sent to, in all versions that we know; of what
carries addresses no later version is offered to them. Everything else goes through as it came. What is lost on one side
is lost on the other, at the next request at the latest.
Not here: TLS on the clients' side. Logins go through, if the broker has no name of its own in them (GSSAPI).
"""

from __future__ import annotations

import asyncio
from typing import Any

from minibroker.client.connection import Connection as Upstream
from minibroker.client.connection import ConnectionLost
from minibroker.clock.broker_clock import Stretches
from minibroker.errors import KafkaError, ProtocolError
from minibroker.protocol.framing import LENGTH, decode_request, decode_response, encode_response
from minibroker.protocol.registry import response_class
from minibroker.reporter import Reporter
from minibroker.server.server import Limits, Server
from minibroker.turns import Shares

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from minibroker.client.security import Security
    from minibroker.clock import Clock
    from minibroker.protocol.headers import Response
    from minibroker.server.connection import Connection, Service
    from minibroker.server.http import HttpAnswer, HttpRequest
    from minibroker.server.server import AnyConnection

PRODUCE, FIND_COORDINATOR, SASL_HANDSHAKE, API_VERSIONS = 0, 10, 17, 18
# Where answers carry addresses of brokers: API -> fields with rows that have host and port, the answer itself for "".
ADDRESSES = {
    0: ("node_endpoints",),
    1: ("node_endpoints",),
    3: ("brokers",),
    10: ("", "coordinators"),
    60: ("brokers",),
    78: ("node_endpoints",),
    79: ("node_endpoints",),
}
TOKENS = {"PLAIN": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2, "OAUTHBEARER": 1}  # of a login without SaslAuthenticate
CALL_MS = 900_000  # a member of a group may wait as long as a rebalance takes


class Proxy:
    """A listener for each broker that a client was told of, the first for the one it begins with."""

    def __init__(
        self,
        clock: Clock,
        reporter: Reporter,
        *,
        host: str = "127.0.0.1",
        security: Security | None = None,
        tap: Callable[[Service, int], Service] | None = None,
    ):
        """security: how brokers are reached. tap: puts who records before each listener."""
        self.clock, self.reporter, self.host, self.security = clock, reporter, host, security
        self._tap = tap
        self._listeners: dict[tuple[str, int], asyncio.Future[Server]] = {}
        self.shares = Shares(lambda work: work())

    async def listen(self, upstream: tuple[str, int], port: int = 0) -> Server:
        """Return the listener for a broker, a new one if there is none yet."""
        found = self._listeners.get(upstream)
        if found is None:
            found = self._listeners[upstream] = asyncio.get_running_loop().create_future()
            try:
                found.set_result(await self._new_listener(upstream, port))
            except BaseException as failure:
                del self._listeners[upstream]
                found.set_exception(failure)
        return await asyncio.shield(found)

    async def _new_listener(self, upstream: tuple[str, int], port: int) -> Server:
        forwarding = Forwarding(self, upstream)
        number = len(self._listeners)
        service: Service = forwarding if self._tap is None else self._tap(forwarding, number)
        server = _Listener(service, self.clock, Limits(), "PLAINTEXT", self.reporter)
        server.forwarding = forwarding
        await server.bind(self.host, port)
        await server.listen()
        return server

    async def stop(self) -> None:
        """Close everything; return when the last socket is."""
        for found in list(self._listeners.values()):
            server = await found
            await server.stop()
            assert isinstance(server, _Listener)
            await server.forwarding.stop()


class _Listener(Server):
    """Tells of clients that have gone."""

    forwarding: Forwarding

    def closed(self, connection: AnyConnection) -> None:
        super().closed(connection)
        self.forwarding.forget(connection)


class PassedLogin:
    """In the place of a connection's session: tokens without headers that have still to come, so that none is kept."""

    def __init__(self, tokens_left: int):
        self.tokens_left = tokens_left

    @property
    def is_complete(self) -> bool:
        return not self.tokens_left


class Forwarding:
    """The service of one listener: what a broker answers is the answer."""

    def __init__(self, proxy: Proxy, address: tuple[str, int]):
        self.proxy = proxy
        self.address = address
        self.shares, self.stretches = proxy.shares, Stretches()
        self._upstreams: dict[Any, Upstream] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def answer(self, frame: memoryview, connection: Connection) -> Any:
        return self._forward(bytes(frame), connection)

    def forget(self, connection: AnyConnection) -> None:
        upstream = self._upstreams.pop(connection, None)
        if upstream is not None:
            task = asyncio.get_running_loop().create_task(upstream.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def stop(self) -> None:
        if self._closing:
            await asyncio.wait(self._closing)

    async def _forward(self, frame: bytes, connection: Connection) -> list[bytes | memoryview] | None:
        try:
            upstream = self._upstreams.get(connection) or await self._open(connection)
            await upstream.wait_until_writable()
            framed = LENGTH.pack(len(frame)) + frame
            login: Any = connection.session
            if login is not None and not login.is_complete:
                login.tokens_left -= 1
                return _framed(await upstream.call_raw(framed, timeout_ms=CALL_MS))
            api, version = int.from_bytes(frame[:2]), int.from_bytes(frame[2:4])
            if api == PRODUCE and not decode_request(frame)[1].acks:  # type: ignore[attr-defined]
                upstream.send_raw(framed)
                return None
            answer = await upstream.call_raw(framed, timeout_ms=CALL_MS)
        except KafkaError as failure:
            raise ProtocolError(failure.message) from failure
        if api == SASL_HANDSHAKE and not version and answer[4:6] == b"\0\0":
            mechanism = decode_request(frame)[1].mechanism  # type: ignore[attr-defined]
            if mechanism not in TOKENS:
                raise ProtocolError(f"a login by {mechanism} without SaslAuthenticate cannot be passed on")
            connection.session = PassedLogin(TOKENS[mechanism])  # type: ignore[assignment]
        if api not in ADDRESSES and api != API_VERSIONS:
            return _framed(answer)
        return await self._rewritten(answer, api, version, connection) or _framed(answer)

    async def _open(self, connection: Connection) -> Upstream:
        security = self.proxy.security
        upstream = await Upstream.open(
            *self.address, clock=self.proxy.clock, ask_versions=security is not None, security=security
        )
        if connection.is_closing:
            await upstream.close()
            raise ConnectionLost("the client has gone")
        self._upstreams[connection] = upstream
        return upstream

    async def _rewritten(
        self, answer: bytes, api: int, version: int, connection: Connection
    ) -> list[bytes | memoryview] | None:
        """Return an answer with our addresses in it; None if there are none, or the version is none that we know."""
        if api == API_VERSIONS and answer[4:6] == b"\0\x23":  # UNSUPPORTED_VERSION: always in version 0
            version = 0
        if version > response_class(api).schema.last_version:
            return None
        header, response = decode_response(answer, api, version)
        if api == API_VERSIONS:
            for row in response.api_keys:  # type: ignore[attr-defined]
                if row.api_key in ADDRESSES or row.api_key == API_VERSIONS:
                    row.max_version = min(row.max_version, response_class(row.api_key).schema.last_version)
        elif not (rows := addresses_in(response, api)):
            return None
        else:
            for row in rows:
                server = await self.proxy.listen((row.host, row.port))
                row.host, row.port = connection.local_address[0], server.port
        return encode_response(response, version, header.correlation_id)

    def disk_failed(self, failure: Exception) -> None:
        self.proxy.reporter.say(f"an answer cannot be read: {failure}")

    def http_refusal(self, request: HttpRequest) -> HttpAnswer | None:
        return None

    def http(self, request: HttpRequest) -> HttpAnswer:
        return "404 Not Found", "text/plain; charset=utf-8", b"this is a proxy for Kafka's own protocol\n"


def addresses_in(response: Response, api: int) -> list[Any]:
    """Return the rows of an answer that have the address of a broker."""
    rows: list[Any] = []
    for field in ADDRESSES[api]:
        rows += getattr(response, field) if field else [response]
    return [row for row in rows if row.host and row.port > 0]


def _framed(frame: bytes) -> list[bytes | memoryview]:
    return [LENGTH.pack(len(frame)) + frame]
