"""Markers on their way: what brokers are asked, what becomes of what they say, and how much is done at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

from minibroker.errors import Error
from minibroker.metadata.image import NO_LEADER
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.delete_topics import DeleteTopicsRequest
from minibroker.protocol.messages.write_txn_markers import WriteTxnMarkersResponse
from minibroker.replication.network import NetworkError
from minibroker.server.later import Later
from minibroker.transactions import markers
from minibroker.transactions.markers import FENCED_MS, PARTITIONS_MAX, RETRY_MS, TRANSACTIONS_MAX
from minibroker.transactions.metadata import TopicPartition
from minibroker.turns import SHARE_US
from tests.broker.handlers.transactional import Transactional
from tests.broker.virtual_broker import VirtualBroker, virtual_broker

Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
TopicResult = Result.WritableTxnMarkerTopicResult
PartitionResult = TopicResult.WritableTxnMarkerPartitionResult
Said = dict[tuple[int, TopicPartition], Error]  # by producer and partition

pytestmark = pytest.mark.outside

T0, T1, T2 = ("orders", 0), ("orders", 1), ("orders", 2)


def answer_of(said: Said) -> WriteTxnMarkersResponse:
    """Return an answer, each partition in a row of its own."""
    return WriteTxnMarkersResponse(
        markers=[
            Result(
                producer_id=producer_id,
                topics=[TopicResult(name=name, partitions=[PartitionResult(partition_index=number, error_code=error)])],
            )
            for (producer_id, (name, number)), error in said.items()
        ]
    )


class Brokers:
    """Those who are asked: what of, and what they say."""

    def __init__(self, broker: VirtualBroker):
        self.broker = broker
        self.requests: list[Any] = []
        self.asked_ms: list[int] = []
        self.looked_at: list[TopicPartition] = []
        self.say: Callable[[Said], Any] = answer_of

    def call(self, broker_id: int, request: Request, version: int) -> Any:
        self.requests.append(request)
        self.asked_ms.append(self.broker.now_ms())
        return self.say(dict.fromkeys(self.asked_for(-1), Error.NONE))

    def holds(self, transactional_id: str, topic: str, partition: int, go_on: Callable[[], object]) -> bool:
        self.looked_at.append((topic, partition))
        return False

    def asked_for(self, index: int) -> list[tuple[int, TopicPartition]]:
        """Return producers and partitions of one request."""
        return [
            (each.producer_id, (topic.name, number))
            for each in self.requests[index].markers
            for topic in each.topics
            for number in topic.partition_indexes
        ]

    def once(self, say: Callable[[Said], Any]) -> None:
        """Say something else, once."""

        def say_it(said: Said) -> Any:
            self.say = answer_of
            return say(said)

        self.say = say_it


@pytest.fixture
def broker() -> Iterator[VirtualBroker]:
    settings: dict[str, object] = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
    with virtual_broker(settings) as made:
        made.node.create_topic("orders", 3)
        yield made


@pytest.fixture
def brokers(broker: VirtualBroker) -> Brokers:
    asked = Brokers(broker)
    broker.node.transactions._calls = asked
    return asked


def begun(broker: VirtualBroker, name: str = "t", *places: TopicPartition, is_v2: bool = False) -> Transactional:
    producer = Transactional(broker, name, is_v2=is_v2).begin()
    codes = producer.add(*places or (T0,), version=5 if is_v2 else 3)
    assert set(codes.values()) == {Error.NONE}
    return producer


# What is asked


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("is_v2", [True, False])
def test_a_marker_says_who_ends_what_and_by_which_protocol(
    broker: VirtualBroker, brokers: Brokers, is_v2: bool, commit: bool
) -> None:
    producer = begun(broker, is_v2=is_v2)
    coordinator = broker.node.transactions.coordinator
    replica = coordinator.led[0].replica
    broker.run(replica.lead, replica.leader_epoch + 7)
    broker.run(coordinator.follow)
    epoch = producer.epoch
    assert producer.end(commit=commit) == Error.NONE
    (marker,) = brokers.requests[0].markers
    assert (marker.producer_id, marker.producer_epoch) == (producer.id, epoch + 1 if is_v2 else epoch)
    assert marker.transaction_result is commit
    assert marker.coordinator_epoch == replica.leader_epoch > 0
    assert marker.transaction_version == (2 if is_v2 else 0)


def test_what_has_come_meanwhile_goes_into_requests_of_a_bounded_size(broker: VirtualBroker, brokers: Brokers) -> None:
    broker.node.create_topic("wide", PARTITIONS_MAX + 1)
    wide = begun(broker, "wide", *(("wide", number) for number in range(PARTITIONS_MAX + 1)))
    many = [begun(broker, f"t{number}") for number in range(TRANSACTIONS_MAX + 1)]
    assert wide.end() == Error.NONE
    assert wide.state == "CompleteCommit"
    assert [len(brokers.asked_for(index)) for index in range(2)] == [PARTITIONS_MAX, 1]
    later = Later()
    brokers.once(lambda said: later)
    wide.add(T0)
    for producer in (wide, *many):
        assert producer.end() == Error.NONE
    broker.run(later, answer_of({(wide.id, T0): Error.NONE}))
    broker.pass_ms(1)
    assert [len(request.markers) for request in brokers.requests[2:]] == [1, TRANSACTIONS_MAX, 1]
    assert {producer.state for producer in (wide, *many)} == {"CompleteCommit"}


def test_what_is_too_much_for_one_request_goes_into_the_next_unless_the_transaction_is_fenced(
    broker: VirtualBroker, brokers: Brokers
) -> None:
    broker.node.create_topic("wide", PARTITIONS_MAX)
    wide = begun(broker, "wide", *(("wide", number) for number in range(PARTITIONS_MAX)))
    first, second = begun(broker, "a"), begun(broker, "b")
    later = Later()
    brokers.once(lambda said: later)
    for producer in (first, second, wide):
        assert producer.end() == Error.NONE
    broker.run(later, answer_of({(first.id, T0): Error.NONE}))
    broker.pass_ms(1)
    assert [len(brokers.asked_for(index)) for index in range(len(brokers.requests))] == [1, PARTITIONS_MAX, 1]
    assert wide.state == "CompleteCommit"
    wide.add(T0, *(("wide", number) for number in range(PARTITIONS_MAX)))
    fenced = {(wide.id, ("wide", 0)): Error.TRANSACTION_COORDINATOR_FENCED}
    brokers.once(lambda said: answer_of({**said, **fenced}))
    assert wide.end() == Error.NONE
    broker.pass_ms(10 * RETRY_MS)
    assert len(brokers.requests) == 4
    assert wide.state == "PrepareCommit"


# What is said


def left_out(said: Said) -> WriteTxnMarkersResponse:
    return answer_of({key: error for key, error in said.items() if key[1] != T1})


def refused(said: Said) -> WriteTxnMarkersResponse:
    return answer_of({**said, **{key: Error.NOT_LEADER_OR_FOLLOWER for key in said if key[1] == T1}})


def not_heard(said: Said) -> WriteTxnMarkersResponse:
    raise NetworkError("nobody answers")


async def _not_heard_later(said: Said) -> WriteTxnMarkersResponse:
    return not_heard(said)


def not_heard_later(said: Said) -> Any:
    return _not_heard_later(said)


@pytest.mark.parametrize(
    ("say", "again"),
    [
        (refused, [T1]),
        (left_out, [T1]),
        (lambda said: answer_of({}), [T0, T1, T2]),
        (not_heard, [T0, T1, T2]),
        (not_heard_later, [T0, T1, T2]),
    ],
    ids=["refused", "left out", "the producer left out", "not heard", "not heard later"],
)
def test_what_has_no_marker_is_asked_for_again(
    broker: VirtualBroker, brokers: Brokers, say: Callable[[Said], Any], again: list[TopicPartition]
) -> None:
    producer = begun(broker, "t", T0, T1, T2)
    brokers.once(say)
    assert producer.end() == Error.NONE
    broker.pass_ms(RETRY_MS - 1)
    assert producer.state == "PrepareCommit"
    broker.pass_ms(2)
    assert producer.state == "CompleteCommit"
    assert [brokers.asked_for(index) for index in range(len(brokers.requests))] == [
        [(producer.id, place) for place in (T0, T1, T2)],
        [(producer.id, place) for place in again],
    ]
    assert brokers.asked_ms[1] - brokers.asked_ms[0] == RETRY_MS


def test_of_several_producers_in_one_answer_each_goes_by_its_own(broker: VirtualBroker, brokers: Brokers) -> None:
    first, second, third = (begun(broker, name) for name in "abc")
    later = Later()
    brokers.once(lambda said: later)
    assert first.end() == Error.NONE
    assert second.end() == Error.NONE
    assert third.end(commit=False) == Error.NONE
    brokers.once(lambda said: answer_of({**said, (second.id, T0): Error.NOT_LEADER_OR_FOLLOWER}))
    broker.run(later, answer_of({(first.id, T0): Error.NONE}))
    broker.pass_ms(1)
    assert brokers.asked_for(1) == [(second.id, T0), (third.id, T0)]
    assert [each.transaction_result for each in brokers.requests[1].markers] == [True, False]
    assert [each.state for each in (first, second, third)] == ["CompleteCommit", "PrepareCommit", "CompleteAbort"]
    broker.pass_ms(RETRY_MS)
    assert brokers.asked_for(2) == [(second.id, T0)]
    assert second.state == "CompleteCommit"


@pytest.mark.parametrize("error", [Error.INVALID_PRODUCER_EPOCH, Error.TRANSACTION_COORDINATOR_FENCED])
@pytest.mark.parametrize("moves", [True, False])
def test_who_is_fenced_asks_nobody_any_more_and_says_so_unless_there_is_another(
    broker: VirtualBroker, brokers: Brokers, error: Error, moves: bool
) -> None:
    producer = begun(broker, "t", T0, T1)
    brokers.say = lambda said: answer_of({**said, (producer.id, T1): error})
    assert producer.end() == Error.NONE
    assert producer.state == "PrepareCommit"
    broker.pass_ms(FENCED_MS // 2)
    if moves:
        replica = broker.node.transactions.coordinator.led[0].replica
        brokers.say = answer_of
        broker.run(replica.lead, replica.leader_epoch + 1)
        broker.run(broker.node.transactions.coordinator.follow)
    broker.pass_ms(6 * FENCED_MS)
    assert len(brokers.requests) == (2 if moves else 1)
    assert producer.state == ("CompleteCommit" if moves else "PrepareCommit")
    lines = [line for line in broker.said if "stays PrepareCommit: orders-1 takes no marker" in line]
    assert len(lines) == (0 if moves else 1)


@pytest.mark.parametrize("error", [Error.NONE, Error.NOT_LEADER_OR_FOLLOWER])
def test_a_coordinator_that_has_moved_asks_nothing_more_whatever_it_hears(
    broker: VirtualBroker, brokers: Brokers, error: Error
) -> None:
    producer, other = begun(broker, "t"), begun(broker, "u")
    later = Later()
    brokers.once(lambda said: later)
    assert producer.end() == Error.NONE
    assert other.end() == Error.NONE
    led = broker.node.transactions.coordinator.led[0]
    end_offset = led.replica.log.log_end_offset
    broker.run(led.resign)
    broker.run(later, answer_of({(producer.id, T0): error}))
    broker.pass_ms(10 * RETRY_MS)
    assert len(brokers.requests) == 1
    assert led.replica.log.log_end_offset == end_offset


def test_partitions_that_a_topic_made_anew_does_not_have_need_no_marker(
    broker: VirtualBroker, brokers: Brokers
) -> None:
    producer = begun(broker, "t", T0, T1)
    brokers.once(not_heard)
    assert producer.end() == Error.NONE
    named = DeleteTopicsRequest.DeleteTopicState(name="orders", topic_id=bytes(16))
    assert broker.ask(DeleteTopicsRequest(topics=[named], timeout_ms=1000), 6).responses[0].error_code == Error.NONE
    broker.node.create_topic("orders", 1)
    broker.pass_ms(RETRY_MS + 1)
    assert brokers.asked_for(1) == [(producer.id, T0)]
    assert producer.state == "CompleteCommit"


# How much at once


def most_at_once(broker: VirtualBroker, count: Callable[[], int], work: Callable[[], object]) -> int:
    """Return how much is counted in one turn of the loop, while work is done and after it."""
    counts: list[int] = []

    async def look() -> None:
        work()
        for _ in range(200):
            counts.append(count())
            await asyncio.sleep(0)

    before = count()
    broker.loop.run_until_complete(look())
    return max(now - then for then, now in zip([before, *counts], counts, strict=False))


def lead(broker: VirtualBroker, names: Collection[str], leader: int) -> dict[bytes, None]:
    """Give all partitions of topics another leader; return what the change is about."""
    topics = [broker.node.image.topics[name] for name in names]
    for topic in topics:
        for partition in topic.partitions:
            partition.leader = leader
    return {topic.id: None for topic in topics}


def test_partitions_of_large_transactions_are_looked_at_in_shares(broker: VirtualBroker, brokers: Brokers) -> None:
    broker.node.create_topic("wide", 3_000)
    places = [("wide", number) for number in range(3_000)]
    producers = [begun(broker, name, *places) for name in "ab"]
    coordinator, looked_at = broker.node.transactions.coordinator, brokers.looked_at
    changed = lead(broker, ["wide"], NO_LEADER)
    share = SHARE_US // markers.ROUTED_US + markers.ROUTED_TOGETHER

    def end() -> None:
        for found in list(coordinator.led[0].shard.ids.values()):
            coordinator.abort(found, "a test")

    assert 0 < most_at_once(broker, lambda: len(looked_at), end) <= share
    assert looked_at == places * 2
    assert {producer.state for producer in producers} == {"PrepareAbort"}
    # Nothing is looked at for a change of something else, and all of it once for one that may matter.
    broker.run(broker.node.tell_watchers)
    broker.node.create_topic("other", 1)
    assert looked_at == places * 2
    lead(broker, ["wide"], broker.node.node_id)
    assert most_at_once(broker, lambda: len(looked_at), lambda: broker.node.tell_watchers(changed)) <= share
    broker.pass_ms(1)
    assert looked_at == places * 4
    assert {producer.state for producer in producers} == {"CompleteAbort"}


def test_many_transactions_that_were_prepared_go_on_in_shares(
    broker: VirtualBroker, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    producers = [begun(broker, f"t{number}") for number in range(20)]
    changed = lead(broker, ["orders"], NO_LEADER)
    for producer in producers:
        assert producer.end() == Error.NONE
    monkeypatch.setattr(markers, "ROUTED_US", SHARE_US // 4)  # for each transaction and for each partition
    coordinator, looked_at = broker.node.transactions.coordinator, brokers.looked_at
    replica = coordinator.led[0].replica
    replica.lead(replica.leader_epoch + 1)
    looked_at.clear()
    assert 0 < most_at_once(broker, lambda: len(looked_at), coordinator.follow) <= 3
    assert len(looked_at) == 20
    lead(broker, ["orders"], broker.node.node_id)
    assert most_at_once(broker, lambda: len(looked_at), lambda: broker.node.tell_watchers(changed)) <= 3
    broker.pass_ms(1)
    assert {producer.state for producer in producers} == {"CompleteCommit"}


def test_a_coordinator_that_has_moved_keeps_nothing_of_what_nobody_leads(
    broker: VirtualBroker, brokers: Brokers
) -> None:
    producer = begun(broker)
    lead(broker, ["orders"], NO_LEADER)
    assert producer.end() == Error.NONE
    coordinator = broker.node.transactions.coordinator
    assert coordinator.markers._led_by_nobody
    broker.run(coordinator.led[0].resign)
    broker.run(broker.node.tell_watchers)
    assert not coordinator.markers._led_by_nobody
