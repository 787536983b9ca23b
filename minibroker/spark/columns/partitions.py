"""Partitions of many keys at once: murmur2 as Kafka's clients have it.

What must hold: a key goes where client/partitioner.py and Kafka's Java client put it.
Not here: records without a key, which whoever writes them spreads as they like.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minibroker.spark.columns.building import Part, offsets_of
from minibroker.spark.columns.varints import BufferView, Int64s

UInt32s = NDArray[np.uint32]


NO_PARTITION = -1
SEED = 0x9747B28C
MULTIPLIER = np.uint32(0x5BD1E995)
WORD_BYTES = 4
CHUNK_KEYS = 8192  # hashed at once: enough for numpy, and what is made stays in the processor's cache


def partitions_of(keys: pa.Array, count: int) -> NDArray[np.int32]:
    """Return the partition of each key among `count`, NO_PARTITION for a null."""
    if count < 1:
        raise ValueError(f"{count} partitions cannot hold anything")
    found = (hashes_of(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
    partitions = found.astype(np.int32)
    if keys.null_count:
        partitions[np.asarray(keys.is_null().to_numpy(zero_copy_only=False), np.bool_)] = NO_PARTITION
    return partitions


def hashes_of(keys: pa.Array) -> UInt32s:
    """Return the murmur2 hash of each key; of a null it is that of an empty one."""
    part = Part(keys)
    hashes = np.empty(len(keys), np.uint32)
    if not len(keys):
        return hashes
    begins = offsets_of(part.array)[:-1].astype(np.int64)
    data = part.array.buffers()[2]
    buffer = BufferView(memoryview(data).cast("B") if data is not None else b"")
    for first in range(0, len(keys), CHUNK_KEYS):
        which = slice(first, first + CHUNK_KEYS)
        hashes[which] = _hashed(buffer, begins[which], part.sizes[which])
    return hashes


def _hashed(buffer: BufferView, begins: Int64s, sizes: Int64s) -> UInt32s:
    """Take the keys together, word by word."""
    hashes = sizes.astype(np.uint32) ^ np.uint32(SEED)
    whole = sizes // WORD_BYTES
    least, most = int(whole.min()), int(whole.max())
    for index in range(least):
        hashes = _mixed(hashes, buffer.words_at(begins + index * WORD_BYTES).astype(np.uint32))
    if most > least:
        # The longest first, so that those that go on are always in front.
        order = np.argsort(-whole, kind="stable")
        left = np.searchsorted(-whole[order], -np.arange(least, most), "left")
        for index, reached in zip(range(least, most), left.tolist()):
            which = order[:reached]
            words = buffer.words_at(begins[which] + index * WORD_BYTES).astype(np.uint32)
            hashes[which] = _mixed(hashes[which], words)
    return _finished(hashes, buffer, begins + whole * WORD_BYTES, sizes - whole * WORD_BYTES)


def _mixed(hashes: UInt32s, words: UInt32s) -> UInt32s:
    words = words * MULTIPLIER
    words ^= words >> np.uint32(24)
    words *= MULTIPLIER
    return np.asarray(hashes * MULTIPLIER ^ words)


def _finished(hashes: UInt32s, buffer: BufferView, begins: Int64s, sizes: Int64s) -> UInt32s:
    """Take up to three bytes that are left, and mix for the last time."""
    if sizes.any():
        rest = buffer.words_at(begins) & ((np.int64(1) << (sizes << 3)) - 1)
        with_rest = (hashes ^ rest.astype(np.uint32)) * MULTIPLIER
        hashes = np.where(sizes > 0, with_rest, hashes)
    hashes = (hashes ^ hashes >> np.uint32(13)) * MULTIPLIER
    return np.asarray(hashes ^ hashes >> np.uint32(15))
