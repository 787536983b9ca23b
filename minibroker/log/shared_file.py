"""A segment's file as answers read it piece by piece while they are sent (`Slice.open` of segment.py).

Not to be compiled: compiled objects cannot be looked at by weak references, as a segment looks at its shared file.

What must hold: an answer gets what it has promised, or fails; never what has been appended in the place of it.
"""

from __future__ import annotations

from minibroker.errors import StorageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.log.storage import File


class SharedFile:
    """The file of a segment as answers read it that are being sent, however long that takes.

    It stays open until the last of them is done with it, whether the segment is renamed, removed or closed meanwhile.
    What is cut off cannot be read any more, though something else may have been appended in its place.

    Kafka: sends what is in its place then; only a file that is shorter than it was closes the connection.
    """

    __slots__ = ("__weakref__", "end_position", "file", "path")

    def __init__(self, path: str, file: File):
        self.path = path
        self.file = file
        self.end_position: int | None = None  # where it has been cut

    def view(self, position: int, size_bytes: int) -> memoryview:
        end = self.end_position
        found = self.file.view(position, size_bytes if end is None else max(min(size_bytes, end - position), 0))
        if len(found) < size_bytes:
            raise StorageError(f"read {self.path}: it ends at byte {position + len(found)} now")
        return found


class OpenSlice:
    """Some bytes of a segment that are read as they are sent."""

    __slots__ = ("position", "shared", "size_bytes")

    def __init__(self, shared: SharedFile, position: int, size_bytes: int):
        self.shared = shared
        self.position = position
        self.size_bytes = size_bytes
        shared.view(position + size_bytes - 1, 1)  # another program may have cut the file: then nothing is sent of it

    def __len__(self) -> int:
        return self.size_bytes

    def read(self, start: int, size_bytes: int) -> memoryview:
        """Return a piece of it; StorageError if the file has become shorter."""
        return self.shared.view(self.position + start, size_bytes)
