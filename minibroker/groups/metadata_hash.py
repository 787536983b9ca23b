"""Metadata hash of a group: one number for its topics; it changes with their ids, partitions or racks (KIP-1101).

The coordinator stores it with the group epoch; another number later means that partitions must be shared out anew.
It is Kafka's number, so a log that Kafka wrote causes no rebalance.
"""

from __future__ import annotations

from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from minibroker.groups.topics import Topics

LAYOUT = b"\0"  # version of what is hashed for a topic
NOTHING = 0  # of a group whose topics do not exist


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """Return the number, with sign; topics that do not exist do not count."""
    found = [topic for name in sorted(names, key=utf16) if (topic := topics.find(name)) is not None]
    if not found:
        return NOTHING
    hashes = [_topic_hash(topic.topic_id, topic.name, tuple(map(tuple, topic.racks))) for topic in found]
    return _signed(xxh3(b"".join(value.to_bytes(8, "little") for value in hashes)))


@lru_cache(1000)
def _topic_hash(topic_id: bytes, name: str, racks: tuple[tuple[str, ...], ...]) -> int:
    parts = [LAYOUT, topic_id[7::-1], topic_id[:7:-1], _string(name), _int32(len(racks))]
    for partition, names in enumerate(racks):
        parts.append(_int32(partition))
        for rack in sorted(names, key=utf16):
            parts += [_int32(len(utf16(rack)) // 2), _string(rack)]
    return xxh3(b"".join(parts))


def xxh3(data: bytes) -> int:
    """Return XXH3 with 64 bits and no seed, as a number without sign."""
    from xxhash import xxh3_64_intdigest

    return xxh3_64_intdigest(data)


def utf16(text: str) -> bytes:
    """Return what Java compares when it sorts strings."""
    return text.encode("utf-16-be", "surrogatepass")


def _string(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass") + _int32(len(utf16(text)) // 2)


def _int32(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
