"""Records that are made up by a rule, a block of them at once.

    generated(spark, parse_spec("records=1000000,keys=10000,skew=1.1,seed=7"))

What must hold: record number n is a function of the seed and n alone, so it is the same on one core and on a hundred,
and on every version of numpy: chance is a hash of (seed, what it is for, n), and not a stream that somebody draws from.
Everything is done for a block of records at once; memory is bounded by a block.
Not here: what can be said (loading_rules.py), where the records go (loading.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minibroker.spark.arrow_map import map_in_arrow
from minibroker.spark.jobs.loading_rules import Spec

Numbers = NDArray[np.uint64]


BLOCK = 16_384  # records that are made at once
PIECE_BYTES = 16 << 20  # about; fewer at once if they are large
VALUE_BYTES_MAX = 1 << 20
KEY_DIGITS = 10
PREFIX = b'{"id":              ,"user":            ,"amount":          ,"text":"'
ID, USER, AMOUNT = (slice(6, 20), slice(28, 40), slice(50, 60))  # where numbers go, to the right; blanks are fine there
SUFFIX = b'"}'
TEXT_BYTES = 1 << 16
WORDS = (
    b"order broker leader follower record batch offset commit the a of to and segment topic key value with replica "
    b"north blue seven river quick amber late paid sent lost new old is was on in at for by index log clean start"
).split()
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
DDL = "key BINARY, value BINARY, timestamp TIMESTAMP, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


# Chance


def bits(seed: int, purpose: int, numbers: Numbers) -> Numbers:
    """Return 64 bits of chance for each number: splitmix64 over it, other ones for each seed and purpose."""
    with np.errstate(over="ignore"):
        start = _mixed(np.asarray([seed], np.uint64) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(purpose + 1))
        return _mixed(start + np.uint64(0x9E3779B97F4A7C15) * (numbers + np.uint64(1)))


def _mixed(value: Numbers) -> Numbers:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _fractions(found: Numbers) -> NDArray[np.float64]:
    """Return numbers from 0 to below 1."""
    return (found >> np.uint64(11)).astype(np.float64) * 2.0**-53


KEYS, SIZES, MORE_SIZES, PLACES, LATE, LATE_BY, NO_VALUE, AMOUNTS, HEADER_VALUES, NOISE = range(10)  # purposes


# Records


def records(spec: Spec, first: int, count: int) -> pa.RecordBatch:
    """Return records by their numbers."""
    numbers = np.arange(first, first + count, dtype=np.uint64)

    def chance(purpose: int) -> NDArray[np.float64]:
        return _fractions(bits(spec.seed, purpose, numbers))

    ranks = _ranks(spec, chance(KEYS))
    keys = pa.nulls(count, pa.binary()) if not spec.keys else _binary(_decimal(ranks, KEY_DIGITS), KEY_DIGITS)
    values = _values(spec, numbers, ranks, _sizes(spec, chance), chance)
    if spec.tombstones:
        is_there = np.packbits(chance(NO_VALUE) >= spec.tombstones, bitorder="little")
        _, ends, data = values.buffers()
        values = pa.Array.from_buffers(pa.binary(), count, [pa.py_buffer(is_there), ends, data])
    times = spec.start + np.floor(numbers.astype(np.float64) * (1000.0 / spec.rate)).astype(np.int64)
    share, late_ms = spec.late
    if share:
        behind = np.floor(chance(LATE_BY) * late_ms).astype(np.int64) + 1
        times = times - np.where(chance(LATE) < share, behind, 0)
    stamps = pa.array(times * 1000).cast(SCHEMA.field("timestamp").type)
    return pa.RecordBatch.from_arrays([keys, values, stamps, _headers(spec, numbers)], schema=SCHEMA)


def _ranks(spec: Spec, chance: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return which key each record has, 0 the most frequent: the inverse of the integral of x ** -skew."""
    most = max(spec.keys, 1) + 1.0
    if abs(spec.skew - 1) < 1e-9:
        found = most**chance
    else:
        power = 1 - spec.skew
        found = ((most**power - 1) * chance + 1) ** (1 / power)
    return np.minimum(found.astype(np.int64), max(spec.keys, 1)) - 1


def _sizes(spec: Spec, chance: Callable[[int], NDArray[np.float64]]) -> NDArray[np.int64]:
    kind, first, second = spec.size
    if kind == "uniform":
        found = first + np.floor(chance(SIZES) * (second - first + 1))
    elif kind == "lognormal":
        # Box and Muller: a normal number of two even ones.
        normal = np.sqrt(-2 * np.log(1 - chance(SIZES))) * np.cos(2 * np.pi * chance(MORE_SIZES))
        found = first * np.exp(second * normal)
    else:
        found = np.full(len(chance(SIZES)), first)
    least = len(PREFIX) + len(SUFFIX) if spec.values == "json" else 0
    return np.clip(found, least, VALUE_BYTES_MAX).astype(np.int64)


