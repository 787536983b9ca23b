"""Keys: how many different ones there are, and which have the most records.

Up to EXACT_MAX different keys each one is counted. Beyond it the number of keys is estimated as by Spark's
approx_count_distinct, by HyperLogLog (2**14 registers, 0.8 % standard error); the most frequent keys are kept, and of
each it is known how many records of it may have been missed.
What must hold: as long as `is_exact`, all figures are; merged counts are those of all keys together.
Not here: which partition a key belongs to.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minibroker.spark.columns.varints import WORD_BYTES, BufferView
from minibroker.spark.jobs.profile_sizes import offsets_of, sizes_of

EXACT_MAX = 100_000
KEPT = 1000  # of the most frequent keys, once there are more than EXACT_MAX
KEY_BYTES_MAX = 256  # longer keys are held by their beginning and a digest
SHOWN_BYTES = 48
REGISTER_BITS = 14


class Keys:
    """The keys of a topic or a partition."""

    __slots__ = ("count", "counts", "exact_max", "missed", "nulls", "registers")

    def __init__(self, exact_max: int = EXACT_MAX):
        self.exact_max = exact_max
        self.nulls = 0
        self.count = 0  # of records that have a key
        self.counts: dict[bytes, int] = {}  # of all keys, or of the most frequent
        self.missed = 0  # so many records of a key may not be in `counts`
        self.registers: NDArray[np.uint8] | None = None  # as soon as it is an estimate

    @property
    def is_exact(self) -> bool:
        return self.registers is None

    def add(self, keys: pa.BinaryArray) -> None:
        self.nulls += keys.null_count
        present = keys.drop_null() if keys.null_count else keys
        if not len(present):
            return
        self.count += len(present)
        counted = _shortened(present).value_counts()
        values, counts = counted.field("values"), counted.field("counts")
        if self.is_exact:
            if len(values) <= self.exact_max:
                self._take(values, counts)
                if len(self.counts) > self.exact_max:
                    self._estimate()
                return
            self._estimate()
        assert self.registers is not None
        _register(self.registers, values)
        if len(values) > KEPT:
            order = np.argsort(-counts.to_numpy(), kind="stable")
            self.missed += counts[int(order[KEPT])].as_py()
            values, counts = values.take(pa.array(order[:KEPT])), counts.take(pa.array(order[:KEPT]))
        self._take(values, counts)
        self._prune(4 * KEPT)

    def merge(self, other: Keys) -> None:
        self.nulls += other.nulls
        self.count += other.count
        if self.is_exact and not other.is_exact:
            self._estimate()
        for key, count in other.counts.items():
            self.counts[key] = self.counts.get(key, 0) + count
        if self.registers is None:
            if len(self.counts) > self.exact_max:
                self._estimate()
            return
        if other.registers is not None:
            self.registers = np.maximum(self.registers, other.registers)
        else:
            _register(self.registers, pa.array(list(other.counts), pa.binary()))
        self.missed += other.missed
        self._prune(KEPT)

    def _take(self, values: Any, counts: Any) -> None:
        known = self.counts
        for key, count in zip(values.to_pylist(), counts.to_pylist()):
            known[key] = known.get(key, 0) + count

    def _estimate(self) -> None:
        self.registers = np.zeros(1 << REGISTER_BITS, np.uint8)
        _register(self.registers, pa.array(list(self.counts), pa.binary()))
        self._prune(KEPT)

    def _prune(self, most: int) -> None:
        """Keep the most frequent keys, if there are more than that."""
        if len(self.counts) > most:
            found = sorted(self.counts.items(), key=_by_count)
            self.missed += found[KEPT][1]
            self.counts = dict(found[:KEPT])

    @property
    def distinct(self) -> int:
        """How many different keys there are; if not `is_exact`, about."""
        return len(self.counts) if self.registers is None else max(_estimated(self.registers), len(self.counts))

    def top(self, most: int) -> list[tuple[bytes, int]]:
        """Return the most frequent keys and how many records each has; if not `is_exact`, at least."""
        return sorted(self.counts.items(), key=_by_count)[:most]


def _by_count(item: tuple[bytes, int]) -> tuple[int, bytes]:
    return -item[1], item[0]


def shown(key: bytes) -> str:
    """Return a key as people can read it: text if it is, else hexadecimal digits."""
    more = "…" if len(key) > SHOWN_BYTES else ""
    try:
        text = key[:KEY_BYTES_MAX].decode()
    except UnicodeDecodeError:
        return f"0x{key[: SHOWN_BYTES // 2].hex()}{'…' if len(key) > SHOWN_BYTES // 2 else ''}"
    if not text.isprintable():
        return f"0x{key[: SHOWN_BYTES // 2].hex()}{'…' if len(key) > SHOWN_BYTES // 2 else ''}"
    return text[:SHOWN_BYTES] + more


def _shortened(keys: pa.BinaryArray) -> pa.BinaryArray:
    if sizes_of(keys).max() <= KEY_BYTES_MAX:
        return keys
    return pa.array(
        [key if len(key) <= KEY_BYTES_MAX else key[:SHOWN_BYTES] + _digest(key) for key in keys.to_pylist()],
        pa.binary(),
    )


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()


# HyperLogLog


def _register(registers: NDArray[np.uint8], values: pa.BinaryArray) -> None:
    if not len(values):
        return
    hashed = hashes(values)
    rest_bits = 64 - REGISTER_BITS
    rest = hashed & np.uint64((1 << rest_bits) - 1)
    lengths = np.frexp(rest.astype(np.float64))[1]  # exact: there are no more than 53 bits
    np.maximum.at(registers, (hashed >> np.uint64(rest_bits)).astype(np.int64), (rest_bits + 1 - lengths).astype("u1"))


def _estimated(registers: NDArray[np.uint8]) -> int:
    """Return about how many values were registered: the estimator of Ertl (2017), which needs no tables of biases."""
    count, most = len(registers), 64 - REGISTER_BITS
    of_rank = np.bincount(registers, minlength=most + 2) / count
    total = _tau(1 - float(of_rank[most + 1]))
    for rank in range(most, 0, -1):
        total = (total + float(of_rank[rank])) / 2
    total += _sigma(float(of_rank[0]))
    return round(count / (2 * np.log(2) * total)) if np.isfinite(total) else 0


def _sigma(share: float) -> float:
    """Return the part of registers that are empty."""
    if share == 1:
        return np.inf
    total, weight, before = share, 1.0, -1.0
    while total != before:
        share, before = share * share, total
        total, weight = total + share * weight, weight * 2
    return total


def _tau(share: float) -> float:
    """Return the part of registers that are full."""
    if share in (0, 1):
        return 0.0
    total, weight, before = 1 - share, 1.0, -1.0
    while total != before:
        share, before, weight = share**0.5, total, weight / 2
        total -= (1 - share) ** 2 * weight
    return total / 3


def hashes(values: pa.BinaryArray) -> NDArray[np.uint64]:
    """Return 64 bits for each value, eight bytes of all at a time; there must be no null among them."""
    data, offsets = values.buffers()[2], offsets_of(values)
    places, left = offsets[:-1], np.diff(offsets)
    found = _mixed(left.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15))
    buffer = BufferView(memoryview(data) if data is not None else b"")
    which = np.flatnonzero(left)
    while which.size:
        words = buffer.words_at(places[which]).view(np.uint64)
        missing = np.clip(WORD_BYTES - left[which], 0, WORD_BYTES - 1).astype(np.uint64) * np.uint64(8)
        found[which] = _mixed(found[which] * np.uint64(31) + (words & (np.uint64(0xFFFFFFFFFFFFFFFF) >> missing)))
        places, left = places + WORD_BYTES, left - WORD_BYTES
        which = which[left[which] > 0]
    return found


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return numbers of which each bit depends on all bits: the end of SplitMix64."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(numbers ^ (numbers >> np.uint64(31)), np.uint64)
