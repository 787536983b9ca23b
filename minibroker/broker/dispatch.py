"""From a frame to its answer: find who serves it, decode, ask, encode; and what every handler is given.

A handler is a plain function `handler(request, context)`; it returns the response, None if there is none (acks 0), a
`Later` that will get it, or a coroutine where more than one thing is to be waited for. What it does before it returns
is done at once, while the bytes of the request still lie in the receive buffer; `Records` of the request are not to be
touched later.
Where a client can make the work long, the handler is a generator that returns the response, and yields after each
element how long about that took, in microseconds, or what it has to wait for: turns.py lets others in between.
Modules are imported when their first request comes.

What nobody serves is Kafka's to decide: ApiVersions in an unknown version is answered in version 0, so that the client
can ask again; anything else closes the connection.
"""

from __future__ import annotations

from importlib import import_module
from struct import Struct as Layout

from minibroker.broker.apis import SERVED
from minibroker.controller.controller import check_name
from minibroker.errors import (
    Error,
    InvalidLength,
    KafkaError,
    ProtocolError,
    UnsupportedVersion,
    dependency_missing,
)
from minibroker.protocol.headers import Request, RequestHeader, Response
from minibroker.protocol.registry import request_class, response_class
from minibroker.schema.coding import decode_from, encode_chunks
from minibroker.server.later import Later
from minibroker.turns import is_work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Sequence
    from typing import Any, Final

    from minibroker.broker.broker_parts import BrokerParts
    from minibroker.replication.replica import Replica
    from minibroker.server.connection import Answer, Connection
    from minibroker.server.http import HttpAnswer, HttpRequest
    from minibroker.turns import Work

    Frame = list[bytes | memoryview]
    Eventually = Response | Later | Coroutine[Any, Any, Response | None] | None
    Handler = Callable[[Any, "Context"], Eventually | Work[Response]]
    # Returns what answers in the place of a request's handler, given the correlation id; None: nothing does.
    Injection = Callable[["Route", Request, "Context"], Callable[[int], Answer] | None]
    # Returns what stands before the handler of an API and version, or the handler itself.
    Guard = Callable[[int, int, Handler], Handler]

PRODUCE: Final = 0
API_VERSIONS: Final = 18
# What the controller of a cluster answers, whichever broker is asked.
FORWARDED: Final = frozenset((19, 20, 30, 31, 33, 37, 43, 44, 45, 46, 49, 51, 55, 57, 64, 80, 81, 94))
SMALL_FRAME_BYTES_MAX: Final = 8 * 1024 * 1024
LARGE_FRAME_BYTES: Final = 8 * 1024  # from here on a request is read in pieces: some 2,000 elements are in one
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024  # but for records: a client of librdkafka reads no more than 100 MB
CLIENT_IDS_MAX: Final = 1000  # so many are remembered, if they are not longer than
CLIENT_ID_BYTES_MAX: Final = 256
HEADER_START: Final = Layout(">hhih")  # api, version, correlation id, length of the client id
ANSWER_START: Final = Layout(">ii")  # length of what follows, correlation id
NO_ID: Final = bytes(16)


class Context:
    """What a handler knows beyond its request."""

    __slots__ = ("api_version", "client_id", "connection", "node")  # who asks: connection.principal

    def __init__(self, node: BrokerParts, connection: Connection, api_version: int, client_id: str | None):
        self.node = node
        self.connection = connection
        self.api_version = api_version
        self.client_id = client_id

    @property
    def now_ms(self) -> int:
        return self.node.clock.now_ms()

    @property
    def steady_ms(self) -> int:
        return self.node.clock.steady_ms()


class Route:
    """What is needed to answer one version of one API."""

    __slots__ = ("api", "cls", "handler", "header_end", "header_version", "version")

    def __init__(self, api: int, version: int, cls: type[Request], handler: Handler):
        self.api = api
        self.version = version
        self.cls = cls
        self.handler = handler
        self.header_version = cls.header_version(version)
        # Behind the correlation id: from header v1 on, that there are no tagged fields.
        self.header_end = b"\0" if response_class(api).header_version(version) == 1 else b""

    def frame(self, response: Response, correlation_id: int) -> Frame:
        """Return the frame of an answer in pieces, `Records` values among them as they were given."""
        return self._frame(encode_chunks(response, self.version), correlation_id)

    def frame_in_pieces(self, response: Response, correlation_id: int) -> Generator[int, None, Frame]:
        """Do what `frame` does, and yield now and then how many elements have been written since."""
        chunks = yield from response.encode_in_pieces(self.version, ANSWER_BYTES_MAX)
        return self._frame(chunks, correlation_id)

    def _frame(self, chunks: Frame, correlation_id: int) -> Frame:
        size_bytes = 4 + len(self.header_end)
        for chunk in chunks:
            size_bytes += len(chunk)
        begin = ANSWER_START.pack(size_bytes, correlation_id) + self.header_end
        if len(chunks) == 1 and type(chunks[0]) is bytes:
            return [begin + chunks[0]]
        return [begin, *chunks]


