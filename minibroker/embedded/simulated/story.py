"""What happened in a run, as lines for people: what went wrong, and what the brokers saw of it."""

from __future__ import annotations

from minibroker.event_kinds import is_internal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.events import Event

TOLD = ("append", "commit", "group", "transaction", "leader", "loss", "fault")
LAST, AROUND = 12, 4  # how many lines are shown at the end, and before and behind what goes wrong
LINE_LENGTH_MAX = 160


class Story:
    """Lines with their times, as they come."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, bool, str]] = []

    def add(self, at_s: float, words: str, *, is_harm: bool) -> None:
        self._rows.append((at_s, is_harm, words))

    def hear(self, at_s: float, event: Event) -> None:
        if event.kind in TOLD and not is_internal(getattr(event, "topic", "")):
            self.add(at_s, event.line, is_harm=event.kind == "fault")

    def shown(self) -> list[str]:
        """Return the last lines, and those around what went wrong."""
        rows = self._rows
        wanted = set(range(max(0, len(rows) - LAST), len(rows)))
        for index, (_, is_harm, _) in enumerate(rows):
            if is_harm:
                wanted |= set(range(max(0, index - AROUND), min(len(rows), index + AROUND + 1)))
        lines, before = [], -1
        for index in sorted(wanted):
            if index > before + 1:
                lines.append(f"            ... {index - before - 1} more")
            at_s, is_harm, words = rows[index]
            lines.append(f"{at_s:10.4f}  {'!' if is_harm else ' '} {words[:LINE_LENGTH_MAX]}")
            before = index
        return lines
