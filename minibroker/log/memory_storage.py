"""Storage in memory: what `--memory` runs on, and what the simulated disk is made of (simulation/disk.py).

What must hold: it behaves as OsStorage does, view by view and error by error; tests/log/test_storage.py runs one suite
over both. Nothing survives the process, so `sync` has nothing to do.
A file lies in a bytearray, and from SHORT_BYTES_MAX on in pages of its own, where it need not move any more (pages.py).
A view from `map` outlives growing and cutting. A buffer cannot change its length while a view looks at it, so the file
moves to another one then, and the old one lives as long as its views.
Time comes in as `now_ms`. Not here: limits, losses, failures.
"""

from __future__ import annotations

import errno
import os

from minibroker.errors import StorageError
from minibroker.log.pages import cut, lengthen, reserve, touch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Final, NoReturn

    from minibroker.log.pages import Buffer
    from minibroker.log.storage import Chunk, Trouble

SHORT_BYTES_MAX: Final = 1 << 20
SPARE_SHARE: Final = 1  # a buffer that must grow gets its length on top: memory that nobody has touched takes none
SPARE_BYTES_MIN: Final = 256
SHARED: Final = (bytes, memoryview)
COPIED_BYTES_MAX: Final = 16 * 1024  # so much costs less to copy than to keep apart from what it is a view of


def failure(doing: str, path: str, error: int, told: str = "") -> StorageError:
    """Return what OsStorage would raise for an error number of the operating system."""
    return StorageError.of(doing, path, OSError(error, os.strerror(error)), told=told)


