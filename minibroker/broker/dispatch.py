"""From a frame to its answer: find who serves it, decode, ask, encode.

What nobody serves is Kafka's to decide: ApiVersions in an unknown version is answered in version 0, so that the client
can ask again; anything else closes the connection.
"""

from __future__ import annotations

from struct import Struct as Layout
from types import GeneratorType

from minibroker.broker.apis import Route, find_route
from minibroker.broker.handlers.context import Context
from minibroker.errors import InvalidLength, ProtocolError, UnsupportedVersion
from minibroker.protocol.framing import answer_frame, answer_in_pieces, encode_response
from minibroker.protocol.headers import RequestHeader, Response
from minibroker.server.later import Later

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from minibroker.broker.apis import Eventually, Handler
    from minibroker.broker.broker import Node
    from minibroker.broker.inject_faults import Injection
    from minibroker.protocol.headers import Request
    from minibroker.server.connection import Answer, Connection
    from minibroker.server.http import HttpAnswer, HttpRequest

PRODUCE, API_VERSIONS = 0, 18
# ClusterAdmin that the controller of a cluster fulfils, whichever broker they come to.
FORWARDED = frozenset((19, 20, 33, 37, 43, 44, 45, 46, 55, 57, 64, 80, 81, 94))
SMALL_FRAME_BYTES_MAX = 8 * 1024 * 1024
LARGE_FRAME_BYTES = 8 * 1024  # from here on a request is read in pieces: some 2,000 elements are in one
CLIENT_IDS_MAX = 1000  # so many are remembered, if they are not longer than
CLIENT_ID_BYTES_MAX = 256
HEADER_START = Layout(">hhih")  # api, version, correlation id, length of the client id


