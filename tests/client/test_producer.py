"""Records are written once and in order, whatever passes in the meantime."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from minibroker.client import Cluster, Producer, RecordMetadata
from minibroker.client.accumulator import PartitionQueue, ProducerId
from minibroker.errors import EncodeError, Error, KafkaError
from minibroker.log.batches import Batch, batches
from minibroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from minibroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from minibroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from tests.client.scripted import CLOSE, ScriptedBroker, TestClock, metadata

pytestmark = pytest.mark.outside

Topic = ProduceResponse.TopicProduceResponse


def parts(request: ProduceRequest) -> Iterator[tuple[Any, Any, list[Batch]]]:
    for topic in request.topic_data:
        for part in topic.partition_data:
            yield topic, part, list(batches(part.records or b"", strict=True))


NO_PRODUCERS: list[tuple[dict[str, Any], str]] = [
    ({"acks": 2}, "acks 2 is none of -1, 0, 1"),
    ({"acks": 1, "idempotent": True}, "an idempotent producer needs acks -1"),
    ({"acks": 1, "transactional_id": "pay-1"}, "an idempotent producer needs acks -1"),
    ({"idempotent": False, "transactional_id": "pay-1"}, "a producer with a transactional_id is idempotent"),
]


@pytest.mark.parametrize(("options", "words"), NO_PRODUCERS)
async def test_a_producer_that_could_not_be_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Producer(Cluster("unused:1"), **options)


async def test_a_producer_without_transactional_id_has_no_transactions() -> None:
    producer = Producer(Cluster("unused:1"))
    with pytest.raises(ValueError, match="has no transactions"):
        producer.begin_transaction()


class Log:
    """What a scripted broker does with Produce: keeps values by partition, or answers the next code of `errors`."""

    def __init__(self, *errors: int | object):
        self.values: dict[int, list[bytes | None]] = {}
        self.batches: list[Batch] = []
        self.errors = list(errors)

    def __call__(self, request: ProduceRequest, version: int) -> object:
        code = self.errors.pop(0) if self.errors else 0
        if code is CLOSE:
            return CLOSE
        answer: dict[tuple[str, bytes], Any] = {}
        for topic, part, found in parts(request):
            self.batches += found
            kept = self.values.setdefault(part.index, [])
            base_offset = -1 if code else len(kept)
            if not code:
                kept += [record.value for batch in found for record in batch.records(check_crc=True)]
            row = Topic.PartitionProduceResponse(index=part.index, error_code=code, base_offset=base_offset)
            key = (topic.name, topic.topic_id)
            answer.setdefault(key, Topic(name=key[0], topic_id=key[1], partition_responses=[]))
            answer[key].partition_responses.append(row)
        return None if request.acks == 0 else ProduceResponse(responses=list(answer.values()))


def broker_with(log: Log, partition_count: int = 1, ids: Iterator[int] | None = None, **options: Any) -> ScriptedBroker:
    def give_id(request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
        return InitProducerIdResponse(
            throttle_time_ms=0, error_code=0, producer_id=next(ids or iter([7])), producer_epoch=0
        )

    broker = ScriptedBroker({ProduceRequest: log, InitProducerIdRequest: give_id}, **options)
    broker.answers[MetadataRequest] = lambda request, version: metadata(broker.port, {"orders": partition_count})
    return broker


def cluster_of(broker: ScriptedBroker, **options: Any) -> Cluster:
    return Cluster([("127.0.0.1", broker.port)], clock=TestClock(), **options)


async def send_all(producer: Producer, values: list[bytes]) -> list[RecordMetadata]:
    return await asyncio.gather(*(producer.send("orders", value) for value in values))


VALUES = [b"%d" % number for number in range(40)]


async def test_records_are_written_in_order_and_each_learns_its_place() -> None:
    async with broker_with(log := Log()) as broker, cluster_of(broker) as cluster, Producer(cluster) as producer:
        places = await send_all(producer, VALUES)
        now = cluster.clock.now_ms()
    assert log.values == {0: VALUES}
    assert places == [RecordMetadata("orders", 0, offset, now) for offset in range(40)]
    assert len(log.batches) == 1


@pytest.mark.parametrize(
    "error", [Error.NOT_LEADER_OR_FOLLOWER, Error.NOT_ENOUGH_REPLICAS, Error.UNKNOWN_TOPIC_ID, CLOSE]
)
async def test_what_passes_is_sat_out_without_changing_the_order(error: object) -> None:
    async with broker_with(log := Log(error, error)) as broker, cluster_of(broker) as cluster:
        async with Producer(cluster, batch_bytes=500) as producer:
            places = await send_all(producer, VALUES)
        assert len(broker.asked(MetadataRequest)) > 1
    assert log.values == {0: VALUES}
    assert [place.offset for place in places] == list(range(40))


async def test_what_does_not_pass_reaches_the_caller_and_concerns_only_its_batch() -> None:
    async with (
        broker_with(log := Log(Error.MESSAGE_TOO_LARGE)) as broker,
        cluster_of(broker) as cluster,
        Producer(cluster) as producer,
    ):
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE: orders-0"):
            await producer.send("orders", b"too large")
        assert (await producer.send("orders", b"fine")).offset == 0
    assert len(log.batches) == 2


async def test_patience_has_an_end() -> None:
    log = Log(*[Error.NOT_ENOUGH_REPLICAS] * 10)
    async with broker_with(log) as broker, cluster_of(broker, retry_count=3) as cluster, Producer(cluster) as producer:
        with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS"):
            await producer.send("orders", b"x")
    assert len(log.batches) == 4


async def test_an_idempotent_producer_repeats_with_the_same_numbers() -> None:
    log = Log(Error.NOT_LEADER_OR_FOLLOWER)
    async with (
        broker_with(log) as broker,
        cluster_of(broker) as cluster,
        Producer(cluster, idempotent=True) as producer,
    ):
        await producer.send("orders", b"a")
        await producer.send("orders", b"b")
    assert [(batch.producer_id, batch.base_sequence) for batch in log.batches] == [(7, 0), (7, 0), (7, 1)]


async def test_an_idempotent_producer_that_lost_records_goes_on_under_another_id() -> None:
    log = Log(Error.INVALID_RECORD)
    async with (
        broker_with(log, ids=iter([7, 8])) as broker,
        cluster_of(broker) as cluster,
        Producer(cluster, idempotent=True) as producer,
    ):
        with pytest.raises(KafkaError, match="INVALID_RECORD"):
            await producer.send("orders", b"a")
        await producer.send("orders", b"b")
    assert [(batch.producer_id, batch.base_sequence) for batch in log.batches] == [(7, 0), (8, 0)]


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 2), (12, 2), (13, 2)])
async def test_the_format_is_the_one_of_the_brokers_produce_version(version: int, magic: int) -> None:
    async with broker_with(log := Log()) as broker, cluster_of(broker, max_versions={"Produce": version}) as cluster:
        async with Producer(cluster, compression="gzip") as producer:
            await send_all(producer, VALUES)
        assert broker.versions(ProduceRequest) == [version]
    assert [(batch.magic, batch.codec) for batch in log.batches] == [(magic, 1)]
    assert log.values == {0: VALUES}


@pytest.mark.parametrize(("options", "version"), [({"idempotent": True}, 2), ({"compression": "zstd"}, 6)])
async def test_what_the_broker_is_too_old_for_is_refused(options: dict[str, Any], version: int) -> None:
    async with (
        broker_with(log := Log()) as broker,
        cluster_of(broker, max_versions={"Produce": version}) as cluster,
        Producer(cluster, **options) as producer,
    ):
        with pytest.raises(KafkaError, match=f"this broker has v{version}"):
            await producer.send("orders", b"x")
    assert not log.batches


async def test_without_acks_nobody_knows_the_offset() -> None:
    async with broker_with(log := Log()) as broker, cluster_of(broker) as cluster:
        async with Producer(cluster, acks=0) as producer:
            assert (await producer.send("orders", b"x")).offset == -1
        await broker.wait_for_requests(ProduceRequest, 1)
    assert log.values == {0: [b"x"]}


async def test_a_leader_that_moves_while_an_identity_is_asked_for_sends_nothing_twice() -> None:
    """The first round waits for its identity; meanwhile a round to the new leader has sent what it would have."""
    log, answered = Log(), asyncio.Event()
    async with (
        broker_with(log) as broker,
        cluster_of(broker) as cluster,
        Producer(cluster, idempotent=True) as producer,
    ):
        identity, asked = producer._identity, []

        async def held(queues: Iterable[PartitionQueue]) -> ProducerId | None:
            asked.append(None)
            if len(asked) == 1:
                await answered.wait()
            return await identity(queues)

        producer._identity = held  # type: ignore[method-assign]
        first = await producer.enqueue("orders", b"a")
        producer._send_due(producer._queue("orders", 0))
        while not asked:
            await asyncio.sleep(0)
        moved = metadata(broker.port, {"orders": 1}, {0: 2})
        moved.brokers.append(MetadataResponse.MetadataResponseBroker(node_id=2, host="127.0.0.1", port=broker.port))
        broker.answers[MetadataRequest] = lambda request, version: moved
        cluster.forget("orders")
        late = producer._busy[1]
        second = await producer.enqueue("orders", b"b")
        producer._send_due(producer._queue("orders", 0))
        assert [(await first).offset, (await second).offset] == [0, 1]
        answered.set()
        await late
        assert (await producer.send("orders", b"c")).offset == 2
    assert log.values == {0: [b"a", b"b", b"c"]}


async def test_an_identity_that_fails_as_nobody_expects_fails_the_records_once() -> None:
    async with (
        broker_with(Log()) as broker,
        cluster_of(broker) as cluster,
        Producer(cluster, idempotent=True) as producer,
    ):
        asked = []

        async def broken(queues: Iterable[PartitionQueue]) -> ProducerId | None:
            asked.append(queues)
            raise RuntimeError("a bug")

        producer._identity = broken  # type: ignore[method-assign]
        with pytest.raises(RuntimeError, match="a bug"):
            await producer.send("orders", b"a")
        assert len(asked) == 1


async def test_records_linger_until_their_time_or_until_flush() -> None:
    async with (
        broker_with(log := Log()) as broker,
        cluster_of(broker) as cluster,
        Producer(cluster, linger_ms=50) as producer,
    ):
        first = await producer.enqueue("orders", b"a")
        cluster.clock.pass_time(49)  # type: ignore[attr-defined]
        second = await producer.enqueue("orders", b"b")
        assert not producer._busy
        cluster.clock.pass_time(1)  # type: ignore[attr-defined]
        assert [(await first).offset, (await second).offset] == [0, 1]
        await producer.enqueue("orders", b"c")
        await producer.flush()
    assert log.values == {0: [b"a", b"b", b"c"]}
    assert len(log.batches) == 2


async def test_what_cannot_be_written_reaches_the_caller() -> None:
    async with broker_with(Log()) as broker, cluster_of(broker) as cluster, Producer(cluster) as producer:
        with pytest.raises(EncodeError, match="bytes-like"):
            await producer.send("orders", "text")  # type: ignore[arg-type]
        assert (await producer.send("orders", b"bytes")).offset == 0


async def test_whoever_sends_too_much_waits_for_room() -> None:
    async with (
        broker_with(log := Log()) as broker,
        cluster_of(broker) as cluster,
        Producer(cluster, buffer_bytes_max=2000, linger_ms=1000) as producer,
    ):
        for number in range(200):
            await producer.enqueue("orders", b"%d" % number)
            assert producer._buffered_bytes < 2200
    assert log.values == {0: [b"%d" % number for number in range(200)]}


def by_partition(log: Log) -> dict[int, int]:
    return {index: len(values) for index, values in log.values.items()}


async def test_keys_keep_to_their_partition_and_the_rest_is_spread() -> None:
    async with broker_with(log := Log(), 3) as broker, cluster_of(broker) as cluster, Producer(cluster) as producer:
        places = [await producer.send("orders", b"v", b"foobar") for _ in range(3)]
        assert {place.partition for place in places} == {0}
        assert [(await producer.send("orders", b"v")).partition for _ in range(4)] == [0, 1, 2, 0]
        assert (await producer.send("orders", b"v", b"foobar", partition=2)).partition == 2
    assert by_partition(log) == {0: 5, 1: 1, 2: 2}
