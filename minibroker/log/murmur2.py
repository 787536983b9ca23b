"""The hash by which Kafka's clients choose a partition for a key: murmur2 but for its sign bit, modulo their number."""

from __future__ import annotations


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
