"""One connection: versions, answers in all kinds of pieces, and every way in which it can end."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from minibroker.client.connection import CallTimeout, Connection, ConnectionLost
from minibroker.errors import Error, KafkaError, ProtocolError
from minibroker.protocol.framing import encode_request
from minibroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from minibroker.protocol.messages.produce import ProduceRequest
from tests.client.scripted import CLOSE, SILENCE, ScriptedBroker, TestClock, metadata

pytestmark = pytest.mark.outside


def about(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])


def names(answer: MetadataResponse) -> list[str | None]:
    return [topic.name for topic in answer.topics]


@pytest.mark.parametrize(
    ("theirs", "pinned", "used"), [((0, 4), None, 4), ((0, 99), None, 13), ((0, 99), 5, 5), ((2, 4), 9, 4)]
)
async def test_a_call_goes_out_in_the_highest_version_that_both_know(
    theirs: tuple[int, int], pinned: int | None, used: int
) -> None:
    async with ScriptedBroker(ranges={"ApiVersions": (0, 3), "Metadata": theirs}) as broker:
        pins = {} if pinned is None else {"Metadata": pinned}
        async with await Connection.open("127.0.0.1", broker.port, max_versions=pins) as connection:
            assert connection.api_versions == {18: (0, 3), 3: theirs}
            assert names(await connection.call(about("orders"))) == ["orders"]
        assert broker.versions(MetadataRequest) == [used]


async def test_a_version_that_is_given_is_used() -> None:
    async with ScriptedBroker() as broker, await Connection.open("127.0.0.1", broker.port) as connection:
        await connection.call(about("orders"), 1)
        assert broker.versions(MetadataRequest) == [1]


@pytest.mark.parametrize(
    ("ours", "theirs"), [(None, {"ApiVersions": (0, 3)}), (1, {"ApiVersions": (0, 3), "Metadata": (2, 4)})]
)
async def test_what_no_version_fits_is_not_sent(ours: int | None, theirs: dict[str, tuple[int, int]]) -> None:
    pins = {} if ours is None else {"Metadata": ours}
    async with ScriptedBroker(ranges=theirs) as broker:
        async with await Connection.open("127.0.0.1", broker.port, max_versions=pins) as connection:
            assert not connection.has(MetadataRequest)
            with pytest.raises(KafkaError, match="Metadata") as caught:
                await connection.call(about("orders"))
        assert caught.value.code == Error.UNSUPPORTED_VERSION
        assert not broker.asked(MetadataRequest)


async def test_asking_for_versions_steps_down_to_what_the_broker_offers() -> None:
    async with ScriptedBroker(ranges={"ApiVersions": (0, 2), "Metadata": (0, 8)}) as broker:
        async with await Connection.open("127.0.0.1", broker.port) as connection:
            assert connection.version_of(MetadataRequest) == 8
        assert broker.versions(ApiVersionsRequest)[1:] == [2]


async def test_asking_for_versions_steps_down_to_0_if_the_broker_offers_nothing() -> None:
    def answer(request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
        if version:
            return ApiVersionsResponse(error_code=Error.UNSUPPORTED_VERSION, api_keys=[])
        return ApiVersionsResponse(
            error_code=0, api_keys=[ApiVersionsResponse.ApiVersion(api_key=3, min_version=0, max_version=2)]
        )

    async with (
        ScriptedBroker({ApiVersionsRequest: answer}) as broker,
        await Connection.open("127.0.0.1", broker.port) as connection,
    ):
        assert connection.version_of(MetadataRequest) == 2


async def test_a_broker_without_api_versions_is_spoken_to_in_version_0_or_the_pinned_one() -> None:
    async with ScriptedBroker() as broker:
        async with await Connection.open(
            "127.0.0.1", broker.port, ask_versions=False, max_versions={"Fetch": 1}
        ) as connection:
            await connection.call(about("orders"))
            assert connection.version_of(FetchRequest) == 1
        assert [(type(request), header.request_api_version) for header, request in broker.requests] == [
            (MetadataRequest, 0)
        ]


async def test_calls_overlap_and_each_gets_its_own_answer() -> None:
    async with ScriptedBroker() as broker, await Connection.open("127.0.0.1", broker.port) as connection:
        answers = await asyncio.gather(*(connection.call(about(f"t{number}")) for number in range(200)))
        assert [names(answer) for answer in answers] == [[f"t{number}"] for number in range(200)]
        assert connection.pending_count == 0


@pytest.mark.parametrize("step", [1, 3, 1000])
async def test_answers_may_come_in_pieces(step: int) -> None:
    def cut(data: bytes) -> list[bytes]:
        return [data[start : start + step] for start in range(0, len(data), step)]

    ranges = {"ApiVersions": (0, 3), "Metadata": (0, 13)}
    async with (
        ScriptedBroker(cut=cut, ranges=ranges) as broker,
        await Connection.open("127.0.0.1", broker.port) as connection,
    ):
        answers = await asyncio.gather(connection.call(about("a")), connection.call(about("b")))
        assert [names(answer) for answer in answers] == [["a"], ["b"]]


async def test_answers_larger_than_the_buffer_come_through_whole() -> None:
    records = bytes(range(256)) * 4096
    Topic = FetchResponse.FetchableTopicResponse

    def answer(request: FetchRequest, version: int) -> FetchResponse:
        part = Topic.PartitionData(partition_index=0, error_code=0, high_watermark=0, records=records)
        return FetchResponse(responses=[Topic(topic="t", partitions=[part])])

    async with (
        ScriptedBroker({FetchRequest: answer}) as broker,
        await Connection.open("127.0.0.1", broker.port) as connection,
    ):
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
        for answered in await asyncio.gather(*(connection.call(request) for _ in range(3))):
            assert bytes(answered.responses[0].partitions[0].records) == records
        assert names(await connection.call(about("small"))) == ["small"]


async def test_produce_without_acks_has_no_answer_and_disturbs_nobody() -> None:
    async with (
        ScriptedBroker({ProduceRequest: lambda request, version: SILENCE}) as broker,
        await Connection.open("127.0.0.1", broker.port) as connection,
    ):
        assert await connection.call(ProduceRequest(acks=0, timeout_ms=1, topic_data=[])) is None
        assert names(await connection.call(about("orders"))) == ["orders"]


async def test_raw_bytes_go_out_as_they_are_and_the_answer_comes_back_as_it_is() -> None:
    async with ScriptedBroker() as broker, await Connection.open("127.0.0.1", broker.port) as connection:
        frame = b"".join(encode_request(about("raw"), 1, 4711, "somebody"))
        before, raw, after = await asyncio.gather(
            connection.call(about("before")), connection.call_raw(frame), connection.call(about("after"))
        )
        assert (names(before), names(after)) == (["before"], ["after"])
        assert raw[:4] == (4711).to_bytes(4, "big")
        assert names(MetadataResponse.decode(raw[4:], 1)) == ["raw"]


async def test_a_connection_that_breaks_fails_every_call_with_the_same_words() -> None:
    async with (
        ScriptedBroker({MetadataRequest: lambda request, version: SILENCE}) as broker,
        await Connection.open("127.0.0.1", broker.port) as connection,
    ):
        calls = [asyncio.ensure_future(connection.call(about("orders"))) for _ in range(3)]
        await broker.wait_for_requests(MetadataRequest, 3)
        await broker.send(b"\0\0\0\x20half")
        broker.hang_up()
        failures = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(failure) for failure in failures] == [ConnectionLost] * 3
        assert {str(failure) for failure in failures} == {
            f"NETWORK_EXCEPTION: the connection to 127.0.0.1:{broker.port} was closed by the other side"
        }
        with pytest.raises(ConnectionLost, match="closed by the other side"):
            await connection.call(about("orders"))


async def test_closing_fails_the_calls_that_wait() -> None:
    async with ScriptedBroker({MetadataRequest: lambda request, version: SILENCE}) as broker:
        connection = await Connection.open("127.0.0.1", broker.port)
        call = asyncio.ensure_future(connection.call(about("orders")))
        await broker.wait_for_requests(MetadataRequest, 1)
        await connection.close()
        with pytest.raises(ConnectionLost, match="closed by this side"):
            await call
        assert connection.closed
        await connection.close()


FRAMES = [
    (b"\0\0\0\x04\0\0\0\x63", "correlation id 99"),  # in place of 1, the second request of the connection
    (b"\0\0\0\x00", "0 bytes has no correlation id"),
    (b"\0\0\x04\x01", "1025 is not a length"),
    (b"\x7f\xff\xff\xff", "2147483647 is not a length"),
    (b"\xff\xff\xff\xff", "-1 is not a length"),
    (b"HTTP/1.1 400 Bad Request", "1213486160 is not a length"),
]


@pytest.mark.parametrize(("frame", "words"), FRAMES, ids=[words for _, words in FRAMES])
async def test_an_answer_that_cannot_be_trusted_closes_the_connection(frame: bytes, words: str) -> None:
    async with ScriptedBroker(
        {MetadataRequest: lambda request, version: frame}, {"ApiVersions": (0, 3), "Metadata": (0, 1)}
    ) as broker:
        connection = await Connection.open("127.0.0.1", broker.port, frame_bytes_max=1024)
        with pytest.raises(ConnectionLost, match=words):
            await connection.call(about("orders"))
        assert connection.closed


async def test_an_answer_to_no_request_closes_the_connection() -> None:
    async with ScriptedBroker() as broker, await Connection.open("127.0.0.1", broker.port) as connection:
        await broker.send(b"\0\0\0\x04\0\0\0\x07")
        await connection._gone
        with pytest.raises(ConnectionLost, match="correlation id 7 to no request"):
            await connection.call(about("orders"))


async def test_an_answer_that_breaks_the_protocol_concerns_its_call_only() -> None:
    broken = [b"\0\0\0\x06\0\0\0\x01\xff\xff"]

    def answer(request: MetadataRequest, version: int) -> object:
        return broken.pop() if broken else metadata(1, {"fine": 1})

    async with (
        ScriptedBroker({MetadataRequest: answer}) as broker,
        await Connection.open("127.0.0.1", broker.port) as connection,
    ):
        with pytest.raises(ProtocolError, match="MetadataResponse"):
            await connection.call(about("orders"), 1)
        assert names(await connection.call(about("fine"))) == ["fine"]


async def test_a_call_ends_at_its_deadline_and_its_late_answer_is_passed_over() -> None:
    clock = TestClock()
    held = [SILENCE]

    def answer(request: MetadataRequest, version: int) -> object:
        return held.pop() if held else metadata(1, {"second": 1})

    async with (
        ScriptedBroker({MetadataRequest: answer}) as broker,
        await Connection.open("127.0.0.1", broker.port, clock=clock) as connection,
    ):
        late = asyncio.ensure_future(connection.call(about("first"), 0, timeout_ms=500))
        await broker.wait_for_requests(MetadataRequest, 1)
        clock.pass_time(499)
        assert connection.pending_count == 1
        clock.pass_time(1)
        with pytest.raises(CallTimeout, match=r"no MetadataResponse from .* within 500 ms"):
            await late
        await broker.send(b"\0\0\0\x04\0\0\0\x01")
        assert names(await connection.call(about("second"))) == ["second"]


async def test_a_caller_that_gives_up_leaves_the_connection_in_order() -> None:
    async with (
        ScriptedBroker({MetadataRequest: lambda request, version: SILENCE}) as broker,
        await Connection.open("127.0.0.1", broker.port) as connection,
    ):
        call = asyncio.ensure_future(connection.call(about("first"), 0))
        await broker.wait_for_requests(MetadataRequest, 1)
        call.cancel()
        broker.answers[MetadataRequest] = lambda request, version: metadata(1, {"second": 1})
        await broker.send(b"\0\0\0\x04\0\0\0\x01")
        assert names(await connection.call(about("second"))) == ["second"]


async def test_nobody_listening_is_a_lost_connection() -> None:
    async with ScriptedBroker() as broker:
        port = broker.port
    with pytest.raises(ConnectionLost, match=f"no connection to 127.0.0.1:{port}"):
        await Connection.open("127.0.0.1", port)


async def test_a_broker_that_closes_at_once_is_a_lost_connection() -> None:
    async with ScriptedBroker({ApiVersionsRequest: lambda request, version: CLOSE}) as broker:
        with pytest.raises(ConnectionLost, match="closed by the other side"):
            await Connection.open("127.0.0.1", broker.port)


def test_uvloop_serves_as_well() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def talk() -> None:
        async with ScriptedBroker() as broker, await Connection.open("127.0.0.1", broker.port) as connection:
            answers = await asyncio.gather(*(connection.call(about(f"t{number}")) for number in range(20)))
            assert [names(answer) for answer in answers] == [[f"t{number}"] for number in range(20)]
            broker.answers[MetadataRequest] = lambda request, version: CLOSE
            with pytest.raises(ConnectionLost, match="closed by the other side"):
                await connection.call(about("orders"))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(talk())


def test_importing_the_client_loads_none_of_its_parts() -> None:
    code = (
        "import sys; before = set(sys.modules); import minibroker.client; "
        "print(*sorted({name for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["__future__", "minibroker", "minibroker.client"]


def test_every_name_of_the_client_can_be_imported() -> None:
    import minibroker.client

    assert sorted(minibroker.client._HOMES) == minibroker.client.__all__
    for name in minibroker.client.__all__:
        assert getattr(minibroker.client, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Kafka'"):
        _ = minibroker.client.Kafka
