"""An answer that comes at once or later: from a group, or when rows are safe."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import Future
    from typing import Any


class Later:
    """Called with the answer; who has gone meanwhile does not get it."""

    __slots__ = ("_future", "value")

    def __init__(self) -> None:
        self.value: Any = None  # None: not yet
        self._future: Future[None] | None = None

    def __call__(self, value: Any) -> None:
        self.value = value
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> Any:
        if self.value is None:
            import asyncio

            self._future = asyncio.get_running_loop().create_future()
            await self._future
        return self.value
