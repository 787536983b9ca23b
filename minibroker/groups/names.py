"""What everybody needs to know of groups: where they are kept."""

from functools import lru_cache

OFFSETS_TOPIC = "__consumer_offsets"


def java_hash(text: str) -> int:
    """Return String.hashCode of Java: of UTF-16 units, as a signed number of 32 bits."""
    data = text.encode("utf-16-be", "surrogatepass")
    found = 0
    for high, low in zip(data[::2], data[1::2], strict=True):
        found = (31 * found + (high << 8 | low)) & 0xFFFFFFFF
    return found - (1 << 32) if found >> 31 else found


@lru_cache(10_000)  # asked with each request of a group
def partition_of(group_id: str, partition_count: int) -> int:
    """Return the partition of the topic that a group belongs to."""
    found = java_hash(group_id)
    return (0 if found == -(1 << 31) else abs(found)) % partition_count
