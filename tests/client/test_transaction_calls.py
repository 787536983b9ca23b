"""Transactions of our own client: both protocols, what a reader sees of them, and answers that are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from minibroker import Broker
from minibroker.client import Cluster, Groups
from minibroker.client.groups import CommittedOffset
from minibroker.client.produce import form_for, send
from minibroker.client.transaction_calls import TransactionCalls
from minibroker.errors import Error, KafkaError
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from tests.client.committed import committed_records

pytestmark = pytest.mark.outside

PLACE = ("orders", 0)


@pytest.fixture(scope="module", params=[None, "3.9"], ids=["v2", "classic"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    as_version = {"as_version": request.param} if request.param else {}
    with Broker(topics=["orders"], **as_version) as broker:
        yield broker


async def write(cluster: Cluster, calls: TransactionCalls, value: bytes, *, commit: bool, offset: int) -> None:
    producer = await calls.init_producer()
    await calls.add_partitions(producer, [PLACE])
    batch = build_batch(
        2,
        [Record(None, value, timestamp=1)],
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        transactional=True,
    )
    leader = (await cluster.leader_of(*PLACE)).leader_id
    form = await form_for(cluster, leader, ["orders"], codec=0, version_max=calls.produce_version_max)
    outcomes, _ = await send(
        cluster,
        leader,
        form,
        {PLACE: batch},
        acks=-1,
        timeout_ms=5000,
        extra_ms=5000,
        transactional_id=calls.transactional_id,
    )
    assert not outcomes[PLACE].error_code, outcomes[PLACE]
    await calls.commit_offsets(producer, "group", {PLACE: CommittedOffset(offset, "so far")})
    after = await calls.end(producer, commit=commit)
    assert (after.epoch > producer.epoch) == calls.is_v2


def test_records_and_offsets_count_when_the_transaction_is_committed(broker: Broker) -> None:
    async def both() -> CommittedOffset:
        async with Cluster(broker.bootstrap_servers) as cluster:
            calls = TransactionCalls(cluster, "writer", timeout_ms=60_000)
            await write(cluster, calls, b"kept", commit=True, offset=5)
            await write(cluster, calls, b"dropped", commit=False, offset=9)
            return (await Groups(cluster).fetch_offsets(["group"], stable=True))["group"][PLACE]

    assert asyncio.run(both()) == CommittedOffset(5, "so far", -1)
    assert [record.value for record in committed_records(broker.bootstrap_servers, "orders")] == [b"kept"]


def test_who_takes_the_id_over_fences_who_had_it(broker: Broker) -> None:
    async def both() -> KafkaError:
        async with Cluster(broker.bootstrap_servers) as cluster:
            one, other = (TransactionCalls(cluster, "taken", timeout_ms=60_000) for _ in range(2))
            producer = await one.init_producer()
            await other.init_producer()
            with pytest.raises(KafkaError) as refused:
                await one.commit_offsets(producer, "late", {PLACE: CommittedOffset(1)})
            return refused.value

    assert asyncio.run(both()).code in (Error.INVALID_PRODUCER_EPOCH, Error.PRODUCER_FENCED)


@pytest.mark.parametrize("api", ["InitProducerId", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn", "FindCoordinator"])
def test_an_answer_that_is_lost_is_asked_for_again(api: str, broker: Broker) -> None:
    async def commit() -> CommittedOffset:
        async with Cluster(broker.bootstrap_servers) as cluster:
            calls = TransactionCalls(cluster, f"lost-{api}", timeout_ms=60_000)
            producer = await calls.init_producer()
            await calls.commit_offsets(producer, api, {PLACE: CommittedOffset(7)})
            await calls.end(producer, commit=True)
            return (await Groups(cluster).fetch_offsets([api], stable=True))[api][PLACE]

    with broker.faults.add(api=api, times=1, close="after") as rule:
        assert asyncio.run(commit()).offset == 7
        # Transactions v2 need no AddOffsetsToTxn.
        assert rule.strikes() == (not (api == "AddOffsetsToTxn" and broker_is_v2(broker)))


def broker_is_v2(broker: Broker) -> bool:
    async def ask() -> bool:
        async with Cluster(broker.bootstrap_servers) as cluster:
            return (await cluster.connection()).features.get("transaction.version", 0) >= 2

    return asyncio.run(ask())
