"""The fast way to the keys of a batch reads what the usual one does."""

from __future__ import annotations

import pytest

from minibroker.cleaning.keys import CHUNK_RECORDS, NO_KEY, Chunk, chunks, map_key, stored_records
from minibroker.log.batches import Batch, batches
from minibroker.log.build import build_batch
from minibroker.log.records import Record

# About where a number takes a byte more, and where one of its bytes says nothing but that more follow.
TURNS = sorted({max((1 << bits) + step, 0) for bits in (0, 6, 7, 13, 14, 20, 21, 27) for step in (-2, -1, 0, 1)})


def batch_of(records: list[Record], base_offset: int = 0) -> Batch:
    return next(batches(build_batch(2, records, base_offset=base_offset)))


def read(batch: Batch) -> list[Chunk]:
    return list(chunks(batch, stored_records(batch)))


def check(batch: Batch) -> None:
    """Compare with the reader of whole records."""
    found = read(batch)
    records = list(batch.records())
    assert [offset for chunk in found for offset in chunk.offsets] == [record.offset for record in records]
    keys = [NO_KEY if record.key is None else map_key(record.key) for record in records]
    assert [key for chunk in found for key in chunk.keys] == keys
    tombstones = [number * CHUNK_RECORDS + place for number, chunk in enumerate(found) for place in chunk.tombstones]
    assert tombstones == [place for place, record in enumerate(records) if record.value is None]
    assert any(chunk.has_keyless for chunk in found) == (NO_KEY in keys)
    assert found[0].start == 0
    assert found[-1].ends[-1] == batch.size_bytes - 61


@pytest.mark.parametrize("number", TURNS)
def test_numbers_of_any_length_are_read_the_fast_way(number: int) -> None:
    base = 1 << 40
    check(batch_of([Record(b"a", b"1", (), 0, base + number), Record(b"b", None, (), 0, base + number + 1)], base))
    check(batch_of([Record(b"a", b"1", (), base, 0), Record(b"b", b"", (), base + number), Record(b"c", None)]))
    check(batch_of([Record(b"a", b"1", (), base, 0), Record(b"b", None, (), base - number)]))
    if number < 1 << 22:
        check(batch_of([Record(b"k" * number, b"1"), Record(b"b", None), Record(None, b"v" * number), Record(b"")]))
        for size in (number - 8, number - 9, number - 10):
            check(batch_of([Record(b"a", b"v" * max(size, 0)), Record(b"b", b"2")]))


@pytest.mark.parametrize("count", [1, 127, 128, 129, 256, 300])
def test_records_come_in_chunks(count: int) -> None:
    batch = batch_of([Record(b"%d" % number, b"" if number % 3 else None) for number in range(count)])
    check(batch)
    assert [len(chunk.ends) for chunk in read(batch)] == [CHUNK_RECORDS] * (count // CHUNK_RECORDS) + [
        count % CHUNK_RECORDS
    ] * (count % CHUNK_RECORDS > 0)


def test_an_empty_batch_has_no_chunks() -> None:
    assert read(batch_of([])) == []
