"""A cluster on a screen: its picture, and what keys do to it. Here what is the same wherever the cluster runs.

A subclass has the state at hand and carries commands out: lessons/show.py in this process, cli/remote_screen.py in
another one.
What must hold: a key that cannot do anything now says why, and does nothing.
"""

from __future__ import annotations

from collections import deque

from minibroker.watch.frame import KEYS, frame, key_lines, shown_partitions
from minibroker.watch.lanes import NOBODY
from minibroker.watch.painting import paint, wrap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from minibroker.cluster.snapshot import ClusterState

SAID_MAX = 50
SCROLLED = 3  # partitions at a time
ADVANCE = "5s"
HELP = (
    "The lanes are replicas: one cell is one record, or some if there are many. A bar stands where the high watermark "
    "is; what is right of it is not committed. Of many records # are committed, = are not, - is "
    "a cell with both. A colon is where a segment begins, a point where a record has been, "
    "+ and ! are commit and abort markers. lso is where the first open transaction begins. "
    "Colours are leader epochs, listed at the right: e1@3 began at offset 3; clean@4: compacted up to offset 4.",
    "Arrows choose a broker. k kills it or starts it again, p pauses it or lets it go on. h holds fetches, answers, "
    "ISR changes and elections at gates, s lets the first of them through, r all. f freezes the clock or lets it run, "
    f"a moves it on by {ADVANCE}. t shows one topic alone after the "
    "other, PgDn the next partitions. In a lesson n plays the next step.",
)


class Screen:
    """What is on the screen, and what keys do."""

    keys = KEYS

    def __init__(self) -> None:
        self.chosen = 1
        self.topic = ""  # the only one that is shown; else all but those of the brokers
        self.first = 0  # partition that is shown: those before it have been scrolled past
        self.words: list[str] = []
        self.is_over = False
        self.changed: Callable[[], object] = bool  # called when there is something new to draw
        self.said: deque[tuple[int, str]] = deque(maxlen=SAID_MAX)  # what happened last: when, and the sentence
        self._shows_help = False

    # What a subclass says

    def state(self) -> ClusterState | None:
        """Return what there is to see now, None if there is no cluster yet."""
        raise NotImplementedError

    async def do(self, line: str) -> str:
        """Carry out a command as one would type it; return why it cannot be, or nothing."""
        raise NotImplementedError

    # The picture

    def lines(self, width: int, height: int, *, colour: bool, keys: bool = True) -> list[str]:
        """Return the picture of now."""
        state = self.state()
        words: Sequence[str] = HELP if self._shows_help else self.words
        foot = self.keys if keys else ""
        if state is None:
            lines = [line for each in words for line in [*wrap(each, width), ""]]
            return [paint([("", line)], width, colour=colour) for line in [*lines, *key_lines(foot, width)][:height]]
        shown: ClusterState = {**state, "said": list(self.said)}
        chosen = self.chosen if keys else NOBODY
        self.first = max(min(self.first, len(shown_partitions(state, self.topic)) - 1), 0)
        return frame(
            shown,
            width,
            height,
            colour=colour,
            chosen=chosen,
            words=words,
            keys=foot,
            topic=self.topic,
            first=self.first,
        )

    # Keys

    async def press(self, key: str) -> None:
        """Do what a key stands for."""
        state = self.state()
        if key == "q":
            self.is_over = True
        elif key == "?":
            self._shows_help = not self._shows_help
        elif state is None:
            return
        elif key in ("left", "up"):
            self._choose(state, -1)
        elif key in ("right", "down"):
            self._choose(state, 1)
        elif key == "t":
            self._choose_topic(state)
        elif key in ("page up", "page down"):
            self.first += SCROLLED if key == "page down" else -SCROLLED
        elif (line := command_of(key, state, self.chosen)) is not None:
            why = await self.do(line)
            self.words = [why] if why else self._usual_words()

    def _usual_words(self) -> list[str]:
        """Return what is said after a command that was carried out."""
        return []

    def _choose_topic(self, state: ClusterState) -> None:
        """Show the next topic alone, and after the last one all."""
        topics = ["", *dict.fromkeys(each["topic"] for each in state["partitions"])]
        at = topics.index(self.topic) if self.topic in topics else 0
        self.topic, self.first = topics[(at + 1) % len(topics)], 0

    def _choose(self, state: ClusterState, by: int) -> None:
        brokers = [each["id"] for each in state["brokers"]]
        at = brokers.index(self.chosen) if self.chosen in brokers else 0
        self.chosen = brokers[(at + by) % len(brokers)]


def command_of(key: str, state: ClusterState, chosen: int) -> str | None:
    """Return the command that a key stands for, as one would type it in a lesson or after `minibroker cluster`."""
    now = next((each["state"] for each in state["brokers"] if each["id"] == chosen), "")
    lines: dict[str, str] = {
        "s": "step",
        "h": "hold fetch answer isr election",
        "r": "release",
        "a": f"advance {ADVANCE}",
        "f": "thaw" if state["is_frozen"] else "freeze",
        "k": f"{'start' if now in ('killed', 'stopped') else 'kill'} {chosen}",
        "p": f"{'resume' if now == 'paused' else 'pause'} {chosen}",
    }
    return lines.get(key)
