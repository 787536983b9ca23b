"""A gate: what comes to it waits for a token, in the order in which it came. With it a cluster is run step by step.

gate = Gate("fetches", events)
gate.enter("Fetch 1->2", go)     # `go` is called when it is its turn: at once while the gate is open
gate.close()
gate.step()                      # one more may pass
gate.open()                      # all that wait, and what comes later
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from minibroker.event_kinds import Step
from minibroker.events import EventStream


class Held:
    """Something that waits at a gate."""

    __slots__ = ("go", "letter", "what")

    def __init__(self, what: str, go: Callable[[], object], letter: object):
        self.what = what
        self.go = go
        self.letter = letter  # None: it is no message


class Gate:
    """Open when it is made."""

    def __init__(self, name: str, events: EventStream):
        self.name = name
        self.is_open = True
        self.tokens = 0  # for those that come later
        self.waiting: deque[Held] = deque()
        self._events = events

    def enter(self, what: str, go: Callable[[], object], letter: object = None) -> Held | None:
        """Call `go` now, or return what waits for its token."""
        if self.is_open or self.tokens:
            self.tokens = max(0, self.tokens - 1)
            go()
            return None
        held = Held(what, go, letter)
        self.waiting.append(held)
        self._tell(what, "waits")
        return held

    def give_up(self, held: Held) -> None:
        """Wait no more; it will not pass."""
        if held in self.waiting:
            self.waiting.remove(held)

    def close(self) -> None:
        self.is_open = False
        self.tokens = 0

    def step(self, count: int = 1, *, ahead: bool = False) -> int:
        """Let so many pass, and return how many did. ahead: the rest of the tokens is for those that come later."""
        passed = 0
        while passed < count and self.waiting:
            passed += 1
            self._pass()
        if ahead:
            self.tokens += count - passed
        return passed

    def open(self) -> None:
        """Let everybody pass from now on."""
        self.is_open = True
        while self.waiting and self.is_open:  # somebody who passes may close it
            self._pass()

    def _pass(self) -> None:
        held = self.waiting.popleft()
        self._tell(held.what, "goes on")
        held.go()

    def _tell(self, what: str, state: str) -> None:
        if self._events.observed:
            self._events.emit(Step(gate=self.name, what=what, state=state))
