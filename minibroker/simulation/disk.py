"""A simulated disk: it forgets what was not synced, fails when told to, and counts every step.

A step is one operation that changes the disk: create, append, write, truncate, sync, set time, rename, remove, make
directory, sync directory. Between any two steps the power may go: `power_loss()` tells what may be left then,
`crashed(chance)` is one such disk. A process that is killed loses nothing: open the files again.
What must hold: programs see what they wrote until the power goes, whatever is on the disk; the same steps and the same
chance give the same disk. Failures come out as OsStorage's do.
Not here: exploring all the crashes of a workload (tests/log/crash.py); a disk that is slow.
"""

from __future__ import annotations

import errno

from minibroker.log.memory_storage import Content, MemoryFile, MemoryStorage, failure
from minibroker.simulation.power_loss import SECTOR_BYTES, LossyContent, LossyDirectory, Names, PowerLoss, Writes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from minibroker.log.memory_storage import Changes, Directory
    from minibroker.log.storage import Chunk
    from minibroker.simulation.power_loss import Disk

FOREVER = 1 << 62


class Step:
    """One change of the disk, or the attempt."""

    __slots__ = ("doing", "number", "path")

    def __init__(self, number: int, doing: str, path: str):
        self.number = number  # from 1
        self.doing = doing
        self.path = path

    def __str__(self) -> str:
        return f"step {self.number}: {self.doing} {self.path}"


class Fault:
    """What goes wrong, and when."""

    __slots__ = ("at", "doing", "drops", "error", "path", "times", "written_bytes")

    def __init__(self, error: int, at: int, times: int, doing: str, path: str, written_bytes: int, *, drops: bool):
        self.error = error
        self.at = at
        self.times = times  # left
        self.doing = doing
        self.path = path
        self.written_bytes = written_bytes
        self.drops = drops

    def strikes(self, number: int, doing: str, path: str) -> bool:
        if number < self.at or not self.times or self.doing not in ("", doing) or self.path not in ("", path):
            return False
        self.times -= 1
        return True


class SimulatedStorage(MemoryStorage):
    """A tree of files on a disk that can lose and fail."""

    is_durable = True
    is_slow = False

    root: LossyDirectory

    def __init__(self, now_ms: Callable[[], int] = int, disk: Disk | None = None):
        super().__init__(now_ms)
        self.steps = 0  # how many there were
        self.before_step: Callable[[Step], None] | None = None
        self.faults: list[Fault] = []
        if disk is not None:
            self._fill(disk)

    def _fill(self, disk: Disk) -> None:
        directories = {"": self.root}
        for path, data, modified_ms in disk.found:
            above, _, name = path.rpartition("/")
            if data is None:
                node = directories[path] = LossyDirectory(modified_ms)
                directories[above].entries[name] = node
            else:
                directories[above].entries[name] = LossyContent(data, modified_ms, is_certain=True)
        for directory in directories.values():
            directory.disk = Names(dict(directory.entries))

    # Power

    def power_loss(self, sector_bytes: int = SECTOR_BYTES) -> PowerLoss:
        """Return what a power loss would find now; later steps do not change it."""
        return PowerLoss(self.root, sector_bytes)

    def crashed(self, chance: Random, sector_bytes: int = SECTOR_BYTES) -> SimulatedStorage:
        """Return the disk after a power loss; who holds files of this one writes into the void."""
        loss = self.power_loss(sector_bytes)
        return SimulatedStorage(self.now_ms, loss.disk(loss.choose(chance)))

    # Failures

    def fail(
        self,
        error: int = errno.EIO,
        *,
        at: int = 0,
        times: int = 1,
        doing: str = "",
        path: str = "",
        written_bytes: int = 0,
        drops: bool = True,
    ) -> None:
        """Let an operation fail: the first from step `at` on that is `doing` to `path`, and `times` in all.

        `doing` is that of a Step, or "read", which is no step; `path` for a rename is "OLD to NEW".
        An append or write gets `written_bytes` through before it fails. A sync `drops` what it should have written, as
        Linux does: it is still read, and gone after a power loss. Each other file that is open then is told of it by
        its own next sync; a later sync, or one of a file that is opened later, succeeds.
        """
        self.faults.append(Fault(error, at, times, doing, path, written_bytes, drops=drops))

    def heal(self) -> None:
        """Let nothing fail any more."""
        self.faults = []

    def flip(self, path: str, byte: int, bit: int) -> None:
        """Turn over one bit of a file where it lies: it is read so, and found so after a power loss."""
        file = self.open(path)
        mask = 1 << bit
        content = file.lossy("flip")
        content.write(byte, bytes([content.read(byte, 1)[0] ^ mask]))
        disk = content.disk
        certain, writes = bytearray(disk.certain), disk.writes[: disk.count]
        if byte < len(certain):
            certain[byte] ^= mask
        for index, (position, written) in enumerate(writes):
            if written is not None and position <= byte < position + len(written):
                flipped = bytearray(written)
                flipped[byte - position] ^= mask
                writes[index] = (position, bytes(flipped))
        content.disk = Writes(bytes(certain), disk.modified_ms, writes)

    def step(self, doing: str, path: str) -> Fault | None:
        """Count a step before it is done, and return the fault that befalls it."""
        self.steps += 1
        if self.before_step is not None:
            self.before_step(Step(self.steps, doing, path))
        return self.fault(self.steps, doing, path) if self.faults else None

    def fault(self, number: int, doing: str, path: str) -> Fault | None:
        return next((fault for fault in self.faults if fault.strikes(number, doing, path)), None)

    # What MemoryStorage does, step by step

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        file = super().open(path, create=create)
        assert isinstance(file, SimulatedFile)
        return file

    def sync_directory(self, path: str) -> None:
        directory = self._directory("sync directory", path)
        assert isinstance(directory, LossyDirectory)
        if fault := self.step("sync directory", path):
            raise failure("sync directory", path, fault.error)
        directory.disk = directory.disk.synced()

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        if fault := self.step("set time", path):
            raise failure("set time", path, fault.error)
        super().set_modified_ms(path, modified_ms)
        node = self._find(path)
        if isinstance(node, LossyContent):
            node.disk = node.disk.stamped(modified_ms)

    def _change(self, doing: str, path: str, directory: Directory, changes: Changes, told: str = "") -> None:
        if fault := self.step(doing, told or path):
            raise failure(doing, path, fault.error, told)
        super()._change(doing, path, directory, changes, told)
        assert isinstance(directory, LossyDirectory)
        directory.disk = directory.disk.and_then(changes)

    def _new_content(self) -> LossyContent:
        return LossyContent(b"", self.now_ms(), is_certain=False)

    def _new_directory(self) -> LossyDirectory:
        return LossyDirectory(self.now_ms())

    def _new_file(self, path: str, content: Content) -> SimulatedFile:
        return SimulatedFile(self, path, content)


