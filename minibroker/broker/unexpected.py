"""Errors of our own in tasks that go on all the same: said with a traceback, ever more rarely."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.server.server import Reporter

TOLD_COUNTS = frozenset(4**power for power in range(1, 16))  # of failures one after the other


class Unexpected:
    """The errors of one task."""

    def __init__(self, reporter: Reporter, name: str):
        self._reporter = reporter
        self._name = name
        self._count = 0

    def tell(self, error: Exception) -> None:
        import traceback

        self._count += 1
        if self._count == 1 or self._count in TOLD_COUNTS:
            lines = "".join(traceback.format_exception(error))
            self._reporter.say(f"unexpected error of {self._name}, please report it\n{lines}")
