"""What a power loss may leave of a disk: everything synced, and of the rest whatever is worst.

A `PowerLoss` is one moment of a simulated disk. Of every file it knows what is certain and which writes came since, of
every directory which names are certain and which changes came since. A `Choice` says what of that happened to get
through, each file and directory for itself, so a later write may be there and an earlier one to another file not:
  a file       a number of its writes, in order; of the next one nothing, a part that ends at a sector, or only the
               length (zeros); or all but one write in the middle, with the length of all
  a directory  a number of its changes, in order; a rename is one change
What must hold: the same moment and the same Choice give the same disk. Bytes are shared between disks, never copied, so
a disk costs microseconds. Chance is handed in.
"""

from __future__ import annotations

from minibroker.log.memory_storage import Content, Directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random

    from minibroker.log.memory_storage import Changes, Node

    Write = tuple[int, bytes | None]  # position and data, or a new length and None
    Kept = tuple[int, int, int]  # of a file: how many writes, and then one of these with a number of its own:

WHOLE, TORN, ZEROS, HOLE = range(4)  # nothing more; bytes of the next; the last one whose length shows; the one lost
SECTOR_BYTES = 512
REMEMBERED_MAX = 64  # contents of one file at one moment


class Writes:
    """One file: what is certain and what was written since. Never changes; the next write makes another one."""

    __slots__ = ("_contents", "certain", "count", "modified_ms", "writes")

    def __init__(self, certain: bytes, modified_ms: int, writes: list[Write] | None = None):
        self.certain = certain
        self.writes = [] if writes is None else writes  # shared with what came before and after: only `count` are ours
        self.count = len(self.writes)
        self.modified_ms = modified_ms
        self._contents: dict[Kept, bytes] = {}

    def and_then(self, write: Write, modified_ms: int) -> Writes:
        self.writes.append(write)
        return Writes(self.certain, modified_ms, self.writes)

    def stamped(self, modified_ms: int) -> Writes:
        return Writes(self.certain, modified_ms, self.writes)

    def synced(self) -> Writes:
        return Writes(self.content((self.count, WHOLE, 0)), self.modified_ms)

    def dropped(self) -> Writes:
        """Return what Linux leaves after a sync that failed: what was written counts as clean and is gone."""
        return Writes(self.certain, self.modified_ms)

    def content(self, kept: Kept) -> bytes:
        if kept == (0, WHOLE, 0):
            return self.certain
        found = self._contents.get(kept)
        if found is None:
            found = self._content(*kept)
            if len(self._contents) < REMEMBERED_MAX:
                self._contents[kept] = found
        return found

    def _content(self, count: int, how: int, detail: int) -> bytes:
        data = bytearray(self.certain)
        for index in range(count):
            position, written = self.writes[index]
            if how == HOLE and index == detail and written is not None:
                _lengthen(data, position + len(written))
            else:
                _apply(data, position, written)
        if how == TORN:
            position, written = self.writes[count]
            assert written is not None
            _apply(data, position, written[:detail])
        elif how == ZEROS:
            for position, written in self.writes[count : detail + 1]:
                if written is None:
                    break
                _lengthen(data, position + len(written))
        return bytes(data)

    def choose(self, chance: Random, sector_bytes: int) -> Kept:
        roll = chance.random()
        if roll < 0.2:
            return (0, WHOLE, 0)
        if roll < 0.4:
            return (self.count, WHOLE, 0)
        at = int(chance.random() * self.count)
        position, written = self.writes[at]
        if roll < 0.6 or written is None:
            return (at, WHOLE, 0)
        if roll < 0.8:
            first, last = position // sector_bytes + 1, (position + len(written) - 1) // sector_bytes
            if first <= last:
                return (at, TORN, (first + int(chance.random() * (last - first + 1))) * sector_bytes - position)
        if roll < 0.92:
            return (at, ZEROS, at + int(chance.random() * (self.count - at)))
        return (self.count, HOLE, at)


def _apply(data: bytearray, position: int, written: bytes | None) -> None:
    _lengthen(data, position)
    if written is None:
        del data[position:]
    else:
        data[position : position + len(written)] = written


def _lengthen(data: bytearray, size_bytes: int) -> None:
    if size_bytes > len(data):
        data += bytes(size_bytes - len(data))


