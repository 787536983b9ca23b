"""Partitioner: the partition of a record, the same as with Kafka's Java client.

With a key: murmur2 of the key, its sign bit dropped, modulo the number of partitions. Without: partitions in turn, one
batch each, so that batches are filled (KIP-480); Java chooses at random, here nothing is left to chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash that Kafka's clients agree on, unsigned; Java shows it with a sign."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    result = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        result = (result * multiplier & mask) ^ word
    if len(data) > whole:
        result = (result ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    result = (result ^ result >> 13) * multiplier & mask
    return result ^ result >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Return what Java's default partitioner does for a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class Sticky:
    """Partitions for records of one topic that have no key: stays with one while its batch is filling."""

    def __init__(self) -> None:
        self._place = -1

    def choose(self, partitions: Sequence[int], is_filling: Callable[[int], bool]) -> int:
        """Return one of the partitions, which are those of the topic at this moment."""
        if not 0 <= self._place < len(partitions) or not is_filling(partitions[self._place]):
            self._place = (self._place + 1) % len(partitions)
        return partitions[self._place]
