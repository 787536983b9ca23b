"""Transactions as a test sees them: waiting for them, looking at them, aborting them by hand, and faults."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from minibroker import Broker, Cluster
from minibroker.client import Cluster as Client
from minibroker.client import Producer
from minibroker.client.transaction_manager import ProducerFatal
from minibroker.embedded import FaultError
from minibroker.errors import Error, KafkaError

from .test_broker import EVERYWHERE, PROCESS

ID = "pay/1"  # to be quoted in a path


@pytest.fixture(params=[*EVERYWHERE, "cluster"])
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[Broker | Cluster]:
    if request.param == "cluster":
        async with Cluster(topics="orders:2") as cluster:
            yield cluster
    else:
        async with Broker(topics="orders:2", process=request.param == PROCESS) as broker:
            yield broker


@pytest.fixture
async def producer(broker: Broker | Cluster) -> AsyncIterator[Producer]:
    async with (
        Client(broker.bootstrap_servers, retry_count=30) as client,
        Producer(client, transactional_id=ID, transaction_timeout_ms=600_000) as producer,
    ):
        await producer.init_transactions()
        yield producer


async def write(producer: Producer) -> None:
    producer.begin_transaction()
    await producer.send("orders", b"paid", partition=0)


async def test_a_transaction_is_waited_for_and_looked_at(broker: Broker | Cluster, producer: Producer) -> None:
    await write(producer)
    found = await broker.await_transaction(ID, "Ongoing", timeout=60)
    assert found == await broker.atransaction(ID)
    assert (found.id, found.timeout_ms, found.partitions) == (ID, 600_000, [("orders", 0)])
    assert found.start_ms is not None
    await producer.commit_transaction()
    after = await broker.await_transaction(ID, "CompleteCommit", timeout=60)
    assert (after.producer_epoch, after.partitions) == (found.producer_epoch + 1, [])
    assert await broker.atransactions() == [after]


async def test_waiting_is_refused_in_the_loop_of_the_broker_before_anything_is_looked_at_or_done(
    broker: Broker | Cluster, producer: Producer
) -> None:
    if isinstance(broker, Broker) and not broker._runs_here:
        pytest.skip("a process has another loop")
    await write(producer)
    for act in (
        lambda: broker.wait_transaction(ID, "Ongoing"),
        lambda: broker.wait_records("orders", 0),
        lambda: broker.wait_group("nobody", state="Dead"),
        lambda: broker.abort_transaction(ID),
    ):
        with pytest.raises(RuntimeError, match="await the twin"):
            act()
    await producer.commit_transaction()


async def test_who_waits_in_vain_is_told_how_it_is(broker: Broker | Cluster, producer: Producer) -> None:
    with pytest.raises(TimeoutError, match=f"'{ID}' is to be Ongoing; it is Empty"):
        await broker.await_transaction(ID, "Ongoing", timeout=0.01)
    with pytest.raises(TimeoutError, match="there is no transactional id 'nobody'"):
        await broker.await_transaction("nobody", "Ongoing", timeout=0.01)
    with pytest.raises(ValueError, match="'Open' is no state of a transaction: there are Empty, Ongoing"):
        await broker.await_transaction(ID, "Open")
    with pytest.raises(KafkaError) as missing:
        await broker.atransaction("nobody")
    assert missing.value.code == Error.TRANSACTIONAL_ID_NOT_FOUND
    assert (await broker.await_transaction("nobody", "Dead")).state == "Dead"


async def test_a_transaction_is_aborted_by_hand(broker: Broker | Cluster, producer: Producer) -> None:
    await write(producer)
    before = await broker.await_transaction(ID, "Ongoing", timeout=60)
    aborted = await broker.aabort_transaction(ID, timeout=60)
    assert aborted.state in ("PrepareAbort", "CompleteAbort")
    assert aborted.producer_epoch == before.producer_epoch + 1
    await broker.await_transaction(ID, "CompleteAbort", timeout=60)
    with pytest.raises(ValueError, match="no transaction to abort: it is CompleteAbort"):
        await broker.aabort_transaction(ID)
    with pytest.raises(ProducerFatal):
        await producer.commit_transaction()
    with pytest.raises(KafkaError, match="nobody"):
        await broker.aabort_transaction("nobody")


async def test_a_marker_is_held_until_its_rule_is_removed(broker: Broker | Cluster, producer: Producer) -> None:
    await write(producer)
    found = await broker.await_transaction(ID, "Ongoing", timeout=60)
    faults = broker.faults(found.coordinator) if isinstance(broker, Cluster) else broker.faults
    async with await faults.aadd(api="WriteTxnMarkers", transactional_id="pay/*", hold="before") as rule:
        await producer.commit_transaction()
        assert (await broker.await_transaction(ID, "PrepareCommit", timeout=60)).partitions == [("orders", 0)]
        with pytest.raises(TimeoutError, match="it is PrepareCommit"):
            await broker.await_transaction(ID, "CompleteCommit", timeout=0.01)
        assert await rule.astrikes() == 1
    await broker.await_transaction(ID, "CompleteCommit", timeout=60)


async def test_a_coordinator_of_a_cluster_dies_with_the_answer_and_a_broker_alone_does_not(
    broker: Broker | Cluster, producer: Producer
) -> None:
    await write(producer)
    found = await broker.await_transaction(ID, "Ongoing", timeout=60)
    if isinstance(broker, Broker):
        with pytest.raises(FaultError, match="a broker that is alone cannot be killed by a rule"):
            await broker.faults.aadd(api="EndTxn", kill="after")
        return
    await broker.await_in_sync(timeout=60)
    await broker.faults(found.coordinator).aadd(api="EndTxn", kill="after")
    await producer.commit_transaction()
    after = await broker.await_transaction(ID, "CompleteCommit", timeout=60)
    assert broker.states()[found.coordinator] == "killed"
    assert after.coordinator != found.coordinator


def test_without_a_loop_the_verbs_are_the_same() -> None:
    import asyncio

    with Broker(topics="orders") as broker:

        async def leave_open() -> None:
            async with Client(broker.bootstrap_servers) as client:
                producer = Producer(client, transactional_id=ID)
                await producer.init_transactions()
                producer.begin_transaction()
                await producer.send("orders", b"a")

        asyncio.run(leave_open())
        assert broker.wait_transaction(ID, "Ongoing") == broker.transaction(ID) == broker.transactions()[0]
        assert broker.abort_transaction(ID).producer_epoch > 0
        assert broker.wait_transaction(ID, "CompleteAbort").partitions == []
