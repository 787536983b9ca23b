"""What people are told of a disk that refuses: a line, but not one for each request, figures, and if it does so now.

Whoever meets a failure says so here and nowhere else.
"""

from __future__ import annotations

from minibroker.errors import LogOffline, StorageDamaged, StorageError
from minibroker.log.checkpoints import TEMPORARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from minibroker.log.storage import Storage

SAID_AGAIN_MS = 10_000  # the same is said once in so long, and then how often it was
ABSENT = (-1, -1)
TEXTS_MAX = 100  # so many are remembered
FILES_MAX = 1000  # and so many files, the last that failed
RECENT_MS = 30_000  # who asks whether the broker is ready is told of it for so long, unless it has worked again


class DiskTrouble:
    """One for the life of a broker."""

    def __init__(self, storage: Storage, steady_ms: Callable[[], int], say: Callable[[str], object]):
        self._storage = storage
        self._steady_ms = steady_ms
        self._say = say
        self.count = 0  # failures since the start
        # What failed, the last one last, by the path of the file: the text, when, and how that file was then.
        self._failed: dict[str, tuple[str, int, tuple[int, int]]] = {}
        self._said: dict[str, tuple[int, int]] = {}  # by text: when, by the steady clock, and how often since

    def note(self, failure: Exception) -> None:
        """A read, write or sync has failed."""
        now_ms, text = self._steady_ms(), str(failure)
        self.count += 1
        if not isinstance(failure, (LogOffline, StorageDamaged)):  # those last, and a disk may work again
            path = failure.path if isinstance(failure, StorageError) else ""
            path = path.removesuffix(TEMPORARY)  # the file in whose place it is put is what counts
            self._failed.pop(path, None)
            self._failed[path] = text, now_ms, self._look(path)
            if len(self._failed) > FILES_MAX:
                del self._failed[next(iter(self._failed))]
        said_ms, held_back = self._said.pop(text, (None, 0))
        if said_ms is not None and now_ms - said_ms < SAID_AGAIN_MS:
            self._said[text] = said_ms, held_back + 1
            return
        self._said[text] = now_ms, 0
        if len(self._said) > TEXTS_MAX:
            del self._said[next(iter(self._said))]
        self._say(f"{text} ({held_back + 1} times since this was said)" if held_back else text)

    def recent(self) -> str:
        """Return what a disk refused last, but not what was some time ago or has worked since: the file has changed.

        A read that failed, and what nobody has tried again, is told of until the time has passed.
        """
        now_ms = self._steady_ms()
        while self._failed:
            path, (text, failed_ms, file) = next(reversed(self._failed.items()))
            if now_ms - failed_ms < RECENT_MS and (not path or self._look(path) == file):
                return text
            del self._failed[path]
        return ""

    def _look(self, path: str) -> tuple[int, int]:
        """Return size and time of a file."""
        storage = self._storage
        try:
            return (storage.size_bytes(path), storage.modified_ms(path)) if storage.exists(path) else ABSENT
        except StorageError:
            return ABSENT
