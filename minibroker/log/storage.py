"""The door to files, with the real disk behind it.

Everything that the log does to a disk goes through `Storage` and `File`, so a simulated disk that loses, tears and
fails can take its place (simulation/disk.py). Paths are relative to the storage's root and use "/".
What must hold of every storage stands in storage_types.py.
"""

from __future__ import annotations

import errno
import os

from minibroker.errors import StorageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mmap
    from collections.abc import Sequence
    from typing import Final
    from weakref import WeakSet

    from minibroker.log.storage_types import Chunk as Chunk
    from minibroker.log.storage_types import File as File
    from minibroker.log.storage_types import Storage as Storage
    from minibroker.log.storage_types import Trouble as Trouble


LOCK: Final = ".lock"
# One call for more makes Linux look for larger pages, which was seen to take several times longer than a few calls.
WRITE_BYTES: Final = 256 * 1024
PIECES_MAX: Final = 1024  # of one gathered write: IOV_MAX of Linux and the BSDs
COPY_BYTES: Final = 1 << 20
_locked_roots: set[str] = set()  # of this process


class OsStorage:
    """A directory of the machine."""

    is_durable = True
    is_slow = True

    def __init__(self, root: str):
        self.root = root
        self._lock_handle = -1
        self.trouble: Trouble | None = None  # asked before each write
        self.mappings: dict[int, WeakSet[mmap.mmap]] = {}  # by inode; alive while a view looks through them

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        try:
            try:
                handle = os.open(self.real_path(path), flags, 0o644)
            except PermissionError:
                # Kafka leaves snapshots of the metadata that nobody may write to.
                handle = os.open(self.real_path(path), os.O_RDONLY)
            return OsFile(self, path, handle)
        except OSError as failure:
            raise StorageError.of("open", path, failure) from failure

    def list(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self.real_path(path)))
        except FileNotFoundError:
            return []
        except OSError as failure:
            raise StorageError.of("list", path, failure) from failure

    def exists(self, path: str) -> bool:
        return os.path.exists(self.real_path(path))

    def size_bytes(self, path: str) -> int:
        try:
            return os.stat(self.real_path(path)).st_size
        except FileNotFoundError:
            return 0
        except OSError as failure:
            raise StorageError.of("stat", path, failure) from failure

    def modified_ms(self, path: str) -> int:
        try:
            return os.stat(self.real_path(path)).st_mtime_ns // 1_000_000
        except OSError as failure:
            raise StorageError.of("stat", path, failure) from failure

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        try:
            os.utime(self.real_path(path), ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
        except OSError as failure:
            raise StorageError.of("set time", path, failure) from failure

    def make_directory(self, path: str) -> None:
        try:
            os.makedirs(self.real_path(path), exist_ok=True)
        except OSError as failure:
            if not path and isinstance(failure, FileExistsError):
                raise StorageError(f"{self.root} is a file, and a directory is wanted there") from failure
            raise StorageError.of("make directory", path or self.root, failure) from failure

    def rename(self, old: str, new: str) -> None:
        assert old.rpartition("/")[0] == new.rpartition("/")[0], f"{old} to {new}: a name stays in its directory"
        try:
            os.replace(self.real_path(old), self.real_path(new))
        except OSError as failure:
            raise StorageError.of("rename", new, failure, told=f"{old} to {new}") from failure

    def remove(self, path: str) -> None:
        real = self.real_path(path)
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
            _sync_directory(self.real_path(path))
        except OSError as failure:
            raise StorageError.of("sync directory", path, failure) from failure

    def lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # no such locks on Windows
            return
        # These locks keep off other processes only, and closing any handle of the file gives them up.
        if os.path.realpath(self.root) in _locked_roots:
            raise StorageError(f"{self.root}: another broker of this process is at work in this directory")
        try:
            handle = os.open(self.real_path(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as failure:
            raise StorageError.of("open", LOCK, failure) from failure
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise StorageError(f"{self.root}: another broker is at work in this directory") from None
        self._lock_handle = handle
        _locked_roots.add(os.path.realpath(self.root))

    def unlock(self) -> None:
        if self._lock_handle >= 0:
            os.close(self._lock_handle)
            self._lock_handle = -1
            _locked_roots.discard(os.path.realpath(self.root))

    def disk_space(self) -> tuple[int, int]:
        try:
            found = os.statvfs(self.root)
        except (OSError, AttributeError):
            return -1, -1
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def real_path(self, path: str) -> str:
        return f"{self.root}/{path}"


def _sync_directory(real_path: str) -> None:
    handle = os.open(real_path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class OsFile:
    """A file of the machine."""

    def __init__(self, storage: OsStorage, path: str, handle: int):
        self.path = path
        self.real_path = storage.real_path(path)
        self.handle = handle  # the file descriptor
        self.size_bytes = os.fstat(handle).st_size
        self._storage = storage
        self._mappings = storage.mappings

    def append(self, chunks: Sequence[Chunk]) -> None:
        end = self.size_bytes + sum(map(len, chunks))
        try:
            if self._storage.trouble is not None:
                self._storage.trouble("append", self.path)
            if end - self.size_bytes > WRITE_BYTES:
                for chunk in chunks:
                    self._write_out(memoryview(chunk))
                return
            self.size_bytes += os.pwritev(self.handle, chunks[:PIECES_MAX], self.size_bytes)
            if self.size_bytes < end:  # a full disk or a signal may end a write anywhere
                self._write_out(memoryview(b"".join(chunks))[self.size_bytes - end :])
        except OSError as failure:
            raise StorageError.of("append", self.path, failure) from failure

    def _write_out(self, data: memoryview) -> None:
        end, position = self.size_bytes + len(data), self.size_bytes
        start = position
        while position < end:
            position += os.pwrite(self.handle, data[position - start : position - start + WRITE_BYTES], position)
            self.size_bytes = position

    def write_at(self, position: int, data: Chunk) -> None:
        try:
            if self._storage.trouble is not None:
                self._storage.trouble("write", self.path)
            while data:
                written = os.pwrite(self.handle, data, position)
                position += written
                self.size_bytes = max(self.size_bytes, position)
                data = memoryview(data)[written:]
        except OSError as failure:
            raise StorageError.of("write", self.path, failure) from failure

    def read_at(self, position: int, size_bytes: int) -> bytes:
        try:
            return os.pread(self.handle, size_bytes, position)
        except OSError as failure:
            raise StorageError.of("read", self.path, failure) from failure

    def view(self, position: int, size_bytes: int) -> memoryview:
        """Return a copy: to touch a mapping of what another program has cut off, or a disk fails to read, kills us."""
        return memoryview(self.read_at(position, size_bytes))

    def map(self) -> memoryview:
        import mmap
        from weakref import WeakSet

        if not self.size_bytes:
            return memoryview(b"")
        try:
            mapping = mmap.mmap(self._opened(), self.size_bytes, prot=mmap.PROT_READ)
        except OSError as failure:
            raise StorageError.of("map", self.path, failure) from failure
        except ValueError as failure:  # somebody else cut the file
            raise StorageError(f"map {self.path}: {failure}") from failure
        self._mappings.setdefault(self._inode(), WeakSet()).add(mapping)
        return memoryview(mapping)

    def truncate(self, size_bytes: int) -> None:
        try:
            if size_bytes < self.size_bytes and self._mappings.get(self._inode()):
                self._replace(size_bytes)
            else:
                os.ftruncate(self.handle, size_bytes)
        except OSError as failure:
            raise StorageError.of("truncate", self.path, failure) from failure
        self.size_bytes = size_bytes

    def _replace(self, size_bytes: int) -> None:
        """Put a shorter copy in the file's place: to touch a mapping behind the end of its file kills the process.

        Views go on looking at the old file, which has no name any more. `.cleaned` is a suffix that Kafka and we
        remove at start, should we not get to the end of this. The directory is synced too: a later sync of this file
        would be worth nothing if its name led to the old one again.
        """
        if not os.path.samestat(os.fstat(self.handle), os.stat(self.real_path)):
            raise OSError(errno.ESTALE, "renamed since it was opened, and still viewed")
        copy_path = self.real_path + ".cleaned"
        copy = os.open(copy_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            position = 0
            while piece := os.pread(self.handle, min(COPY_BYTES, size_bytes - position), position):
                position += os.write(copy, piece)
            os.ftruncate(copy, size_bytes)
            os.fsync(copy)
            os.replace(copy_path, self.real_path)
        except OSError:
            os.close(copy)
            raise
        os.close(self.handle)
        self.handle = copy
        self.size_bytes = size_bytes
        _sync_directory(os.path.dirname(self.real_path))

    def _inode(self) -> int:
        return os.fstat(self.handle).st_ino

    def sync(self) -> None:
        try:
            getattr(os, "fdatasync", os.fsync)(self._opened())  # macOS has only the other
        except OSError as failure:
            raise StorageError.of("sync", self.path, failure) from failure

    def _opened(self) -> int:
        """Return the handle, for calls to which -1 is not simply a bad one: mmap takes it for memory of zeros."""
        if self.handle < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self.handle

    def __del__(self) -> None:
        # Of a segment that has left its log nobody knows any more, but who still reads it.
        self.close()

    def close(self) -> None:
        if self.handle >= 0:
            if not self._mappings.get(inode := self._inode()):
                self._mappings.pop(inode, None)
            os.close(self.handle)
            self.handle = -1
