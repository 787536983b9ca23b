"""A storage copied into an empty one, while whoever owns the first goes on writing.

    copying = Copying(storage, other)     all names, and short files: at this moment
    for _ in copying: ...                 to a disk: those are written, and long ones as far as they went at that moment

Memory is not copied but shared, until one of both writes. A file of a disk is cloned where the file system can do that
(btrfs, XFS), else its bytes are copied, within the kernel where it does that.
What must hold: the copy has each file as it was when this began. So files that are long on a disk may grow meanwhile
and go, but not be written over: those of batches never are. Nothing of the first storage is ever changed by this.
Not here: what makes a directory of it that was left in order (directory.py).
"""

from __future__ import annotations

import os
from contextlib import suppress

from minibroker.errors import StorageError
from minibroker.log.checkpoints import TEMPORARY
from minibroker.log.memory_storage import Content, Directory, MemoryStorage
from minibroker.log.segment import CLEANED, DELETED
from minibroker.log.storage import LOCK, OsStorage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping
    from typing import Final

    from minibroker.log.storage import Storage

SHORT_BYTES_MAX: Final = 64 * 1024  # so much is read at once
PIECE_BYTES: Final = 1 << 20
OPEN_FILES_MAX: Final = 200  # that wait for their bytes; those beyond are copied at once
FICLONE: Final = 0x40049409  # of Linux: have a file share the blocks of another
REMAINS: Final = (TEMPORARY, CLEANED, DELETED, "-delete")  # names of what is half done, or soon to go
NO_LENGTHS: Final[Mapping[str, int]] = {}


