"""Segments of a directory that is looked at and never written to, while somebody else may change it."""

from __future__ import annotations

from minibroker.errors import StorageError
from minibroker.log.batches import batches
from minibroker.log.segment import Segment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from minibroker.log.batches import Batch
    from minibroker.log.storage import File


class ReadOnlySegment(Segment):
    """A segment of which somebody else may cut the file or take it away; StorageError says so."""

    def _opened(self) -> File:
        if self._file is None:
            self._file = self.storage.open(self.path)
        return self._file

    def view(self, position: int, size_bytes: int) -> memoryview:
        found = super().view(position, size_bytes)
        if len(found) < min(size_bytes, self.size_bytes - position):
            raise StorageError(f"{self.path} ends before byte {self.size_bytes}, where it ended before")
        return found


class WholeSegment(ReadOnlySegment):
    """A segment in which a batch that goes on behind the end is an error, and not the end."""

    def batches(self, position: int = 0, end: int | None = None) -> Iterator[Batch]:
        stop = self.size_bytes if end is None else end
        return batches(self.view(position, stop - position), strict=True)