def find_route(api: int, version: int) -> Route:
    """Return the route of a version that is served."""
    module, _, name = SERVED[api][2].rpartition(".")
    handler = getattr(import_module(f"minibroker.broker.handlers.{module}"), name)
    return Route(api, version, request_class(api), handler)


class Dispatcher:
    """Answers the requests of one broker."""

    def __init__(self, node: BrokerParts):
        self.node = node
        self.stretches = node.stretches
        self.shares = node.shares
        self.request_counts = node.request_counts
        self.injection: Injection | None = None  # as long as there are rules for faults
        self.guards: tuple[Guard, ...] = ()  # who may ask, and how much each may take; the last one is asked first
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
            route = self._routes[api, version] = self._find_route(api, version)
            self.request_counts.setdefault((api, version), 0)
        self.request_counts[api, version] += 1
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
        context = Context(self.node, connection, version, client_id)
        if len(frame) > LARGE_FRAME_BYTES and api != PRODUCE:
            return self._answer_large(bytes(frame), position, route, context, correlation_id)
        request, _ = decode_from(route.cls, frame, position, version)  # Kafka does not mind bytes behind it either
        return self._respond(route, request, context, correlation_id)

    def guard(self, guards: Sequence[Guard]) -> None:
        """Have these stand before all handlers from the next request on."""
        self.guards = tuple(guards)
        self._routes.clear()

    def _find_route(self, api: int, version: int) -> Route:
        route = find_route(api, version)
        if api in FORWARDED and self.node.replication is not None:
            route.handler = _forward
        for guard in self.guards:
            route.handler = guard(api, version, route.handler)
        return route

    async def _answer_large(
        self, frame: bytes, position: int, route: Route, context: Context, correlation_id: int
    ) -> Frame | None:
        """Answer a request that is to be read in pieces, for others are waiting; and so is its answer written."""
        request, _ = await self.shares.run(route.cls.decode_in_pieces(frame, position, route.version))
        answer: Frame | None = await _awaited(self._respond(route, request, context, correlation_id, is_large=True))
        return answer

    def _respond(
        self, route: Route, request: Request, context: Context, correlation_id: int, *, is_large: bool = False
    ) -> Answer:
        """Have a request handled, and return its answer, or what waits for it."""
        if self.injection is not None:
            carry_out = self.injection(route, request, context)
            if carry_out is not None:
                return carry_out(correlation_id)
        try:
            response = route.handler(request, context)
            is_long = not isinstance(response, Response) and type(response) is not Later and is_work(response)
            if is_long:
                response = self.shares.start(self._long(response, route, request))  # type: ignore[arg-type]
        except ModuleNotFoundError as missing:
            response, is_long = self._unable(missing, route, request), False
        if response is None:
            return None
        if not is_large:
            if isinstance(response, Response):
                return route.frame(response, correlation_id)
            if type(response) is Later:
                return response.into(lambda made: route.frame(made, correlation_id))
        return self._later(response, route, correlation_id, is_long=is_large or is_long)

    def begin(self, handler: Handler, request: Request, context: Context) -> Eventually:
        """Have a request handled; what takes long goes on in shares."""
        response = handler(request, context)
        return self.shares.start(response) if is_work(response) else response  # type: ignore[return-value]

    async def handle(self, request: Request, context: Context) -> Any:
        """Return the answer to a request that has come by another way than as a frame, by the same guards."""
        handler = self._find_route(request.api, context.api_version).handler
        return await _awaited(self.begin(handler, request, context))

    async def _later(self, eventually: Any, route: Route, correlation_id: int, *, is_long: bool) -> Frame | None:
        """Return the answer when it is there; that to a request which took long may be a long one, too."""
        response = await _awaited(eventually)
        if response is None:
            return None
        if is_long or response.is_long:
            return await self.shares.run(route.frame_in_pieces(response, correlation_id))
        return route.frame(response, correlation_id)

    def _long(self, work: Work[Eventually], route: Route, request: Request) -> Work[Eventually]:
        """Do long work; the request is not kept while its answer waits for something."""
        try:
            return (yield from work)
        except ModuleNotFoundError as missing:
            return self._unable(missing, route, request)

    def _unable(self, missing: ModuleNotFoundError, route: Route, request: Request) -> Response:
        """Return what Kafka answers when it fails: a package is not installed, of which people are told once."""
        from minibroker.faults.answers import Fault, refuse

        line = dependency_missing(missing)
        self.node.say_once("dependency", line)
        if route.api == PRODUCE and not request.acks:  # type: ignore[attr-defined]
            raise ProtocolError(line)
        return refuse(request, route.api, route.version, Fault(Error.UNKNOWN_SERVER_ERROR, line))

    def _client_id(self, data: memoryview) -> str:
        """Return a client's name; it says the same one each time."""
        name = bytes(data)
        known = self._client_ids.get(name)
        if known is None:
            known = name.decode("utf-8", "replace")
            if len(self._client_ids) < CLIENT_IDS_MAX and len(name) <= CLIENT_ID_BYTES_MAX:
                self._client_ids[name] = known
        return known

    def http_refusal(self, request: HttpRequest) -> HttpAnswer | None:
        from minibroker.broker.http_verbs import find_refusal

        return find_refusal(self.node, request)

    def http(self, request: HttpRequest) -> HttpAnswer | Coroutine[None, None, HttpAnswer]:
        from minibroker.broker.http_verbs import answer

        return answer(self.node, request)

    def _unserved(self, api: int, version: int, correlation_id: int) -> Frame:
        if api == API_VERSIONS and API_VERSIONS in self.node.served:
            from minibroker.protocol.messages.api_versions import ApiVersionsResponse

            route = find_route(API_VERSIONS, 0)  # in which the client reads how to ask
            first, last = self.node.announced[API_VERSIONS]
            own = ApiVersionsResponse.ApiVersion(api_key=API_VERSIONS, min_version=first, max_version=last)
            refusal = ApiVersionsResponse(error_code=Error.UNSUPPORTED_VERSION, api_keys=[own])
            return route.frame(refusal, correlation_id)
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