class Copying:
    """Under way, until all of it has been iterated over, or it is closed."""

    def __init__(
        self, source: Storage, target: Storage, lengths: Mapping[str, int] = NO_LENGTHS, *, is_still: bool = False
    ):
        """lengths: how much of some files counts, by path. is_still: nobody writes to the source, now or later.

        `taken` is what has been copied up to now, to which something may be added before the rest comes.
        """
        self._target = target
        self._lengths = lengths
        self._open: list[tuple[int, str, int, int]] = []  # handle, path, length and time of what is still to be copied
        self.taken = target if isinstance(target, MemoryStorage) else MemoryStorage(lambda: 0)
        try:
            target.make_directory("")
            if isinstance(source, MemoryStorage):
                only_grows = _everything if is_still else _only_grows
                self.taken.root = source.twin(self.taken.now_ms, only_grows=only_grows).root
                _leave_out(self.taken.root)
            else:
                assert isinstance(source, OsStorage)
                self._take_directory(source, "", self.taken.root)
        except OSError as failure:
            self.close()
            raise StorageError.of("copy", getattr(source, "root", "memory"), failure) from failure
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[None]:
        """Yield between pieces of work; what is left when it is not gone through to its end is `close`d."""
        path = ""
        try:
            if isinstance(self._target, OsStorage):
                yield from _write_tree(self._target, "", self.taken.root)
            while self._open:
                handle, path, size_bytes, modified_ms = self._open[-1]
                yield from _copy_file(handle, self._target, path, size_bytes)
                self._target.set_modified_ms(path, modified_ms)
                os.close(self._open.pop()[0])
        except OSError as failure:
            raise StorageError.of("copy", path, failure) from failure
        finally:
            self.close()

    def close(self) -> None:
        """Let go of files that have not been copied."""
        while self._open:
            os.close(self._open.pop()[0])

    def _take_directory(self, source: OsStorage, path: str, taken: Directory) -> None:
        with os.scandir(source.real_path(path)) as entries:
            for entry in entries:
                inner = f"{path}/{entry.name}" if path else entry.name
                if _is_left_out(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    directory = taken.entries[entry.name] = Directory()
                    self._take_directory(source, inner, directory)
                else:
                    self._take_file(source, inner, taken, entry.name)

    def _take_file(self, source: OsStorage, path: str, taken: Directory, name: str) -> None:
        """Read a file; one that is long and only grows waits for that, if it goes to a disk."""
        try:
            handle = os.open(source.real_path(path), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # somebody has just removed it
            return
        self._open.append((handle, path, 0, 0))
        found = os.fstat(handle)
        size_bytes = min(found.st_size, self._lengths.get(path, found.st_size))
        modified_ms = found.st_mtime_ns // 1_000_000
        is_long = size_bytes > SHORT_BYTES_MAX and _only_grows(name) and len(self._open) <= OPEN_FILES_MAX
        if is_long and isinstance(self._target, OsStorage):
            self._open[-1] = (handle, path, size_bytes, modified_ms)
            return
        taken.entries[name] = Content(_read(handle, size_bytes), modified_ms)
        os.close(self._open.pop()[0])


def _write_tree(target: OsStorage, path: str, directory: Directory) -> Iterator[None]:
    for name, node in directory.entries.items():
        inner = f"{path}/{name}" if path else name
        if isinstance(node, Directory):
            target.make_directory(inner)
            yield from _write_tree(target, inner, node)
            continue
        file = target.open(inner, create=True)
        try:
            data = node.look()
            if not file.size_bytes:  # else it is the target's own, such as its certificates
                for start in range(0, len(data), PIECE_BYTES):
                    file.append([data[start : start + PIECE_BYTES]])
                    yield
        finally:
            file.close()
        target.set_modified_ms(inner, node.modified_ms)
        yield


def _copy_file(handle: int, target: Storage, path: str, size_bytes: int) -> Iterator[None]:
    """Copy the first bytes of an open file, or have the copy share its blocks."""
    assert isinstance(target, OsStorage)
    copy = target.open(path, create=True)
    try:
        if _clone(handle, copy.handle):
            copy.truncate(size_bytes)
            return
        position = 0
        while position < size_bytes:
            count = _copy_piece(handle, copy.handle, position, min(PIECE_BYTES, size_bytes - position))
            if not count:
                raise StorageError(f"copy {path}: it ends at byte {position}, and {size_bytes} were written")
            position += count
            yield
    finally:
        copy.close()


def copy_at_once(source: Storage, target: Storage) -> None:
    """Copy a storage that nobody writes to."""
    for _ in Copying(source, target, is_still=True):
        pass


def remove_all(storage: OsStorage, keep: Container[str] = ()) -> None:
    """Remove all that is in a directory, but for some names."""
    import shutil

    with suppress(FileNotFoundError):
        for name in os.listdir(storage.root):
            if name in keep:
                continue
            if os.path.isdir(path := storage.real_path(name)) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.remove(path)


def directory_beside(path: str) -> str:
    """Make an empty directory for a copy of another one: beside it, so that they may share blocks."""
    import tempfile

    parent, name = os.path.split(os.path.abspath(path))
    try:
        return tempfile.mkdtemp(prefix=f"{name}.snapshot-", dir=parent)
    except OSError as failure:
        raise StorageError.of("make directory", f"{path}.snapshot-", failure) from failure


def remove_directory(path: str) -> None:
    """Remove a directory and all that is in it, if it is there."""
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def _clone(handle: int, copy: int) -> bool:
    """Have a file share the blocks of another; False if the file system cannot do that."""
    try:
        import fcntl

        fcntl.ioctl(copy, FICLONE, handle)
    except (ImportError, OSError):
        return False
    return True


def _copy_piece(handle: int, copy: int, position: int, size_bytes: int) -> int:
    """Copy some bytes to the same place of another file; return how many."""
    if hasattr(os, "copy_file_range"):
        with suppress(OSError):  # a file system that cannot do it
            return os.copy_file_range(handle, copy, size_bytes, position, position)
    return os.pwrite(copy, os.pread(handle, size_bytes, position), position)


def _read(handle: int, size_bytes: int) -> bytes:
    pieces: list[bytes] = []
    position = 0
    while position < size_bytes and (piece := os.pread(handle, size_bytes - position, position)):
        pieces.append(piece)
        position += len(piece)
    return b"".join(pieces)


def _only_grows(name: str) -> bool:
    """Tell whether files of a name are never written over."""
    return name.endswith(".log")


def _everything(name: str) -> bool:
    return True


def _leave_out(directory: Directory) -> None:
    for name in [name for name in directory.entries if _is_left_out(name)]:
        del directory.entries[name]
    for node in directory.entries.values():
        if isinstance(node, Directory):
            _leave_out(node)


def _is_left_out(name: str) -> bool:
    """Tell whether a file or directory is no part of what a broker has stored."""
    return name == LOCK or name.endswith(REMAINS)
