"""Our own client writes in transactions of a real Kafka, and administers them: 3.9 (classic) and 4.4 (v2)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from minibroker.client import Admin, Cluster, Groups, Producer, SomeFailed, Transactions
from minibroker.client.transaction_manager import ProducerFenced, TransactionAbortable
from minibroker.errors import Error, KafkaError
from tests.cli.running import Shell
from tests.client.committed import committed_records
from tests.differential.kafka import Kafka, missing_tools

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_tools()), reason=f"a real Kafka needs {missing_tools()}, not found"),
]


@pytest.fixture(scope="module", params=["3.9.2", "4.4.0"])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with Kafka(request.param, tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka


def with_producer(kafka: Kafka, name: str, work: Callable[[Cluster, Producer], Awaitable[Any]]) -> None:
    async def main() -> None:
        async with (
            Cluster(kafka.address, retry_count=30) as cluster,
            Producer(cluster, transactional_id=name) as producer,
        ):
            await Admin(cluster).create_topics([name])
            await producer.init_transactions()
            assert producer._of_transactions().calls.is_v2 == kafka.version.startswith("4")
            await work(cluster, producer)

    asyncio.run(main())


def committed(kafka: Kafka, topic: str) -> list[bytes | None]:
    return [record.value for record in committed_records(kafka.address, topic)]


def test_what_is_committed_counts_and_what_is_aborted_does_not(kafka: Kafka) -> None:
    async def work(cluster: Cluster, producer: Producer) -> None:
        for number in range(4):
            producer.begin_transaction()
            await producer.send("mixed", b"%d" % number)
            await producer.send_offsets_to_transaction({("mixed", 0): number}, "readers")
            await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
        found = await Groups(cluster).fetch_offsets(["readers"], stable=True)
        assert found["readers"]["mixed", 0].offset == 2

    with_producer(kafka, "mixed", work)
    assert committed(kafka, "mixed") == [b"0", b"2"]


def test_errors_are_abortable_or_fatal(kafka: Kafka) -> None:
    async def work(cluster: Cluster, producer: Producer) -> None:
        producer.begin_transaction()
        with pytest.raises(TransactionAbortable, match="MESSAGE_TOO_LARGE"):
            await producer.send("errors", bytes(2_000_000))
        await producer.abort_transaction()
        producer.begin_transaction()
        await producer.send("errors", b"kept")
        await producer.commit_transaction()
        producer.begin_transaction()
        await producer.send("errors", b"zombie")
        async with Producer(cluster, transactional_id="errors") as other:
            await other.init_transactions()
            with pytest.raises(ProducerFenced):
                await producer.commit_transaction()

    with_producer(kafka, "errors", work)
    assert committed(kafka, "errors") == [b"kept"]


def test_transactions_are_administered(kafka: Kafka) -> None:
    async def work(cluster: Cluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("admin", b"open")
        transactions = Transactions(cluster)
        described = (await transactions.describe_transactions(["admin"]))["admin"]
        assert (described.state, described.partitions) == ("Ongoing", [("admin", 0)])
        listed = await transactions.list_transactions(states=["Ongoing"])
        assert [each.transactional_id for each in listed] == ["admin"]
        (found,) = await transactions.open_transactions([("admin", 0)])
        assert found.producer.producer_id == described.producer_id
        assert await transactions.hanging([("admin", 0)], longer_than_ms=-1) == []
        with pytest.raises(SomeFailed, match="TRANSACTIONAL_ID_NOT_FOUND"):
            await transactions.describe_transactions(["nobody"])
        try:
            assert [each.transactional_id for each in await transactions.list_transactions(pattern="adm.*")] == [
                "admin"
            ]
        except KafkaError as error:
            assert (error.code, kafka.version) == (Error.UNSUPPORTED_VERSION, "3.9.2")
        shell = Shell(kafka.address)
        head, row = await asyncio.to_thread(lambda: shell.good("transactions", "describe", "admin").lines)
        assert dict(zip(head.split("\t"), row.split("\t")))["TransactionState"].strip() == "Ongoing"
        await transactions.abort(("admin", 0), found.producer.producer_id, found.producer.producer_epoch + 1, 0)
        assert await transactions.open_transactions([("admin", 0)]) == []
        assert (await transactions.fence("admin"))[1] > described.producer_epoch
        with pytest.raises(ProducerFenced):
            await producer.commit_transaction()

    with_producer(kafka, "admin", work)
    assert committed(kafka, "admin") == []
