"""The transactional producer of our client: both protocols, errors as Kafka 4's client classes them, lost answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from minibroker import Broker
from minibroker.client import Cluster, Groups, Producer
from minibroker.client.transaction_manager import ProducerFatal, ProducerFenced, TransactionAbortable
from minibroker.errors import Error, KafkaError
from tests.client.committed import committed_records

pytestmark = pytest.mark.outside

T = TypeVar("T")
TOPIC = "orders"
APIS = (
    "FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "Produce",
    "EndTxn",
)  # fmt: skip
NOT_IN_V2 = ("AddPartitionsToTxn", "AddOffsetsToTxn")


class Bench:
    """A broker, and a topic of the test's own, whose name is the transactional id too."""

    def __init__(self, broker: Broker, topic: str):
        self.broker = broker
        self.topic = topic

    def with_producer(self, work: Callable[[Producer], Awaitable[T]], *, retry_count: int = 10, **options: Any) -> T:
        async def main() -> T:
            async with (
                Cluster(self.broker.bootstrap_servers, retry_count=retry_count) as cluster,
                Producer(cluster, transactional_id=self.topic, **options) as producer,
            ):
                await producer.init_transactions()
                return await work(producer)

        return asyncio.run(main())

    async def write(self, producer: Producer, *values: bytes) -> None:
        producer.begin_transaction()
        sends = (producer.send(self.topic, value, partition=at % 2) for at, value in enumerate(values))
        await asyncio.gather(*sends)

    def committed(self) -> list[bytes | None]:
        return [record.value for record in committed_records(self.broker.bootstrap_servers, self.topic)]

    @property
    def is_v2(self) -> bool:
        async def ask() -> bool:
            async with Cluster(self.broker.bootstrap_servers) as cluster:
                return (await cluster.connection()).features.get("transaction.version", 0) >= 2

        return asyncio.run(ask())


