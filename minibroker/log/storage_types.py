"""What the log wants of a disk: types only, nothing runs here. storage.py has the real one.

What must hold of every storage: what was synced survives a crash, what was not may be lost or torn; a name that was
created, renamed or removed is certain only once its directory is synced. `append` is one gathered write; one that fails
may have got a part through, and `size_bytes` says how far. A file is written through one File at a time.
Failures of the disk come out as StorageError and nothing else; after one of `sync` the file is not to be trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

Chunk: TypeAlias = bytes | bytearray | memoryview
Trouble: TypeAlias = Callable[[str, str], object]  # told what is about to be done to which file; an OSError refuses it


class File(Protocol):
    """One open file. Reads and writes do not move a cursor: there is none."""

    @property
    def size_bytes(self) -> int:
        """How long the file is."""
        ...

    def append(self, chunks: Sequence[Chunk]) -> None:
        """Write the chunks at the end, in order, as one."""
        ...

    def write_at(self, position: int, data: Chunk) -> None:
        """Overwrite; the file grows if it must."""
        ...

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Return that many bytes, fewer only at the end of the file."""
        ...

    def view(self, position: int, size_bytes: int) -> memoryview:
        """Return that many bytes, fewer only at the end of the file; a copy, unless the file is in memory."""
        ...

    def map(self) -> memoryview:
        """Return the whole file as it is now without copying; later writes below its end show in it."""
        ...

    def truncate(self, size_bytes: int) -> None:
        """Cut the file, or let it grow with zeros. Views that were handed out stay as they were."""
        ...

    def sync(self) -> None:
        """Return when all that was written is on the disk."""
        ...

    def close(self) -> None: ...


class Storage(Protocol):
    """A tree of files."""

    is_durable: bool  # whether what is synced is there after the process has ended
    is_slow: bool  # whether a sync takes so long that others should not wait for it
    trouble: Trouble | None  # asked before each write to a file

    def lock(self) -> None:
        """Keep others off, as Kafka does with .lock; raise StorageError if somebody is there."""
        ...

    def unlock(self) -> None: ...

    def disk_space(self) -> tuple[int, int]:
        """Return size and free bytes of the disk; -1 if there is none."""
        ...

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file; without `create` it must be there."""
        ...

    def list(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; an absent directory is empty."""
        ...

    def exists(self, path: str) -> bool: ...

    def size_bytes(self, path: str) -> int:
        """Return how long a file is; an absent one is 0."""
        ...

    def modified_ms(self, path: str) -> int:
        """Return when the file was last written."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Say when the file was last written; the next write says otherwise."""
        ...

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it; one that is there is fine."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name in its directory; a file or empty directory of that name goes."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file or an empty directory; an absent one is fine."""
        ...

    def sync_directory(self, path: str) -> None:
        """Return when the names in a directory are on the disk."""
        ...
