"""From a frame to its answer: find who serves it, decode, ask, encode.

What nobody serves is Kafka's to decide: ApiVersions in an unknown version is answered in version 0, so that the client
can ask again; anything else closes the connection.
"""

from __future__ import annotations

from minibroker.broker.apis import Route, find_route
from minibroker.broker.handlers.context import Context
from minibroker.errors import InvalidLength, UnsupportedVersion
from minibroker.protocol.framing import API_AND_VERSION, encode_response
from minibroker.protocol.headers import RequestHeader, Response

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from minibroker.broker.node import Node
    from minibroker.server.connection import Answer, Connection

API_VERSIONS = 18
NO_CORRELATION_BYTES = 8  # api, version and correlation id stand in front in every header version


class Dispatcher:
    """Answers the requests of one broker."""

    def __init__(self, node: Node):
        self.node = node
        self.request_counts: dict[tuple[int, int], int] = {}
        self._routes: dict[tuple[int, int], Route] = {}

    def answer(self, frame: memoryview, connection: Connection) -> Answer:
        """Answer one request; a ProtocolError closes the connection."""
        if len(frame) < NO_CORRELATION_BYTES:
            raise InvalidLength(f"{len(frame)} bytes are no request", 0, "RequestHeader")
        key = API_AND_VERSION.unpack_from(frame)
        route = self._routes.get(key)
        if route is None:
            served = self.node.served.get(key[0])
            if served is None or not served[0] <= key[1] <= served[1]:
                return self._unserved(key, frame)
            route = self._routes[key] = find_route(*key)
            self.request_counts[key] = 0
        self.request_counts[key] += 1
        header, position = RequestHeader.decode_from(frame, 0, route.header_version)
        request = route.decode(frame[position:], route.version)
        response = route.handler(request, Context(self.node, connection, route.version, header.client_id))
        if response is None:
            return None
        if isinstance(response, Response):
            return encode_response(response, route.version, header.correlation_id)
        return _later(response, route.version, header.correlation_id)

    def http(self, path: str) -> tuple[str, str, bytes]:
        from minibroker.broker.http_pages import page

        return page(self.node, path)

    def _unserved(self, key: tuple[int, int], frame: memoryview) -> list[bytes | memoryview]:
        if key[0] == API_VERSIONS and API_VERSIONS in self.node.served:
            from minibroker.broker.handlers.versions import unknown_version

            correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
            return encode_response(unknown_version(self.node.announced), 0, correlation_id)
        raise UnsupportedVersion(f"api {key[0]} version {key[1]} is not served here", 0, "RequestHeader")


async def _later(
    waiting: Coroutine[Any, Any, Response | None], version: int, correlation_id: int
) -> list[bytes | memoryview] | None:
    response = await waiting
    return None if response is None else encode_response(response, version, correlation_id)