class SimulatedFile(MemoryFile):
    """An open file on the simulated disk."""

    __slots__ = ("_disk", "_drops_known")

    def __init__(self, storage: SimulatedStorage, path: str, content: Content):
        super().__init__(storage, path, content)
        self._disk = storage
        self._drops_known = self.lossy("open").drops

    def lossy(self, doing: str) -> LossyContent:
        content = self._content or self._closed(doing)
        assert isinstance(content, LossyContent)
        return content

    def append(self, chunks: Sequence[Chunk]) -> None:
        self._write("append", self.lossy("append").size_bytes, b"".join(chunks))

    def write_at(self, position: int, data: Chunk) -> None:
        self._write("write", position, bytes(data))

    def _write(self, doing: str, position: int, data: bytes) -> None:
        content = self.lossy(doing)
        self._meet_trouble(doing)
        fault = self._disk.step(doing, self.path)
        if fault:
            data = data[: fault.written_bytes]
        if data:
            content.write(position, data)
            content.modified_ms = self._disk.now_ms()
            content.disk = content.disk.and_then((position, data), content.modified_ms)
        if fault:
            raise failure(doing, self.path, fault.error)

    def read_at(self, position: int, size_bytes: int) -> bytes:
        self._try_read()
        return super().read_at(position, size_bytes)

    def view(self, position: int, size_bytes: int) -> memoryview:
        self._try_read()
        return super().view(position, size_bytes)

    def _try_read(self) -> None:
        if self._disk.faults and (fault := self._disk.fault(self._disk.steps, "read", self.path)):
            raise failure("read", self.path, fault.error)

    def truncate(self, size_bytes: int) -> None:
        content = self.lossy("truncate")
        if fault := self._disk.step("truncate", self.path):
            raise failure("truncate", self.path, fault.error)
        super().truncate(size_bytes)
        content.disk = content.disk.and_then((size_bytes, None), content.modified_ms)

    def sync(self) -> None:
        content = self.lossy("sync")
        if fault := self._disk.step("sync", self.path):
            if fault.drops:
                content.disk = content.disk.dropped()
                content.drops += 1
                self._drops_known = content.drops
            raise failure("sync", self.path, fault.error)
        content.disk = content.disk.synced()
        if self._drops_known < content.drops:
            self._drops_known = content.drops
            raise failure("sync", self.path, errno.EIO)
