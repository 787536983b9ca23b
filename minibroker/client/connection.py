"""One connection to one broker: calls, pipelined, in the highest version that both sides know.

A broker answers the requests of a connection in their order, so what waits is a queue and the next answer belongs to
its head; any other correlation id means that the stream cannot be trusted, and closes it.
What must hold: every call ends, by its answer, its deadline, or a ConnectionLost that says what happened.
Not here: which broker to ask, and trying again (cluster.py).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from minibroker import __version__
from minibroker.client.wire import FrameStream
from minibroker.errors import Error, KafkaError, ProtocolError
from minibroker.protocol.framing import FRAME_BYTES_MAX, LENGTH, encode_request
from minibroker.protocol.headers import Request, Response, ResponseHeader
from minibroker.protocol.registry import APIS, response_class
from minibroker.schema.types import parse_range

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.client.security import Security
    from minibroker.clock import Clock
    from minibroker.protocol.messages.api_versions import ApiVersionsResponse

T = TypeVar("T")

PRODUCE, API_VERSIONS = 0, 18
CALL_TIMEOUT_MS = 30_000
CORRELATION_ID_MAX = 0x7FFFFFFF


class AsyncCloseable(ABC):
    """Has a close() that the end of an `async with` calls."""

    @abstractmethod
    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class ConnectionLost(KafkaError):
    """The connection could not be made, or broke: nobody knows what became of calls that were under way."""

    def __init__(self, message: str):
        super().__init__(Error.NETWORK_EXCEPTION, message)


class CallTimeout(KafkaError):
    """No answer before the deadline. It may still come, and is then passed over."""

    def __init__(self, message: str):
        super().__init__(Error.REQUEST_TIMED_OUT, message)


class _Pending:
    """A call without its answer."""

    __slots__ = ("correlation_id", "future", "response", "timer", "version")

    def __init__(self, correlation_id: int | None, response: type[Response] | None, version: int):
        self.correlation_id = correlation_id
        self.response = response  # None: the caller wants the frame as it is
        self.version = version
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.timer: Any = None


class Connection(AsyncCloseable):
    """Made by `Connection.open`; an async context manager that closes itself."""

    def __init__(
        self, address: str, clock: Clock, client_id: str | None, frame_bytes_max: int, max_versions: Mapping[str, int]
    ):
        if unknown := set(max_versions) - set(APIS.values()):
            raise ValueError(f"no such APIs: {', '.join(sorted(unknown))}")
        self.address = address  # as host:port, for messages
        # What the broker said it has: number of the API -> lowest and highest version. None: it was not asked.
        self.api_versions: dict[int, tuple[int, int]] | None = None
        self.features: dict[str, int] = {}  # finalized feature levels, of brokers that tell (2.7 and later)
        self._clock = clock
        self._client_id = client_id
        self._max_versions = max_versions
        self._chosen: dict[int, int] = {}  # number of the API -> version, once worked out
        self._pending: deque[_Pending] = deque()
        self._next_correlation_id = 0
        self._stream = FrameStream(self._on_frame, self._on_closed, frame_bytes_max)
        self._lost: str | None = None  # why it is closed
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str | None = "minibroker",
        clock: Clock | None = None,
        timeout_ms: int = CALL_TIMEOUT_MS,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        ask_versions: bool = True,
        max_versions: Mapping[str, int] | None = None,
        security: Security | None = None,
    ) -> Self:
        """Connect, and ask which APIs there are.

        ask_versions: False for brokers below 0.10, which know no ApiVersions; calls then go out in version 0.
        max_versions: API name -> version not to go beyond, such as {"Fetch": 3}.
        security: TLS and SASL; None for neither.
        """
        if clock is None:
            from minibroker.clock import LoopClock

            clock = LoopClock()
        address = f"{host}:{port}"
        connection = cls(address, clock, client_id, frame_bytes_max, max_versions or {})
        loop = asyncio.get_running_loop()
        tls = security.context if security is not None else None
        connecting = loop.create_task(loop.create_connection(lambda: connection._stream, host, port, ssl=tls))
        try:
            await _before(clock, timeout_ms, connecting, f"no connection to {address} within {timeout_ms} ms")
        except OSError as failure:
            if security is not None:
                security.check_failure(failure, address)
            cut = "no TLS, it was closed in the handshake" if tls is not None else "it was closed at once"
            raise ConnectionLost(f"no connection to {address}: {failure if str(failure) else cut}") from failure
        try:
            if ask_versions:
                await connection._ask_versions(timeout_ms)
            if security is not None:
                await security.authenticate(connection, timeout_ms)
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def closed(self) -> bool:
        return self._lost is not None or self._stream.closed

    @property
    def pending_count(self) -> int:
        """How many calls wait for their answers."""
        return len(self._pending)

    def version_of(self, request: Request | type[Request]) -> int:
        """Return the version in which a call of this kind goes out."""
        version = self._chosen.get(request.api)
        if version is None:
            version = self._chosen[request.api] = self._choose(request if isinstance(request, type) else type(request))
        return version

    def has(self, request: type[Request]) -> bool:
        """Whether there is a version of this request that both sides know."""
        try:
            self.version_of(request)
        except KafkaError:
            return False
        return True

    def send(
        self, request: Request, version: int | None = None, *, timeout_ms: int = CALL_TIMEOUT_MS
    ) -> asyncio.Future[Any]:
        """Send a request now and return the future of its answer; None for a produce request with acks 0.

        The answer is of the class that belongs to the request: a ListOffsetsResponse for a ListOffsetsRequest.
        """
        if self.closed:
            raise self._loss()
        if version is None:
            version = self.version_of(request)
        correlation_id = self._next_correlation_id
        chunks = encode_request(request, version, correlation_id, self._client_id)
        self._next_correlation_id = (correlation_id + 1) & CORRELATION_ID_MAX
        self._write(chunks)
        if request.api == PRODUCE and not request.acks:  # type: ignore[attr-defined]
            nothing: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            nothing.set_result(None)
            return nothing
        return self._expect(_Pending(correlation_id, response_class(request.api), version), timeout_ms)

    async def call(self, request: Request, version: int | None = None, *, timeout_ms: int = CALL_TIMEOUT_MS) -> Any:
        """Send a request and return its answer. Calls may overlap: requests go out in the order of the calls."""
        await self._stream.wait_until_writable()
        return await self.send(request, version, timeout_ms=timeout_ms)

    async def wait_until_writable(self) -> None:
        """Wait while the broker does not read what was sent."""
        await self._stream.wait_until_writable()

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are, whatever they mean. An answer to them closes the connection: nobody awaits it."""
        if self.closed:
            raise self._loss()
        self._write([data])

    async def call_raw(self, frame: bytes, *, timeout_ms: int = CALL_TIMEOUT_MS) -> bytes:
        """Send a frame, its length in front, and return the frame of the answer without its length."""
        self.send_raw(frame)
        return bytes(await self._expect(_Pending(None, None, -1), timeout_ms))

    async def close(self) -> None:
        """Close; calls that wait get a ConnectionLost. Returns when the socket is closed."""
        if self._lost is None:
            self._lost = f"the connection to {self.address} was closed by this side"
        if self._stream.transport is None:
            return
        self._stream.transport.abort()
        await asyncio.shield(self._gone)

    # Calls and answers

    def _write(self, chunks: list[bytes | memoryview]) -> None:
        transport = self._stream.transport
        assert transport is not None
        if len(chunks) == 1:
            transport.write(chunks[0])
        else:
            transport.writelines(chunks)

    def _expect(self, pending: _Pending, timeout_ms: int) -> asyncio.Future[Any]:
        self._pending.append(pending)
        pending.timer = self._clock.after(timeout_ms, lambda: self._expire(pending, timeout_ms))
        return pending.future

    def _expire(self, pending: _Pending, timeout_ms: int) -> None:
        if not pending.future.done():
            what = pending.response.__name__ if pending.response else "answer"
            pending.future.set_exception(CallTimeout(f"no {what} from {self.address} within {timeout_ms} ms"))

    def _on_frame(self, frame: bytes | bytearray) -> None:
        if len(frame) < LENGTH.size:
            self._stream.fail(ProtocolError(f"an answer of {len(frame)} bytes has no correlation id"))
            return
        correlation_id: int = LENGTH.unpack_from(frame)[0]
        if not self._pending:
            self._stream.fail(ProtocolError(f"an answer with correlation id {correlation_id} to no request"))
            return
        pending = self._pending[0]
        if pending.correlation_id not in (None, correlation_id):
            awaited = f"{pending.correlation_id} is the next to be answered"
            self._stream.fail(ProtocolError(f"an answer with correlation id {correlation_id}, but {awaited}"))
            return
        self._pending.popleft()
        pending.timer.cancel()
        if pending.future.done():  # too late, or nobody waits any more
            return
        try:
            answer = frame if pending.response is None else _decode(frame, pending.response, pending.version)
        except ProtocolError as error:
            pending.future.set_exception(error)
        else:
            pending.future.set_result(answer)

    def _on_closed(self, failure: Exception | None) -> None:
        if self._lost is None:
            how = f": {failure}" if failure else " by the other side"
            self._lost = f"the connection to {self.address} was closed{how}"
        while self._pending:
            pending = self._pending.popleft()
            pending.timer.cancel()
            if not pending.future.done():
                pending.future.set_exception(self._loss())
                pending.future.exception()  # so that nobody is told when the caller has gone
        if not self._gone.done():
            self._gone.set_result(None)

    def _loss(self) -> ConnectionLost:
        return ConnectionLost(self._lost or f"the connection to {self.address} is closed")

    # Versions

    def _choose(self, request: type[Request]) -> int:
        name = APIS[request.api]
        lowest, highest = request.schema.first_version, last_stable_version(request)
        pinned = self._max_versions.get(name)
        if self.api_versions is None:
            return max(lowest, min(highest, pinned or 0))
        if request.api not in self.api_versions:
            raise KafkaError(Error.UNSUPPORTED_VERSION, f"{self.address} has no {name}")
        first, last = self.api_versions[request.api]
        version = min(highest, last, highest if pinned is None else pinned)
        if version < max(lowest, first):
            ours = f"{lowest}-{highest if pinned is None else pinned}"
            raise KafkaError(Error.UNSUPPORTED_VERSION, f"{name}: {self.address} has {first}-{last}, we want {ours}")
        return version

    async def _ask_versions(self, timeout_ms: int) -> None:
        """Ask in our version; a broker that does not know it says which it has, or at least answers v0."""
        from minibroker.protocol.messages.api_versions import ApiVersionsRequest

        highest = min(last_stable_version(ApiVersionsRequest), self._max_versions.get("ApiVersions", 0x7FFF))
        request = ApiVersionsRequest(client_software_name="minibroker", client_software_version=__version__)
        answer: ApiVersionsResponse = await self.call(request, highest, timeout_ms=timeout_ms)
        if answer.error_code == Error.UNSUPPORTED_VERSION and highest > 0:
            offered = [row.max_version for row in answer.api_keys if row.api_key == API_VERSIONS]
            version = min(highest, *offered) if offered else 0
            answer = await self.call(request, version if version < highest else 0, timeout_ms=timeout_ms)
        if answer.error_code:
            raise error_of(answer.error_code, f"ApiVersions of {self.address}")
        self.api_versions = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        self.features = {row.name: row.max_version_level for row in answer.finalized_features}


