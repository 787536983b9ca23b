"""`broker.faults`: the same verbs in a thread, in a loop and for a process, and what clients make of the faults."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from minibroker import Broker
from minibroker.client import Cluster, Producer
from minibroker.client.connection import CallTimeout
from minibroker.embedded import FaultError
from minibroker.protocol.messages.metadata import MetadataRequest
from tests.server.running import frame


@pytest.fixture(params=[False, True], ids=["thread", "process"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(topics="orders", process=request.param) as broker:
        yield broker


def test_a_rule_is_there_as_long_as_its_block(broker: Broker) -> None:
    with broker.faults.add(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=2) as rule:
        (row,) = broker.faults.rules()
        assert (row["id"], row["error"], rule.strikes()) == (rule.id, "NOT_LEADER_OR_FOLLOWER", 0)
    assert broker.faults.rules() == []
    with broker.faults.toxic("latency", name="slow er", latency=5, stream="upstream") as toxic:
        assert toxic.id == "slow er"
        assert broker.faults.toxics()[0]["attributes"] == {"latency": 5, "jitter": 0}
    assert broker.faults.toxics() == []
    with broker.faults.add(delay_ms=1):
        broker.faults.clear()  # then the block has nothing left to do
    with pytest.raises(FaultError, match="did you mean Produce"):
        broker.faults.add(api="Prodce", delay_ms=1)
    with pytest.raises(FaultError, match="there is no toxic"):
        broker.faults.toxic("smell")
    rule = broker.faults.add(delay_ms=1)
    rule.remove()
    with pytest.raises(FaultError, match="there is no rule"):
        rule.remove()
    with pytest.raises(FaultError, match="there is no rule"):
        rule.strikes()
    # What a stopped broker forgets, a block need not take away.
    with broker.faults.add(delay_ms=1):
        broker.stop()


async def test_the_same_in_a_loop() -> None:
    async with Broker(topics="orders") as broker:
        async with await broker.faults.aadd(api="Metadata", delay_ms=1) as rule:
            assert (await broker.atopics(), await rule.astrikes()) == ({"orders": 1}, 0)
            assert len(await broker.faults.arules()) == len(broker.faults.rules()) == 1
        async with await broker.faults.atoxic("latency", latency=1):
            assert len(await broker.faults.atoxics()) == 1
        assert broker.faults.rules() == broker.faults.toxics() == []
        await broker.faults.aadd(delay_ms=1)
        await broker.faults.aclear()
        assert broker.faults.rules() == []


# Our own client


RETRIED = [
    {"error": "NOT_LEADER_OR_FOLLOWER"},
    {"error": "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "after": True},
    {"close": "before"},
    {"close": "after"},
    {"truncate": 6},
    {"drop_response": True},
    {"drop_request": True},
]


@pytest.mark.parametrize("fault", RETRIED, ids=str)
async def test_an_idempotent_producer_writes_each_record_once(fault: dict[str, object]) -> None:
    async with Broker(topics="orders") as broker:
        rule = broker.faults.add(api="Produce", times=2, **fault)  # type: ignore[arg-type]
        async with (
            Cluster(broker.bootstrap_servers, timeout_ms=100) as cluster,
            Producer(cluster, idempotent=True, timeout_ms=100) as producer,
        ):
            for value in (b"a", b"b", b"c"):
                await producer.send("orders", value)
        assert [record.value for record in broker.records("orders")] == [b"a", b"b", b"c"]
        assert rule.strikes() == 2


async def test_without_idempotence_a_lost_answer_is_a_record_twice() -> None:
    async with Broker(topics="orders") as broker:
        broker.faults.add(api="Produce", close="after", times=1)
        async with Cluster(broker.bootstrap_servers) as cluster, Producer(cluster) as producer:
            await producer.send("orders", b"a")
        assert [record.value for record in broker.records("orders")] == [b"a", b"a"]


async def test_a_client_gives_up_a_connection_that_hangs() -> None:
    async with (
        Broker(topics="orders") as broker,
        Cluster(broker.bootstrap_servers, retry_count=0) as cluster,
    ):
        await cluster.metadata()
        patience_ms, cluster.timeout_ms = cluster.timeout_ms, 100
        with broker.faults.toxic("timeout"), pytest.raises(CallTimeout):
            await cluster.metadata()
        cluster.timeout_ms = patience_ms
        await cluster.metadata()


def test_a_broker_in_a_thread_has_another_loop_and_the_same_toxics() -> None:
    """Where uvloop is there, it is uvloop's transports that toxics stand in front of."""
    with Broker(topics="orders") as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        request = frame(MetadataRequest(topics=[]), 9)
        with socket.create_connection((host, int(port)), 5) as client:
            with (
                broker.faults.toxic("slicer", average_size=3, size_variation=2, stream="upstream"),
                broker.faults.toxic("slicer", average_size=3, size_variation=2),
            ):
                client.sendall(request * 3)
                for _ in range(3):
                    assert received(client, int.from_bytes(received(client, 4), "big"))
            client.sendall(request)
            assert received(client, int.from_bytes(received(client, 4), "big"))
            with broker.faults.toxic("reset_peer"), pytest.raises(ConnectionResetError):
                client.sendall(request)
                received(client, 1)


