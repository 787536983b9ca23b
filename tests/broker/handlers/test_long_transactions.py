"""What many transactions or producers make long: others have their turn in between."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.broker import Node
from minibroker.broker.dispatch import Context
from minibroker.broker.handlers.cluster import describe_producers
from minibroker.errors import Error
from minibroker.log import reading
from minibroker.log.build import build_batch
from minibroker.log.producers import Producer
from minibroker.log.records import Record
from minibroker.protocol.messages.describe_producers import DescribeProducersRequest
from minibroker.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.schema.bounds import NUMBERS_BITS
from minibroker.stored.producers import AbortedTxn
from minibroker.transactions.coordinator import TransactionCoordinator
from minibroker.turns import SHARE_US, is_work
from tests.broker.stretches import counted
from tests.broker.virtual_broker import VirtualBroker
from tests.server.running import connected, running

from .transactional import READ_COMMITTED, SETTINGS, Transactional

ABORTED, PARTITIONS = 2_000, 5


def filled(node: Node, aborted: int) -> None:
    """Let many transactions that were aborted have a part in the first record of each partition."""
    node.create_topic("t", PARTITIONS)
    for partition in range(PARTITIONS):
        replica = node.replicas["t", partition]
        replica.append(bytearray(build_batch(2, [Record(b"k", b"v", (), 0)])), now_ms=0, steady_ms=0)
        for number in range(aborted):
            entry = AbortedTxn(producer_id=number, first_offset=0, last_offset=1 + number, last_stable_offset=0)
            replica.log.active.transaction_index.add(entry)


async def fetched(node: Node, *, max_wait_ms: int) -> tuple[FetchResponse, int]:
    """Ask for all that is committed; return the answer, and how many turns others have had meanwhile."""
    Topic = FetchRequest.FetchTopic
    rows = [
        Topic.FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=1 << 20) for each in range(PARTITIONS)
    ]
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1 << 20,
        isolation_level=READ_COMMITTED,
        topics=[Topic(topic="t", partitions=rows)],
    )
    turns, turn = 0, node.shares.turn

    async def count() -> None:
        nonlocal turns
        turns += 1
        await turn()

    async with connected(node) as client:
        node.shares.turn = count  # type: ignore[method-assign]
        return await client.ask(request, 12), turns


@pytest.mark.parametrize("max_wait_ms", [0, 1])
async def test_a_long_list_of_aborted_transactions_is_made_and_written_in_shares(max_wait_ms: int) -> None:
    async with running() as node:
        filled(node, ABORTED)
        answer, turns = await fetched(node, max_wait_ms=max_wait_ms)
    for row in answer.responses[0].partitions:
        told = [(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()]
        assert (row.error_code, told) == (Error.NONE, [(number, 0) for number in range(ABORTED)])
        assert row.records
    assert turns >= 2 * (ABORTED * PARTITIONS // SHARE_US - 1), turns


@pytest.mark.parametrize("max_wait_ms", [0, 1])
async def test_a_short_one_takes_no_turn(max_wait_ms: int) -> None:
    async with running() as node:
        filled(node, 20)
        answer, turns = await fetched(node, max_wait_ms=max_wait_ms)
    assert [len(row.aborted_transactions or ()) for row in answer.responses[0].partitions] == [20] * PARTITIONS
    assert turns == 0


def test_many_producers_of_one_partition_are_described_in_shares(broker: VirtualBroker) -> None:
    broker.node.create_topic("t", 1)
    known = broker.node.replicas["t", 0].log.producers.producers
    Topic = DescribeProducersRequest.TopicRequest
    request = DescribeProducersRequest(topics=[Topic(name="t", partition_indexes=[0])])
    longest = []
    for count in (2_000, 8_000):
        known.update((number, Producer()) for number in range(count))
        context = Context(broker.node, broker.connection, 0, None)
        answer, lines = counted(lambda context=context: describe_producers(request, context))
        assert [each.producer_id for each in answer.topics[0].partitions[0].active_producers] == list(range(count))
        longest.append(lines.longest_lines)
    assert longest[1] < 1.1 * longest[0]


def test_producers_that_are_forgotten_meanwhile_are_left_out(broker: VirtualBroker) -> None:
    broker.node.create_topic("t", 1)
    states = broker.node.replicas["t", 0].log.producers
    states.producers.update((number, Producer()) for number in range(1_000))
    Topic = DescribeProducersRequest.TopicRequest
    request = DescribeProducersRequest(topics=[Topic(name="t", partition_indexes=[0])])
    work: Any = describe_producers(request, Context(broker.node, broker.connection, 0, None))
    assert is_work(work)
    next(work)
    states.expire(10, 1)
    try:
        while True:
            next(work)
    except StopIteration as end:
        answer = end.value
    assert 0 < len(answer.topics[0].partitions[0].active_producers) < 1_000


def test_a_transactional_id_that_is_asked_for_again_is_described_once(
    broker: VirtualBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    describe = TransactionCoordinator.describe

    def noted(self: TransactionCoordinator, name: str) -> Any:
        asked.append(name)
        return describe(self, name)

    monkeypatch.setattr(TransactionCoordinator, "describe", noted)
    answer = broker.ask(DescribeTransactionsRequest(transactional_ids=["u", "t", "u", "u"]), 0)
    assert [each.transactional_id for each in answer.transaction_states] == ["u", "t", "u", "u"]
    assert asked == ["u", "t"]


@pytest.mark.parametrize(("arrays", "numbers"), [(500, 1_000), (5, 100_000)])
def test_arrays_of_numbers_count_where_an_answer_is_written_in_pieces(arrays: int, numbers: int) -> None:
    State = DescribeTransactionsResponse.TransactionState
    topics = [State.TopicData(topic="t", partitions=list(range(numbers)))] * arrays
    state = State(
        error_code=Error.NONE,
        transactional_id="t",
        transaction_state="Ongoing",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=topics,
    )
    answer = DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=[state])
    counts, work = [], answer.encode_in_pieces(0, 1 << 30)
    try:
        while True:
            counts.append(next(work))
    except StopIteration as end:
        assert b"".join(end.value) == answer.encode(0)
    due = (arrays * numbers) >> NUMBERS_BITS
    assert 0.9 * due < sum(counts) < 1.3 * due
    assert max(counts) < max(600, 2 * numbers >> NUMBERS_BITS)


@pytest.mark.pure
@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_who_waits_for_what_is_committed_is_not_woken_by_a_transaction_that_goes_on(
    session_epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.broker.virtual_broker import virtual_broker

    with virtual_broker(SETTINGS) as broker:
        broker.node.create_topic("o", 1)
        producer = Transactional(broker, is_v2=True).begin()
        assert producer.produce("o", b"0") == Error.NONE
        Topic = FetchRequest.FetchTopic
        topics = [
            Topic(topic="o", partitions=[Topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)])
        ]

        def ask(topics: list[Any], session_id: int = 0, epoch: int = session_epoch, wait_ms: int = 1_000) -> Any:
            return FetchRequest(
                max_wait_ms=wait_ms,
                min_bytes=1,
                isolation_level=READ_COMMITTED,
                session_id=session_id,
                session_epoch=epoch,
                topics=topics,
            )

        reads = []
        read = reading.read
        monkeypatch.setattr(reading, "read", lambda *all, **named: reads.append(1) or read(*all, **named))
        waiting = broker.begin(ask(topics), 12)
        assert len(reads) == 1
        for _ in range(10):
            assert producer.produce("o", b"x") == Error.NONE
        assert len(reads) == 1
        # The time is over: the high watermark is told, though nothing can be read.
        answer = broker.wait(waiting)
        (row,) = answer.responses[0].partitions
        assert (row.high_watermark, row.last_stable_offset, row.records) == (11, 0, b"")
        assert len(reads) == 2
        # Between the requests of a session, too.
        assert producer.produce("o", b"y") == Error.NONE
        rest = topics if session_epoch < 0 else []
        epoch = -1 if session_epoch < 0 else 1
        waiting = broker.begin(ask(rest, answer.session_id, epoch), 12)
        (row,) = broker.wait(waiting).responses[0].partitions
        assert (row.high_watermark, row.records) == (12, b"")
        # The end of the transaction ends the wait.
        epoch += session_epoch >= 0
        waiting = broker.begin(ask(rest, answer.session_id, epoch, 60_000), 12)
        before_ms = broker.now_ms()
        assert producer.end() == Error.NONE
        (row,) = broker.wait(waiting).responses[0].partitions
        assert (row.last_stable_offset, bool(row.records)) == (13, True)
        assert broker.now_ms() - before_ms < 1_000