# What handlers share


def find_replica(node: BrokerParts, topic: str, topic_id: bytes, partition: int, *, by_id: bool = False) -> Replica:
    """Return a partition of this broker; by_id: the request has ids and no names."""
    if by_id:
        name = node.topic_name(topic_id)
        if name is None:
            raise KafkaError(Error.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id.hex()}")
        topic = name
    replica = node.replicas.get((topic, partition))
    if replica is None:
        if (topic, partition) in node.partitions.unopened:
            raise KafkaError(Error.KAFKA_STORAGE_ERROR, str(node.partitions.unopened[topic, partition]))
        if node.has_partition(topic, partition):
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER, f"{topic}-{partition} is not on this broker")
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition} of {topic!r}")
    if replica.log.offline is not None:
        raise KafkaError(Error.KAFKA_STORAGE_ERROR, f"{topic}-{partition} is offline")
    return replica


def known_leader(node: BrokerParts, topic: str, topic_id: bytes, partition: int) -> tuple[int, int]:
    """Return who leads a partition and in which epoch, as clients are told who asked the wrong broker (KIP-951)."""
    name = topic or node.topic_name(topic_id) or ""
    found = node.image.topics.get(name)
    if found is None or not 0 <= partition < len(found.partitions):
        return -1, -1
    return found.partitions[partition].leader, found.partitions[partition].leader_epoch


def code_for(error: KafkaError, is_old: bool) -> Error:
    """Return the code for a client; old ones do not know that a disk can fail, and look for another leader."""
    if is_old and error.code == Error.KAFKA_STORAGE_ERROR:
        return Error.NOT_LEADER_OR_FOLLOWER
    return error.code


INTERNAL_TOPICS: Final = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))


def is_internal(topic: str) -> bool:
    """Whether Kafka keeps a topic for itself."""
    return topic in INTERNAL_TOPICS


def is_valid_name(topic: str) -> bool:
    """Whether a topic can have this name."""
    try:
        check_name(topic)
    except KafkaError:
        return False
    return True
