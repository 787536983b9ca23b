"""A directory of the machine that is read and never written: a copy, a snapshot, or the files of a broker at work.

Whatever is written, renamed or removed happens in memory and nowhere else, so what mends derived files on the way
(an index that lies, the leavings of a cleaning that was cut short) works here as it does in a broker's own directory.
What must hold: no file is made, touched or locked, also where there would be a right to. Who holds a file that its
owner cuts sees its end move: reads there return less.
Not here: whether the owner is at work, and what it is doing.
"""

from __future__ import annotations

import os

from minibroker.errors import StorageError
from minibroker.log.memory_storage import Content, MemoryFile, MemoryStorage
from minibroker.log.storage import OsFile, OsStorage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final, NoReturn

    from minibroker.log.storage import Chunk

# Smaller files are read instead of mapped. To touch a mapping behind the end of its file kills the process, and an
# index is cut whenever a segment ends; the batches of a segment are cut only when a log is truncated.
MAP_BYTES_MIN: Final = 16 << 20


class ReadOnlyStorage(OsStorage):
    """A directory seen through a pane: what is changed is changed on the pane."""

    is_durable = False
    is_slow = False

    def __init__(self, root: str):
        super().__init__(root)
        self._memory = MemoryStorage(lambda: 0)
        # By path: a file in memory, the path under which the disk knows it, or None for what is gone.
        self._changed: dict[str, Content | str | None] = {}

    def open(self, path: str, *, create: bool = False) -> ReadOnlyFile:  # type: ignore[override]
        found = self._changed.get(path, path)
        if isinstance(found, Content):
            return ReadOnlyFile(self, path, MemoryFile(self._memory, path, found))
        try:
            if found is None:
                raise FileNotFoundError(f"{path} has been removed")
            handle = os.open(self.real_path(found), os.O_RDONLY)
            return ReadOnlyFile(self, path, _Opened(self, path, handle))
        except FileNotFoundError as failure:
            if not create:
                raise StorageError.of("open", path, failure) from failure
        except OSError as failure:
            raise StorageError.of("open", path, failure) from failure
        return ReadOnlyFile(self, path, self.keep(path, b""))

    def keep(self, path: str, data: bytes) -> MemoryFile:
        """Have a file in memory from now on."""
        content = self._changed[path] = Content(data)
        return MemoryFile(self._memory, path, content)

    def origin(self, path: str) -> str:
        """Return the name by which the disk knows a file."""
        found = self._changed.get(path, path)
        return found if isinstance(found, str) else path

    def list(self, path: str) -> list[str]:
        names = super().list(path)
        if not self._changed:
            return names
        prefix = f"{path}/" if path else ""
        changed = (
            (name.removeprefix(prefix), found) for name, found in self._changed.items() if name.startswith(prefix)
        )
        here = {name: found is not None for name, found in changed if "/" not in name}
        left = [name for name in names if name not in here]
        return sorted(left + [name for name, is_there in here.items() if is_there])

    def exists(self, path: str) -> bool:
        found = self._changed.get(path, path)
        return super().exists(found) if isinstance(found, str) else found is not None

    def size_bytes(self, path: str) -> int:
        found = self._changed.get(path, path)
        if isinstance(found, Content):
            return found.size_bytes
        return super().size_bytes(found) if found is not None else 0

    def modified_ms(self, path: str) -> int:
        return super().modified_ms(self.origin(path))

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Nobody asks."""

    def rename(self, old: str, new: str) -> None:
        found = self._changed.get(old, old)
        if found is None or not self.exists(old):
            raise StorageError(f"rename {old} to {new}: there is no such file")
        self._changed[new] = found
        self._changed[old] = None

    def remove(self, path: str) -> None:
        self._changed[path] = None

    def make_directory(self, path: str) -> None:
        """A directory without names is the same as none."""

    def sync_directory(self, path: str) -> None:
        """Nothing has changed."""

    def lock(self) -> NoReturn:
        raise StorageError(f"{self.root} is only read, nobody is kept off")


class ReadOnlyFile:
    """A file of the disk, until somebody writes to it: then a copy in memory."""

    __slots__ = ("_file", "_map", "_storage", "path")

    def __init__(self, storage: ReadOnlyStorage, path: str, file: _Opened | MemoryFile):
        self._storage = storage
        self._file = file
        self._map = memoryview(b"")
        self.path = path

    @property
    def size_bytes(self) -> int:
        return self._file.size_bytes

    def read_at(self, position: int, size_bytes: int) -> bytes:
        return self._file.read_at(position, size_bytes)

    def view(self, position: int, size_bytes: int) -> memoryview:
        """Return bytes without copying them each time: whole segments are looked at through this."""
        if position + size_bytes > len(self._map):
            self._map = self.map()
        return self._map[position : position + size_bytes]

    def map(self) -> memoryview:
        return self._file.map()

    def append(self, chunks: Sequence[Chunk]) -> None:
        self._own().append(chunks)

    def write_at(self, position: int, data: Chunk) -> None:
        self._own().write_at(position, data)

    def truncate(self, size_bytes: int) -> None:
        self._own(size_bytes).truncate(size_bytes)

    def _own(self, size_bytes: int | None = None) -> MemoryFile:
        """Return the copy, made of the first bytes at least."""
        self._map = memoryview(b"")
        if not isinstance(self._file, MemoryFile):
            data = self._file.read_at(0, self.size_bytes if size_bytes is None else size_bytes)
            self._file.close()
            self._file = self._storage.keep(self.path, data)
        return self._file

    def sync(self) -> None:
        """There is nothing that could be lost."""

    def close(self) -> None:
        self._map = memoryview(b"")
        self._file.close()


class _Opened(OsFile):
    """A file of the disk that was opened for reading."""

    def map(self) -> memoryview:
        if self.size_bytes >= MAP_BYTES_MIN:
            return super().map()
        data = self.read_at(0, self.size_bytes)
        return memoryview(data)
