"""Transactions of one broker, from the first question of a producer to what consumers see of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minibroker.broker.apis import SERVED
from minibroker.broker.dispatch import Context, find_route
from minibroker.coordinator.hashing import partition_of
from minibroker.errors import Error
from minibroker.groups import OFFSETS_TOPIC
from minibroker.log.batches import batches
from minibroker.log.formats import ABORT, COMMIT
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.records import control_type
from minibroker.metadata.image import NO_LEADER
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from minibroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from minibroker.protocol.messages.delete_topics import DeleteTopicsRequest
from minibroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.list_transactions import ListTransactionsRequest
from minibroker.protocol.messages.offset_commit import OffsetCommitRequest
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest
from minibroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from minibroker.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from minibroker.simulation.loop import START_MS
from minibroker.transactions import TRANSACTION_STATE_TOPIC
from minibroker.transactions import coordinator as coordinator_module
from minibroker.transactions.metadata import EPOCH_MAX_GIVEN
from minibroker.transactions.partition import WAITING_MAX
from tests.broker.handlers.transactional import SETTINGS, Transactional, listed, read
from tests.broker.virtual_broker import VirtualBroker, virtual_broker
from tests.server.running import records_of

ONE_MORE = [AddPartitionsToTxnTopic(name="orders", partitions=[1])]


@pytest.fixture
def broker() -> Iterator[VirtualBroker]:
    with virtual_broker(SETTINGS) as broker:
        broker.node.create_topic("orders", 2)
        yield broker


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("is_v2", [False, True])
def test_what_a_transaction_wrote_is_read_once_it_is_committed_and_never_if_it_is_aborted(
    broker: VirtualBroker, commit: bool, is_v2: bool
) -> None:
    producer = Transactional(broker, is_v2=is_v2).begin()
    assert producer.add(("orders", 0), ("orders", 1)) == {("orders", 0): Error.NONE, ("orders", 1): Error.NONE}
    assert producer.state == "Ongoing"
    for number in (0, 1):
        assert producer.produce("orders", b"first", number) == Error.NONE
        assert read(broker, "orders", number) == []
        assert read(broker, "orders", number, isolation_level=0) == [b"first"]
    epoch = producer.epoch
    assert producer.end(commit=commit) == Error.NONE
    assert producer.epoch == epoch + is_v2
    broker.pass_ms(1)
    assert producer.state == ("CompleteCommit" if commit else "CompleteAbort")
    for number in (0, 1):
        assert read(broker, "orders", number) == ([b"first"] if commit else [])
        log = broker.node.replicas["orders", number].log
        assert log.log_end_offset == 2  # the record and its marker
        assert log.last_stable_offset(2) == 2
    assert producer.add(("orders", 0)) == {("orders", 0): Error.NONE}
    assert producer.produce("orders", b"second") == Error.NONE
    assert producer.end() == Error.NONE
    broker.pass_ms(1)
    assert read(broker, "orders") == [b"first"] * commit + [b"second"]


# Producers and their ids


def test_a_producer_that_comes_again_fences_who_had_the_id_and_aborts_what_that_left_open(
    broker: VirtualBroker,
) -> None:
    zombie = Transactional(broker).begin()
    zombie.add(("orders", 0))
    assert zombie.produce("orders", b"zombie") == Error.NONE
    heir = Transactional(broker)
    assert heir.init() == Error.CONCURRENT_TRANSACTIONS  # it is being aborted
    broker.pass_ms(1)
    assert heir.state == "CompleteAbort"
    assert heir.init() == Error.NONE
    assert (heir.id, heir.epoch) == (zombie.id, zombie.epoch + 2)
    assert zombie.produce("orders", b"late") == Error.INVALID_PRODUCER_EPOCH
    assert zombie.end() == Error.PRODUCER_FENCED
    assert zombie.add(("orders", 0)) == {("orders", 0): Error.PRODUCER_FENCED}
    assert zombie.add_offsets("g") == Error.PRODUCER_FENCED
    assert zombie.add_offsets("g", version=1) == Error.INVALID_PRODUCER_EPOCH
    assert zombie.init(expected=(zombie.id, zombie.epoch)) == Error.PRODUCER_FENCED
    for version in (0, 1):
        assert zombie.end(version=version) == Error.INVALID_PRODUCER_EPOCH
        assert zombie.add(("orders", 0), version=version) == {("orders", 0): Error.INVALID_PRODUCER_EPOCH}
    assert zombie.init(expected=(zombie.id, zombie.epoch), version=3) == Error.INVALID_PRODUCER_EPOCH
    assert read(broker, "orders") == []


def test_a_producer_goes_on_after_an_error_with_the_id_that_it_has(broker: VirtualBroker) -> None:
    producer = Transactional(broker).begin()
    for epoch in (1, 2):
        assert producer.init(expected=(producer.id, producer.epoch)) == Error.NONE
        assert (producer.id, producer.epoch) == (producer.id, epoch)
    assert producer.init(expected=(producer.id, 1)) == Error.NONE  # it has not heard of 2
    assert producer.epoch == 2


NOT_GIVEN = {  # transactional id, timeout, producer id and epoch -> why
    ("", 1000, -1, -1): Error.INVALID_REQUEST,
    ("t", 0, -1, -1): Error.INVALID_TRANSACTION_TIMEOUT,
    ("t", 900_001, -1, -1): Error.INVALID_TRANSACTION_TIMEOUT,
    ("t", 1000, 5, -1): Error.INVALID_REQUEST,
    ("t", 1000, -1, 0): Error.INVALID_REQUEST,
    (None, 1000, 5, -1): Error.INVALID_REQUEST,
    (None, 1000, -1, 0): Error.INVALID_REQUEST,
    ("t", 1000, -1, -1): Error.NOT_COORDINATOR,  # as long as nobody has looked for a coordinator
}


@pytest.mark.parametrize("case", NOT_GIVEN, ids=str)
def test_no_producer_id_is_given_to_whoever_asks_for_what_makes_no_sense(broker: VirtualBroker, case: Any) -> None:
    name, timeout_ms, producer_id, epoch = case
    producer = Transactional(broker, name)
    assert producer.init(timeout_ms, expected=(producer_id, epoch)) == NOT_GIVEN[case]
    assert (producer.id, producer.epoch) == (-1, -1)


def test_a_producer_without_transactions_is_given_an_id_that_nobody_had(broker: VirtualBroker) -> None:
    given = set()
    for expected in ((-1, -1), (5, 0)):
        producer = Transactional(broker, None)  # type: ignore[arg-type]
        assert producer.init(expected=expected) == Error.NONE
        assert producer.epoch == 0
        given.add(producer.id)
    assert len(given | {Transactional(broker).begin().id}) == 3


# Partitions


def test_partitions_are_added_all_or_none(broker: VirtualBroker) -> None:
    producer = Transactional(broker).begin()
    absent, there = Error.UNKNOWN_TOPIC_OR_PARTITION, Error.OPERATION_NOT_ATTEMPTED
    for version in (0, 3, 4, 5):
        added = producer.add(("orders", 0), ("orders", 2), ("absent", 0), version=version)
        assert added == {("orders", 0): there, ("orders", 2): absent, ("absent", 0): absent}
    assert producer.state == "Empty"
    assert producer.add((TRANSACTION_STATE_TOPIC, 0), ("orders", 0)) == {
        (TRANSACTION_STATE_TOPIC, 0): Error.TOPIC_AUTHORIZATION_FAILED,
        ("orders", 0): there,
    }
    assert producer.add((TRANSACTION_STATE_TOPIC, 0), version=5) == {(TRANSACTION_STATE_TOPIC, 0): Error.NONE}
    assert producer.state == "Ongoing"


def test_brokers_ask_for_many_transactions_together_and_whether_partitions_are_in_them(broker: VirtualBroker) -> None:
    producer, unknown = Transactional(broker).begin(), Transactional(broker, "u")
    assert producer.add(("orders", 1)) == {("orders", 1): Error.NONE}
    wanted = [AddPartitionsToTxnTopic(name="orders", partitions=[0, 1])]
    rows = [
        each.transaction(wanted, verify_only=verify_only)
        for each in (producer, unknown)
        for verify_only in (True, False)
    ]
    answer = broker.ask(AddPartitionsToTxnRequest(transactions=rows), 5)
    codes = [
        (each.transactional_id, *(row.partition_error_code for row in each.topic_results[0].results_by_partition))
        for each in answer.results_by_transaction
    ]
    unmapped = Error.INVALID_PRODUCER_ID_MAPPING
    assert codes == [
        ("t", Error.TRANSACTION_ABORTABLE, Error.NONE),
        ("t", Error.NONE, Error.NONE),
        ("u", unmapped, unmapped),
        ("u", unmapped, unmapped),
    ]
    assert {each.topic: sorted(each.partitions) for each in producer.described().topics} == {"orders": [0, 1]}
    assert broker.ask(AddPartitionsToTxnRequest(transactions=[]), 5).results_by_transaction == []


@pytest.mark.parametrize("commit", [True, False])
def test_a_partition_of_groups_gets_its_marker_too(broker: VirtualBroker, commit: bool) -> None:
    broker.ask(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), 4)
    producer = Transactional(broker).begin()
    assert producer.add_offsets("g") == Error.NONE
    ((topic, numbers),) = [(each.topic, each.partitions) for each in producer.described().topics]
    assert topic == OFFSETS_TOPIC
    assert producer.end(commit=commit) == Error.NONE
    broker.pass_ms(1)
    assert producer.state == ("CompleteCommit" if commit else "CompleteAbort")
    (marker,) = records_of(broker.node, OFFSETS_TOPIC, numbers[0])
    assert control_type(marker) == (COMMIT if commit else ABORT)


# Batches


def test_in_transactions_v2_the_leader_adds_the_partition_that_is_written_to(broker: VirtualBroker) -> None:
    producer = Transactional(broker, is_v2=True).begin()
    for count in (1, 2):
        for number in (0, 1):
            assert producer.produce("orders", b"%d" % count, number) == Error.NONE
            assert producer.produce("orders", b"%d again" % count, number) == Error.NONE
        assert {each.topic: sorted(each.partitions) for each in producer.described().topics} == {"orders": [0, 1]}
        assert producer.end() == Error.NONE  # and at once the next
    broker.pass_ms(1)
    assert read(broker, "orders", 1) == [b"1", b"1 again", b"2", b"2 again"]


@pytest.mark.parametrize(
    ("version", "code"),
    [(3, Error.INVALID_TXN_STATE), (10, Error.INVALID_TXN_STATE), (11, Error.TRANSACTION_ABORTABLE)],
)
def test_a_batch_is_refused_whose_partition_is_in_no_transaction(
    broker: VirtualBroker, version: int, code: Error
) -> None:
    producer = Transactional(broker).begin()
    producer.add(("orders", 1))
    assert producer.produce("orders", b"lost", version=version) == code
    assert producer.produce("orders", b"kept", 1, version=version) == Error.NONE
    assert broker.node.replicas["orders", 0].log.log_end_offset == 0
    assert producer.end() == Error.NONE
    broker.pass_ms(1)
    assert producer.produce("orders", b"late", 1, version=version) == code
    assert read(broker, "orders", 1) == [b"kept"]


def test_whoever_was_fenced_and_whoever_never_was_there_write_nothing(broker: VirtualBroker) -> None:
    zombie = Transactional(broker).begin()
    zombie.add(("orders", 0))
    Transactional(broker).init()  # it has written nothing yet, so that only the coordinator knows
    broker.pass_ms(1)
    stranger = Transactional(broker)
    stranger.id, stranger.epoch = 999, 0
    for version in (9, 11, 12):
        assert zombie.produce("orders", b"z", version=version) == Error.INVALID_PRODUCER_EPOCH
        assert stranger.produce("orders", b"s", version=version) == Error.INVALID_PRODUCER_ID_MAPPING
    assert read(broker, "orders", isolation_level=0) == []


@pytest.mark.parametrize("version", [9, 12])
def test_a_batch_is_to_be_sent_again_as_long_as_the_coordinator_cannot_be_asked(
    broker: VirtualBroker, version: int
) -> None:
    producer = Transactional(broker)
    producer.id, producer.epoch = 1, 0
    assert producer.produce("orders", b"early", version=version) == Error.NOT_ENOUGH_REPLICAS


@pytest.mark.setting("add.partitions.to.txn.retry.backoff.max.ms", "add.partitions.to.txn.retry.backoff.ms")
@pytest.mark.parametrize(("period_ms", "patience_ms", "waited_ms"), [(20, 100, 100), (30, 100, 120), (50, 400, 400)])
def test_a_batch_of_the_next_transaction_waits_for_the_markers_of_the_last_as_long_as_the_settings_say(
    period_ms: int, patience_ms: int, waited_ms: int
) -> None:
    name = "add.partitions.to.txn.retry.backoff"
    with virtual_broker({**SETTINGS, f"{name}.ms": period_ms, f"{name}.max.ms": patience_ms}) as broker:
        broker.node.create_topic("orders", 2)
        producer = Transactional(broker, is_v2=True).begin()
        assert producer.produce("orders", b"first") == Error.NONE
        topic, clock = broker.node.image.topics["orders"], broker.node.clock
        partition = topic.partitions[0]
        partition.leader = NO_LEADER  # so nobody is sent a marker
        assert producer.end() == Error.NONE
        broker.pass_ms(1)
        begun_ms = clock.steady_ms()
        assert producer.produce("orders", b"second", 1, version=12) == Error.CONCURRENT_TRANSACTIONS
        assert clock.steady_ms() - begun_ms == waited_ms
        assert producer.produce("orders", b"second", 1, version=11) == Error.NOT_ENOUGH_REPLICAS
        assert clock.steady_ms() - begun_ms == waited_ms
        sending = broker.begin(producer.batches("orders", b"second", 1), 12)
        broker.pass_ms(period_ms + period_ms // 2)
        partition.leader = broker.node.node_id
        broker.run(broker.node.tell_watchers, {topic.id: None})
        assert broker.wait(sending).responses[0].partition_responses[0].error_code == Error.NONE
        assert clock.steady_ms() - begun_ms == waited_ms + period_ms + period_ms // 2  # the completion wakes it


def test_adding_partitions_waits_for_a_completion_and_few_wait_at_once(broker: VirtualBroker) -> None:
    producer = Transactional(broker, is_v2=True).begin()
    assert producer.produce("orders", b"first") == Error.NONE
    broker.node.image.topics["orders"].partitions[0].leader = NO_LEADER  # so nobody is sent a marker
    assert producer.end() == Error.NONE
    named = [AddPartitionsToTxnTopic(name="orders", partitions=[1])]
    request, begun_ms = AddPartitionsToTxnRequest(transactions=[producer.transaction(named)]), broker.now_ms()
    asking = [broker.begin(request, 5) for _ in range(WAITING_MAX - 1)]
    assert not any(each.done() for each in asking)
    asking.append(broker.begin(request, 5))
    for each in asking:
        (result,) = broker.wait(each).results_by_transaction
        code = result.topic_results[0].results_by_partition[0].partition_error_code
        assert code == Error.CONCURRENT_TRANSACTIONS
    assert broker.now_ms() == begun_ms
    broker.ask(request, 5)
    assert broker.now_ms() == begun_ms + 20
    last = broker.begin(request, 5)
    (led,) = [each for each in broker.node.transactions.coordinator.led.values() if producer.name in each.shard.ids]
    broker.run(led.resign)
    (result,) = broker.wait(last).results_by_transaction
    assert result.topic_results[0].results_by_partition[0].partition_error_code == Error.NOT_COORDINATOR
    assert broker.now_ms() == begun_ms + 20


def test_a_request_has_the_batches_of_one_producer(broker: VirtualBroker) -> None:
    first, second = Transactional(broker, "a").begin(), Transactional(broker, "b").begin()
    first.add(("orders", 0))
    request = first.batches("orders", b"first")
    request.topic_data[0].partition_data += second.batches("orders", b"second", 1).topic_data[0].partition_data
    rows = broker.ask(request, 9).responses[0].partition_responses
    assert [row.error_code for row in rows] == [Error.INVALID_PRODUCER_ID_MAPPING] * 2


# The end


def test_an_end_that_is_asked_for_again_is_answered_as_it_was(broker: VirtualBroker) -> None:
    for is_v2 in (False, True):
        producer = Transactional(broker, f"t{is_v2}", is_v2=is_v2).begin()
        producer.add(("orders", 0), version=5 if is_v2 else 3)
        request, version = producer.end_request(commit=True), 5 if is_v2 else 4
        first = broker.ask(request, version)
        assert first.error_code == Error.NONE
        broker.pass_ms(1)
        again = broker.ask(request, version)
        assert (again.error_code, again.producer_id, again.producer_epoch) == (
            Error.NONE,
            first.producer_id,
            first.producer_epoch,
        )
        other = producer.end_request(commit=False)
        assert broker.ask(other, version).error_code == Error.INVALID_TXN_STATE


def test_partitions_of_topics_that_are_deleted_meanwhile_need_no_marker(broker: VirtualBroker) -> None:
    broker.node.create_topic("gone", 1)
    producer = Transactional(broker).begin()
    producer.add(("gone", 0), ("orders", 1))
    request = DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name="gone", topic_id=bytes(16))], timeout_ms=1000
    )
    assert broker.ask(request, 6).responses[0].error_code == Error.NONE
    assert producer.end() == Error.NONE
    broker.pass_ms(1)
    assert producer.state == "CompleteCommit"
    assert len(records_of(broker.node, "orders", 1)) == 1


def test_a_producer_whose_epochs_run_out_goes_on_with_another_id(broker: VirtualBroker) -> None:
    producer = Transactional(broker, is_v2=True).begin()
    led = broker.node.transactions.coordinator.find("t")
    found = led.shard.ids["t"]
    found.metadata = found.metadata._replace(producer_epoch=EPOCH_MAX_GIVEN)
    producer.epoch, before = EPOCH_MAX_GIVEN, producer.id
    producer.add(("orders", 0), version=5)
    assert producer.produce("orders", b"last") == Error.NONE
    assert producer.end() == Error.NONE
    assert producer.id != before
    assert producer.epoch == 0
    broker.pass_ms(1)
    assert read(broker, "orders") == [b"last"]
    producer.add(("orders", 0), version=5)
    assert producer.produce("orders", b"first") == Error.NONE
    assert producer.end() == Error.NONE
    broker.pass_ms(1)
    assert read(broker, "orders") == [b"last", b"first"]


# Markers by hand


def marker(producer: Transactional, *places: tuple[str, int], **changes: Any) -> WriteTxnMarkersRequest:
    Marker = WriteTxnMarkersRequest.WritableTxnMarker
    given = {
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "transaction_result": False,
        "topics": [Marker.WritableTxnMarkerTopic(name=topic, partition_indexes=[number]) for topic, number in places],
        "coordinator_epoch": 0,
    }
    return WriteTxnMarkersRequest(markers=[Marker(**{**given, **changes})])


def codes_of(answer: Any) -> list[int]:
    return [each.error_code for marked in answer.markers for topic in marked.topics for each in topic.partitions]


@pytest.mark.parametrize("version", range(3))
def test_whoever_sends_a_marker_ends_a_transaction(broker: VirtualBroker, version: int) -> None:
    Transactional(broker).begin()
    producer = Transactional(broker).begin()  # whose epoch is 1
    producer.add(("orders", 0))
    producer.produce("orders", b"hanging")
    assert codes_of(broker.ask(marker(producer, ("orders", 0), ("orders", 2), ("absent", 0)), version)) == [
        Error.NONE,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    log = broker.node.replicas["orders", 0].log
    assert log.last_stable_offset(2) == 2
    late = marker(producer, ("orders", 0), coordinator_epoch=-1)
    assert codes_of(broker.ask(late, version)) == [Error.TRANSACTION_COORDINATOR_FENCED]
    zombie = marker(producer, ("orders", 0), producer_epoch=0)
    assert codes_of(broker.ask(zombie, version)) == [Error.INVALID_PRODUCER_EPOCH]
    nobody = marker(producer, ("orders", 0), producer_epoch=-1)
    assert codes_of(broker.ask(nobody, version)) == [Error.UNKNOWN_SERVER_ERROR]
    assert log.log_end_offset == 2
    twice = marker(producer, ("orders", 0), ("orders", 0))
    assert codes_of(broker.ask(twice, version)) == [Error.NONE]
    assert log.log_end_offset == 3
    assert broker.ask(marker(producer), version).markers == []
    assert codes_of(broker.ask(WriteTxnMarkersRequest(markers=[]), version)) == []


@pytest.mark.parametrize("version", [0, 2])
def test_a_marker_of_v2_bears_a_higher_epoch_than_what_it_ends(broker: VirtualBroker, version: int) -> None:
    producer = Transactional(broker, is_v2=True).begin()
    assert producer.produce("orders", b"open") == Error.NONE
    sent = marker(producer, ("orders", 0), transaction_version=version)
    assert codes_of(broker.ask(sent, 2)) == [Error.INVALID_PRODUCER_EPOCH if version else Error.NONE]


def test_a_marker_of_no_producer_is_written_to_no_partition_of_groups_either(broker: VirtualBroker) -> None:
    broker.ask(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), 4)
    producer = Transactional(broker).begin()
    log = broker.node.replicas[OFFSETS_TOPIC, 0].log
    for changes in ({"producer_id": -1}, {"producer_epoch": -1}):
        nobody = marker(producer, (OFFSETS_TOPIC, 0), **changes)
        assert codes_of(broker.ask(nobody, 1)) == [Error.UNKNOWN_SERVER_ERROR]
    assert log.log_end_offset == 0


def test_a_marker_for_groups_that_are_being_read_is_to_be_sent_again(broker: VirtualBroker) -> None:
    broker.ask(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), 4)
    producer, led = Transactional(broker).begin(), broker.node.groups.coordinator.led[0]
    led.log.is_loading = True
    assert codes_of(broker.ask(marker(producer, (OFFSETS_TOPIC, 0)), 1)) == [Error.NOT_LEADER_OR_FOLLOWER]
    led.log.is_loading = False
    led.replica.lead(led.replica.leader_epoch + 1)  # it is about to be led in another epoch
    assert codes_of(broker.ask(marker(producer, (OFFSETS_TOPIC, 0)), 1)) == [Error.NOT_LEADER_OR_FOLLOWER]


def test_a_batch_without_a_producer_id_is_in_no_transaction_whatever_it_says(broker: VirtualBroker) -> None:
    nobody = Transactional(broker)
    nobody.id = nobody.epoch = -1
    assert nobody.produce("orders", b"plain") == Error.NONE
    assert read(broker, "orders") == [b"plain"]


def test_batches_of_several_producers_are_refused_unless_there_is_but_one_that_can_be_appended(
    broker: VirtualBroker,
) -> None:
    producer, other = Transactional(broker).begin(), Transactional(broker, "other").begin()
    producer.add(("orders", 0))

    def codes(*requests: Any) -> list[Error]:
        first, second = requests
        first.topic_data = [*first.topic_data, *second.topic_data]
        answer = broker.ask(first, 11)
        return [Error(part.error_code) for topic in answer.responses for part in topic.partition_responses]

    mapping = Error.INVALID_PRODUCER_ID_MAPPING
    assert codes(producer.batches("orders", b"a"), other.batches("orders", b"b", 1)) == [mapping] * 2
    assert codes(producer.batches("orders", b"a"), other.batches("absent", b"b")) == [
        Error.NONE,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
    ]


# Time


def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced(broker: VirtualBroker) -> None:
    producer = Transactional(broker).begin(timeout_ms=25_000)
    producer.add(("orders", 0))
    producer.produce("orders", b"slow")
    broker.pass_ms(20_000)
    assert producer.state == "Ongoing"
    broker.pass_ms(10_500)  # it is looked every ten seconds
    assert producer.state == "CompleteAbort"
    assert read(broker, "orders") == []
    assert producer.end() == Error.PRODUCER_FENCED
    assert producer.produce("orders", b"later") == Error.INVALID_PRODUCER_EPOCH


@pytest.mark.setting("transactional.id.expiration.ms", "transaction.remove.expired.transaction.cleanup.interval.ms")
@pytest.mark.parametrize("is_fenced", [True, False])
def test_a_transaction_that_takes_no_more_partitions_can_still_be_aborted_by_its_coordinator(is_fenced: bool) -> None:
    with virtual_broker({**SETTINGS, "message.max.bytes": 1000}) as broker:
        broker.node.create_topic("orders", 300)
        producer = Transactional(broker).begin(10_000)
        codes = [producer.add(("orders", number))["orders", number] for number in range(300)]
        assert set(codes) == {Error.NONE, Error.UNKNOWN_SERVER_ERROR}
        added = codes.index(Error.UNKNOWN_SERVER_ERROR)
        assert added > 150
        assert producer.state == "Ongoing"
        if is_fenced:
            assert Transactional(broker).init() == Error.CONCURRENT_TRANSACTIONS
        else:
            broker.pass_ms(30_000)
        broker.pass_ms(1)
        assert producer.state == "CompleteAbort"
        assert len(records_of(broker.node, "orders", added - 1)) == 1
        assert not broker.said


def test_an_end_that_cannot_be_written_is_told_to_people_once_and_goes_through_when_it_can(
    broker: VirtualBroker,
) -> None:
    broker.node.create_topic("wide", 100)
    producer = Transactional(broker).begin(10_000)
    producer.add(*(("wide", number) for number in range(100)))
    settings = broker.node.replicas[TRANSACTION_STATE_TOPIC, partition_of(producer.name, 3)].log.settings
    before = settings.validation.max_message_bytes
    set_message_bytes(broker, 300)
    broker.pass_ms(60_000)
    assert producer.state == "Ongoing"
    (line,) = broker.said
    assert "'t' cannot be ended: its record is too large for __transaction_state" in line
    set_message_bytes(broker, before)
    broker.pass_ms(20_000)
    assert producer.state == "CompleteAbort"


def set_message_bytes(broker: VirtualBroker, size_bytes: int) -> None:
    Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = Resource.AlterableConfig(name="max.message.bytes", config_operation=0, value=str(size_bytes))
    resource = Resource(resource_type=2, resource_name=TRANSACTION_STATE_TOPIC, configs=[config])
    answer = broker.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert answer.responses[0].error_code == Error.NONE


def test_an_id_that_nobody_uses_is_forgotten() -> None:
    settings = {"transactional.id.expiration.ms": 600_000, "offsets.topic.num.partitions": 1}
    settings["transaction.remove.expired.transaction.cleanup.interval.ms"] = 60_000
    with virtual_broker({**SETTINGS, **settings}) as broker:
        broker.node.create_topic("orders", 1)
        idle, open_ = Transactional(broker, "idle").begin(), Transactional(broker, "open").begin(900_000)
        open_.add(("orders", 0))
        broker.pass_ms(600_000 - 1000)
        assert listed(broker) == {"idle": "Empty", "open": "Ongoing"}
        broker.pass_ms(61_000)
        assert listed(broker) == {"open": "Ongoing"}
        assert idle.described().error_code == Error.TRANSACTIONAL_ID_NOT_FOUND
        assert idle.init() == Error.NONE


@pytest.mark.setting("transaction.abort.timed.out.transaction.cleanup.interval.ms", "transaction.max.timeout.ms")
@pytest.mark.parametrize("period_ms", [2_000, 7_000])
def test_what_is_open_for_too_long_is_looked_for_as_often_and_may_be_as_long_as_the_settings_say(
    period_ms: int,
) -> None:
    name = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    with virtual_broker({**SETTINGS, name: period_ms, "transaction.max.timeout.ms": 5_000}) as broker:
        broker.node.create_topic("orders", 1)
        producer = Transactional(broker)
        producer.find()
        assert producer.init(5_001) == Error.INVALID_TRANSACTION_TIMEOUT
        begun_ms = broker.node.clock.now_ms()  # of the coordinator
        assert producer.init(5_000) == Error.NONE
        producer.add(("orders", 0))
        while producer.state == "Ongoing":
            broker.pass_ms(500)
        passed_ms = broker.node.clock.now_ms() - begun_ms
        assert max(period_ms, 5_001) <= passed_ms <= -(-5_001 // period_ms) * period_ms + 600


@pytest.mark.setting(
    "transaction.state.log.num.partitions", "transaction.state.log.segment.bytes", "transaction.state.log.min.isr"
)
def test_the_topic_of_transactions_is_made_as_the_settings_say() -> None:
    settings = {"num.partitions": 3, "segment.bytes": 2 << 20, "min.isr": 2}
    given: dict[str, object] = {f"transaction.state.log.{name}": value for name, value in settings.items()}
    with virtual_broker(given) as broker:
        producer = Transactional(broker)
        assert producer.find().error_code == Error.NONE
        assert len(broker.node.image.topics[TRANSACTION_STATE_TOPIC].partitions) == 3
        assert dict(broker.node.image.topic_configs(TRANSACTION_STATE_TOPIC)) == {
            "unclean.leader.election.enable": "false",
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": "2",
            "segment.bytes": str(2 << 20),
        }


# Another life of the coordinator


def test_what_was_prepared_is_completed_and_what_was_open_stays_open_when_the_broker_starts_again() -> None:
    storage = MemoryStorage(lambda: START_MS)
    with virtual_broker(SETTINGS, storage=storage) as broker:
        broker.node.create_topic("orders", 2)
        prepared, opened = Transactional(broker, "prepared").begin(), Transactional(broker, "opened").begin()
        prepared.add(("orders", 0))
        opened.add(("orders", 1))
        assert prepared.produce("orders", b"p") == opened.produce("orders", b"o", 1) == Error.NONE
        broker.node.image.topics["orders"].partitions[0].leader = NO_LEADER
        assert prepared.end() == Error.NONE
        broker.pass_ms(1)
        assert prepared.state == "PrepareCommit"
        assert prepared.add(("orders", 0)) == {("orders", 0): Error.CONCURRENT_TRANSACTIONS}
    with virtual_broker(SETTINGS, storage=storage) as broker:
        broker.pass_ms(1)
        prepared.broker = opened.broker = broker
        assert (prepared.state, opened.state) == ("CompleteCommit", "Ongoing")
        assert read(broker, "orders") == [b"p"]
        assert opened.end() == Error.NONE
        broker.pass_ms(1)
        assert read(broker, "orders", 1) == [b"o"]
        assert prepared.add(("orders", 0)) == {("orders", 0): Error.NONE}


def test_a_marker_in_the_topic_of_transactions_itself_is_no_record_of_one() -> None:
    storage = MemoryStorage(lambda: START_MS)
    settings = {**SETTINGS, "transaction.state.log.num.partitions": 1}
    with virtual_broker(settings, storage=storage) as broker:
        producer = Transactional(broker).begin()
        assert codes_of(broker.ask(marker(producer, (TRANSACTION_STATE_TOPIC, 0)), 1)) == [Error.NONE]
    with virtual_broker(settings, storage=storage) as broker:
        assert listed(broker) == {"t": "Empty"}


# Who looks


def test_transactions_are_listed_by_state_producer_time_and_name(broker: VirtualBroker) -> None:
    first, second = Transactional(broker, "orders-1").begin(), Transactional(broker, "stock-1").begin()
    first.add(("orders", 0))
    broker.pass_ms(5_000)
    both = {"orders-1": "Ongoing", "stock-1": "Empty"}
    assert listed(broker, 0) == listed(broker) == both
    assert listed(broker, state_filters=["Ongoing"]) == {"orders-1": "Ongoing"}
    assert listed(broker, producer_id_filters=[second.id, 99]) == {"stock-1": "Empty"}
    assert listed(broker, duration_filter=4_000) == both  # what has not begun has lasted since 1970
    assert listed(broker, duration_filter=6_000) == {"stock-1": "Empty"}
    for pattern, expected in (("orders.*", {"orders-1"}), ("orders", set()), (".*1", {*both})):
        assert set(listed(broker, transactional_id_pattern=pattern)) == expected
    request = ListTransactionsRequest(state_filters=["Nonsense"], producer_id_filters=[])
    answer = broker.ask(request, 2)
    assert (answer.unknown_state_filters, answer.transaction_states) == (["Nonsense"], [])


PATTERNS = {  # of RE2, which takes time in proportion to them and to ids; Python's own would need a second for the last
    "": True,
    "a.*": True,
    "(?P<name>.)": True,
    "[": False,
    "(?=a)": False,
    "a" * 1001: False,
    ".{3000}": False,
    "(?i)" + 199 * "[X-\uffff]": False,
    "(?i)" + 50 * "[X-\uffff]": True,
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_of_transactional_ids_is_one_that_members_of_groups_could_have(
    broker: VirtualBroker, pattern: str
) -> None:
    request = ListTransactionsRequest(
        state_filters=["Nonsense"], producer_id_filters=[], transactional_id_pattern=pattern
    )
    answer = broker.ask(request, 2)
    assert answer.error_code == (Error.NONE if PATTERNS[pattern] else Error.INVALID_REGULAR_EXPRESSION)
    assert answer.unknown_state_filters == (["Nonsense"] if PATTERNS[pattern] else [])


def test_who_is_asked_for_an_id_says_what_it_knows_of_it(broker: VirtualBroker) -> None:
    for name, code in (("t", Error.NOT_COORDINATOR), ("", Error.INVALID_REQUEST)):
        row = Transactional(broker, name).described()
        assert (row.error_code, row.transactional_id) == (code, name)
        assert (row.transaction_state, row.transaction_timeout_ms, row.transaction_start_time_ms) == ("", 0, 0)
        assert (row.producer_id, row.producer_epoch, row.topics) == (0, 0, [])
    producer = Transactional(broker, "t").begin(7_000)
    assert Transactional(broker, "u").described().error_code == Error.TRANSACTIONAL_ID_NOT_FOUND
    row = producer.described()
    assert (row.transaction_state, row.transaction_timeout_ms, row.transaction_start_time_ms) == ("Empty", 7_000, -1)
    producer.add(("orders", 0))
    row = producer.described()
    assert (row.producer_id, row.producer_epoch) == (producer.id, producer.epoch)
    assert row.transaction_start_time_ms == broker.node.clock.now_ms()


# Offsets


def committed(broker: VirtualBroker, group: str = "g", *, stable: bool = False) -> Any:
    Group = OffsetFetchRequest.OffsetFetchRequestGroup
    topics = [Group.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[Group(group_id=group, topics=topics)], require_stable=stable)
    (row,) = broker.ask(request, 8).groups[0].topics[0].partitions
    return row.committed_offset if row.error_code == Error.NONE else Error(row.error_code)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(7))
def test_offsets_of_a_transaction_count_when_it_is_committed(broker: VirtualBroker, version: int, commit: bool) -> None:
    broker.ask(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), 4)
    producer = Transactional(broker, is_v2=version >= 5).begin()
    unadded = Error.TRANSACTION_ABORTABLE if version >= 4 else Error.INVALID_TXN_STATE
    if version < 5:
        assert producer.commit_offset("orders", 7, version=version) == unadded
        assert producer.add_offsets("g") == Error.NONE
    assert producer.commit_offset("orders", 7, version=version) == Error.NONE
    assert (committed(broker), committed(broker, stable=True)) == (-1, Error.UNSTABLE_OFFSET_COMMIT)
    assert producer.commit_offset("orders", 8, version=version) == Error.NONE
    assert producer.end(commit=commit) == Error.NONE
    broker.pass_ms(1)
    assert committed(broker) == committed(broker, stable=True) == (8 if commit else -1)


def test_a_group_can_be_added_before_anybody_has_looked_for_it(broker: VirtualBroker) -> None:
    producer = Transactional(broker).begin()
    assert producer.add_offsets("g") == Error.NONE
    broker.ask(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), 4)
    assert producer.commit_offset("orders", 7, version=3) == Error.NONE
    assert producer.end() == Error.NONE
    broker.pass_ms(1)
    assert committed(broker) == 7


def test_each_batch_of_offsets_of_a_transaction_has_sequence_0_as_kafkas(broker: VirtualBroker) -> None:
    broker.ask(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), 4)
    producer = Transactional(broker, is_v2=True).begin()
    for offset in (7, 8):
        assert producer.commit_offset("orders", offset) == Error.NONE
    (number,) = [number for topic in producer.described().topics for number in topic.partitions]
    segments = broker.node.replicas[OFFSETS_TOPIC, number].log.segments
    found = [(batch.producer_id, batch.base_sequence) for segment in segments for batch in segment.batches()]
    assert found == [(producer.id, 0)] * 2


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_a_transaction_wait_for_its_end_when_the_broker_starts_again(commit: bool) -> None:
    storage = MemoryStorage(lambda: START_MS)
    with virtual_broker(SETTINGS, storage=storage) as broker:
        broker.node.create_topic("orders", 2)
        broker.ask(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), 4)
        producer = Transactional(broker, is_v2=True).begin()
        assert producer.commit_offset("orders", 7) == Error.NONE
    for life in (1, 2):
        with virtual_broker(SETTINGS, storage=storage) as broker:
            producer.broker = broker
            broker.pass_ms(1)
            if life == 1:
                assert committed(broker, stable=True) == Error.UNSTABLE_OFFSET_COMMIT
                assert producer.end(commit=commit) == Error.NONE
                broker.pass_ms(1)
            assert committed(broker, stable=True) == (7 if commit else -1)


def test_a_plain_commit_behind_that_of_a_transaction_wins(broker: VirtualBroker) -> None:
    broker.ask(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), 4)
    producer = Transactional(broker, is_v2=True).begin()
    assert producer.commit_offset("orders", 7) == Error.NONE
    Topic = OffsetCommitRequest.OffsetCommitRequestTopic
    row = Topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")
    plain = OffsetCommitRequest(group_id="g", topics=[Topic(name="orders", partitions=[row])])
    assert broker.ask(plain, 8).topics[0].partitions[0].error_code == Error.NONE
    assert committed(broker) == 3
    assert producer.end() == Error.NONE
    broker.pass_ms(1)
    assert committed(broker) == 3


@pytest.mark.parametrize(
    ("version", "code"), [(3, Error.ILLEGAL_GENERATION), (5, Error.ILLEGAL_GENERATION), (6, Error.GROUP_ID_NOT_FOUND)]
)
def test_who_is_no_member_commits_nothing_in_a_transaction(broker: VirtualBroker, version: int, code: Error) -> None:
    producer = Transactional(broker, is_v2=True).begin()
    assert producer.commit_offset("orders", 7, version=version) == Error.NOT_COORDINATOR
    broker.ask(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), 4)
    assert producer.add_offsets("g") == Error.NONE
    assert producer.commit_offset("orders", 7, version=version, generation=1) == code
    assert producer.commit_offset("orders", 7, version=version, group="") == Error.INVALID_GROUP_ID
    assert producer.commit_offset("absent", 7, version=5) == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.commit_offset("absent", 7, version=6) == Error.UNKNOWN_TOPIC_ID


# Markers, and who waits for them


def marker_of(producer: Transactional, *topics: tuple[str, list[int]]) -> WriteTxnMarkersRequest.WritableTxnMarker:
    Marker = WriteTxnMarkersRequest.WritableTxnMarker
    return Marker(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        transaction_result=True,
        topics=[Marker.WritableTxnMarkerTopic(name=name, partition_indexes=numbers) for name, numbers in topics],
        coordinator_epoch=0,
    )


def test_markers_of_one_producer_are_answered_together_and_a_partition_gets_one_of_each(broker: VirtualBroker) -> None:
    producer, other = Transactional(broker, "a").begin(), Transactional(broker, "b").begin()
    request = WriteTxnMarkersRequest(
        markers=[
            marker_of(producer, ("orders", [0, 0]), ("orders", [0, 1])),
            marker_of(other, ("orders", [1])),
            marker_of(producer, ("absent", [0]), ("orders", [1])),
        ]
    )
    found = {
        result.producer_id: {
            (topic.name, each.partition_index): Error(each.error_code)
            for topic in result.topics
            for each in topic.partitions
        }
        for result in broker.ask(request, 1).markers
    }
    assert found == {
        producer.id: {
            ("orders", 0): Error.NONE,
            ("orders", 1): Error.NONE,
            ("absent", 0): Error.UNKNOWN_TOPIC_OR_PARTITION,
        },
        other.id: {("orders", 1): Error.NONE},
    }
    logs = [broker.node.replicas["orders", number].log.log_end_offset for number in (0, 1)]
    assert logs == [1, 3]


def test_a_marker_in_the_topic_of_groups_is_told_as_every_other(broker: VirtualBroker) -> None:
    broker.ask(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), 4)
    told: list[Any] = []
    broker.node.events.subscribe(told.append)
    producer = Transactional(broker, is_v2=True).begin()
    assert producer.commit_offset("orders", 7) == Error.NONE
    assert producer.produce("orders", b"first") == Error.NONE
    epoch = producer.epoch
    assert producer.end() == Error.NONE
    broker.pass_ms(1)
    markers = [event for event in told if event.kind == "marker"]
    assert {(event.topic, event.producer_epoch, event.outcome, event.offset) for event in markers} == {
        (OFFSETS_TOPIC, epoch + 1, "commit", 1),
        ("orders", epoch + 1, "commit", 1),
    }


@pytest.mark.parametrize("commit", [True, False])
def test_a_fetch_that_waits_for_what_is_committed_is_answered_when_the_marker_is_written(
    broker: VirtualBroker, commit: bool
) -> None:
    producer = Transactional(broker).begin()
    producer.add(("orders", 0))
    assert producer.produce("orders", b"first") == Error.NONE
    Topic = FetchRequest.FetchTopic
    rows = [Topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
    fetch = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=1,
        session_epoch=-1,
        topics=[Topic(topic="orders", partitions=rows)],
    )
    waiting = broker.begin(fetch, 12)
    broker.pass_ms(10_000)
    assert not waiting.done()
    asked_ms = broker.node.clock.now_ms()
    assert producer.end(commit=commit) == Error.NONE
    row = broker.wait(waiting).responses[0].partitions[0]
    assert broker.node.clock.now_ms() - asked_ms < 1_000
    assert [bytes(record.value or b"") for batch in batches(row.records) for record in batch.records()][:1] == [
        b"first"
    ]
    assert bool(row.aborted_transactions) is not commit


def spent_us(broker: VirtualBroker, request: Request, version: int) -> int:
    """Return how long a request says that it takes, up to where it waits."""
    context = Context(broker.node, broker.connection, version, "test")

    def spent() -> int:
        work: Any = find_route(request.api, version).handler(request, context)
        return sum(step for step in work if isinstance(step, int))

    return broker.run(spent)


def test_a_pattern_takes_its_time_with_each_letter_of_an_id(broker: VirtualBroker) -> None:
    Transactional(broker, "x" * 20_000).begin()
    short, long = (
        spent_us(broker, ListTransactionsRequest(state_filters=[], producer_id_filters=[], **given), 2)
        for given in ({}, {"transactional_id_pattern": "(x+x+)+y"})
    )
    assert short < 100
    assert long > 1_000


def test_a_transaction_that_is_begun_while_others_are_aborted_has_its_time(broker: VirtualBroker) -> None:
    first, second = Transactional(broker, "a").begin(1_000), Transactional(broker, "b").begin(1_000)
    for producer in (first, second):
        producer.add(("orders", 0))
    broker.pass_ms(2_000)
    aborting = broker.node.transactions.coordinator._abort_timed_out_in_shares()
    broker.run(next, aborting)
    late = second if first.state != "Ongoing" else first
    assert late.end() == Error.NONE
    broker.pass_ms(1)
    late.add(("orders", 0))
    broker.run(list, aborting)
    broker.pass_ms(1)
    assert {first.state, second.state} == {"CompleteAbort", "Ongoing"}
    assert late.state == "Ongoing"


def offsets_of(producer: Transactional) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=producer.name, producer_id=producer.id, producer_epoch=producer.epoch, group_id="g"
    )


def test_a_change_of_a_large_transaction_has_its_time_however_short_the_request(broker: VirtualBroker) -> None:
    broker.node.create_topic("wide", 3_000)
    large, small = Transactional(broker, "large").begin(1_000), Transactional(broker, "small").begin(1_000)
    large.add(*(("wide", number) for number in range(3_000)))
    small.add(("wide", 0))
    changes: list[Callable[[Transactional], tuple[Request, int]]] = [
        lambda each: (AddPartitionsToTxnRequest(transactions=[each.transaction(ONE_MORE)]), 5),
        lambda each: (offsets_of(each), 4),
        lambda each: (each.end_request(commit=True), 5),
    ]
    for change in changes:
        assert spent_us(broker, *change(large)) - spent_us(broker, *change(small)) in range(500, 700)
        broker.pass_ms(1)


@pytest.mark.pure
def test_what_is_open_for_too_long_is_looked_for_in_shares(
    broker: VirtualBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_module, "OPEN_TOGETHER", 3)
    broker.node.create_topic("wide", 3_000)
    for number in range(30):
        Transactional(broker, f"t{number}").begin(60_000).add(("orders", 0))
    coordinator = broker.node.transactions.coordinator

    def steps() -> list[int]:
        return list(coordinator._abort_timed_out_in_shares())

    assert 30 // 3 - 2 <= len(broker.run(steps)) <= 30 // 3  # of three partitions
    late = Transactional(broker, "late").begin(1_000)
    late.add(*(("wide", number) for number in range(3_000)))
    broker.pass_ms(1_500)
    assert max(broker.run(steps)) > 600
    broker.pass_ms(1_000)
    assert late.state == "CompleteAbort"


HOLLOW = 5_000


def hollow(producer: Transactional) -> list[Request]:
    """Return requests with many elements that name nothing, or one thing many times."""
    one = marker_of(producer)
    transaction = producer.transaction([])
    empty = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="absent", partitions=[])
    return [
        AddPartitionsToTxnRequest(transactions=[transaction] * HOLLOW),
        AddPartitionsToTxnRequest(
            transactions=[producer.transaction([AddPartitionsToTxnTopic(name="orders", partitions=[])] * HOLLOW)]
        ),
        WriteTxnMarkersRequest(markers=[one] * HOLLOW),
        WriteTxnMarkersRequest(markers=[marker_of(producer, *[("", [])] * HOLLOW)]),
        WriteTxnMarkersRequest(markers=[marker_of(producer, ("orders", [0] * HOLLOW))]),
        TxnOffsetCommitRequest(
            transactional_id="t", group_id="g", producer_id=1, producer_epoch=0, topics=[empty] * HOLLOW
        ),
        DescribeTransactionsRequest(transactional_ids=[""] * HOLLOW),
    ]


@pytest.mark.parametrize("index", range(7))
def test_elements_that_name_nothing_are_looked_through_in_shares_too(broker: VirtualBroker, index: int) -> None:
    request = hollow(Transactional(broker).begin())[index]
    assert spent_us(broker, request, SERVED[request.api][1]) >= HOLLOW
