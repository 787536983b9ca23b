"""Memory that a long file lies in: addresses for all that it may become, and pages only where something was written.

So a file that grows stays where it is: nothing is copied, and views go on looking at it. The pages are anonymous ones
of this process. They need no file descriptor, go back to the system as soon as nobody looks at them, and a fork shares
them until one of both writes.
Where addresses are not free (a limit on them, a system that keeps memory for all of them, 32 bits) a file gets twice as
many as it needs. Where there are no such pages at all, memory_storage.py has buffers of its own.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mmap import mmap
    from typing import Final

    Buffer = bytearray | mmap

ROOM_BYTES: Final = 1 << 30  # addresses for a file: a segment of the usual size
OVERCOMMIT: Final = "/proc/sys/vm/overcommit_memory"  # of Linux: 2 if addresses count as memory
AHEAD_SHARE: Final = 16  # of a file, and at most so much, are the pages behind its end that are there already:
AHEAD_BYTES_MAX: Final = 1 << 20
# Of Linux; Python 3.11 has no name for it. Without it, addresses for more than the machine's memory, which lie side by
# side, are refused to whoever forks the process.
NORESERVE: Final = 0x4000 if sys.platform == "linux" else 0
MADV_POPULATE_WRITE: Final = 23  # of Linux since 5.14; Python has no name for it

_room_bytes = 0  # for each file at least; 0: nobody has asked yet


def reserve(size_bytes: int) -> mmap | None:
    """Return zeros for a file that becomes so long, and may become longer; None if there are none to be had."""
    import mmap

    if not hasattr(mmap, "MAP_PRIVATE"):
        return None
    try:
        return mmap.mmap(-1, _room_for(size_bytes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE)
    except OSError:
        return None


def lengthen(pages: mmap, size_bytes: int) -> bool:
    """Have room for a file that becomes so long; False if it must move, as there is a view of it."""
    return size_bytes <= len(pages) or _resize(pages, _room_for(size_bytes))


def touch(pages: mmap, start: int, end: int) -> int:
    """Have the pages there at once in which this will be written, and some behind; return where they end.

    One call for many takes a third less than the fault that each of them would be.
    """
    import mmap
    from contextlib import suppress

    start -= start % mmap.PAGESIZE
    end = min(end + min(end // AHEAD_SHARE, AHEAD_BYTES_MAX), len(pages))
    with suppress(OSError):  # a system that cannot do it; then writing does
        pages.madvise(MADV_POPULATE_WRITE, start, end - start)
    return end


def cut(pages: mmap, size_bytes: int) -> bool:
    """Give back what is behind the end of a file, and have zeros there; False if there is a view of it."""
    import mmap

    end = min(-(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE, len(pages))
    if not _resize(pages, end):
        return False
    pages[size_bytes:end] = bytes(end - size_bytes)
    return True


def addresses_are_free() -> bool:
    """Tell whether this machine lets a process have more addresses than it will ever use."""
    import resource  # where there are maps of no file, as `reserve` has asked before

    try:
        with open(OVERCOMMIT) as setting:
            is_free = setting.read().strip() != "2"
    except OSError:
        is_free = True  # not Linux
    limits = (resource.RLIMIT_AS, resource.RLIMIT_DATA)  # both count maps that nobody has touched
    return is_free and sys.maxsize > 1 << 40 and all(resource.getrlimit(each)[0] < 0 for each in limits)


def _room_for(size_bytes: int) -> int:
    global _room_bytes
    if not _room_bytes:
        _room_bytes = ROOM_BYTES if addresses_are_free() else 1
    return max(2 * size_bytes, _room_bytes)


def _resize(pages: mmap, size_bytes: int) -> bool:
    try:
        pages.resize(size_bytes)
    except (BufferError, OSError, SystemError, AttributeError):  # a view; no memory; macOS and others cannot do it
        return False
    return True
