"""Events of a cluster, heard from any thread.

    with cluster.watching("leader", "isr") as heard:
        cluster.kill(1)
        heard.wait("leader")            # also if it came before anybody waited
    print(*[event.line for event in heard], sep="\n")

What must hold: the list grows while it is open and holds every event of its kinds, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

from minibroker import event_kinds as event_kinds  # so that every kind is known by its name
from minibroker.embedded.hosted import Hosted
from minibroker.events import KINDS, Event, EventStream, Subscription

TIMEOUT_S = 10.0


class Heard(list[Event]):
    """The events that came since `with` was entered."""

    def __init__(self, host: Hosted[Any], events: EventStream, kinds: Iterable[str]):
        super().__init__()
        self._host = host
        self._events = events
        self._kinds = tuple(kinds)
        self._subscription: Subscription | None = None
        for kind in self._kinds:
            check_kind(kind)

    def __enter__(self) -> Self:
        self._host._call(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._host.is_running:
            self._host._call(self._close())
        elif self._subscription is not None:
            self._subscription.cancel()  # nobody else is there

    async def _open(self) -> None:
        self._subscription = self._events.subscribe(self.append, self._kinds)

    async def _close(self) -> None:
        if self._subscription is not None:
            self._subscription.cancel()

    def wait(self, wanted: str | Callable[[Event], object], timeout: float = TIMEOUT_S) -> Event:
        """Return the first event heard that is of a kind, or fits a predicate, as soon as there is one."""
        return self._host._call(self._first(wanted, timeout))

    async def await_(self, wanted: str | Callable[[Event], object], timeout: float = TIMEOUT_S) -> Event:
        """Return the first event heard that fits, as wait does."""
        return await self._host._await(self._first(wanted, timeout))

    async def _first(self, wanted: str | Callable[[Event], object], timeout: float) -> Event:
        fits, name = fitting(wanted)
        for event in self:
            if fits(event):
                return event
        try:
            return await self._events.wait_for(fits, self._kinds, timeout_ms=timeout * 1000)
        except TimeoutError:
            raise TimeoutError(f"no {name} among {len(self)} events within {timeout:g} s") from None


def fitting(wanted: str | Callable[[Event], object]) -> tuple[Callable[[Event], object], str]:
    """Return a predicate for what is wanted, and its name; ValueError for a kind that there is not."""
    if not isinstance(wanted, str):
        return wanted, "such event"
    check_kind(wanted)
    return lambda event: event.kind == wanted, f"event {wanted!r}"


def check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is no kind of event: there are {', '.join(KINDS)}")
