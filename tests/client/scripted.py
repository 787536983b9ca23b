"""A broker that says what a test tells it to, and a clock that a test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from minibroker.client.connection import last_stable_version
from minibroker.clock import SESSION
from minibroker.errors import Error
from minibroker.protocol.framing import FrameReader, decode_request, encode_response
from minibroker.protocol.headers import Request, RequestHeader, Response
from minibroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from minibroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from minibroker.protocol.registry import APIS, request_class

CLOSE = object()  # an answer: close the connection
SILENCE = None  # an answer: none
Answer = Response | bytes | object | None
Answers = Mapping[type[Request], Callable[[Any, int], Answer]]


class ScriptedBroker:
    """Answers each kind of request with what the function for it returns: a response, bytes as they are, or CLOSE.

    It keeps the rules of ApiVersions, with the ranges given; all that we know by default.
    """

    def __init__(
        self,
        answers: Answers | None = None,
        ranges: Mapping[str, tuple[int, int]] | None = None,
        cut: Callable[[bytes], Iterable[bytes]] = lambda data: [data],
    ):
        self.answers = dict(answers or {})
        self.ranges = {
            api: (request_class(api).schema.first_version, last_stable_version(request_class(api)))
            if ranges is None
            else ranges[name]
            for api, name in APIS.items()
            if ranges is None or name in ranges
        }
        self.requests: list[tuple[RequestHeader, Request]] = []
        self.connection_count = 0
        self.port = 0
        self._cut = cut  # how answers are cut into pieces on their way
        self._writers: list[asyncio.StreamWriter] = []
        self._arrived = asyncio.Condition()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
        await self._server.wait_closed()

    def asked(self, kind: type[Request]) -> list[Any]:
        return [request for _, request in self.requests if isinstance(request, kind)]

    def versions(self, kind: type[Request]) -> list[int]:
        return [header.request_api_version for header, request in self.requests if isinstance(request, kind)]

    async def wait_for_requests(self, kind: type[Request], count: int) -> None:
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.asked(kind)) >= count)

    async def send(self, data: bytes) -> None:
        """Send bytes on the newest connection."""
        await self._send(self._writers[-1], data)

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        for piece in self._cut(data):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)

    def hang_up(self) -> None:
        self._writers[-1].close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        self._writers.append(writer)
        frames = FrameReader()
        try:
            while data := await reader.read(65536):
                for frame in frames.feed(data):
                    header, request = decode_request(frame)
                    self.requests.append((header, request))
                    answer = self._answer(request, header.request_api_version)
                    if answer is CLOSE:
                        return
                    if isinstance(answer, Response):
                        version = header.request_api_version
                        if isinstance(answer, ApiVersionsResponse) and answer.error_code:
                            version = 0
                        answer = b"".join(encode_response(answer, version, header.correlation_id))
                    if isinstance(answer, bytes):
                        await self._send(writer, answer)
                    async with self._arrived:
                        self._arrived.notify_all()
        except ConnectionError:
            pass  # the client has gone, which is its right
        finally:
            writer.close()

    def _answer(self, request: Request, version: int) -> Answer:
        if type(request) in self.answers:
            return self.answers[type(request)](request, version)
        if isinstance(request, ApiVersionsRequest):
            return api_versions(self.ranges, version)
        if isinstance(request, MetadataRequest):
            return metadata(self.port, {topic.name or "": 1 for topic in request.topics or ()})
        raise AssertionError(f"the script has no answer to {request!r}")


def api_versions(ranges: Mapping[int, tuple[int, int]], version: int) -> ApiVersionsResponse:
    """Answer as brokers since 2.4 do: who asks in a version that is too high learns which one is not."""
    rows = {
        api: ApiVersionsResponse.ApiVersion(api_key=api, min_version=a, max_version=b) for api, (a, b) in ranges.items()
    }
    if version > ranges[18][1]:
        return ApiVersionsResponse(error_code=Error.UNSUPPORTED_VERSION, api_keys=[rows[18]])
    return ApiVersionsResponse(error_code=0, api_keys=list(rows.values()))


def metadata(port: int, topics: Mapping[str, int], leaders: Mapping[int, int] | None = None) -> MetadataResponse:
    """Describe a cluster of one broker with these topics and numbers of partitions.

    leaders: partition -> broker, where that is not the only one there is.
    """
    Topic = MetadataResponse.MetadataResponseTopic
    return MetadataResponse(
        brokers=[MetadataResponse.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=port)],
        cluster_id="scripted",
        controller_id=1,
        topics=[
            Topic(
                error_code=0,
                name=name,
                topic_id=topic_id(name),
                partitions=[
                    Topic.MetadataResponsePartition(
                        error_code=0,
                        partition_index=index,
                        leader_id=(leaders or {}).get(index, 1),
                        leader_epoch=0,
                        replica_nodes=[1],
                        isr_nodes=[1],
                    )
                    for index in range(count)
                ],
            )
            for name, count in topics.items()
        ],
    )


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"!")[:16]


class TestClock:
    """Time stands still but for `pass_time`; sleeping takes none, and is written down."""

    __test__ = False

    def __init__(self) -> None:
        self.now = 1_700_000_000_000
        self.slept: list[float] = []
        self._timers: list[tuple[float, Callable[[], object], _Timer]] = []

    def now_ms(self) -> int:
        return self.now

    def steady_ms(self) -> int:
        return self.now

    def elapsed_ms(self) -> int:
        return self.now

    def after(self, delay_ms: float, callback: Callable[[], object], kind: str = SESSION) -> _Timer:
        timer = _Timer()
        self._timers.append((self.now + delay_ms, callback, timer))
        if delay_ms == 0:
            asyncio.get_running_loop().call_soon(self.pass_time, 0)
        return timer

    async def sleep(self, delay_ms: float, kind: str = SESSION) -> None:
        self.slept.append(delay_ms)
        await asyncio.sleep(0)

    def pass_time(self, delay_ms: int) -> None:
        self.now += delay_ms
        due = [row for row in self._timers if row[0] <= self.now]
        self._timers = [row for row in self._timers if row[0] > self.now]
        for _, callback, timer in due:
            if not timer.cancelled:
                callback()


class _Timer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
