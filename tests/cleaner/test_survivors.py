"""Marks say of the dirty part what its keys would say."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibroker.cleaner import offset_map
from minibroker.cleaner import survivors as survivors_module
from minibroker.cleaner.batch_filter import BatchFilter, Filtered
from minibroker.cleaner.offset_map import OffsetMap
from minibroker.cleaner.survivors import Survivors
from minibroker.cleaner.transactions import Transactions
from minibroker.in_pieces import finish
from minibroker.log.batches import Batch, batches
from minibroker.log.build import build_batch
from minibroker.log.compression import GZIP
from minibroker.log.records import Record
from tests.cleaner.random_batches import NOW_MS, RETENTION_MS, Case


def taken(case: Case, start_offset: int, bytes_max: int) -> OffsetMap:
    """Read the batches the first time."""
    offsets, transactions = OffsetMap(bytes_max), Transactions()
    transactions.add_aborted(case.aborted)
    for batch in case.batches:
        if transactions.see(batch) or batch.is_control:
            offsets.cover(batch.next_offset)
        elif batch.next_offset > start_offset:
            finish(offsets.take(batch, start_offset))
            if offsets.is_full:
                break
    return offsets


def kept(case: Case, offsets: OffsetMap) -> list[tuple[bytes | None, int, int]]:
    """Read them again."""
    transactions = Transactions()
    transactions.add_aborted(case.aborted)
    cleaner = BatchFilter(
        offsets,
        transactions,
        now_ms=NOW_MS,
        delete_retention_ms=RETENTION_MS,
        producers=case.producers,
        uncleanable_offset=case.uncleanable_offset,
    )
    found: list[Filtered] = [finish(cleaner.filter(batch)) for batch in case.batches]
    return [(each.data and bytes(each.data), each.records_read, each.records_kept) for each in found]


@pytest.mark.outside
@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False))
def test_with_marks_the_same_is_kept_as_without(random: Random) -> None:
    case = Case(random)
    start_offset = random.choice([0, 0, random.choice(case.batches).last_offset])
    bytes_max = random.choice([1024, 1 << 14, 1 << 20])
    offsets = taken(case, start_offset, bytes_max)
    without_marks = kept(case, offsets)
    finish(offsets.settle())
    assert kept(case, offsets) == without_marks


def test_they_are_used_and_spare_reading() -> None:
    """Of a batch of which nothing stays, and of one that stays as it is, the records are not even unpacked."""
    rows = [Record(b"%d" % number, None if number == 2 else b"v") for number in range(5)]
    data = b"".join(
        build_batch(2, rows[:count], codec=GZIP, base_offset=base, delete_horizon=NOW_MS + 1)
        for base, count in ((10, 3), (13, 5), (18, 2))
    )
    offsets = OffsetMap(1 << 20)
    for batch in batches(data):
        finish(offsets.take(batch))
    survivors = offsets.survivors
    assert [survivors.find_marks(batch) for batch in batches(data)] == [None] * 3  # as long as more may come
    finish(offsets.settle())
    assert [survivors.find_marks(batch) for batch in batches(data)] == [b"\0\0\2", b"\0\0\3\1\1", b"\1\1"]
    broken = bytearray(data)
    first, _, last = batches(broken)
    for batch in (first, last):
        broken[batch.position + 61 : batch.end_position] = bytes(batch.size_bytes - 61)
    cleaner = BatchFilter(offsets, Transactions(), now_ms=NOW_MS, delete_retention_ms=RETENTION_MS)
    found = [finish(cleaner.filter(batch)) for batch in batches(broken)]
    assert [each.records_kept for each in found] == [0, 3, 2]
    assert found[0].data is None
    assert found[2].data == last.view


def one_batch(base_offset: int, *keys: bytes | None, last_offset: int | None = None) -> Batch:
    records = [Record(key, b"v", (), 0, base_offset + place) for place, key in enumerate(keys)]
    return next(batches(build_batch(2, records, base_offset=base_offset, last_offset=last_offset)))


def test_nothing_is_known_of_batches_with_holes_or_without_keys_and_of_those_that_were_not_read() -> None:
    read = [one_batch(7, b"a"), one_batch(10, b"a", last_offset=11), one_batch(12, None), one_batch(20, b"b", b"a")]
    offsets = OffsetMap(1 << 20)
    for batch in read:
        finish(offsets.take(batch, 5))
    finish(offsets.settle())
    found = [offsets.survivors.find_marks(batch) for batch in read]
    assert found == [b"\0", None, None, b"\1\1"]
    assert [offsets.survivors.find_marks(one_batch(base, b"a")) for base in (6, 8, 13, 22)] == [None] * 4


def test_a_batch_in_which_the_map_got_full_or_in_which_it_began_is_not_known() -> None:
    batch = one_batch(0, *(b"%d" % number for number in range(100)))
    offsets = OffsetMap(4096)
    finish(offsets.take(batch))
    assert offsets.is_full
    finish(offsets.settle())
    assert offsets.survivors.find_marks(batch) is None
    offsets.clear()
    finish(offsets.take(batch, 99))
    finish(offsets.settle())
    assert offsets.survivors.find_marks(batch) is None


@pytest.mark.parametrize("step", [1, 200, 1 << 33])
def test_marks_take_no_more_than_they_may(step: int) -> None:
    survivors = Survivors(3000)
    offset = 0
    for _ in range(3100):
        survivors.note(one_batch(offset, b"a"), ())
        offset += step
        assert survivors.used_bytes <= 3000
    assert survivors.used_bytes > 2500
    survivors.settle([0, 1, step])
    survivors.is_settled = True
    assert [survivors.find_marks(one_batch(base, b"a")) for base in (0, step, step * 2, offset)] == [
        b"\1",
        b"\1",
        b"\0",
        None,
    ]


def test_marks_are_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survivors_module, "PAGE_BYTES", 100)
    some = [one_batch(base, *[b"%d" % (number % 333) for number in range(30)]) for base in range(5, 3000, 30)]
    survivors = Survivors(1 << 20)
    for batch in some:
        survivors.note(batch, [0])
    survivors.settle(batch.last_offset for batch in some)
    survivors.is_settled = True
    assert [survivors.find_marks(batch) for batch in some] == [b"\2" + bytes(28) + b"\1"] * 100


def test_a_map_of_many_keys_marks_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [b"%d" % (number * number % 997) for number in range(3000)]
    some = [one_batch(base, *keys[base : base + 50]) for base in range(0, 3000, 50)]
    found = []
    for few_keys_max in (offset_map.FEW_KEYS_MAX, 100):
        monkeypatch.setattr(offset_map, "FEW_KEYS_MAX", few_keys_max)
        offsets = OffsetMap(1 << 20)
        for batch in some:
            finish(offsets.take(batch))
        finish(offsets.settle())
        found.append([offsets.survivors.find_marks(batch) for batch in some])
    assert found[0] == found[1]
    assert sum(marks.count(1) for marks in found[0] if marks) == len(set(keys))
