"""The door to files: what the log wants of a disk, and the real one.

Everything that the log does to a disk goes through `Storage` and `File`, so a simulated disk that loses, tears and
fails can take its place (simulated_storage.py). Paths are relative to the storage's root and use "/".

What must hold of every storage: what was synced survives a crash, what was not may be lost or torn; a name that was
created, renamed or removed is certain only once its directory is synced. `append` is one gathered write.
Failures of the disk come out as StorageError and nothing else; after one of `sync` the file is not to be trusted.
"""

from __future__ import annotations

import os

from minibroker.errors import StorageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mmap
    from collections.abc import Sequence
    from typing import Protocol

    Chunk = bytes | bytearray | memoryview

    class File(Protocol):
        """One open file. Reads and writes do not move a cursor: there is none."""

        size_bytes: int

        def append(self, chunks: Sequence[Chunk]) -> None:
            """Write the chunks at the end, in order, as one."""
            ...

        def write_at(self, position: int, data: Chunk) -> None:
            """Overwrite; the file grows if it must."""
            ...

        def read_at(self, position: int, size_bytes: int) -> bytes:
            """Return that many bytes, fewer only at the end of the file."""
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

        def make_directory(self, path: str) -> None:
            """Make a directory and those above it; one that is there is fine."""
            ...

        def rename(self, old: str, new: str) -> None:
            """Give a file or directory another name; what had that name is replaced."""
            ...

        def remove(self, path: str) -> None:
            """Remove a file or an empty directory; an absent one is fine."""
            ...

        def sync_directory(self, path: str) -> None:
            """Return when the names in a directory are on the disk."""
            ...


PIECES_MAX = 1024  # of one gathered write: IOV_MAX of Linux and the BSDs
COPY_BYTES = 1 << 20


class OsStorage:
    """A directory of the machine."""

    def __init__(self, root: str):
        self.root = root

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | (os.O_CREAT if create else 0)
        try:
            return OsFile(path, self._real(path), os.open(self._real(path), flags, 0o644))
        except OSError as failure:
            raise StorageError.of("open", path, failure) from failure

    def list(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._real(path)))
        except FileNotFoundError:
            return []
        except OSError as failure:
            raise StorageError.of("list", path, failure) from failure

    def exists(self, path: str) -> bool:
        return os.path.exists(self._real(path))

    def size_bytes(self, path: str) -> int:
        try:
            return os.stat(self._real(path)).st_size
        except FileNotFoundError:
            return 0
        except OSError as failure:
            raise StorageError.of("stat", path, failure) from failure

    def modified_ms(self, path: str) -> int:
        try:
            return os.stat(self._real(path)).st_mtime_ns // 1_000_000
        except OSError as failure:
            raise StorageError.of("stat", path, failure) from failure

    def make_directory(self, path: str) -> None:
        try:
            os.makedirs(self._real(path), exist_ok=True)
        except OSError as failure:
            raise StorageError.of("make directory", path, failure) from failure

    def rename(self, old: str, new: str) -> None:
        try:
            os.replace(self._real(old), self._real(new))
        except OSError as failure:
            raise StorageError.of("rename", f"{old} to {new}", failure) from failure

    def remove(self, path: str) -> None:
        real = self._real(path)
        try:
            if os.path.isdir(real):
                os.rmdir(real)
            else:
                os.remove(real)
        except FileNotFoundError:
            pass
        except OSError as failure:
            raise StorageError.of("remove", path, failure) from failure

    def sync_directory(self, path: str) -> None:
        try:
            handle = os.open(self._real(path), os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as failure:
            raise StorageError.of("sync directory", path, failure) from failure

    def _real(self, path: str) -> str:
        return os.path.join(self.root, *path.split("/"))


class OsFile:
    """A file of the machine."""

    def __init__(self, path: str, real_path: str, handle: int):
        self.path = path
        self.real_path = real_path
        self.handle = handle  # what sendfile wants
        self.size_bytes = os.fstat(handle).st_size
        self._mappings: list[mmap.mmap] = []  # those that a view may still look through

    def append(self, chunks: Sequence[Chunk]) -> None:
        pieces = list(chunks)
        try:
            while pieces:
                written = os.pwritev(self.handle, pieces[:PIECES_MAX], self.size_bytes)
                self.size_bytes += written
                # Nearly always all of it. A full disk or a signal may end a write in the middle of a piece.
                while pieces and written >= len(pieces[0]):
                    written -= len(pieces.pop(0))
                if written:
                    pieces[0] = memoryview(pieces[0])[written:]
        except OSError as failure:
            raise StorageError.of("append", self.path, failure) from failure

    def write_at(self, position: int, data: Chunk) -> None:
        try:
            while data:
                written = os.pwrite(self.handle, data, position)
                position += written
                data = memoryview(data)[written:]
        except OSError as failure:
            raise StorageError.of("write", self.path, failure) from failure
        self.size_bytes = max(self.size_bytes, position)

    def read_at(self, position: int, size_bytes: int) -> bytes:
        try:
            return os.pread(self.handle, size_bytes, position)
        except OSError as failure:
            raise StorageError.of("read", self.path, failure) from failure

    def map(self) -> memoryview:
        import mmap

        if not self.size_bytes:
            return memoryview(b"")
        self._drop_unused_mappings()
        try:
            mapping = mmap.mmap(self.handle, self.size_bytes, prot=mmap.PROT_READ)
        except OSError as failure:
            raise StorageError.of("map", self.path, failure) from failure
        self._mappings.append(mapping)
        return memoryview(mapping)

    def truncate(self, size_bytes: int) -> None:
        self._drop_unused_mappings()
        try:
            if self._mappings and size_bytes < self.size_bytes:
                self._replace(size_bytes)
            else:
                os.ftruncate(self.handle, size_bytes)
        except OSError as failure:
            raise StorageError.of("truncate", self.path, failure) from failure
        self.size_bytes = size_bytes

    def _replace(self, size_bytes: int) -> None:
        """Put a shorter copy in the file's place: to touch a mapping behind the end of its file kills the process.

        Views go on looking at the old file, which has no name any more. `.cleaned` is a suffix that Kafka and we
        remove at start, should we not get to the end of this.
        """
        copy_path = self.real_path + ".cleaned"
        copy = os.open(copy_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        position = 0
        while position < size_bytes:
            position += os.write(copy, os.pread(self.handle, min(COPY_BYTES, size_bytes - position), position))
        os.fsync(copy)
        os.replace(copy_path, self.real_path)
        os.close(self.handle)
        self.handle = copy

    def _drop_unused_mappings(self) -> None:
        viewed = []
        for mapping in self._mappings:
            try:
                mapping.close()
            except BufferError:
                viewed.append(mapping)
        self._mappings = viewed

    def sync(self) -> None:
        try:
            os.fdatasync(self.handle)
        except OSError as failure:
            raise StorageError.of("sync", self.path, failure) from failure

    def close(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1
