"""Java's hash codes, and what follows from them: the partition of a key, and the order of hash tables.

Who leads the partition of a state topic on which a key falls coordinates it. And Kafka decides by going through hash
maps, so what it decides may depend on their order; it follows from the hash codes alone, and taking it over gives the
same here as there.

Not here: which table Kafka uses where (groups/assignors.py, target.py), chance: two runs of Kafka agree as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, TypeVar

Key = TypeVar("Key", str, bytes, int)

FEWEST_SLOTS: Final = 16  # of java.util.HashMap
FIBONACCI: Final = -7046029254386353131  # by which Kafka's own hash tables multiply


def java_hash(key: str | bytes | int) -> int:
    """Return hashCode() of a String, a Uuid (16 bytes) or an Integer, as a number without sign."""
    if isinstance(key, int):
        return key & 0xFFFFFFFF
    if isinstance(key, bytes):
        mixed = int.from_bytes(key[:8], "big") ^ int.from_bytes(key[8:], "big")
        return (mixed >> 32 ^ mixed) & 0xFFFFFFFF
    code = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2]):
        code = code * 31 + (high << 8 | low) & 0xFFFFFFFF
    return code


@lru_cache(10_000)  # asked with each request that needs a coordinator
def partition_of(key: str, partition_count: int) -> int:
    """Return the partition of a state topic that a key belongs to."""
    code = signed(java_hash(key))
    return (0 if code == -(1 << 31) else abs(code)) % partition_count


def as_filled(keys: Iterable[Key]) -> list[Key]:
    """Return keys as a HashMap has them that was empty and took them one by one."""
    listed = list(keys)
    slots = FEWEST_SLOTS
    while len(listed) > slots * 3 // 4:
        slots *= 2
    return _in_slots(listed, slots)


def as_copied(keys: Iterable[Key], expected: int | None = None) -> list[Key]:
    """Return keys as a HashSet has them that was made from a collection that said it had so many (if None: has)."""
    listed = list(keys)
    count = len(listed) if expected is None else expected
    slots = FEWEST_SLOTS
    while slots < int(count / 0.75) + 1:
        slots *= 2
    return _in_slots(listed, slots)


def as_sized(keys: list[Key], added: list[Key]) -> list[Key]:
    """Return keys as a HashMap has them that was made for their count, which is a little too small for it.

    added: keys that came by computeIfAbsent, which puts them first into their slot and makes room one key too late.
    """
    slots = 1
    while len(keys) > slots * 3 // 4 or len(keys) + len(added) - 1 > slots * 3 // 4:
        slots *= 2
    return _in_slots(added[::-1] + keys, slots)


def as_timeline(keys: Iterable[Key], most: int = 0) -> list[Key]:
    """Return keys as Kafka's TimelineHashMap has them; it stays as large as it was with the most it has had.

    It grows before it looks whether a key is new, so it has room for one more than it holds. Of the keys in one slot
    the last comes first.
    """
    listed = list(keys)
    bits = 1
    while (max(len(listed), most) + 1) * 0.75 > 1 << bits:
        bits += 1
    listed.reverse()
    return sorted(listed, key=lambda key: (signed(java_hash(key)) * FIBONACCI & (1 << 64) - 1) >> 64 - bits)


def _in_slots(keys: list[Key], slots: int) -> list[Key]:
    """Sort by slot; within one the order of arrival stays, also when the table grows."""

    def slot(key: Key) -> int:
        code = java_hash(key)
        return (code ^ code >> 16) & slots - 1

    return sorted(keys, key=slot)


def signed(code: int) -> int:
    return code - (1 << 32) if code >= 1 << 31 else code