def last_stable_version(request: type[Request]) -> int:
    """Return the highest version that Kafka has released."""
    unstable = request.schema.settings.get("unstable")
    last = request.schema.last_version
    return min(last, parse_range(unstable)[0] - 1) if unstable else last


def error_of(code: int, message: str) -> KafkaError:
    """Return the error for a code that a broker sent, also for one that is newer than we are."""
    from minibroker.errors import error_name, find_error

    found = find_error(code)
    if found is None:
        return KafkaError(Error.UNKNOWN_SERVER_ERROR, f"{error_name(code)}: {message}")
    return KafkaError(found, message)


def _decode(frame: bytes | bytearray, response: type[Response], version: int) -> Response:
    if response.api == API_VERSIONS and frame[4:6] == b"\0\x23":  # UNSUPPORTED_VERSION: always in version 0
        version = 0
    _, position = ResponseHeader.decode_from(frame, 0, response.header_version(version))
    return response.decode(memoryview(frame)[position:], version)


async def _before(clock: Clock, timeout_ms: int, task: asyncio.Task[T], message: str) -> T:
    """Return what the task returns; cancel it when the time is up and raise CallTimeout."""
    expired = False

    def expire() -> None:
        nonlocal expired
        expired = True
        task.cancel()

    timer = clock.after(timeout_ms, expire)
    try:
        return await task
    except asyncio.CancelledError:
        if expired:
            raise CallTimeout(message) from None
        raise
    finally:
        timer.cancel()
