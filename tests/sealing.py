"""Batches of v2 that were changed on purpose, with a checksum that is right all the same."""

from __future__ import annotations

from minibroker.log.batches import crc32c

CRC_AT, COVERED_AT = 17, 21  # the checksum, and what it is of


def seal(changed: bytearray, at: int = 0, end: int | None = None) -> None:
    """Make the checksum of a changed batch right."""
    crc = crc32c(memoryview(changed)[at + COVERED_AT : end])
    changed[at + CRC_AT : at + COVERED_AT] = crc.to_bytes(4, "big")
