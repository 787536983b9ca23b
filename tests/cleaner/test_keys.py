"""The fast way to the keys of a batch reads what the usual one does."""

from __future__ import annotations

from contextlib import suppress

import pytest

from minibroker.cleaner.keys import (
    CHUNK_RECORDS,
    NO_KEY,
    Chunk,
    Unusual,
    chunks,
    map_key,
    read_dense_keys,
    stored_records,
)
from minibroker.log.batches import Batch, batches
from minibroker.log.build import build_batch
from minibroker.log.records import Record

# About where a number takes a byte more, and where one of its bytes says nothing but that more follow.
TURNS = sorted({max((1 << bits) + step, 0) for bits in (0, 6, 7, 13, 14, 20, 21, 27) for step in (-2, -1, 0, 1)})


def batch_of(records: list[Record], base_offset: int = 0) -> Batch:
    return next(batches(build_batch(2, records, base_offset=base_offset)))


def read(batch: Batch) -> list[Chunk]:
    return list(chunks(batch, stored_records(batch)))


def read_dense(batch: Batch) -> tuple[list[bytes | int], list[int]]:
    """Return all keys and the places of tombstones, read the fastest way."""
    keys: list[bytes | int] = []
    tombstones: list[int] = []
    position = 0
    for first in range(0, batch.count, CHUNK_RECORDS):
        count = min(CHUNK_RECORDS, batch.count - first)
        some, position = read_dense_keys(stored_records(batch), position, first, count, tombstones)
        keys += some
    assert position == batch.size_bytes - 61
    return keys, tombstones


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
    with suppress(Unusual):
        assert read_dense(batch) == (keys, tombstones)


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


def test_a_dense_batch_is_read_the_fastest_way() -> None:
    times = (0, 63, 64, 8191, 8192, 1 << 40, -1, -65)
    records = [
        Record(b"k" * (number % 64), None if number % 7 == 3 else b"v" * (number % 300), (), 1000 + times[number % 8])
        for number in range(1 << 13)
    ]
    batch = batch_of(records, 1 << 33)
    keys, tombstones = read_dense(batch)
    assert keys == [map_key(record.key or b"") for record in records]
    assert tombstones == list(range(3, 1 << 13, 7))


ALMOST_DENSE = {
    "a gap": [Record(b"a", b"1", (), 0, 0), Record(b"b", b"2", (), 0, 2)],
    "a gap where offsets take two bytes": [Record(b"a", b"1", (), 0, number + (number > 99)) for number in range(120)],
    "no key": [Record(b"a", b"1"), Record(None, b"2")],
    "a long key": [Record(b"a" * 64, b"1")],
    "a long record": [Record(b"a", b"1" * (1 << 13))],
    "many": [Record(b"a", b"1")] * ((1 << 13) + 1),
}


@pytest.mark.parametrize("records", ALMOST_DENSE.values(), ids=ALMOST_DENSE)
def test_others_are_not(records: list[Record]) -> None:
    batch = batch_of(records)
    with pytest.raises(Unusual):
        read_dense(batch)
    assert len([key for chunk in read(batch) for key in chunk.keys]) == len(records)


def test_an_empty_batch_has_no_chunks() -> None:
    assert read(batch_of([])) == []
