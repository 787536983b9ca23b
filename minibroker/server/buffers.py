"""Unfinished frames, and the buffers that they lie in, some of which are kept for the next.

A frame of many megabytes has the whole of its buffer when its first bytes are there. Up to MAP_BYTES_MIN a buffer is
bytes; a longer one is a map of no file, whose pages are there only where something has been written. So it can be as
long as what was announced and take as much memory as has come, and nothing has to be copied as it fills.
"""

from __future__ import annotations

from struct import Struct as Layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mmap import mmap
    from typing import Any, Protocol

    Buffer = bytearray | mmap

    class Owner(Protocol):
        """The connection whose frame it is."""

        last_active_ms: int
        is_closing: bool

        def close(self, reason: str = "") -> None: ...

    class Server(Protocol):
        """Counts what unfinished frames hold, and closes connections if that is too much."""

        buffers: Buffers

        def hold(self, more_bytes: int, connection: Any) -> None: ...


LENGTH = Layout(">i")
OWN_BYTES_MIN = 4 * 1024
FIRST_BYTES = 16 * 1024  # of a longer frame have to come before it gets its whole buffer
RECEIVE_BYTES = 1024 * 1024  # of a long frame in one turn of the loop
SPARE_MAX = 8
MAP_BYTES_MIN = 2 * 1024 * 1024
SPARE_MAP_BYTES_MAX = 10 * 1024 * 1024


class PartialFrame:
    """The unfinished frame of one connection, or frames that wait for their turn; empty most of the time."""

    __slots__ = ("_buffer", "_owner", "_server", "begun_ms", "held_bytes", "size_bytes")

    def __init__(self, server: Server, owner: Owner):
        self._server = server
        self._owner = owner
        self._buffer: Buffer = bytearray()
        self.size_bytes = 0  # what has come
        self.held_bytes = 0  # of memory, as the server counts it
        self.begun_ms = 0  # when the first byte came; 0: there is none

    def room(self) -> memoryview:
        """Return where the next bytes are received."""
        return memoryview(self._buffer)[self.size_bytes : self.size_bytes + RECEIVE_BYTES]

    def view(self) -> memoryview:
        """Return what has come."""
        return memoryview(self._buffer)[: self.size_bytes]

    def received(self, size_bytes: int) -> None:
        """Count bytes that have been received into the room; the connection may be closed for it."""
        self.size_bytes += size_bytes
        if self.size_bytes > self.held_bytes:
            self._hold(self.size_bytes)

    def keep(self, rest: memoryview) -> None:
        """Move what is left to the front of a buffer with room for the frame that it begins."""
        size_bytes = len(rest)
        if not size_bytes:
            self.drop()
            return
        wanted_bytes = OWN_BYTES_MIN
        if size_bytes >= 4:
            wanted_bytes = LENGTH.unpack_from(rest)[0] + 4
            if wanted_bytes > FIRST_BYTES > size_bytes:
                wanted_bytes = FIRST_BYTES
        wanted_bytes = max(wanted_bytes, size_bytes + 1)
        begun_ms = self.begun_ms or self._owner.last_active_ms
        if rest.obj is self._buffer and len(self._buffer) >= wanted_bytes:
            if size_bytes != self.size_bytes:
                self._buffer[:size_bytes] = bytes(rest)
        else:
            try:
                buffer, held_bytes = self._server.buffers.take(wanted_bytes)
            except (OSError, MemoryError):
                self.drop()
                self._owner.close(f"there is no memory for a request of {wanted_bytes} bytes")
                return
            buffer[:size_bytes] = rest
            self.drop()
            self._buffer = buffer
            self._hold(max(held_bytes, size_bytes))
            if self._owner.is_closing:  # to make room for it
                return
        self.size_bytes = size_bytes
        self.begun_ms = begun_ms

    def drop(self) -> None:
        if self._buffer:
            self._server.buffers.give(self._buffer, self.held_bytes)
            self._buffer = bytearray()
        if self.held_bytes:
            self._hold(0)
        self.size_bytes = self.begun_ms = 0

    def _hold(self, size_bytes: int) -> None:
        """Let the server know how much is held now; the connection may be closed for it."""
        more_bytes, self.held_bytes = size_bytes - self.held_bytes, size_bytes
        self._server.hold(more_bytes, self._owner)


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
