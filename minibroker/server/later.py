"""An answer that comes at once or later: from a group, or when rows are safe.

Who waits for it is called back in a turn of the loop of its own, for whoever gives the answer may be in the middle of
something. That is all: a task and its coroutines would take longer than many a request.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, TypeVar

    Made = TypeVar("Made")


class Later:
    """Called with a value, once; what is made of it is the answer. Who has gone meanwhile does not get it."""

    __slots__ = ("_make", "_tell", "value")

    def __init__(self) -> None:
        self.value: Any = None  # None: not yet
        self._make: Callable[[Any], Any] | None = None
        self._tell: Callable[[Later], object] | None = None

    def __call__(self, value: Any) -> None:
        self.value = value
        if self._tell is not None:
            self._call_soon()

    def into(self, make: Callable[[Any], Made]) -> Made | Later:
        """Return what `make` makes of the value if it is known, else this, which will have it."""
        if self.value is not None:
            return make(self.value)
        before = self._make
        self._make = make if before is None else lambda value: make(before(value))
        return self

    def then(self, tell: Callable[[Later], object]) -> None:
        """Be called with this when the value is known, in another turn of the loop."""
        self._tell = tell
        if self.value is not None:
            self._call_soon()

    def result(self) -> Any:
        """Return what has been made of the value."""
        return self.value if self._make is None else self._make(self.value)

    def cancel(self) -> None:
        self._tell = None

    def _call_soon(self) -> None:
        import asyncio

        asyncio.get_running_loop().call_soon(self._call)

    def _call(self) -> None:
        tell, self._tell = self._tell, None
        if tell is not None:
            tell(self)

    def __await__(self) -> Generator[Any, None, Any]:
        if self.value is None:
            import asyncio

            known = asyncio.get_running_loop().create_future()
            self._tell = lambda _: None if known.done() else known.set_result(None)
            yield from known
        return self.result()