class Names:
    """One directory: the names that are certain and what changed since. Never changes, as Writes."""

    __slots__ = ("_entries", "certain", "changes", "count")

    def __init__(self, certain: dict[str, Node], changes: list[Changes] | None = None):
        self.certain = certain
        self.changes = [] if changes is None else changes
        self.count = len(self.changes)
        self._entries: dict[int, dict[str, Node]] = {0: certain}

    def and_then(self, changes: Changes) -> Names:
        self.changes.append(changes)
        return Names(self.certain, self.changes)

    def synced(self) -> Names:
        return Names(self.entries(self.count))

    def entries(self, count: int) -> dict[str, Node]:
        found = self._entries.get(count)
        if found is None:
            found = dict(self.certain)
            for changes in self.changes[:count]:
                for name, node in changes:
                    if node is None:
                        del found[name]
                    else:
                        found[name] = node
            self._entries[count] = found
        return found

    def choose(self, chance: Random) -> int:
        roll = chance.random()
        return 0 if roll < 0.3 else self.count if roll < 0.6 else int(chance.random() * (self.count + 1))


class LossyContent(Content):
    """The bytes of a file as programs see them, and beside them what is on the disk."""

    __slots__ = ("disk", "drops")

    def __init__(self, data: bytes, modified_ms: int, *, is_certain: bool):
        super().__init__(data, modified_ms)
        self.disk = Writes(data if is_certain else b"", modified_ms)
        self.drops = 0  # how many syncs have failed, and dropped what they should have written


class LossyDirectory(Directory):
    """The names of a directory as programs see them, and beside them what is on the disk."""

    __slots__ = ("disk",)

    def __init__(self, modified_ms: int = 0):
        super().__init__(modified_ms)
        self.disk = Names({})


class Choice:
    """What gets through, for the directories and files of a PowerLoss that have something at stake."""

    __slots__ = ("files", "names")

    def __init__(self, names: list[int], files: list[Kept]):
        self.names = names
        self.files = files


class Disk:
    """What is found after a power loss: each path with its bytes, None for a directory, those above first."""

    __slots__ = ("found", "identity")

    def __init__(self, found: list[tuple[str, bytes | None]], modified_ms: dict[str, int]):
        self.found = [(path, data, modified_ms.get(path, 0)) for path, data in found]
        self.identity = hash(frozenset(found))  # 64 bits; a `bytes` object remembers its own hash


class PowerLoss:
    """One moment of a disk, from which many disks may come."""

    def __init__(self, root: LossyDirectory, sector_bytes: int = SECTOR_BYTES):
        self.root = root
        self.sector_bytes = sector_bytes
        self.directories: dict[Node, Names] = {}
        self.files: dict[Node, Writes] = {}
        self._meet(root)
        self.names_at_stake = [(node, names) for node, names in self.directories.items() if names.count]
        self.files_at_stake = [(node, writes) for node, writes in self.files.items() if writes.count]

    def _meet(self, node: Node) -> None:
        """Take in a file, or a directory with all that it holds, held or may hold again."""
        if isinstance(node, LossyContent):
            self.files[node] = node.disk
        elif isinstance(node, LossyDirectory) and node not in self.directories:
            names = self.directories[node] = node.disk
            for child in names.certain.values():
                self._meet(child)
            for changes in names.changes:
                for _, changed in changes:
                    if changed is not None:
                        self._meet(changed)

    def choose(self, chance: Random) -> Choice:
        return Choice(
            [names.choose(chance) for _, names in self.names_at_stake],
            [writes.choose(chance, self.sector_bytes) for _, writes in self.files_at_stake],
        )

    def disk(self, choice: Choice) -> Disk:
        names = {node: count for (node, _), count in zip(self.names_at_stake, choice.names, strict=True)}
        files = {node: kept for (node, _), kept in zip(self.files_at_stake, choice.files, strict=True)}
        found: list[tuple[str, bytes | None]] = []
        modified_ms: dict[str, int] = {}
        left: list[tuple[str, Node]] = [("", self.root)]
        for above, directory in left:
            for name, node in self.directories[directory].entries(names.get(directory, 0)).items():
                path = above + name
                writes = self.files.get(node)
                if writes is None:
                    found.append((path, None))
                    left.append((path + "/", node))
                else:
                    found.append((path, writes.content(files[node]) if node in files else writes.certain))
                    modified_ms[path] = writes.modified_ms
        return Disk(found, modified_ms)