@pytest.fixture(scope="module", params=[None, "3.9", "2.4"], ids=["v2", "classic", "classic without new epochs"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(as_version=request.param, clock="steered") as broker:
        yield broker


@pytest.fixture
def bench(broker: Broker, request: pytest.FixtureRequest) -> Bench:
    topic = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    broker.create_topic(topic, 2)
    return Bench(broker, topic)


def test_what_is_committed_is_read_and_what_is_aborted_is_not(bench: Bench) -> None:
    async def work(producer: Producer) -> None:
        for name in (b"a", b"b", b"c"):
            await bench.write(producer, name, name * 2, name * 3)
            await (producer.abort_transaction() if name == b"b" else producer.commit_transaction())

    bench.with_producer(work)
    assert bench.committed() == [b"a", b"aaa", b"c", b"ccc", b"aa", b"cc"]


def test_offsets_count_with_their_transaction(bench: Bench) -> None:
    async def work(producer: Producer) -> int:
        for offset in (5, 9):
            producer.begin_transaction()
            await producer.send_offsets_to_transaction({(bench.topic, 0): offset}, f"{bench.topic}-readers")
            await (producer.commit_transaction() if offset == 5 else producer.abort_transaction())
        found = await Groups(producer._cluster).fetch_offsets([f"{bench.topic}-readers"])
        return found[f"{bench.topic}-readers"][bench.topic, 0].offset

    assert bench.with_producer(work) == 5


@pytest.mark.parametrize("api", APIS)
def test_an_answer_that_is_lost_changes_nothing(bench: Bench, api: str) -> None:
    async def work(producer: Producer) -> None:
        for value in (b"a", b"b"):
            await bench.write(producer, value)
            await producer.send_offsets_to_transaction({(bench.topic, 0): 3}, f"{bench.topic}-readers")
            await producer.commit_transaction()

    with bench.broker.faults.add(api=api, times=1, close="after") as rule:
        bench.with_producer(work)
        assert rule.strikes() == (api not in NOT_IN_V2 or not bench.is_v2)
    assert bench.committed() == [b"a", b"b"]
    assert bench.broker.wait_committed(f"{bench.topic}-readers", bench.topic) == 3


def test_an_end_that_nobody_answered_is_asked_for_again(bench: Bench) -> None:
    async def work(producer: Producer) -> None:
        await bench.write(producer, b"a")
        with pytest.raises(KafkaError) as unknown:
            await producer.commit_transaction()
        assert unknown.value.code.retriable
        with pytest.raises(KafkaError, match="committing, not"):
            await producer.abort_transaction()
        await producer.commit_transaction()
        await bench.write(producer, b"b")
        await producer.commit_transaction()

    with bench.broker.faults.add(api="EndTxn", times=1, close="after"):
        bench.with_producer(work, retry_count=0)
    assert bench.committed() == [b"a", b"b"]


def test_a_producer_that_was_replaced_is_fenced(bench: Bench) -> None:
    async def work(producer: Producer) -> None:
        await bench.write(producer, b"zombie")
        async with Producer(producer._cluster, transactional_id=bench.topic) as other:
            await other.init_transactions()
            with pytest.raises(ProducerFenced):
                await producer.commit_transaction()
            with pytest.raises(ProducerFenced):
                producer.begin_transaction()
            await bench.write(other, b"kept")
            await other.commit_transaction()

    bench.with_producer(work)
    assert bench.committed() == [b"kept"]


def test_after_a_record_that_cannot_be_written_the_transaction_can_only_be_aborted(bench: Bench) -> None:
    async def work(producer: Producer) -> None:
        await bench.write(producer, b"dropped")
        with pytest.raises(KafkaError) as refused:
            await producer.send(bench.topic, bytes(2 * 1024 * 1024), partition=0)
        assert refused.value.code == Error.MESSAGE_TOO_LARGE
        if isinstance(refused.value, ProducerFatal):  # nobody can give it another epoch
            raise refused.value
        for step in (producer.commit_transaction, lambda: producer.send(bench.topic, b"late", partition=1)):
            with pytest.raises(TransactionAbortable, match="MESSAGE_TOO_LARGE"):
                await step()
        await producer.abort_transaction()
        await bench.write(producer, b"a", b"b")
        await producer.commit_transaction()

    try:
        bench.with_producer(work)
    except ProducerFatal:
        assert bench.broker._start.as_version == "2.4"
    else:
        assert bench.committed() == [b"a", b"b"]


def test_an_abort_takes_back_what_was_not_sent_yet(bench: Bench) -> None:
    async def work(producer: Producer) -> None:
        producer.begin_transaction()
        lingering = await producer.enqueue(bench.topic, b"never", partition=0)
        await producer.abort_transaction()
        with pytest.raises(KafkaError, match="aborted"):
            await lingering
        producer.begin_transaction()
        await producer.enqueue(bench.topic, b"a", partition=0)
        await producer.commit_transaction()

    bench.with_producer(work, linger_ms=600_000)
    assert bench.committed() == [b"a"]


def test_closing_aborts_what_is_open(bench: Bench) -> None:
    bench.with_producer(lambda producer: bench.write(producer, b"never"))
    assert bench.committed() == []  # returns only when no transaction is open


def test_a_transaction_that_took_too_long_is_gone(bench: Bench) -> None:
    async def work(producer: Producer) -> None:
        await bench.write(producer, b"slow")
        await bench.broker.aadvance("70s")  # before 2.5 coordinators look for late transactions once a minute
        with pytest.raises(ProducerFatal) as gone:
            await producer.commit_transaction()
        # In v2 the coordinator takes it for the late repetition of an end that it knows, and it was the other end.
        assert gone.value.code == (Error.INVALID_TXN_STATE if v2 else gone.value.code)
        assert isinstance(gone.value, ProducerFenced) == (not v2)

    v2 = bench.is_v2
    bench.with_producer(work, transaction_timeout_ms=1000)
    assert bench.committed() == []


def test_nothing_is_sent_outside_of_a_transaction(bench: Bench) -> None:
    async def work(producer: Producer) -> None:
        for step in (
            lambda: producer.send(bench.topic, b"never"),
            producer.commit_transaction,
            lambda: producer.send_offsets_to_transaction({(bench.topic, 0): 1}, f"{bench.topic}-readers"),
        ):
            with pytest.raises(KafkaError, match="ready, not in a transaction"):
                await step()
        producer.begin_transaction()
        with pytest.raises(KafkaError, match="in a transaction, not ready"):
            producer.begin_transaction()
        await producer.commit_transaction()  # of nothing: nobody is asked
        assert producer._transactions is not None

    with bench.broker.faults.add(api="EndTxn", error="UNKNOWN_SERVER_ERROR"):
        bench.with_producer(work)


def test_a_producer_goes_over_to_v2_when_its_cluster_has(tmp_path: Path) -> None:
    older = Broker(topics=[TOPIC], as_version="3.9", data_dir=tmp_path).start()
    bench = Bench(older, TOPIC)
    port = int(older.bootstrap_servers.rpartition(":")[2])

    async def work(producer: Producer) -> list[bool]:
        transactions = producer._transactions
        assert transactions is not None
        protocols = [transactions.calls.is_v2]
        await bench.write(producer, b"a")
        older.stop()
        with Broker(data_dir=tmp_path, port=port):
            async with Producer(producer._cluster, transactional_id="other") as other:
                await other.init_transactions()  # raises transaction.version
                for connection in producer._cluster._connections.values():
                    await (await connection).close()
            for value in (b"b", b"c"):
                await producer.commit_transaction()
                protocols.append(transactions.calls.is_v2)
                await bench.write(producer, value)
            await producer.commit_transaction()
            producer._cluster.forget(TOPIC)
        return protocols

    assert bench.with_producer(work) == [False, True, True]
    with Broker(data_dir=tmp_path) as broker:
        assert Bench(broker, TOPIC).committed() == [b"a", b"b", b"c"]
