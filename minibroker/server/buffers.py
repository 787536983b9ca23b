"""Buffers of unfinished frames, some of them kept for the next.

Up to MAP_BYTES_MIN a buffer is bytes; a longer one is a map of no file, whose pages are there only where something has
been written. So it can be as long as what was announced and take as much memory as has come, and nothing has to be
copied as it fills.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mmap import mmap

    Buffer = bytearray | mmap

SPARE_MAX = 8
MAP_BYTES_MIN = 2 * 1024 * 1024
SPARE_MAP_BYTES_MAX = 10 * 1024 * 1024


class Buffers:
    """Those of one listener."""

    def __init__(self) -> None:
        self._spare: list[bytearray] = []
        self._spare_map: mmap | None = None

    def take(self, size_bytes: int) -> tuple[Buffer, int]:
        """Return a buffer and how much memory it has already; OSError or MemoryError if there is none."""
        if size_bytes > MAP_BYTES_MIN:
            spare_map = self._spare_map
            if spare_map is None or len(spare_map) < size_bytes:
                return _mapped(size_bytes), 0
            self._spare_map = None
            return spare_map, len(spare_map)
        for number, spare in enumerate(self._spare):
            if len(spare) >= size_bytes:
                return self._spare.pop(number), len(spare)
        return bytearray(size_bytes), size_bytes

    def give(self, buffer: Buffer, held_bytes: int) -> None:
        """Take back a buffer that has so much memory."""
        if isinstance(buffer, bytearray):
            if len(self._spare) < SPARE_MAX:
                self._spare.append(buffer)
        elif len(buffer) <= SPARE_MAP_BYTES_MAX and held_bytes > len(buffer) // 2:
            self._spare_map = buffer


def _mapped(size_bytes: int) -> mmap:
    import mmap
    from contextlib import suppress

    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size_bytes)
    buffer = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with suppress(OSError):  # a kernel without such pages refuses, and has none to keep away
            buffer.madvise(mmap.MADV_NOHUGEPAGE)  # a page of 2 MiB for a few bytes would be more than is counted
    return buffer