class Content:
    """The bytes of one file, whatever its names are.

    Invariant: the buffer is zero behind `size_bytes`, and where it ends before, the rest is zeros that take no memory,
    as the hole of a file on a disk: indexes are as long as they may become. A buffer that cannot be written to, `bytes`
    or a view, is shared with others and copied before the first write and before the first view that writes show in.
    """

    __slots__ = ("_buffer", "_retired", "_room_bytes", "modified_ms", "size_bytes")

    def __init__(self, data: bytes | memoryview = b"", modified_ms: int = 0):
        self._buffer: bytes | memoryview | Buffer = data
        self._room_bytes = 0  # so much of the buffer is ready to be written to
        self._retired: list[Buffer] = []  # grown out of, but a view may still look: they get every write too
        self.size_bytes = len(data)
        self.modified_ms = modified_ms

    def write(self, position: int, data: Chunk) -> None:
        end = position + len(data)
        buffer = self._buffer
        if end > self._room_bytes or isinstance(buffer, SHARED):
            buffer = self._make_room(position, end)
        buffer[position:end] = data
        for old in self._retired:
            shown = max(0, len(old) - position)
            old[position : position + min(shown, len(data))] = data[:shown]
        if end > self.size_bytes:
            self.size_bytes = end

    def read(self, position: int, size_bytes: int) -> bytes:
        end = min(position + size_bytes, self.size_bytes)
        found = bytes(self._buffer[position:end])
        return found if len(found) >= end - position else found.ljust(end - position, b"\0")

    def view(self) -> memoryview:
        """Return the bytes as they are now; writes below their end show in them."""
        buffer = self._buffer
        if len(buffer) < self.size_bytes or isinstance(buffer, SHARED):
            buffer = self._lengthen(self.size_bytes)
        return memoryview(buffer)[: self.size_bytes].toreadonly()

    def look(self) -> memoryview:
        """Return the bytes as they are now; nobody knows whether later writes show in them."""
        buffer = self._buffer
        if isinstance(buffer, SHARED) and len(buffer) >= self.size_bytes:
            return memoryview(buffer)[: self.size_bytes]
        return self.view()

    def twin(self, *, only_grows: bool) -> Content:
        """Return another file with these bytes, which are shared until one of both is written to.

        only_grows: what is there is never written over, so that a view of it stays as it is while the file grows.
        """
        buffer = self._buffer
        if isinstance(buffer, bytes) and len(buffer) == self.size_bytes:
            return Content(buffer, self.modified_ms)
        if only_grows and self.size_bytes > COPIED_BYTES_MAX:
            return Content(self.look(), self.modified_ms)
        return Content(self.read(0, self.size_bytes), self.modified_ms)

    def truncate(self, size_bytes: int) -> None:
        is_cut = size_bytes < self.size_bytes
        self.size_bytes = size_bytes
        if is_cut:
            self._cut(size_bytes)

    def _make_room(self, position: int, end: int) -> Buffer:
        """Return the buffer, ready for a write that ends behind what was made ready before."""
        buffer = self._lengthen(end)
        if not isinstance(buffer, bytearray):
            self._room_bytes = touch(buffer, max(position, self._room_bytes), end)
        return buffer

    def _lengthen(self, size_bytes: int) -> Buffer:
        """Return the buffer, at least that long and writable."""
        buffer = self._buffer
        if not isinstance(buffer, (*SHARED, bytearray)) and lengthen(buffer, size_bytes):
            longer: Buffer = buffer
        else:
            spare_bytes = max(size_bytes // SPARE_SHARE, SPARE_BYTES_MIN) if size_bytes > len(buffer) else 0
            longer = self._move(max(size_bytes, len(buffer)), spare_bytes)
            if not isinstance(buffer, SHARED):
                self._retired.append(buffer)
        if self._retired:
            self._retired = [old for old in self._retired if _is_viewed(old)]
        return longer

    def _move(self, size_bytes: int, spare_bytes: int = 0) -> Buffer:
        """Go on in another buffer, and not in a longer one: what nobody writes to takes no memory."""
        buffer: Buffer | None = reserve(size_bytes) if size_bytes > SHORT_BYTES_MAX else None
        if buffer is None:
            buffer = bytearray(size_bytes + spare_bytes)
        held = min(len(self._buffer), self.size_bytes)
        buffer[:held] = memoryview(self._buffer)[:held]
        self._buffer = buffer
        self._room_bytes = len(buffer) if isinstance(buffer, bytearray) else 0
        return buffer

    def _cut(self, size_bytes: int) -> None:
        """Shorten; from now on the views show the past."""
        buffer = self._buffer
        self._retired = []
        self._room_bytes = 0
        if not size_bytes:
            self._buffer = b""
        elif isinstance(buffer, SHARED) or size_bytes >= len(buffer) or not _shorten(buffer, size_bytes):
            self._move(size_bytes)
        else:
            self._room_bytes = len(buffer)


def _shorten(buffer: Buffer, size_bytes: int) -> bool:
    """Have nothing but zeros behind an end; tell whether that worked: not if a view looks at the buffer."""
    if not isinstance(buffer, bytearray):
        return cut(buffer, size_bytes)
    try:
        del buffer[size_bytes:]
    except BufferError:
        return False
    return True


def _is_viewed(buffer: Buffer) -> bool:
    """Tell whether a view looks at a buffer; if none does, empty it."""
    try:
        if isinstance(buffer, bytearray):
            buffer.clear()
        else:
            buffer.close()
    except BufferError:
        return True
    return False


class Directory:
    """The names of one directory."""

    __slots__ = ("entries", "modified_ms")

    def __init__(self, modified_ms: int = 0) -> None:
        self.entries: dict[str, Node] = {}
        self.modified_ms = modified_ms


def _twin(directory: Directory, only_grows: Callable[[str], bool]) -> Directory:
    other = Directory(directory.modified_ms)
    for name, node in directory.entries.items():
        if isinstance(node, Directory):
            other.entries[name] = _twin(node, only_grows)
        else:
            other.entries[name] = node.twin(only_grows=only_grows(name))
    return other


if TYPE_CHECKING:
    Node = Content | Directory
    Changes = tuple[tuple[str, Node | None], ...]  # of the names in one directory; None for one that goes


class MemoryStorage:
    """A tree of files in memory."""

    is_durable = False
    is_slow = False

    def __init__(self, now_ms: Callable[[], int]):
        self.now_ms = now_ms
        self.trouble: Trouble | None = None  # asked before each write
        self.root = self._new_directory()

    def lock(self) -> None:
        """Nobody else can be here."""

    def unlock(self) -> None: ...

    def disk_space(self) -> tuple[int, int]:
        return -1, -1

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        node = self._find(path)
        if node is None:
            parent, name = self._parent("open", path)
            if not create:
                raise failure("open", path, errno.ENOENT)
            node = self._new_content()
            self._change("create", path, parent, ((name, node),))
        elif isinstance(node, Directory):
            raise failure("open", path, errno.EISDIR)
        return self._new_file(path, node)

    def list(self, path: str) -> list[str]:
        node = self._find(path)
        if isinstance(node, Content):
            raise failure("list", path, errno.ENOTDIR)
        return sorted(node.entries) if node else []

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def size_bytes(self, path: str) -> int:
        node = self._find(path)
        return node.size_bytes if isinstance(node, Content) else 0

    def modified_ms(self, path: str) -> int:
        node = self._find(path)
        if node is None:
            raise failure("stat", path, errno.ENOENT)
        return node.modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        node = self._find(path)
        if node is None:
            raise failure("set time", path, errno.ENOENT)
        node.modified_ms = modified_ms

    def make_directory(self, path: str) -> None:
        names = path.split("/")
        for depth in range(1, len(names) + 1):
            above = "/".join(names[:depth])
            node = self._find(above)
            if node is None:
                parent, name = self._parent("make directory", above)
                self._change("make directory", above, parent, ((name, self._new_directory()),))
            elif isinstance(node, Content):
                raise failure("make directory", path, errno.EEXIST if above == path else errno.ENOTDIR)

    def rename(self, old: str, new: str) -> None:
        doing, both = "rename", f"{old} to {new}"
        parent, old_name = self._parent(doing, old, both)
        new_parent, new_name = self._parent(doing, new, both)
        assert new_parent is parent, f"{both}: a name stays in its directory"
        node, replaced = parent.entries.get(old_name), parent.entries.get(new_name)
        if node is None:
            raise failure(doing, new, errno.ENOENT, both)
        if replaced is node:
            return
        if isinstance(replaced, Directory):
            if isinstance(node, Content):
                raise failure(doing, new, errno.EISDIR, both)
            if replaced.entries:
                raise failure(doing, new, errno.ENOTEMPTY, both)
        elif replaced is not None and isinstance(node, Directory):
            raise failure(doing, new, errno.ENOTDIR, both)
        self._change(doing, new, parent, ((old_name, None), (new_name, node)), both)

    def remove(self, path: str) -> None:
        node = self._find(path)
        if node is None:
            return
        if isinstance(node, Directory) and node.entries:
            raise failure("remove", path, errno.ENOTEMPTY)
        parent, name = self._parent("remove", path)
        self._change("remove", path, parent, ((name, None),))

    def sync_directory(self, path: str) -> None:
        self._directory("sync directory", path)

    def _change(self, doing: str, path: str, directory: Directory, changes: Changes, told: str = "") -> None:
        """Change names of a directory; all that changes names comes here."""
        for name, node in changes:
            if node is None:
                del directory.entries[name]
            else:
                directory.entries[name] = node
        directory.modified_ms = self.now_ms()

    def twin(
        self, now_ms: Callable[[], int], *, only_grows: Callable[[str], bool] = lambda name: False
    ) -> MemoryStorage:
        """Return a storage with the same files, whose bytes are shared until one of both writes.

        only_grows: tells of a name whether such a file is never written over, so that what is there can be shared while
        this one goes on.
        """
        other = MemoryStorage(now_ms)
        other.root = _twin(self.root, only_grows)
        return other

    def _new_content(self) -> Content:
        return Content(b"", self.now_ms())

    def _new_directory(self) -> Directory:
        return Directory(self.now_ms())

    def _new_file(self, path: str, content: Content) -> MemoryFile:
        return MemoryFile(self, path, content)

    def _find(self, path: str) -> Node | None:
        node: Node | None = self.root
        if path:
            for name in path.split("/"):
                if not isinstance(node, Directory):
                    return None
                node = node.entries.get(name)
        return node

    def _directory(self, doing: str, path: str, told: str = "") -> Directory:
        node = self._find(path)
        if not isinstance(node, Directory):
            raise failure(doing, path, errno.ENOENT if node is None else errno.ENOTDIR, told)
        return node

    def _parent(self, doing: str, path: str, told: str = "") -> tuple[Directory, str]:
        """Return the directory that a path's last name is in, and that name."""
        above, _, name = path.rpartition("/")
        return self._directory(doing, above, told or path), name


class MemoryFile:
    """An open file in memory."""

    __slots__ = ("_content", "_storage", "path")

    def __init__(self, storage: MemoryStorage, path: str, content: Content):
        self._storage = storage
        self._content: Content | None = content  # None once closed
        self.path = path

    @property
    def size_bytes(self) -> int:
        return (self._content or self._closed("stat")).size_bytes

    def append(self, chunks: Sequence[Chunk]) -> None:
        content = self._content or self._closed("append")
        self._meet_trouble("append")
        for chunk in chunks:
            content.write(content.size_bytes, chunk)
        content.modified_ms = self._storage.now_ms()

    def write_at(self, position: int, data: Chunk) -> None:
        content = self._content or self._closed("write")
        self._meet_trouble("write")
        if data:
            content.write(position, data)
        content.modified_ms = self._storage.now_ms()

    def read_at(self, position: int, size_bytes: int) -> bytes:
        return (self._content or self._closed("read")).read(position, size_bytes)

    def view(self, position: int, size_bytes: int) -> memoryview:
        return (self._content or self._closed("read")).look()[position : position + size_bytes]

    def map(self) -> memoryview:
        return (self._content or self._closed("map")).view()

    def _meet_trouble(self, doing: str) -> None:
        trouble = self._storage.trouble
        if trouble is not None:
            try:
                trouble(doing, self.path)
            except OSError as error:
                raise StorageError.of(doing, self.path, error) from error

    def truncate(self, size_bytes: int) -> None:
        content = self._content or self._closed("truncate")
        content.truncate(size_bytes)
        content.modified_ms = self._storage.now_ms()

    def sync(self) -> None:
        if self._content is None:
            self._closed("sync")

    def close(self) -> None:
        self._content = None

    def _closed(self, doing: str) -> NoReturn:
        raise failure(doing, self.path, errno.EBADF)
