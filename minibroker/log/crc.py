"""Checksums of record batches: CRC-32C over v2 batches, CRC-32 over v0 and v1 messages.

Both take any contiguous buffer (bytes, bytearray, memoryview, also one over a mapped file) and return an unsigned
32-bit number. CRC-32C (Castagnoli) comes from google_crc32c, which uses the processor's instruction for it and is
imported at the first call.
Not here: which bytes of a batch are covered (records.py).
"""

from __future__ import annotations

from zlib import crc32 as crc32  # v0 and v1; takes every buffer as it is

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PIECE_BYTES = 64 * 1024  # stays in the processor's cache between copying and summing up

_extend: Callable[[int, bytes], int] | None = None


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32C of a buffer.

    The C function takes nothing but `bytes`. Anything else is copied in pieces, so memory stays small however large
    the batch. Measured: 0.1 µs more for 100 bytes, 70 against 60 µs for 1 MiB. The package `crc32c` needs no copy, but
    40 ms for its import, as much as copying 4 GiB.
    """
    extend = _extend or _load()
    if type(data) is bytes:
        return extend(0, data)
    if len(data) <= PIECE_BYTES:
        return extend(0, bytes(data))
    checksum = 0
    view = memoryview(data)
    for start in range(0, len(view), PIECE_BYTES):
        checksum = extend(checksum, bytes(view[start : start + PIECE_BYTES]))
    return checksum


def _load() -> Callable[[int, bytes], int]:
    """Import the package; without its C part it warns and goes on in Python, a thousand times slower."""
    global _extend
    import google_crc32c

    extend: Callable[[int, bytes], int] = google_crc32c.extend
    _extend = extend
    return extend
