"""Every record once and in order, wherever reading begins and whatever passes in the meantime."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from minibroker.client import AtTime, Cluster, Consumer
from minibroker.errors import Error, KafkaError
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from minibroker.protocol.messages.metadata import MetadataRequest
from tests.client.scripted import CLOSE, SILENCE, ScriptedBroker, TestClock, metadata, topic_id

pytestmark = pytest.mark.outside

Topic = FetchResponse.FetchableTopicResponse
START, END = 10, 30  # of every partition; record n was written at n thousand ms, two in a batch


class Logs:
    """What a scripted broker does with Fetch and ListOffsets, with the next code of `errors` in place of data."""

    def __init__(self, *errors: int | object):
        self.errors = list(errors)

    def fetch(self, request: FetchRequest, version: int) -> object:
        code = self.errors.pop(0) if self.errors else 0
        if code is CLOSE:
            return CLOSE
        rows: list[FetchResponse.FetchableTopicResponse] = []
        for topic in request.topics:
            parts = [self._part(part, code) for part in topic.partitions]
            rows.append(Topic(topic=topic.topic, topic_id=topic.topic_id, partitions=parts))
        return FetchResponse(responses=rows)

    def list_offsets(self, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        Row = ListOffsetsResponse.ListOffsetsTopicResponse
        return ListOffsetsResponse(
            topics=[
                Row(
                    name=topic.name,
                    partitions=[
                        Row.ListOffsetsPartitionResponse(
                            partition_index=part.partition_index,
                            error_code=0,
                            offset=offset_at(part.timestamp),
                            old_style_offsets=[offset_at(part.timestamp)],
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    @staticmethod
    def _part(asked: Any, code: Any) -> FetchResponse.FetchableTopicResponse.PartitionData:
        offset = asked.fetch_offset
        if not code and not START <= offset <= END:
            code = Error.OFFSET_OUT_OF_RANGE
        first = offset - offset % 2
        data = b"" if code or offset == END else batch(first)
        return Topic.PartitionData(
            partition_index=asked.partition,
            error_code=code,
            high_watermark=-1 if code else END,
            last_stable_offset=-1 if code else END,
            records=data,
        )


def batch(first: int) -> bytes:
    return build_batch(2, [Record(None, b"%d" % n, (), n * 1000, n) for n in (first, first + 1)], base_offset=first)


def offset_at(timestamp: int) -> int:
    if timestamp in (-1, -2):
        return END if timestamp == -1 else START
    found = max(START, -(-timestamp // 1000))
    return found if found < END else -1


def broker_with(logs: Logs) -> ScriptedBroker:
    broker = ScriptedBroker({FetchRequest: logs.fetch, ListOffsetsRequest: logs.list_offsets})
    broker.answers[MetadataRequest] = lambda request, version: metadata(broker.port, {"orders": 2})
    return broker


def cluster_of(broker: ScriptedBroker, **options: Any) -> Cluster:
    return Cluster([("127.0.0.1", broker.port)], clock=TestClock(), **options)


async def read_all(consumer: Consumer) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    while not consumer.is_at_end:
        for record in await consumer.fetch():
            found.setdefault(record.partition, []).append(record.offset)
    return found


ALL = list(range(START, END))
STARTS = [
    (START, ALL),
    (13, ALL[3:]),
    ("earliest", ALL),
    ("latest", []),
    (AtTime(14_500), ALL[5:]),
    (AtTime(1), ALL),
    (AtTime(10**9), []),
]


@pytest.mark.parametrize(("start", "offsets"), STARTS)
async def test_reading_begins_where_it_is_told_to(start: int | str | AtTime, offsets: list[int]) -> None:
    async with broker_with(Logs()) as broker, cluster_of(broker) as cluster, Consumer(cluster) as consumer:
        await consumer.assign([("orders", 0, start)])
        assert await read_all(consumer) == ({0: offsets} if offsets else {})
        assert consumer.position("orders", 0) == END


@pytest.mark.parametrize("version", [0, 3, 4, 7, 11, 12, 13, 18])
async def test_all_versions_give_the_same_records(version: int) -> None:
    pins = {"Fetch": version, "ListOffsets": min(version, 8)}
    async with broker_with(Logs()) as broker, cluster_of(broker, max_versions=pins) as cluster:
        async with Consumer(cluster) as consumer:
            await consumer.assign([("orders", 0, "earliest"), ("orders", 1, 20)])
            assert await read_all(consumer) == {0: ALL, 1: ALL[10:]}
        assert set(broker.versions(FetchRequest)) == {version}


@pytest.mark.parametrize(
    "error", [Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH, Error.UNKNOWN_TOPIC_ID, CLOSE]
)
async def test_what_passes_is_sat_out(error: object) -> None:
    async with broker_with(Logs(error, 0, error)) as broker, cluster_of(broker) as cluster:
        async with Consumer(cluster) as consumer:
            await consumer.assign([("orders", 0, START)])
            assert await read_all(consumer) == {0: ALL}
        assert len(broker.asked(MetadataRequest)) > 1


async def test_patience_has_an_end_and_reading_can_go_on_afterwards() -> None:
    errors = [Error.NOT_LEADER_OR_FOLLOWER] * 4
    async with (
        broker_with(Logs(*errors)) as broker,
        cluster_of(broker, retry_count=3) as cluster,
        Consumer(cluster) as consumer,
    ):
        await consumer.assign([("orders", 0, START)])
        with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER: orders-0 at offset 10"):
            await read_all(consumer)
        assert await read_all(consumer) == {0: ALL}


@pytest.mark.parametrize(("policy", "offsets"), [("earliest", ALL), ("latest", [])])
async def test_an_offset_out_of_range_is_replaced_if_that_is_wanted(policy: str, offsets: list[int]) -> None:
    async with (
        broker_with(Logs()) as broker,
        cluster_of(broker) as cluster,
        Consumer(cluster, out_of_range=policy) as consumer,
    ):
        await consumer.assign([("orders", 0, 5)])
        assert await read_all(consumer) == ({0: offsets} if offsets else {})


async def test_an_offset_out_of_range_is_an_error_otherwise() -> None:
    async with broker_with(Logs()) as broker, cluster_of(broker) as cluster, Consumer(cluster) as consumer:
        await consumer.assign([("orders", 0, 5)])
        with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE: orders-0 at offset 5"):
            await consumer.fetch()


async def test_iterating_and_fetching_share_what_was_read() -> None:
    async with broker_with(Logs()) as broker, cluster_of(broker) as cluster, Consumer(cluster) as consumer:
        await consumer.assign([("orders", 0, START)])
        seen = []
        async for record in consumer:
            seen.append(record.offset)
            if len(seen) == 3:
                break
        assert consumer.position("orders", 0) == 13
        seen += [record.offset for record in await consumer.fetch()]
        assert seen == ALL[:4]


async def test_seeking_throws_away_what_was_read_ahead() -> None:
    async with broker_with(Logs()) as broker, cluster_of(broker) as cluster, Consumer(cluster) as consumer:
        await consumer.assign([("orders", 0, START)])
        assert (await anext(consumer)).offset == START
        await consumer.seek("orders", 0, 25)
        assert (await anext(consumer)).offset == 25


async def test_an_answer_to_a_question_from_before_a_seek_is_passed_over() -> None:
    logs = Logs()
    async with broker_with(logs) as broker, cluster_of(broker) as cluster, Consumer(cluster) as consumer:
        await consumer.assign([("orders", 0, START)])
        broker.answers[FetchRequest] = lambda request, version: SILENCE
        fetch = asyncio.ensure_future(consumer.fetch())
        await broker.wait_for_requests(FetchRequest, 1)
        await consumer.seek("orders", 0, 20)
        header, request = next((h, r) for h, r in broker.requests if isinstance(r, FetchRequest))
        await answer_late(broker, header, logs.fetch(request, header.request_api_version))
        assert await fetch == []
        broker.answers[FetchRequest] = logs.fetch
        assert (await anext(consumer)).offset == 20


async def answer_late(broker: ScriptedBroker, header: Any, answer: Any) -> None:
    from minibroker.protocol.framing import encode_response

    # Fetches have a connection of their own, which here is the newest one.
    await broker.send(b"".join(encode_response(answer, header.request_api_version, header.correlation_id)))


async def test_fetches_have_a_connection_of_their_own() -> None:
    async with broker_with(Logs()) as broker, cluster_of(broker) as cluster:
        async with Consumer(cluster) as consumer:
            await consumer.assign([("orders", 0, START)])
            broker.answers[FetchRequest] = lambda request, version: SILENCE
            fetch = asyncio.ensure_future(consumer.fetch())
            await broker.wait_for_requests(FetchRequest, 1)
            await cluster.metadata(["orders"])
            assert not fetch.done()
        assert await fetch == []


async def test_a_session_lists_only_what_has_moved() -> None:
    known: dict[tuple[bytes, int], Any] = {}

    def fetch(request: FetchRequest, version: int) -> FetchResponse:
        for topic in request.topics:
            known.update({(topic.topic_id, part.partition): part for part in topic.partitions})
        request.topics = rows(known.values())
        answer: Any = logs.fetch(request, version)
        for topic in answer.responses:
            topic.partitions = [part for part in topic.partitions if part.records]
        answer.session_id = 99
        return answer  # type: ignore[no-any-return]

    logs = Logs()
    async with broker_with(logs) as broker, cluster_of(broker) as cluster:
        listed: list[int] = []

        def listing(request: FetchRequest, version: int) -> FetchResponse:
            listed.append(sum(len(topic.partitions) for topic in request.topics))
            return fetch(request, version)

        broker.answers[FetchRequest] = listing
        async with Consumer(cluster, sessions=True) as consumer:
            await consumer.assign([("orders", 0, START), ("orders", 1, "latest")])
            found = [record.offset for _ in range(10) for record in await consumer.fetch()]
            assert found == ALL
            assert listed == [2] + [1] * 9
            assert [r.session_epoch for r in broker.asked(FetchRequest)] == list(range(10))


def rows(parts: Iterable[Any]) -> list[Any]:
    return [FetchRequest.FetchTopic(topic_id=topic_id("orders"), topic="orders", partitions=list(parts))]


@pytest.mark.parametrize("error", [Error.FETCH_SESSION_ID_NOT_FOUND, Error.INVALID_FETCH_SESSION_EPOCH])
async def test_a_session_that_the_broker_has_lost_is_begun_anew(error: Error) -> None:
    logs = Logs()
    lost = [0, error]

    def fetch(request: FetchRequest, version: int) -> object:
        if lost and (code := lost.pop(0)):
            return FetchResponse(error_code=code, responses=[])
        answer: Any = logs.fetch(request, version)
        answer.session_id = 99
        return answer

    async with broker_with(logs) as broker, cluster_of(broker) as cluster, Consumer(cluster, sessions=True) as consumer:
        broker.answers[FetchRequest] = fetch
        await consumer.assign([("orders", 0, START)])
        assert await read_all(consumer) == {0: ALL}
        assert [r.session_epoch for r in broker.asked(FetchRequest)][:4] == [0, 1, 0, 1]


async def test_what_a_consumer_cannot_do_is_refused() -> None:
    with pytest.raises(ValueError, match="'nearest' is none of"):
        Consumer(Cluster("unused:1"), out_of_range="nearest")
    with pytest.raises(ValueError, match="'committed' is none of"):
        Consumer(Cluster("unused:1"), isolation_level="committed")
    consumer = Consumer(Cluster("unused:1"))
    with pytest.raises(ValueError, match="orders-0 is not assigned"):
        await consumer.seek("orders", 0, 5)
    with pytest.raises(ValueError, match="nothing is assigned"):
        await anext(consumer)


async def test_closing_ends_a_fetch_that_waits() -> None:
    async with broker_with(Logs()) as broker, cluster_of(broker) as cluster:
        broker.answers[FetchRequest] = lambda request, version: SILENCE
        consumer = Consumer(cluster)
        await consumer.assign([("orders", 0, START)])
        fetch = asyncio.ensure_future(consumer.fetch())
        await broker.wait_for_requests(FetchRequest, 1)
        await consumer.close()
        assert await fetch == []
        with pytest.raises(StopAsyncIteration):
            await anext(consumer)