def _values(
    spec: Spec,
    numbers: Numbers,
    ranks: NDArray[np.int64],
    sizes: NDArray[np.int64],
    chance: Callable[[int], NDArray[np.float64]],
) -> pa.Array:
    ends = np.cumsum(sizes)
    starts = ends - sizes
    total = int(ends[-1]) if len(ends) else 0
    if spec.values == "bytes":
        # Each record's bytes begin at a number of their own, so they do not depend on those before.
        words = -(-sizes // 8)
        first_words = np.repeat(numbers << np.uint64(20), words)
        within = np.arange(int(words.sum()), dtype=np.uint64) - np.repeat((np.cumsum(words) - words), words).astype(
            np.uint64
        )
        noise = bits(spec.seed, NOISE, first_words + within).view(np.uint8)
        word_starts = (np.cumsum(words) - words) * 8
        data = noise[np.arange(total) + np.repeat(word_starts - starts, sizes)]
    else:
        text = _text(spec.seed)
        places = np.floor(chance(PLACES) * TEXT_BYTES).astype(np.int64)
        data = text[(np.arange(total) + np.repeat(places - starts, sizes)) & (TEXT_BYTES - 1)]
    if spec.values == "json":
        heads = np.tile(np.frombuffer(PREFIX, np.uint8), (len(sizes), 1))
        for place, each in ((ID, numbers.astype(np.int64)), (USER, ranks)):
            heads[:, place] = _right(each, place.stop - place.start)
        heads[:, AMOUNT] = _right((chance(AMOUNTS) * 100_000).astype(np.int64), AMOUNT.stop - AMOUNT.start)
        data[starts[:, None] + np.arange(len(PREFIX))] = heads
        data[ends[:, None] - len(SUFFIX) + np.arange(len(SUFFIX))] = np.frombuffer(SUFFIX, np.uint8)
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


@cache
def _text(seed: int) -> NDArray[np.uint8]:
    """Return words in a random order, which compress about as text does."""
    chosen = bits(seed, NOISE, np.arange(TEXT_BYTES // 2, dtype=np.uint64)) % np.uint64(len(WORDS))
    text = b" ".join([WORDS[index] for index in chosen[: TEXT_BYTES // 3].tolist()])
    return np.frombuffer(text[:TEXT_BYTES], np.uint8)


def _decimal(numbers: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
    """Return decimal digits, with zeros in front: a row for each number."""
    powers = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)
    return (numbers[:, None] // powers % 10 + 48).astype(np.uint8)


def _right(numbers: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
    """Return decimal digits with blanks in front."""
    digits = _decimal(numbers, width)
    leading = np.cumsum(digits != 48, axis=1) == 0
    leading[:, -1] = False
    digits[leading] = 32
    return digits


def _binary(rows: NDArray[np.uint8], width: int) -> pa.Array:
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * width
    data = np.ascontiguousarray(rows)
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _headers(spec: Spec, numbers: Numbers) -> pa.Array:
    count, each = len(numbers), spec.headers
    kind = SCHEMA.field("headers").type
    if not each:
        return pa.nulls(count, kind)
    names = pa.array([f"h{number}" for number in range(each)] * count, pa.string())
    which = np.repeat(numbers, each) * np.uint64(each) + np.tile(np.arange(each, dtype=np.uint64), count)
    values = (bits(spec.seed, HEADER_VALUES, which) % np.uint64(100_000_000)).astype(np.int64)
    rows = pa.StructArray.from_arrays([names, _binary(_decimal(values, 8), 8)], fields=list(kind.value_type))
    return pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32) * each), rows, type=kind)


def _large(spec: Spec) -> int:
    """Return how long values may well become."""
    kind, first, second = spec.size
    most = second if kind == "uniform" else first
    if kind == "lognormal":
        most = first * float(np.exp(2 * second))
    return int(min(most, VALUE_BYTES_MAX))


def generated(spark: Any, spec: Spec, *, tasks: int | None = None) -> Any:
    """Return a frame of the records, made where they are used, in so many tasks."""
    blocks = -(-spec.records // BLOCK)
    try:
        cores = spark.sparkContext.defaultParallelism
    except Exception:  # Spark Connect has no context here
        cores = 8
    count = tasks or max(min(cores * 4, blocks), 1)
    at_once = max(min(BLOCK, PIECE_BYTES // max(_large(spec), 1)), 1)

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for block in batch.column(0).to_pylist():
                end = min((block + 1) * BLOCK, spec.records)
                for first in range(block * BLOCK, end, at_once):
                    yield records(spec, first, min(at_once, end - first))

    return map_in_arrow(spark.range(0, blocks, 1, count), make, DDL)
