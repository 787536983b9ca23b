"""Rows on their way from Spark to batches: in pieces, by topics, and to the same partitions however they come."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from minibroker.log.murmur2 import partition_of_key
from minibroker.spark.sink.rows import Rows, Spread, pieces

NOW_MS = 1_700_000_000_000


def batches(sizes: list[int], *, start: int = 0) -> list[pa.RecordBatch]:
    """Return record batches of so many rows of about 100 bytes, numbered, of which some have keys."""
    found = []
    for size in sizes:
        numbers = range(start, start + size)
        keys = [b"k%d" % (n % 50) if n % 3 else None for n in numbers]
        found.append(pa.record_batch({"key": pa.array(keys, pa.binary()), "value": [b"%080d" % n for n in numbers]}))
        start += size
    return found


def numbers_of(rows: Rows) -> list[int]:
    return [int(value) for value in rows.values.to_pylist()]


@pytest.mark.parametrize("sizes", [[1000], [1] * 200 + [800], [300, 700], [999, 1]], ids=str)
def test_pieces_have_about_the_size_that_is_wanted_whatever_the_batches(sizes: list[int]) -> None:
    found = [rows for (rows,) in pieces(batches(sizes), "orders", NOW_MS, size_bytes=10_000)]
    assert [number for rows in found for number in numbers_of(rows)] == list(range(1000))
    assert all(80 <= len(rows) <= 220 for rows in found[:-1])
    assert len(found[-1]) <= 220


def test_rows_of_topics_keep_their_order() -> None:
    (batch,) = batches([90])
    topics = pa.array(["abc"[n * 7 % 3] for n in range(90)])
    (piece,) = pieces([batch.append_column("topic", topics)], None, NOW_MS, size_bytes=1 << 20)
    assert {rows.topic: numbers_of(rows) for rows in piece} == {
        name: [n for n in range(90) if "abc"[n * 7 % 3] == name] for name in "abc"
    }


def test_rows_go_to_the_same_partitions_however_they_are_cut() -> None:
    def placed(sizes: list[int]) -> dict[int, list[int]]:
        spread = Spread(7, 2000)
        found: dict[int, list[int]] = {number: [] for number in range(7)}
        for (rows,) in pieces(batches(sizes), "orders", NOW_MS, size_bytes=3000):
            partitions, counts = spread.place(rows)
            numbers = numbers_of(rows)
            ordered = numbers if rows.order is None else [numbers[index] for index in rows.order.tolist()]
            for partition, count in zip(partitions, counts, strict=True):
                found[partition] += ordered[:count]
                del ordered[:count]
        return found

    chance = Random(3)
    whole = placed([1000])
    for partition, numbers in whole.items():
        assert numbers == sorted(numbers)
        assert all(partition_of_key(b"k%d" % (n % 50), 7) == partition for n in numbers if n % 3)
    for _ in range(5):
        sizes: list[int] = []
        while sum(sizes) < 1000:
            sizes.append(min(chance.randrange(1, 200), 1000 - sum(sizes)))
        assert placed(sizes) == whole