class Dispatcher:
    """Answers the requests of one broker."""

    def __init__(self, node: Node):
        self.node = node
        self.stretches = node.stretches
        self.shares = node.shares
        self.request_counts: dict[tuple[int, int], int] = {}
        self.asked_count = 0  # the sum of them
        self.injection: Injection | None = None  # there is one as long as there are rules for faults
        self._client_ids: dict[bytes, str] = {}
        self._routes: dict[tuple[int, int], Route] = {}

    def disk_failed(self, failure: Exception) -> None:
        self.node.disk_failed(failure)

    def answer(self, frame: memoryview, connection: Connection) -> Answer:
        """Answer one request; a ProtocolError closes the connection."""
        if len(frame) < HEADER_START.size:
            raise InvalidLength(f"{len(frame)} bytes are no request", 0, "RequestHeader")
        api, version, correlation_id, client_bytes = HEADER_START.unpack_from(frame)
        if len(frame) > SMALL_FRAME_BYTES_MAX and api != PRODUCE:
            # Kafka: takes frames up to socket.request.max.bytes of every API. Only records need that much.
            raise InvalidLength(f"{len(frame)} bytes are too many for api {api}", 0, "RequestHeader")
        route = self._routes.get((api, version))
        if route is None:
            served = self.node.served.get(api)
            if served is None or not served[0] <= version <= served[1]:
                return self._unserved(api, version, correlation_id)
            route = self._routes[api, version] = find_route(api, version)
            self.request_counts[api, version] = 0
        self.request_counts[api, version] += 1
        self.asked_count += 1
        # The start of every header is the same, so it need not be decoded; the end may hold tagged fields.
        position = HEADER_START.size + max(client_bytes, 0)
        if position > len(frame):
            raise InvalidLength(f"a client id of {client_bytes} bytes ends behind the request", 8, "RequestHeader")
        client_id = self._client_id(frame[HEADER_START.size : position]) if client_bytes >= 0 else None
        if route.header_version == 2:
            if position < len(frame) and not frame[position]:
                position += 1
            else:
                _, position = RequestHeader.decode_from(frame, 0, 2)
        if len(frame) > LARGE_FRAME_BYTES and api != PRODUCE:
            return self._answer_large(bytes(frame), position, route, connection, client_id, correlation_id)
        request, _ = route.decode_from(frame, position, version)  # Kafka does not mind bytes behind it either
        context = Context(self.node, connection, version, client_id)
        handler = route.handler
        if api in FORWARDED and self.node.replication is not None:
            handler = _forward
        if self.injection is not None:
            rule = self.injection.find_rule(route, request, context)
            if rule is not None:
                return self.injection.carry_out(rule, route, handler, request, context, correlation_id)
        response = handler(request, context)
        if response is None:
            return None
        if isinstance(response, Response):
            return answer_frame(response, version, correlation_id, route.response_header_end)
        if isinstance(response, Later):
            return response.into(lambda made: answer_frame(made, version, correlation_id, route.response_header_end))
        if isinstance(response, GeneratorType):
            eventually = self.shares.start(response)
            if isinstance(eventually, Response):
                return answer_frame(eventually, version, correlation_id, route.response_header_end)
            return self._answer_long(eventually, route, correlation_id)
        return _later(response, version, correlation_id)  # type: ignore[arg-type]

    async def _answer_large(
        self,
        frame: bytes,
        position: int,
        route: Route,
        connection: Connection,
        client_id: str | None,
        correlation_id: int,
    ) -> list[bytes | memoryview] | None:
        """Answer a request that is to be read in pieces, for others are waiting."""
        request, _ = await self.shares.run(route.cls.decode_in_pieces(frame, position, route.version))
        context = Context(self.node, connection, route.version, client_id)
        handler = route.handler
        if route.api in FORWARDED and self.node.replication is not None:
            handler = _forward
        if self.injection is not None:
            rule = self.injection.find_rule(route, request, context)
            if rule is not None:
                answer = self.injection.carry_out(rule, route, handler, request, context, correlation_id)
                return await _awaited(answer)  # type: ignore[no-any-return]
        return await self._answer_long(self.begin(handler, request, context), route, correlation_id)

    def begin(self, handler: Handler, request: Request, context: Context) -> Eventually:
        """Have a request handled; what takes long goes on in shares."""
        response = handler(request, context)
        return self.shares.start(response) if isinstance(response, GeneratorType) else response  # type: ignore[return-value]

    async def _answer_long(
        self, eventually: Eventually, route: Route, correlation_id: int
    ) -> list[bytes | memoryview] | None:
        """Return the answer to a request that took long: that may be a long one, too."""
        response = await _awaited(eventually)
        if response is None:
            return None
        return await self.shares.run(
            answer_in_pieces(response, route.version, correlation_id, route.response_header_end)
        )

    def _client_id(self, data: memoryview) -> str:
        """Return a client's name; it says the same one each time."""
        name = bytes(data)
        known = self._client_ids.get(name)
        if known is None:
            known = name.decode("utf-8", "replace")
            if len(self._client_ids) < CLIENT_IDS_MAX and len(name) <= CLIENT_ID_BYTES_MAX:
                self._client_ids[name] = known
        return known

    def switch_faults(self, is_on: bool) -> None:
        """Ask the rules for faults before each request, or no more."""
        if is_on:
            from minibroker.broker.inject_faults import Injection

            self.injection = Injection(self.node)
        else:
            self.injection = None

    def http_refusal(self, request: HttpRequest) -> HttpAnswer | None:
        from minibroker.broker.http_verbs import find_refusal

        return find_refusal(self.node, request)

    def http(self, request: HttpRequest) -> HttpAnswer | Coroutine[None, None, HttpAnswer]:
        from minibroker.broker.http_verbs import answer

        return answer(self.node, request)

    def _unserved(self, api: int, version: int, correlation_id: int) -> list[bytes | memoryview]:
        if api == API_VERSIONS and API_VERSIONS in self.node.served:
            from minibroker.broker.handlers.versions import unknown_version

            return encode_response(unknown_version(self.node.announced), 0, correlation_id)
        raise UnsupportedVersion(f"api {api} version {version} is not served here", 0, "RequestHeader")


async def _forward(request: Request, context: Context) -> Response:
    """Have the controller answer; who cannot reach it closes the connection, so that the client asks another broker."""
    from minibroker.replication.network import NetworkError

    try:
        return await context.node.forward(request, context.api_version)
    except NetworkError as failure:
        raise ProtocolError(f"no answer from the controller: {failure}") from failure


async def _awaited(eventually: Any) -> Any:
    return await eventually if hasattr(eventually, "__await__") else eventually


async def _later(
    waiting: Coroutine[Any, Any, Response | None], version: int, correlation_id: int
) -> list[bytes | memoryview] | None:
    response = await waiting
    return None if response is None else encode_response(response, version, correlation_id)
