"""Decisions about transactional ids: who may do what, what is written, and what becomes of it.

Every request in every state is compared with Kafka in test_golden_steps.py; here is said what it comes to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from minibroker.errors import Error, KafkaError
from minibroker.transactions.metadata import (
    EPOCH_MAX,
    EPOCH_MAX_GIVEN,
    TWO_PHASE_TIMEOUT_MS,
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from minibroker.transactions.records import decode, encode
from minibroker.transactions.shard import NoProducerId, TransactionalId, TransactionLimits, TransactionShard, Transition
from minibroker.transactions.states import (
    ABORT_CLASSIC,
    ABORT_V2,
    ABORT_V2_AGAIN,
    ADD_PARTITIONS,
    COMMIT_CLASSIC,
    COMMIT_V2,
    COMMIT_V2_AGAIN,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    INIT_PRODUCER_ID,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    REQUESTS,
    STORED,
    VERIFY_PARTITIONS,
    State,
)

ID = "orders-1"
HOUR_MS = 3_600_000
T0, T1 = ("t", 0), ("t", 1)


class Coordinator:
    """A shard with a log that takes everything, and partitions that write their markers at once."""

    def __init__(self, level: int = 2, *, allows_two_phase: bool = False, is_before_4: bool = False):
        self.level = level
        self.now_ms = 1_000_000
        self.ids = count(100)
        self.new_id: Callable[[], int] = lambda: next(self.ids)
        limits = TransactionLimits(900_000, HOUR_MS, allows_two_phase)
        self.shard = TransactionShard(limits, lambda: self.level, is_before_4=is_before_4)

    @property
    def known(self) -> TransactionalId:
        return self.shard.ids[ID]

    @property
    def metadata(self) -> TransactionMetadata:
        return self.known.metadata

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return self.metadata.producer

    def commit(self, transition: Transition) -> Transition | None:
        return self.shard.committed(transition, self.now_ms)

    def asks(
        self,
        expected: ProducerIdAndEpoch | None = None,
        timeout_ms: int = 60_000,
        *,
        is_two_phase: bool = False,
        keeps_prepared: bool = False,
    ) -> Transition:
        return self.shard.init_producer_id(
            ID,
            timeout_ms,
            expected,
            now_ms=self.now_ms,
            new_producer_id=self.new_id,
            is_two_phase=is_two_phase,
            keeps_prepared=keeps_prepared,
        )

    def init(self, expected: ProducerIdAndEpoch | None = None) -> ProducerIdAndEpoch:
        transition = self.asks(expected)
        self.commit(transition)
        assert isinstance(transition.answer, ProducerIdAndEpoch)
        return transition.answer

    def adds(self, *partitions: tuple[str, int], producer: ProducerIdAndEpoch | None = None) -> Transition | None:
        return self.shard.add_partitions(
            ID, producer or self.producer, partitions, version=self.level, now_ms=self.now_ms
        )

    def add(self, *partitions: tuple[str, int]) -> None:
        transition = self.adds(*partitions)
        assert transition is not None
        self.commit(transition)

    def ends(
        self, producer: ProducerIdAndEpoch | None = None, *, commit: bool = True, version: int | None = None
    ) -> Transition | ProducerIdAndEpoch:
        return self.shard.end_transaction(
            ID,
            producer or self.producer,
            commit=commit,
            version=self.level if version is None else version,
            now_ms=self.now_ms,
            new_producer_id=self.new_id,
        )

    def prepare(self, *, commit: bool = True) -> Transition:
        """Return the completion, for which markers are to be written."""
        transition = self.ends(commit=commit)
        assert isinstance(transition, Transition)
        completion = self.commit(transition)
        assert completion is not None
        return completion

    def complete(self, completion: Transition) -> None:
        assert self.shard.markers_written(self.known, list(self.metadata.partitions))
        assert self.commit(completion) is None

    def end(self, *, commit: bool = True) -> None:
        self.complete(self.prepare(commit=commit))

    def timed_out(self, now_ms: int) -> list[TransactionalId]:
        return [found for found in self.shard.ongoing() if found.is_timed_out(now_ms)]

    def at(self, **changes: object) -> Coordinator:
        """Make the id what a record says."""
        metadata = TransactionMetadata(7, 60_000, self.now_ms, previous_producer_id=7, producer_epoch=3)
        self.shard.replay(ID, metadata._replace(**changes))  # type: ignore[arg-type]
        return self


@contextmanager
def refused(error: Error) -> Iterator[None]:
    with pytest.raises(KafkaError) as raised:
        yield
    assert raised.value.code is error


# A producer's id and epoch


@pytest.mark.parametrize("level", [0, 2])
def test_a_new_producer_gets_an_id_and_the_first_epoch_and_the_next_one_fences_it(level: int) -> None:
    coordinator = Coordinator(level)
    first = coordinator.init()
    assert first == (100, 0)
    assert coordinator.init() == (100, 1)
    with refused(Error.PRODUCER_FENCED):
        coordinator.adds(T0, producer=first)
    with refused(Error.PRODUCER_FENCED):
        coordinator.ends(first)
    with refused(Error.PRODUCER_FENCED):
        coordinator.shard.verify_partitions(ID, first, [T0])


def test_a_producer_that_goes_on_raises_its_epoch_and_is_told_the_same_if_it_asks_again() -> None:
    coordinator = Coordinator()
    first = coordinator.init()
    second = coordinator.init(first)
    assert second == (100, 1)
    assert coordinator.init(first) == second  # it has not heard the answer
    assert coordinator.init(second) == (100, 2)
    with refused(Error.PRODUCER_FENCED):
        coordinator.asks(first)


def test_a_producer_that_was_replaced_does_not_go_on() -> None:
    coordinator = Coordinator()
    first = coordinator.init()
    assert coordinator.init() == (100, 1)
    with refused(Error.PRODUCER_FENCED):
        coordinator.asks(first)


def test_what_is_told_again_is_not_known_to_another_coordinator() -> None:
    coordinator = Coordinator()
    first = coordinator.init()
    coordinator.init(first)
    found = decode(*encode(ID, coordinator.metadata, 2))
    assert found is not None
    other = Coordinator()
    other.shard.replay(*found)
    with refused(Error.PRODUCER_FENCED):
        other.asks(first)


def test_a_producer_of_an_id_that_has_been_forgotten_begins_anew_whatever_it_has() -> None:
    coordinator = Coordinator()
    assert coordinator.init(ProducerIdAndEpoch(4, 9)) == (100, 0)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_that_no_transaction_may_have_is_refused(timeout_ms: int) -> None:
    coordinator = Coordinator()
    with refused(Error.INVALID_TRANSACTION_TIMEOUT):
        coordinator.asks(timeout_ms=timeout_ms)
    assert not coordinator.shard.ids


@pytest.mark.parametrize("timeout_ms", [1, 900_000])
def test_the_shortest_and_the_longest_timeout_are_taken(timeout_ms: int) -> None:
    coordinator = Coordinator()
    coordinator.commit(coordinator.asks(timeout_ms=timeout_ms))
    assert coordinator.metadata.timeout_ms == timeout_ms


def test_nothing_is_done_for_an_empty_id() -> None:
    shard, producer = Coordinator().shard, ProducerIdAndEpoch(7, 0)
    with refused(Error.INVALID_REQUEST):
        shard.init_producer_id("", 1, None, now_ms=0, new_producer_id=lambda: 1)
    with refused(Error.INVALID_REQUEST):
        shard.add_partitions("", producer, [T0], version=2, now_ms=0)
    with refused(Error.INVALID_REQUEST):
        shard.verify_partitions("", producer, [T0])
    with refused(Error.INVALID_REQUEST):
        shard.end_transaction("", producer, commit=True, version=2, now_ms=0, new_producer_id=lambda: 1)
    with refused(Error.INVALID_REQUEST):
        shard.describe("")


def test_an_id_that_is_not_known_has_no_producer_and_no_transaction() -> None:
    coordinator, producer = Coordinator(), ProducerIdAndEpoch(7, 0)
    for version in (0, 2):
        with refused(Error.INVALID_PRODUCER_ID_MAPPING):
            coordinator.ends(producer, version=version)
    with refused(Error.INVALID_PRODUCER_ID_MAPPING):
        coordinator.adds(T0, producer=producer)
    with refused(Error.INVALID_PRODUCER_ID_MAPPING):
        coordinator.shard.verify_partitions(ID, producer, [T0])
    with refused(Error.TRANSACTIONAL_ID_NOT_FOUND):
        coordinator.shard.describe(ID)


def test_without_a_producer_id_at_hand_nothing_happens() -> None:
    coordinator = Coordinator()

    def none_left() -> int:
        raise NoProducerId

    coordinator.new_id = none_left
    with pytest.raises(NoProducerId):
        coordinator.asks()
    assert not coordinator.shard.ids
    coordinator.at(state=ONGOING, producer_epoch=EPOCH_MAX_GIVEN, partitions={T0: None}, start_ms=1)
    before = coordinator.metadata
    with pytest.raises(NoProducerId):
        coordinator.ends()
    with pytest.raises(NoProducerId):
        coordinator.asks()
    assert coordinator.metadata is before
    assert coordinator.known.pending is None


def test_an_id_keeps_its_producer_id_if_the_first_record_cannot_be_written() -> None:
    coordinator = Coordinator()
    coordinator.shard.refused(coordinator.asks())
    assert coordinator.init() == (100, 0)


@pytest.mark.parametrize(
    ("is_before_4", "wrong_id", "old_epoch"),
    [
        (False, Error.CONCURRENT_TRANSACTIONS, Error.CONCURRENT_TRANSACTIONS),
        (True, Error.INVALID_PRODUCER_ID_MAPPING, Error.PRODUCER_FENCED),
    ],
)
def test_whose_partitions_are_added_while_a_change_is_under_way_was_checked_first_before_4_0(
    is_before_4: bool, wrong_id: Error, old_epoch: Error
) -> None:
    coordinator = Coordinator(level=0, is_before_4=is_before_4)
    coordinator.init()
    right = coordinator.init()
    assert coordinator.adds(T0) is not None  # and is not committed
    with refused(wrong_id):
        coordinator.adds(T1, producer=right._replace(producer_id=7))
    with refused(old_epoch):
        coordinator.adds(T1, producer=right._replace(epoch=right.epoch - 1))
    with refused(Error.CONCURRENT_TRANSACTIONS):
        coordinator.adds(T1)


def test_two_phase_commit_is_for_those_to_whom_it_is_allowed_and_has_no_timeout() -> None:
    with refused(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
        Coordinator().asks(is_two_phase=True)
    with refused(Error.UNSUPPORTED_VERSION):
        Coordinator(allows_two_phase=True).asks(is_two_phase=True, keeps_prepared=True)
    coordinator = Coordinator(allows_two_phase=True)
    coordinator.commit(coordinator.asks(timeout_ms=0, is_two_phase=True))
    assert coordinator.metadata.timeout_ms == TWO_PHASE_TIMEOUT_MS
    coordinator.add(T0)
    coordinator.now_ms += TWO_PHASE_TIMEOUT_MS + HOUR_MS
    assert not coordinator.timed_out(coordinator.now_ms)


# The way of a transaction


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_from_its_first_partition_to_its_last_marker(level: int, commit: bool) -> None:
    coordinator = Coordinator(level)
    coordinator.init()
    coordinator.add(T0)
    coordinator.now_ms += 5
    coordinator.add(T1, T0)
    assert coordinator.metadata.state is ONGOING
    assert list(coordinator.metadata.partitions) == [T0, T1]
    assert coordinator.metadata.start_ms == coordinator.now_ms - 5
    completion = coordinator.prepare(commit=commit)
    assert coordinator.metadata.state is (PREPARE_COMMIT if commit else PREPARE_ABORT)
    assert not coordinator.shard.markers_written(coordinator.known, [T1])
    assert list(coordinator.metadata.partitions) == [T0]
    coordinator.complete(completion)
    assert coordinator.metadata.state is (COMPLETE_COMMIT if commit else COMPLETE_ABORT)
    assert not coordinator.metadata.partitions
    assert coordinator.producer == (100, 0 if level == 0 else 1)


def test_partitions_that_are_in_the_transaction_need_no_record() -> None:
    coordinator = Coordinator()
    coordinator.init()
    coordinator.add(T0, T1)
    assert coordinator.adds(T1) is None
    coordinator.end()
    assert coordinator.adds(T1) is not None  # that was another transaction


def test_only_partitions_of_the_open_transaction_are_verified() -> None:
    coordinator = Coordinator()
    coordinator.init()
    coordinator.add(T0)
    told = coordinator.shard.verify_partitions(ID, coordinator.producer, [T0, T1])
    assert told == {T0: Error.NONE, T1: Error.TRANSACTION_ABORTABLE}
    completion = coordinator.prepare()
    with refused(Error.CONCURRENT_TRANSACTIONS):
        coordinator.shard.verify_partitions(ID, coordinator.producer, [T0])
    coordinator.complete(completion)
    told = coordinator.shard.verify_partitions(ID, coordinator.producer, [T0])
    assert told == {T0: Error.TRANSACTION_ABORTABLE}


def test_partitions_that_are_about_to_be_added_are_not_verified_yet() -> None:
    coordinator = Coordinator()
    coordinator.init()
    transition = coordinator.adds(T0)
    told = coordinator.shard.verify_partitions(ID, coordinator.producer, [T0])
    assert told == {T0: Error.TRANSACTION_ABORTABLE}
    assert transition is not None
    coordinator.commit(transition)
    assert coordinator.shard.verify_partitions(ID, coordinator.producer, [T0]) == {T0: Error.NONE}


@pytest.mark.parametrize("level", [0, 2])
def test_while_a_change_is_under_way_everybody_is_asked_to_come_again(level: int) -> None:
    coordinator = Coordinator(level)
    coordinator.init()
    coordinator.adds(T0)
    for asks in (coordinator.asks, coordinator.ends, lambda: coordinator.adds(T1)):
        with refused(Error.CONCURRENT_TRANSACTIONS):
            asks()


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_what_is_decided_stays_so_until_all_markers_are_written(level: int, commit: bool) -> None:
    coordinator = Coordinator(level)
    coordinator.init()
    coordinator.add(T0)
    before = coordinator.producer
    completion = coordinator.prepare(commit=commit)
    for asks in (
        coordinator.asks,
        lambda: coordinator.adds(T1),
        lambda: coordinator.ends(before, commit=commit),
        lambda: coordinator.ends(before, commit=not commit),
    ):
        with refused(Error.CONCURRENT_TRANSACTIONS):
            asks()
    assert not coordinator.timed_out(coordinator.now_ms + HOUR_MS)
    coordinator.complete(completion)


def test_an_answer_that_was_lost_is_given_again_and_the_other_outcome_is_refused() -> None:
    coordinator = Coordinator(0)
    coordinator.init()
    coordinator.add(T0)
    coordinator.end()
    assert coordinator.ends() == (-1, -1)
    with refused(Error.INVALID_TXN_STATE):
        coordinator.ends(commit=False)


def test_in_v2_an_answer_that_was_lost_is_known_by_the_epoch() -> None:
    coordinator = Coordinator()
    before = coordinator.init()
    coordinator.add(T0)
    coordinator.end()
    assert coordinator.ends(before) == (100, 1)
    with refused(Error.INVALID_TXN_STATE):
        coordinator.ends(before, commit=False)
    with refused(Error.INVALID_TXN_STATE):
        coordinator.ends()  # with the epoch of now it is another transaction, and has nothing to commit


def test_an_end_that_comes_late_cannot_touch_the_next_transaction_in_v2_and_ends_it_in_the_classic_protocol() -> None:
    coordinator = Coordinator()
    before = coordinator.init()
    coordinator.add(T0)
    coordinator.end()
    coordinator.add(T1)
    with refused(Error.PRODUCER_FENCED):
        coordinator.ends(before)
    classic = Coordinator(0)
    before = classic.init()
    classic.add(T0)
    classic.end()
    classic.add(T1)
    assert isinstance(classic.ends(before), Transition)


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_in_v2_a_transaction_that_may_not_have_begun_is_aborted_all_the_same(state: object) -> None:
    coordinator = Coordinator().at(state=state)
    completion = coordinator.prepare(commit=False)
    assert coordinator.metadata.start_ms == coordinator.now_ms
    assert not coordinator.metadata.partitions
    coordinator.commit(completion)
    assert coordinator.producer == (7, 4)
    with refused(Error.INVALID_TXN_STATE):
        coordinator.ends(version=0)


def test_a_transaction_without_partitions_begins_all_the_same() -> None:
    coordinator = Coordinator()
    coordinator.init()
    transition = coordinator.adds()
    assert transition is not None
    coordinator.commit(transition)
    assert coordinator.metadata.state is ONGOING


# Of each request what the coordinator does, by what the table says; the producer is the right one.
ASKED: dict[str, Callable[[Coordinator], object]] = {
    INIT_PRODUCER_ID: lambda coordinator: coordinator.asks(),
    ADD_PARTITIONS: lambda coordinator: coordinator.adds(T1),
    VERIFY_PARTITIONS: lambda coordinator: coordinator.shard.verify_partitions(ID, coordinator.producer, [T0]),
    COMMIT_CLASSIC: lambda coordinator: coordinator.ends(version=0),
    ABORT_CLASSIC: lambda coordinator: coordinator.ends(commit=False, version=0),
    COMMIT_V2: lambda coordinator: coordinator.ends(),
    ABORT_V2: lambda coordinator: coordinator.ends(commit=False),
    COMMIT_V2_AGAIN: lambda coordinator: coordinator.ends(ProducerIdAndEpoch(7, 2)),
    ABORT_V2_AGAIN: lambda coordinator: coordinator.ends(ProducerIdAndEpoch(7, 2), commit=False),
}


# Of each request what Kafka answers in Empty, Ongoing, CompleteCommit, CompleteAbort, or where it goes; None: neither.
WRONG, FENCED = Error.INVALID_TXN_STATE, Error.PRODUCER_FENCED
ANSWERS: dict[str, tuple[Error | State | None, ...]] = {
    INIT_PRODUCER_ID: (EMPTY, PREPARE_ABORT, EMPTY, EMPTY),
    ADD_PARTITIONS: (ONGOING, ONGOING, ONGOING, ONGOING),
    VERIFY_PARTITIONS: (None, None, None, None),
    COMMIT_CLASSIC: (WRONG, PREPARE_COMMIT, None, WRONG),
    ABORT_CLASSIC: (WRONG, PREPARE_ABORT, WRONG, None),
    COMMIT_V2: (WRONG, PREPARE_COMMIT, WRONG, WRONG),
    ABORT_V2: (PREPARE_ABORT, PREPARE_ABORT, PREPARE_ABORT, PREPARE_ABORT),
    COMMIT_V2_AGAIN: (FENCED, FENCED, None, WRONG),
    ABORT_V2_AGAIN: (FENCED, FENCED, WRONG, None),
}


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("request_name", REQUESTS)
def test_every_request_meets_in_every_state_what_it_meets_in_kafka(request_name: str, number: int) -> None:
    state, expected = (EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT)[number], ANSWERS[request_name][number]
    coordinator = Coordinator().at(state=state, partitions={T0: None} if state is ONGOING else {}, start_ms=1)
    if isinstance(expected, Error):
        with refused(expected):
            ASKED[request_name](coordinator)
    else:
        ASKED[request_name](coordinator)
    pending = coordinator.known.pending
    if isinstance(expected, State):
        assert pending is not None
        assert pending.to is not None
        assert pending.to.state is expected
        assert pending.is_fence == (request_name == INIT_PRODUCER_ID and state is ONGOING)
    else:
        assert pending is None


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("request_name", REQUESTS)
def test_whoever_asks_while_markers_are_under_way_comes_again(request_name: str, is_commit: bool) -> None:
    coordinator = Coordinator().at(state=ONGOING, partitions={T0: None}, start_ms=1)
    decision = coordinator.ends(commit=is_commit)
    assert isinstance(decision, Transition)
    completion = coordinator.commit(decision)
    assert coordinator.metadata.state is (PREPARE_COMMIT if is_commit else PREPARE_ABORT)
    with refused(Error.CONCURRENT_TRANSACTIONS):
        ASKED[request_name](coordinator)
    assert coordinator.known.pending is completion
    assert list(REQUESTS[request_name].values())[2:4] == [Error.CONCURRENT_TRANSACTIONS] * 2  # as the page says


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_walk_for_timeouts_meets_open_transactions_only(is_commit: bool) -> None:
    met: list[str] = []
    coordinator = Coordinator()
    coordinator.init()
    for _ in range(3):
        begun = coordinator.adds(T0)
        assert begun is not None
        coordinator.commit(begun)
        met += [found.name for found in coordinator.shard.ongoing()]
        decision = coordinator.ends(commit=is_commit)
        assert isinstance(decision, Transition)
        completion = coordinator.commit(decision)
        met += [found.name for found in coordinator.shard.ongoing()]
        assert completion is not None
        coordinator.complete(completion)
    assert met == [ID] * 3  # once each time that it was open


# Epochs that run out


def test_with_the_last_epoch_a_transaction_ends_and_its_producer_goes_on_with_another_id() -> None:
    coordinator = Coordinator().at(
        state=ONGOING, producer_epoch=EPOCH_MAX_GIVEN, partitions={T0: None}, start_ms=1, client_version=2
    )
    before = coordinator.producer
    transition = coordinator.ends()
    assert isinstance(transition, Transition)
    assert transition.answer == (100, 0)
    completion = coordinator.commit(transition)
    assert coordinator.producer == (7, EPOCH_MAX)  # the markers bear it
    assert completion is not None
    coordinator.complete(completion)
    assert coordinator.producer == (100, 0)
    assert coordinator.ends(before) == (100, 0)  # asked again
    assert coordinator.init(before) == (100, 0)  # neither has it heard of the other id
    assert coordinator.init() == (100, 1)


def test_without_an_epoch_left_a_producer_that_comes_gets_another_id() -> None:
    coordinator = Coordinator().at(producer_epoch=EPOCH_MAX_GIVEN)
    assert coordinator.init() == (100, 0)
    coordinator = Coordinator().at(producer_epoch=EPOCH_MAX_GIVEN)
    last = ProducerIdAndEpoch(7, EPOCH_MAX_GIVEN)
    assert coordinator.init(last) == (100, 0)
    assert coordinator.init(last) == (100, 0)  # asked again
    with refused(Error.PRODUCER_FENCED):
        coordinator.asks(ProducerIdAndEpoch(7, EPOCH_MAX_GIVEN - 1))


def test_only_the_producer_before_with_its_last_epoch_is_told_of_the_other_id() -> None:
    last = ProducerIdAndEpoch(7, EPOCH_MAX_GIVEN)
    for other in (ProducerIdAndEpoch(7, 0), ProducerIdAndEpoch(55, EPOCH_MAX_GIVEN)):
        coordinator = Coordinator().at(producer_epoch=EPOCH_MAX_GIVEN)
        coordinator.init(last)
        with refused(Error.PRODUCER_FENCED):
            coordinator.asks(other)


@pytest.mark.parametrize("level", [0, 2])
def test_behind_the_largest_epoch_there_is_none_and_an_abort_goes_through(level: int) -> None:
    coordinator = Coordinator(level).at(
        state=ONGOING, producer_epoch=EPOCH_MAX, partitions={T0: None}, start_ms=1, client_version=level
    )
    if level == 2:
        with refused(Error.UNKNOWN_SERVER_ERROR):
            coordinator.ends()
    transition = coordinator.asks()
    assert transition.to is not None
    assert transition.to.producer == (7, EPOCH_MAX)


@pytest.mark.parametrize("level", [0, 2])
def test_a_producer_with_the_last_epoch_can_still_be_fenced(level: int) -> None:
    coordinator = Coordinator(level).at(
        state=ONGOING, producer_epoch=EPOCH_MAX_GIVEN, partitions={T0: None}, start_ms=1, client_version=level
    )
    transition = coordinator.asks()
    assert transition.answer is Error.CONCURRENT_TRANSACTIONS
    completion = coordinator.commit(transition)
    assert coordinator.producer == (7, EPOCH_MAX)
    assert completion is not None
    coordinator.complete(completion)
    assert coordinator.init() == ((100, 0) if level == 0 else (100, 1))


# What the coordinator does itself


@pytest.mark.parametrize("level", [0, 2])
def test_a_second_producer_aborts_what_the_first_left_open_and_comes_again(level: int) -> None:
    coordinator = Coordinator(level)
    first = coordinator.init()
    coordinator.add(T0)
    transition = coordinator.asks()
    assert transition.answer is Error.CONCURRENT_TRANSACTIONS
    completion = coordinator.commit(transition)
    assert coordinator.metadata.state is PREPARE_ABORT
    with refused(Error.CONCURRENT_TRANSACTIONS):
        coordinator.asks()
    assert completion is not None
    coordinator.complete(completion)
    assert coordinator.init() == (100, 2)  # the epoch between was nobody's
    with refused(Error.PRODUCER_FENCED):
        coordinator.ends(first)


def test_a_transaction_times_out_when_its_time_is_over_and_not_before() -> None:
    coordinator = Coordinator()
    coordinator.init()
    coordinator.add(T0)
    end_ms = coordinator.now_ms + 60_000
    assert not coordinator.timed_out(end_ms)
    assert coordinator.timed_out(end_ms + 1) == [coordinator.known]
    coordinator.adds(T1)
    assert not coordinator.timed_out(end_ms + 1)  # a change is under way


@pytest.mark.parametrize(("level", "by_client"), [(0, 0), (2, 0), (2, 2)])
def test_what_timed_out_is_aborted_by_the_version_of_the_coordinator(level: int, by_client: int) -> None:
    coordinator = Coordinator(level).at(state=ONGOING, partitions={T0: None}, start_ms=1, client_version=by_client)
    transition = coordinator.shard.abort(
        coordinator.known, now_ms=coordinator.now_ms, new_producer_id=coordinator.new_id
    )
    coordinator.commit(transition)
    assert coordinator.metadata.state is PREPARE_ABORT
    assert coordinator.producer == (7, 4)
    assert coordinator.metadata.client_version == level


def test_what_is_about_to_change_is_not_aborted() -> None:
    coordinator = Coordinator()
    coordinator.init()
    coordinator.add(T0)
    coordinator.ends()
    with refused(Error.CONCURRENT_TRANSACTIONS):
        coordinator.shard.abort(coordinator.known, now_ms=coordinator.now_ms, new_producer_id=coordinator.new_id)


def test_an_epoch_whose_record_could_not_be_written_is_not_raised_twice() -> None:
    for level in (0, 2):
        coordinator = Coordinator(level).at(state=ONGOING, partitions={T0: None}, start_ms=1, client_version=level)
        before = coordinator.producer
        for _ in range(3):
            coordinator.shard.refused(coordinator.asks())
            assert coordinator.metadata.state is ONGOING
        if level == 0:
            with refused(Error.PRODUCER_FENCED):  # it is fenced although that is not written
                coordinator.ends(before)
        coordinator.commit(coordinator.asks())
        assert coordinator.producer == (7, 4)


def test_a_coordinator_that_takes_over_goes_on_with_what_is_prepared_and_leaves_the_rest() -> None:
    coordinator = Coordinator()
    for index, state in enumerate(STORED):
        metadata = TransactionMetadata(
            index, 60_000, 5, state=state, producer_epoch=1, partitions={} if state is EMPTY else {T0: None}
        )
        coordinator.shard.replay(state.name, metadata)
    resumed = {
        name: coordinator.shard.resume(found, coordinator.now_ms) for name, found in coordinator.shard.ids.items()
    }
    completions = {name: each for name, each in resumed.items() if each is not None}
    assert set(completions) == {"PrepareCommit", "PrepareAbort"}
    for name, completion in completions.items():
        found = coordinator.shard.ids[name]
        assert found.pending is completion
        assert coordinator.shard.markers_written(found, [T0])
        coordinator.commit(completion)
    assert coordinator.shard.ids["PrepareCommit"].metadata.state is COMPLETE_COMMIT
    assert coordinator.shard.ids["PrepareAbort"].metadata.state is COMPLETE_ABORT
    assert [each.name for each in coordinator.timed_out(HOUR_MS)] == ["Ongoing"]


@pytest.mark.parametrize("ends", [True, False])
def test_the_last_record_of_an_id_counts_and_one_without_a_value_forgets_it(ends: bool) -> None:
    coordinator = Coordinator().at(state=ONGOING, partitions={T0: None}, start_ms=1)
    assert coordinator.timed_out(HOUR_MS)
    if ends:
        coordinator.at(state=COMPLETE_COMMIT)
    else:
        coordinator.shard.replay(ID, None)
    assert not coordinator.timed_out(HOUR_MS)
    assert list(coordinator.shard.ids) == ([ID] if ends else [])


@pytest.mark.parametrize("state", STORED, ids=str)
def test_an_id_expires_that_has_no_transaction_and_was_not_used_for_long(state: object) -> None:
    coordinator = Coordinator().at(state=state)
    at_ms = coordinator.now_ms + HOUR_MS
    assert coordinator.shard.expire(coordinator.known, at_ms - 1) is None
    transition = coordinator.shard.expire(coordinator.known, at_ms)
    assert (transition is not None) == (state in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT))
    if transition is None:
        return
    assert transition.to is None
    assert coordinator.shard.expire(coordinator.known, at_ms) is None  # it is about to
    with refused(Error.CONCURRENT_TRANSACTIONS):
        coordinator.asks()
    coordinator.shard.refused(transition)
    assert coordinator.init() == (7, 4)


def test_an_id_is_forgotten_when_that_is_committed() -> None:
    coordinator = Coordinator().at()
    transition = coordinator.shard.expire(coordinator.known, coordinator.now_ms + HOUR_MS)
    assert transition is not None
    assert coordinator.shard.describe(ID).state is EMPTY
    coordinator.commit(transition)
    with refused(Error.TRANSACTIONAL_ID_NOT_FOUND):
        coordinator.shard.describe(ID)


# What is listed


def listed(**filters: object) -> list[str]:
    shard = Coordinator().shard
    for name, producer_id, state, start_ms in (
        ("open", 1, ONGOING, 100),
        ("ended", 2, COMPLETE_COMMIT, 150),
        ("new", 3, EMPTY, -1),
    ):
        shard.replay(name, TransactionMetadata(producer_id, 1, 1, state=state, producer_epoch=0, start_ms=start_ms))
    asked: dict[str, object] = {"producer_ids": (), "states": (), "now_ms": 200}
    return [found.name for found in shard.select(**(asked | filters))]  # type: ignore[arg-type]


def test_ids_are_listed_that_fit_every_filter() -> None:
    assert listed() == ["open", "ended", "new"]
    assert listed(producer_ids=[3, 1]) == ["open", "new"]
    assert listed(states=["Ongoing", "Empty"]) == ["open", "new"]
    assert listed(states=["Ongoing"], producer_ids=[2]) == []


def test_of_states_that_are_not_known_nothing_is_listed() -> None:
    assert listed(states=["Open"]) == []
    assert listed(states=["Open", "Empty"]) == ["new"]


def test_transactions_are_listed_that_have_lasted_longer_and_ids_without_any_begin_before_all_time() -> None:
    assert listed(duration_ms=0) == ["open", "ended", "new"]
    assert listed(duration_ms=50) == ["open", "new"]
    assert listed(duration_ms=100) == ["new"]
    assert listed(duration_ms=0, now_ms=150) == ["open", "new"]
    assert listed(duration_ms=-1, now_ms=50) == ["open", "ended", "new"]  # the clock has been set back
