"""Read committed shows what was committed, whatever else is in the log."""

from __future__ import annotations

from minibroker.client.aborted import AbortedFilter
from minibroker.log.batches import batches
from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.records import Record

A, B = 1000, 2000


def data(offset: int, producer_id: int = -1) -> bytes:
    transactional = producer_id >= 0
    return build_batch(
        2,
        [Record(None, b"x", (), 0, offset)],
        producer_id=producer_id,
        producer_epoch=0 if transactional else -1,
        base_sequence=0 if transactional else -1,
        transactional=transactional,
    )


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    return build_transaction_marker(
        commit=commit, offset=offset, timestamp=0, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0
    )


def seen(log: bytes, aborted: list[tuple[int, int]]) -> list[int]:
    aborted_filter = AbortedFilter(aborted)
    return [batch.base_offset for batch in batches(log) if not aborted_filter.hides(batch)]


def test_control_batches_are_never_shown() -> None:
    assert seen(data(0, A) + marker(1, A, commit=True) + data(2), []) == [0, 2]


def test_an_aborted_transaction_is_hidden_up_to_its_marker() -> None:
    log = data(0, A) + data(1) + data(2, A) + marker(3, A, commit=False) + data(4, A) + marker(5, A, commit=True)
    assert seen(log, [(0, A)]) == [1, 4]


def test_transactions_of_several_producers_are_kept_apart() -> None:
    log = data(0, A) + data(1, B) + marker(2, A, commit=False) + data(3, B) + data(4, A)
    assert seen(log + marker(5, B, commit=True) + marker(6, A, commit=False), [(0, A), (4, A)]) == [1, 3]


def test_a_producer_may_abort_twice() -> None:
    log = data(0, A) + marker(1, A, commit=False) + data(2, A) + marker(3, A, commit=True)
    log += data(4, A) + marker(5, A, commit=False) + data(6)
    assert seen(log, [(4, A), (0, A)]) == [2, 6]


def test_an_answer_may_begin_in_the_middle_of_an_aborted_transaction() -> None:
    assert seen(data(10, A) + marker(11, A, commit=False) + data(12, A), [(3, A)]) == [12]


def test_plain_records_of_an_aborting_producer_are_shown() -> None:
    plain = build_batch(2, [Record(None, b"x", (), 0, 1)], producer_id=A, producer_epoch=0, base_sequence=1)
    assert seen(data(0, A) + plain + marker(2, A, commit=False), [(0, A)]) == [1]


def test_a_marker_that_the_cleaner_has_emptied_is_no_abort() -> None:
    empty = build_batch(
        2, [], base_offset=1, last_offset=1, producer_id=A, producer_epoch=0, transactional=True, control=True
    )
    assert seen(data(0, A) + empty + data(2, A), [(0, A)]) == []
