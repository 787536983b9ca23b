"""A folder whose owner is killed at the n-th thing that it does to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minibroker.spark.folders import Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.spark.folders import Folder


class Killed(BaseException):
    """As no `except Exception` catches a kill."""


class DyingFolder:
    """Does what another folder does, until one change too many: that one is the last, or not done any more."""

    def __init__(self, folder: Folder, changes: int, *, after: bool):
        self.folder = folder
        self.place = folder.place
        self.left = changes
        self.after = after

    def _change(self, change: Callable[[], Any]) -> Any:
        self.left -= 1
        if self.left >= 0:
            return change()
        if self.after:
            change()
        raise Killed

    def at(self, name: str) -> str:
        return self.folder.at(name)

    def exists(self, name: str = "") -> bool:
        return self.folder.exists(name)

    def list(self, name: str = "") -> list[Entry]:
        return self.folder.list(name)

    def read(self, name: str) -> bytes:
        return self.folder.read(name)

    def write(self, name: str, data: bytes) -> None:
        self._change(lambda: self.folder.write(name, data))

    def write_new(self, name: str, data: bytes) -> bool:
        return bool(self._change(lambda: self.folder.write_new(name, data)))

    def move(self, old: str, new: str) -> bool:
        return bool(self._change(lambda: self.folder.move(old, new)))

    def remove(self, name: str) -> None:
        self._change(lambda: self.folder.remove(name))
