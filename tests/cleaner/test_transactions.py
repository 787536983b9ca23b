"""Which batches of transactions may go, and which markers are still needed."""

from __future__ import annotations

import pytest

from minibroker.cleaner.transactions import Transactions
from minibroker.errors import InvalidRecord
from minibroker.log.batches import Batch, batches
from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.formats import LEADER_CHANGE
from minibroker.log.records import Record
from minibroker.stored.producers import AbortedTxn


def batch_at(built: bytes) -> Batch:
    return next(batches(built))


def data(offset: int, producer_id: int = 1, *, transactional: bool = True, count: int = 2) -> Batch:
    records = [Record(b"k", b"v", (), 0, offset + number) for number in range(count)]
    return batch_at(
        build_batch(2, records, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=transactional)
    )


def marker(offset: int, producer_id: int = 1, *, commit: bool = True) -> Batch:
    return batch_at(
        build_transaction_marker(
            commit=commit, offset=offset, timestamp=0, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0
        )
    )


def aborted(first_offset: int, last_offset: int, producer_id: int = 1) -> AbortedTxn:
    return AbortedTxn(
        producer_id=producer_id, first_offset=first_offset, last_offset=last_offset, last_stable_offset=last_offset + 1
    )


def seen(transactions: Transactions, *in_order: Batch) -> list[bool]:
    return [transactions.see(batch) for batch in in_order]


def test_committed_data_stays_and_so_does_its_marker() -> None:
    transactions = Transactions()
    assert seen(transactions, data(0), data(2), marker(4)) == [False, False, False]
    assert transactions.kept == []


def test_a_commit_marker_whose_data_is_gone_may_go() -> None:
    assert seen(Transactions(), marker(4)) == [True]
    assert seen(Transactions(), data(0, transactional=False), marker(4)) == [False, True]
    # The second marker of a producer: only data after the first one counts.
    assert seen(Transactions(), data(0), marker(2), marker(5)) == [False, False, True]
    assert seen(Transactions(), data(0, 1), marker(2, 2)) == [False, True]


def test_aborted_data_may_go_but_its_marker_stays_for_the_index() -> None:
    transactions = Transactions()
    entry = aborted(0, 4)
    transactions.add_aborted([entry])
    assert seen(transactions, data(0), data(2), marker(4, commit=False)) == [True, True, False]
    assert transactions.kept == [entry]


def test_a_transaction_may_be_a_single_record() -> None:
    transactions = Transactions()
    transactions.add_aborted([aborted(3, 4)])
    assert seen(transactions, data(3, count=1), marker(4, commit=False)) == [True, False]


def test_an_abort_marker_whose_data_is_gone_may_go() -> None:
    transactions = Transactions()
    transactions.add_aborted([aborted(0, 4)])
    assert seen(transactions, marker(4, commit=False)) == [True]
    assert transactions.kept == []
    assert seen(transactions, marker(9, commit=False)) == [True]  # nobody knows of such a transaction


def test_what_a_producer_writes_before_and_after_an_aborted_transaction_is_not_aborted() -> None:
    transactions = Transactions()
    transactions.add_aborted([aborted(5, 8)])
    told = seen(transactions, data(0), marker(2), data(5), marker(8, commit=False), data(9), marker(11))
    assert told == [False, False, True, False, False, False]


def test_transactions_of_several_producers_do_not_mix() -> None:
    transactions = Transactions()
    later, earlier = aborted(2, 9, 2), aborted(0, 8, 1)
    transactions.add_aborted([later])
    transactions.add_aborted([earlier])
    told = seen(
        transactions,
        *(data(0, 1), data(2, 2), data(4, 3), data(6, 1), marker(8, 1, commit=False)),
        *(marker(9, 2, commit=False), marker(10, 3)),
    )
    assert told == [True, True, False, True, False, False, False]
    assert transactions.kept == [earlier, later]


def test_a_transaction_over_two_segments_may_be_announced_with_each() -> None:
    transactions = Transactions()
    transactions.add_aborted([aborted(0, 4)])
    assert seen(transactions, data(0)) == [True]
    transactions.add_aborted([aborted(0, 4)])
    assert seen(transactions, data(2), marker(4, commit=False), data(5), marker(7)) == [True, False, False, False]
    assert transactions.kept == [aborted(0, 4)]


def test_data_that_nobody_marks_as_transactional_is_never_aborted() -> None:
    transactions = Transactions()
    transactions.add_aborted([aborted(0, 4)])
    assert seen(transactions, data(0, transactional=False)) == [False]


def test_other_markers_stay_and_emptied_ones_may_go() -> None:
    leader_change = Record(bytes((0, 0, 0, LEADER_CHANGE)), b"\0\0", (), 0, 5)
    built = build_batch(2, [leader_change], control=True)
    assert seen(Transactions(), batch_at(built)) == [False]
    emptied = build_batch(2, [], base_offset=5, last_offset=5, producer_id=1, transactional=True, control=True)
    assert seen(Transactions(), batch_at(emptied)) == [True]


def test_a_marker_that_cannot_be_read_is_an_error() -> None:
    built = build_batch(2, [Record(b"\0", b"", (), 0, 5)], producer_id=1, transactional=True, control=True)
    with pytest.raises(InvalidRecord):
        Transactions().see(batch_at(built))
