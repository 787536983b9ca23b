"""Producer state: what a leader lets in, what it answers to repetitions, and up to where transactions are decided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from minibroker.errors import CorruptCrc, Error, InvalidRecord, InvalidValue, KafkaError, ProtocolError
from minibroker.log.batches import Batch, batches
from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.producers import EPOCH_MAX, Marker, ProducerStates, Verification, read_marker, read_snapshot
from minibroker.log.records import Record
from minibroker.log.validate import CLIENT, COORDINATOR
from minibroker.stored.producers import AbortedTxn
from tests import goldens

SEQUENCE_MAX = 2**31 - 1
DAY_MS = 86_400_000


@dataclass
class Produced:
    """A batch on its way into the log, as the validator hands it on."""

    first_offset: int = 0
    base_sequence: int = 0
    count: int = 1
    producer_id: int = 7
    producer_epoch: int = 0
    is_transactional: bool = False
    is_control: bool = False
    max_timestamp: int = 1000
    control: Record | None = None

    @property
    def last_offset(self) -> int:
        return self.first_offset + self.count - 1

    @last_offset.setter
    def last_offset(self, _: int) -> None: ...

    @property
    def last_sequence(self) -> int:
        return -1 if self.base_sequence == -1 else (self.base_sequence + self.count - 1) & SEQUENCE_MAX

    @last_sequence.setter
    def last_sequence(self, _: int) -> None: ...


def txn(first_offset: int, base_sequence: int = 0, **more: int) -> Produced:
    return Produced(first_offset, base_sequence, is_transactional=True, **more)


def end_of_txn(
    first_offset: int, *, abort: bool = False, producer_id: int = 7, epoch: int = 0, coordinator_epoch: int = 0
) -> Batch:
    marker = build_transaction_marker(
        commit=not abort,
        offset=first_offset,
        timestamp=5000,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
    )
    return next(batches(marker))


def states_of(*applied: Produced | Batch) -> ProducerStates:
    states = ProducerStates("orders-0")
    for batch in applied:
        states.apply(batch)
    return states


def refused(code: Error, check: Callable[[], object]) -> str:
    with pytest.raises(KafkaError) as failure:
        check()
    assert failure.value.code is code
    return failure.value.message


# Sequence numbers


def test_the_next_sequence_number_follows_the_last() -> None:
    states = states_of(Produced(0, 0, count=3))
    assert states.check(Produced(3, 3)) is None


def test_a_gap_and_an_old_number_are_out_of_order() -> None:
    states = states_of(Produced(0, 0, count=3))
    said = refused(Error.OUT_OF_ORDER_SEQUENCE_NUMBER, lambda: states.check(Produced(3, 4)))
    assert said == "orders-0: producer 7 epoch 0 at offset 3: sequence 4 instead of 3"
    refused(Error.OUT_OF_ORDER_SEQUENCE_NUMBER, lambda: states.check(Produced(3, 2)))


def test_after_the_largest_number_comes_zero() -> None:
    states = states_of(Produced(0, SEQUENCE_MAX - 1, count=2))
    assert states.check(Produced(2, 0)) is None
    refused(Error.OUT_OF_ORDER_SEQUENCE_NUMBER, lambda: states.check(Produced(2, 1)))


def test_a_batch_may_run_over_the_largest_number() -> None:
    batch = Produced(10, SEQUENCE_MAX, count=3)
    states = states_of(batch)
    assert states.check(Produced(13, 2)) is None
    stored = states.check(batch)
    assert stored is not None
    assert (stored.first_sequence, stored.last_sequence) == (SEQUENCE_MAX, 1)


def test_an_unknown_producer_begins_with_any_number() -> None:
    assert ProducerStates().check(Produced(0, 12345)) is None


def test_a_coordinator_has_no_sequence_numbers() -> None:
    states = states_of(Produced(0, -1, count=2))
    assert states.check(Produced(2, -1), COORDINATOR) is None


# Repetitions


def test_a_repeated_batch_is_answered_with_the_offsets_it_has() -> None:
    states = states_of(*[Produced(offset, offset, count=2, max_timestamp=1000 + offset) for offset in range(0, 10, 2)])
    for offset in range(0, 10, 2):
        stored = states.check(Produced(99, offset, count=2))
        assert stored is not None
        assert (stored.first_offset, stored.last_offset, stored.timestamp) == (offset, offset + 1, 1000 + offset)


def test_only_the_last_five_batches_are_remembered() -> None:
    states = states_of(*[Produced(offset, offset) for offset in range(6)])
    refused(Error.OUT_OF_ORDER_SEQUENCE_NUMBER, lambda: states.check(Produced(6, 0)))
    assert states.check(Produced(6, 1)) is not None


def test_a_part_of_a_batch_is_no_repetition() -> None:
    states = states_of(Produced(0, 0, count=3))
    refused(Error.OUT_OF_ORDER_SEQUENCE_NUMBER, lambda: states.check(Produced(3, 0, count=2)))


def test_a_transaction_that_has_ended_does_not_hide_its_batches() -> None:
    states = states_of(txn(0), end_of_txn(1))
    assert states.check(txn(2)) is not None
    assert states.check(txn(2, 1)) is None


# Epochs


def test_a_new_epoch_begins_at_zero() -> None:
    states = states_of(Produced(0, 0, count=3))
    assert states.check(Produced(3, 0, producer_epoch=1)) is None
    refused(Error.OUT_OF_ORDER_SEQUENCE_NUMBER, lambda: states.check(Produced(3, 3, producer_epoch=1)))


def test_an_old_epoch_is_fenced() -> None:
    states = states_of(Produced(0, 0), Produced(1, 0, producer_epoch=1))
    refused(Error.INVALID_PRODUCER_EPOCH, lambda: states.check(Produced(2, 1)))
    refused(Error.INVALID_PRODUCER_EPOCH, lambda: states.check(Produced(2, -1), COORDINATOR))
    # Not even a repetition of what it wrote is answered.
    refused(Error.INVALID_PRODUCER_EPOCH, lambda: states.check(Produced(2, 0)))


def test_a_marker_with_a_new_epoch_lets_sequence_numbers_begin_anew() -> None:
    states = states_of(txn(0), end_of_txn(1, epoch=1))
    refused(Error.INVALID_PRODUCER_EPOCH, lambda: states.check(txn(2, 1)))
    assert states.check(txn(2, 0, producer_epoch=1)) is None
    refused(Error.OUT_OF_ORDER_SEQUENCE_NUMBER, lambda: states.check(txn(2, 1, producer_epoch=1)))


# Transactions


def test_an_open_transaction_takes_only_its_own_records() -> None:
    states = states_of(txn(0))
    refused(Error.INVALID_TXN_STATE, lambda: states.check(Produced(1, 1)))
    assert states.check(txn(1, 1)) is None
    assert states.has_open_transaction(7, 0)
    assert not states.has_open_transaction(7, 1)


def test_the_last_stable_offset_waits_for_the_oldest_transaction() -> None:
    states = states_of(txn(3), txn(4, producer_id=8), Produced(5, producer_id=9))
    assert states.last_stable_offset(high_watermark=2) == 2
    assert states.last_stable_offset(high_watermark=6) == 3
    states.apply(end_of_txn(6))
    states.on_high_watermark_updated(7)
    assert states.last_stable_offset(high_watermark=7) == 4
    states.apply(end_of_txn(7, producer_id=8))
    states.on_high_watermark_updated(8)
    assert states.last_stable_offset(high_watermark=8) == 8


def test_a_marker_counts_only_below_the_high_watermark() -> None:
    states = states_of(txn(0), end_of_txn(1))
    states.on_high_watermark_updated(1)
    assert states.last_stable_offset(1) == 0
    states.on_high_watermark_updated(2)
    assert states.last_stable_offset(2) == 2


def test_the_transaction_that_began_first_counts_though_it_ended_last() -> None:
    states = states_of(txn(0), txn(1, producer_id=8), end_of_txn(2, producer_id=8), end_of_txn(3))
    assert states.last_stable_offset(1) == 0


def test_the_last_stable_offset_does_not_look_at_each_transaction_whose_marker_is_not_replicated() -> None:
    compared: list[int] = []

    class Offset(int):
        def __lt__(self, other: int) -> bool:
            compared.append(self)
            return int(self) < int(other)

    count = 1000
    states = states_of(*[txn(Offset(each), producer_id=each) for each in range(count)])
    for each in range(count):
        states.apply(end_of_txn(count + each, producer_id=count - 1 - each))
    for replicated in range(count, 2 * count, 100):
        states.on_high_watermark_updated(replicated)
        compared.clear()
        assert states.last_stable_offset(replicated) == 0  # the first one has the last marker
        assert len(compared) <= 2
    states.on_high_watermark_updated(2 * count)
    assert states.last_stable_offset(2 * count) == 2 * count


def test_the_last_stable_offset_is_not_before_the_start_of_the_log() -> None:
    assert states_of(txn(3)).last_stable_offset(high_watermark=9, log_start_offset=5) == 5


def test_an_abort_leaves_an_entry_for_the_index_and_a_commit_none() -> None:
    states = states_of(txn(0), txn(1, producer_id=8))
    assert states.apply(end_of_txn(2)) is None
    entry = states.apply(end_of_txn(3, producer_id=8, abort=True))
    assert entry == AbortedTxn(producer_id=8, first_offset=1, last_offset=3, last_stable_offset=4)


def test_the_entry_says_what_was_stable_after_the_abort() -> None:
    states = states_of(txn(0), txn(1, producer_id=8))
    entry = states.apply(end_of_txn(2, producer_id=8, abort=True))
    assert entry is not None
    assert entry.last_stable_offset == 0


def test_an_abort_without_records_leaves_no_entry() -> None:
    states = states_of(Produced(0))
    assert states.apply(end_of_txn(1, abort=True)) is None
    assert states.first_unstable_offset is None


def test_a_marker_from_a_replaced_coordinator_is_fenced() -> None:
    states = states_of(txn(0), end_of_txn(1, coordinator_epoch=3), txn(2, 1))
    late = end_of_txn(3, coordinator_epoch=2)
    refused(Error.TRANSACTION_COORDINATOR_FENCED, lambda: states.check(late, COORDINATOR))
    assert states.check(end_of_txn(3, coordinator_epoch=3), COORDINATOR) is None


def test_a_marker_of_an_old_epoch_is_refused() -> None:
    states = states_of(txn(0, producer_epoch=4))
    refused(Error.INVALID_PRODUCER_EPOCH, lambda: states.check(end_of_txn(1, epoch=3), COORDINATOR))


def test_a_marker_of_version_2_must_raise_the_epoch_unless_it_is_repeated() -> None:
    states = states_of(txn(0))
    late, right = end_of_txn(1), end_of_txn(1, epoch=1)
    refused(Error.INVALID_PRODUCER_EPOCH, lambda: states.check(late, COORDINATOR, transaction_version=2))
    assert states.check(late, COORDINATOR, transaction_version=1) is None
    assert states.check(right, COORDINATOR, transaction_version=2) is None
    states.apply(right)
    assert states.check(end_of_txn(2, epoch=1), COORDINATOR, transaction_version=2) is None
    states.apply(txn(2, 0, producer_epoch=1))
    delayed = end_of_txn(3, epoch=1)
    refused(Error.INVALID_PRODUCER_EPOCH, lambda: states.check(delayed, COORDINATOR, transaction_version=2))


def test_a_marker_of_version_2_need_not_raise_the_largest_epoch() -> None:
    states = states_of(txn(0, producer_epoch=EPOCH_MAX))
    last = end_of_txn(1, epoch=EPOCH_MAX, abort=True)
    assert states.check(last, COORDINATOR, transaction_version=2) is None
    assert states.apply(last) == AbortedTxn(producer_id=7, first_offset=0, last_offset=1, last_stable_offset=2)
    late = end_of_txn(2, epoch=EPOCH_MAX - 1)
    refused(Error.INVALID_PRODUCER_EPOCH, lambda: states.check(late, COORDINATOR, transaction_version=2))


def test_a_marker_that_the_cleaner_has_emptied_says_nothing() -> None:
    empty = build_batch(2, [], base_offset=5, last_offset=5, producer_id=7, transactional=True, control=True)
    states = states_of(next(batches(empty)))
    assert states.producers == {}


@pytest.mark.parametrize("record", [Record(b"\0\0\0\2", b"\0\0\0\0\0\0"), Record(b"\0\0\0\1", b"\0\0"), Record(b"\0")])
def test_a_control_record_that_ends_no_transaction_is_an_error(record: Record) -> None:
    data = build_batch(2, [record], producer_id=7, transactional=True, control=True)
    with pytest.raises(InvalidRecord):
        read_marker(next(batches(data)))


def test_a_marker_is_read_alike_from_the_log_and_from_the_validator() -> None:
    batch = end_of_txn(4, abort=True, coordinator_epoch=9)
    produced = Produced(4, -1, is_transactional=True, is_control=True, control=next(batch.records()))
    for found in (read_marker(batch), read_marker(produced)):
        assert isinstance(found, Marker)
        assert (found.is_abort, found.coordinator_epoch, found.timestamp) == (True, 9, 5000)


# Verification (KIP-890)


def check_verified(states: ProducerStates, batch: Produced, verification: Verification | None = None) -> object:
    return states.check(batch, verification=verification, verifies=True)


def test_a_transaction_begins_only_with_the_coordinators_word() -> None:
    states = states_of()
    refused(Error.INVALID_TXN_STATE, lambda: check_verified(states, txn(0)))
    waiting = states.start_verification(7, 0, 0, now_ms=0)
    refused(Error.INVALID_TXN_STATE, lambda: check_verified(states, txn(0)))
    assert check_verified(states, txn(0), waiting) is None
    states.apply(txn(0))
    assert states.start_verification(7, 0, 1, now_ms=0) is None
    assert check_verified(states, txn(1, 1)) is None


def test_an_answer_for_the_transaction_before_is_worth_nothing() -> None:
    states = states_of()
    stale = states.start_verification(7, 0, 0, now_ms=0)
    states.apply(end_of_txn(0, abort=True))
    states.start_verification(7, 0, 0, now_ms=0)
    refused(Error.INVALID_TXN_STATE, lambda: check_verified(states, txn(1), stale))


def test_no_batch_overtakes_the_one_that_waits_first() -> None:
    states = states_of()
    states.start_verification(7, 0, 5, now_ms=0)
    waiting = states.start_verification(7, 0, 3, now_ms=0)
    refused(Error.OUT_OF_ORDER_SEQUENCE_NUMBER, lambda: check_verified(states, txn(0, 5), waiting))
    assert check_verified(states, txn(0, 3), waiting) is None


def test_a_batch_that_waited_must_still_follow_the_last() -> None:
    states = states_of(txn(0), end_of_txn(1))
    waiting = states.start_verification(7, 0, 5, now_ms=0)
    refused(Error.OUT_OF_ORDER_SEQUENCE_NUMBER, lambda: check_verified(states, txn(2, 5), waiting))


def test_with_transactions_v2_an_unknown_producer_begins_at_zero() -> None:
    states = states_of()
    waiting = states.start_verification(7, 0, 4, now_ms=0, supports_epoch_bump=True)
    refused(Error.OUT_OF_ORDER_SEQUENCE_NUMBER, lambda: check_verified(states, txn(0, 4), waiting))
    waiting = states.start_verification(7, 0, 0, now_ms=0, supports_epoch_bump=True)
    assert check_verified(states, txn(0, 0), waiting) is None


def test_a_verification_that_nobody_uses_is_forgotten() -> None:
    states = states_of()
    waiting = states.start_verification(7, 0, 0, now_ms=0)
    states.expire(DAY_MS, DAY_MS)
    refused(Error.INVALID_TXN_STATE, lambda: check_verified(states, txn(0), waiting))


def test_without_the_setting_a_transaction_begins_with_its_first_batch() -> None:
    assert states_of().check(txn(0)) is None


def test_an_epoch_that_is_over_is_not_verified() -> None:
    states = states_of(Produced(0, producer_epoch=2))
    said = refused(Error.INVALID_PRODUCER_EPOCH, lambda: states.start_verification(7, 1, 0, now_ms=0))
    assert said == "orders-0: producer 7: 1 < 2"
    assert states.start_verification(7, 2, 1, now_ms=0) is not None


@pytest.mark.parametrize("abort", [True, False])
def test_the_next_transaction_v2_is_verified_while_the_marker_of_the_last_comes(abort: bool) -> None:
    states = states_of(txn(0))
    waiting = states.start_verification(7, 1, 0, now_ms=0, supports_epoch_bump=True)
    states.apply(end_of_txn(1, epoch=1, abort=abort))
    assert check_verified(states, txn(2, producer_epoch=1), waiting) is None
    states.apply(txn(2, producer_epoch=1))
    states.apply(end_of_txn(3, epoch=2))
    refused(Error.INVALID_TXN_STATE, lambda: check_verified(states, txn(4, producer_epoch=2), waiting))


@pytest.mark.parametrize(
    ("marker_epoch", "verified_epoch", "supports_epoch_bump"), [(0, 0, False), (1, 1, False), (2, 1, True)]
)
def test_a_marker_ends_the_verification_of_its_own_transaction(
    marker_epoch: int, verified_epoch: int, supports_epoch_bump: bool
) -> None:
    states = states_of()
    waiting = states.start_verification(7, verified_epoch, 0, now_ms=0, supports_epoch_bump=supports_epoch_bump)
    states.apply(end_of_txn(0, epoch=marker_epoch, abort=True))
    late = txn(1, producer_epoch=marker_epoch)
    refused(Error.INVALID_TXN_STATE, lambda: check_verified(states, late, waiting))


# Forgetting


def test_idle_producers_are_forgotten_by_the_time_in_their_records() -> None:
    states = states_of(Produced(0, max_timestamp=1000), Produced(1, producer_id=8, max_timestamp=2000))
    states.expire(1000 + DAY_MS, DAY_MS)
    assert list(states.producers) == [8]
    assert states.check(Produced(2, 55)) is None


def test_an_open_transaction_keeps_its_producer() -> None:
    states = states_of(txn(0))
    states.expire(10 * DAY_MS, DAY_MS)
    assert list(states.producers) == [7]


def test_clearing_forgets_everything() -> None:
    states = states_of(txn(0), end_of_txn(1), txn(2, 1))
    states.clear()
    assert (states.producers, states.first_unstable_offset) == ({}, None)


# Snapshots


def test_nobody_to_tell_of_is_a_snapshot_of_ten_bytes() -> None:
    data = ProducerStates().snapshot_bytes()
    assert len(data) == 10
    assert read_snapshot(data) == []


def test_a_snapshot_brings_back_the_state_but_for_older_batches() -> None:
    states = states_of(txn(0), txn(1, 1), end_of_txn(2, producer_id=8), txn(3, producer_id=9))
    loaded = ProducerStates()
    loaded.load_snapshot(states.snapshot_bytes())
    assert loaded.snapshot_bytes() == states.snapshot_bytes()
    assert loaded.first_unstable_offset == 0
    assert loaded.has_markers
    assert loaded.check(txn(4, 1)) is not None
    refused(Error.OUT_OF_ORDER_SEQUENCE_NUMBER, lambda: loaded.check(txn(4, 0)))
    assert loaded.apply(end_of_txn(4, abort=True)) == AbortedTxn(
        producer_id=7, first_offset=0, last_offset=4, last_stable_offset=3
    )


def test_a_snapshot_is_in_the_order_of_the_ids_and_transactions_in_that_of_their_offsets() -> None:
    states = states_of(txn(0, producer_id=9), txn(1, producer_id=7))
    assert [entry.producer_id for entry in read_snapshot(states.snapshot_bytes())] == [7, 9]
    states.load_snapshot(states.snapshot_bytes())
    assert states.first_unstable_offset == 0


def test_every_broken_bit_of_a_snapshot_is_noticed() -> None:
    data = states_of(txn(0), Produced(1, producer_id=8)).snapshot_bytes()
    states = states_of(Produced(0))
    before = states.snapshot_bytes()
    for bit in range(len(data) * 8):
        broken = bytearray(data)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ProtocolError):
            states.load_snapshot(bytes(broken))
    for length in range(len(data)):
        with pytest.raises(ProtocolError):
            states.load_snapshot(data[:length])
    with pytest.raises(CorruptCrc):
        states.load_snapshot(data + b"\0")
    assert states.snapshot_bytes() == before


def test_a_producer_cannot_come_twice() -> None:
    from minibroker.log.batches import crc32c

    entry = ProducerStates()
    entry.apply(Produced())
    body = (2).to_bytes(4, "big") + entry.snapshot_bytes()[10:] * 2
    with pytest.raises(InvalidValue):
        read_snapshot(b"\0\1" + crc32c(body).to_bytes(4, "big") + body)


# What real brokers left

PARTITIONS = sorted(
    (directory, partition)
    for directory in goldens.LOG_DIRECTORIES
    for partition in goldens.log_meaning(directory)["partitions"]
)
# Cleaned: transactions were taken out of what these snapshots were made from.
NOT_TO_BE_REPLAYED = {("kraft44-1", "txn-compact-0")}


def files_of(directory: str, partition: str, suffix: str) -> dict[int, bytes]:
    """Return the files of a partition by the offset in their names."""
    return {
        int(path.rpartition("/")[2][:20]): data
        for path, data in sorted(goldens.log_files(directory).items())
        if path.startswith(f"{partition}/") and path.endswith(suffix)
    }


def log_of(directory: str, partition: str) -> list[Batch]:
    return [batch for data in files_of(directory, partition, ".log").values() for batch in batches(data)]


@pytest.mark.parametrize(("directory", "partition"), PARTITIONS)
def test_golden_snapshots_are_written_as_they_were_read(directory: str, partition: str) -> None:
    meaning = goldens.log_meaning(directory)["partitions"][partition].get("snapshots", {})
    snapshots = files_of(directory, partition, ".snapshot")
    assert sorted(snapshots) == sorted(map(int, meaning))
    for offset, data in snapshots.items():
        states = ProducerStates()
        states.load_snapshot(data)
        assert states.snapshot_bytes() == data
        shown = [
            {
                "producerId": entry.producer_id,
                "producerEpoch": entry.epoch,
                "coordinatorEpoch": entry.coordinator_epoch,
                "lastTimestamp": entry.timestamp,
                "currentTxnFirstOffset": entry.current_txn_first_offset,
                "lastSequence": states.producers[entry.producer_id].last_sequence,
                "lastOffset": entry.last_offset,
                "offsetDelta": entry.offset_delta,
            }
            for entry in read_snapshot(data)
        ]
        assert shown == meaning[f"{offset:020}"]


@pytest.mark.parametrize(("directory", "partition"), sorted(set(PARTITIONS) - NOT_TO_BE_REPLAYED))
def test_replaying_a_golden_log_gives_its_snapshots(directory: str, partition: str) -> None:
    log = log_of(directory, partition)
    before = ProducerStates().snapshot_bytes()
    start_offset = 0
    for offset, data in files_of(directory, partition, ".snapshot").items():
        from_the_start, from_the_one_before = ProducerStates(), ProducerStates()
        from_the_one_before.load_snapshot(before)
        for batch in log:
            if batch.producer_id >= 0 and batch.last_offset < offset:
                from_the_start.apply(batch)
                if batch.last_offset >= start_offset:
                    from_the_one_before.apply(batch)
        assert from_the_start.snapshot_bytes() == data
        assert from_the_one_before.snapshot_bytes() == data
        before, start_offset = data, offset


@pytest.mark.parametrize(("directory", "partition"), sorted(set(PARTITIONS) - NOT_TO_BE_REPLAYED))
def test_replaying_a_golden_log_gives_its_aborted_transactions_and_what_is_stable(
    directory: str, partition: str
) -> None:
    meaning = goldens.log_meaning(directory)["partitions"][partition]
    states = ProducerStates()
    aborted: list[AbortedTxn] = []
    for batch in log_of(directory, partition):
        if batch.producer_id >= 0:
            entry = states.apply(batch)
            aborted += [entry] if entry is not None else []
    indexes = files_of(directory, partition, ".txnindex").values()
    assert b"".join(b"\0\0" + entry.encode(0) for entry in aborted) == b"".join(indexes)
    end_offset = meaning["logEndOffset"]
    states.on_high_watermark_updated(end_offset)
    assert states.last_stable_offset(end_offset) == meaning["lastStableOffset"]
    still_open = [
        [producer_id, producer.transaction_first_offset]
        for producer_id, producer in states.producers.items()
        if producer.transaction_first_offset is not None
    ]
    assert still_open == meaning["openTransactions"]


@pytest.mark.parametrize(("directory", "partition"), PARTITIONS)
def test_what_real_leaders_let_in_passes_the_check(directory: str, partition: str) -> None:
    states = ProducerStates()
    next_offset = 0
    for batch in log_of(directory, partition):
        if batch.producer_id >= 0:
            if batch.base_offset > next_offset:
                return  # the cleaner took batches out: what follows them does not fit what is left
            origin = COORDINATOR if batch.is_control or partition.startswith("__") else CLIENT
            version = 2 if directory == "kraft44-1" else 0
            assert states.check(batch, origin, transaction_version=version) is None
            states.apply(batch)
        next_offset = batch.next_offset