def received(client: socket.socket, size_bytes: int) -> bytes:
    data = b""
    while len(data) < size_bytes:
        piece = client.recv(size_bytes - len(data))
        assert piece, "closed"
        data += piece
    return data


# The clients of others


@pytest.mark.interop
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "fault", [{"error": "NOT_LEADER_OR_FOLLOWER"}, {"close": "after"}, {"drop_response": True}], ids=str
)
def test_kafka_python_repeats_what_failed_and_writes_it_once(fault: dict[str, object]) -> None:
    kafka_python = pytest.importorskip("kafka")
    with Broker(topics="orders") as broker:
        rule = broker.faults.add(api="Produce", times=1, **fault)  # type: ignore[arg-type]
        producer = kafka_python.KafkaProducer(
            **broker.client_config("kafka-python"), enable_idempotence=True, request_timeout_ms=1000
        )
        for value in (b"a", b"b"):
            producer.send("orders", value).get(20)
        producer.close()
        assert [record.value for record in broker.records("orders")] == [b"a", b"b"]
        assert rule.strikes() == 1


@pytest.mark.interop
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_aiokafka_lives_through_errors_resets_and_slices() -> None:
    aiokafka = pytest.importorskip("aiokafka")
    async with Broker(topics="orders") as broker:
        async with aiokafka.AIOKafkaProducer(
            **broker.client_config("aiokafka"), enable_idempotence=True, retry_backoff_ms=10
        ) as producer:
            await producer.send_and_wait("orders", b"a")
            async with await broker.faults.aadd(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=2) as rule:
                await producer.send_and_wait("orders", b"b")
                assert await rule.astrikes() == 2
            async with await broker.faults.aadd(api="Produce", close="after", times=1):
                await producer.send_and_wait("orders", b"c")
            async with await broker.faults.atoxic("slicer", average_size=7, size_variation=3, stream="upstream"):
                await producer.send_and_wait("orders", b"d")
        assert [record.value for record in broker.records("orders")] == [b"a", b"b", b"c", b"d"]


@pytest.mark.interop
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_aiokafka_reads_on_after_errors_of_its_fetches() -> None:
    aiokafka = pytest.importorskip("aiokafka")
    async with Broker(topics="orders") as broker:
        async with Cluster(broker.bootstrap_servers) as cluster, Producer(cluster) as ours:
            await ours.send("orders", b"a")
        consumer = aiokafka.AIOKafkaConsumer(
            **broker.client_config("aiokafka"), auto_offset_reset="earliest", retry_backoff_ms=10
        )
        rule = await broker.faults.aadd(api="Fetch", topic="orders", error="NOT_LEADER_OR_FOLLOWER", times=2)
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition("orders", 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            assert (await consumer.getone()).value == b"a"
            assert await rule.astrikes() == 2
        finally:
            await consumer.stop()


async def test_waiting_for_records_is_not_disturbed() -> None:
    async with Broker(topics="orders") as broker:
        broker.faults.add(error="NOT_LEADER_OR_FOLLOWER")  # for clients; the program asks its broker directly
        with pytest.raises(TimeoutError):
            await broker.await_records("orders", 1, timeout=0.01)
        await asyncio.sleep(0)
