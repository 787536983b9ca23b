"""Events in words: what has happened since a frame, as many as a person can read, and how many more there were.

Of what happens all the time (an append, a high watermark, an answer) only that is told which is about a partition
somebody looks at, and only while it is little: else it is not even subscribed to for QUIET_MS, and frames say
`is_quiet`.
What must hold: nothing is left out without being counted, but what was not subscribed to.
"""

from __future__ import annotations

from collections import deque

from minibroker.event_kinds import is_internal
from minibroker.events import KINDS
from minibroker.view.rows import key_of
from minibroker.view.table import encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from minibroker.events import Event

# Those that come with every record, message or request.
ROUTINE = frozenset(
    ("append", "high_watermark", "last_stable_offset", "marker", "fetch", "produce", "ack", "commit", "metadata")
)
CLUSTER = frozenset(kind for kind, cls in KINDS.items() if not cls.by_name) - ROUTINE
KEPT_MAX = 10_000  # of all frames together
NOTED_MAX = 200  # of one frame
TOLD_MAX = 50  # in one frame of a viewer, the newest
ROUTINE_MAX = 60  # in one frame: with more nobody can follow
QUIET_MS = 3_000


class Note:
    """An event that may be told, and where it is about."""

    __slots__ = ("_text", "event", "place")

    def __init__(self, event: Event):
        self.event = event
        topic = getattr(event, "topic", None)
        number = getattr(event, "partition", None)
        self.place = "" if topic is None or number is None else key_of(topic, number)
        self._text = ""

    def is_for(self, places: Collection[str]) -> bool:
        """Whether somebody who looks at some partitions is told of it."""
        if self.place in places:
            return True
        topic = getattr(self.event, "topic", "")
        return self.event.kind not in ROUTINE and not is_internal(topic)

    @property
    def text(self) -> str:
        if not self._text:
            self._text = encode(self.event.as_json())
        return self._text


class Noted:
    """What was noted for one frame."""

    __slots__ = ("left_out", "notes", "seq")

    def __init__(self) -> None:
        self.seq = 0
        self.notes: list[Note] = []
        self.left_out: dict[str, int] = {}  # by kind

    def take(self, event: Event, *, is_shown: bool) -> None:
        if is_shown and len(self.notes) < NOTED_MAX:
            self.notes.append(Note(event))
        else:
            self.left_out[event.kind] = self.left_out.get(event.kind, 0) + 1

    def __bool__(self) -> bool:
        return bool(self.notes or self.left_out)


class Said:
    """What has happened, by frames."""

    def __init__(self) -> None:
        self.routine_count = 0  # since the last frame
        self._now = Noted()
        self._frames: deque[Noted] = deque()
        self._kept = 0
        self._lost: tuple[int, int] = (
            0,
            0,
        )  # the last frame that is not kept any more, and how many there were by then

    def hear(self, event: Event, *, is_shown: bool = True) -> None:
        """is_shown: whether it is told, and not only counted."""
        if event.kind in ROUTINE:
            self.routine_count += 1
        self._now.take(event, is_shown=is_shown)

    def end_frame(self, seq: int) -> None:
        """What was heard belongs to this frame."""
        self.routine_count = 0
        if not self._now:
            return
        self._now.seq = seq
        self._frames.append(self._now)
        self._kept += len(self._now.notes)
        self._now = Noted()
        while self._kept > KEPT_MAX:
            oldest = self._frames.popleft()
            self._kept -= len(oldest.notes)
            count = self._lost[1] + len(oldest.notes) + sum(oldest.left_out.values())
            self._lost = (oldest.seq, count)

    def since(self, seq: int, places: Collection[str]) -> tuple[list[str], dict[str, int]]:
        """Return the events after a frame as JSON, the last one last, and how many more there were of each kind.

        Of many those first that are about no partition, such as that of a broker, for what happens to partitions comes
        of them; and then the newest.
        """
        left_out: dict[str, int] = {}
        notes: list[Note] = []
        for frame in reversed(self._frames):
            if frame.seq <= seq:
                break
            for kind, count in frame.left_out.items():
                left_out[kind] = left_out.get(kind, 0) + count
            notes += reversed(frame.notes)
        mine = [note for note in notes if note.is_for(places)]
        told = mine if len(mine) <= TOLD_MAX else sorted(mine, key=lambda note: note.place != "")[:TOLD_MAX]
        are_told = set(told)
        for note in notes:
            if note not in are_told:
                left_out[note.event.kind] = left_out.get(note.event.kind, 0) + 1
        if seq < self._lost[0]:
            left_out["older"] = self._lost[1]
        told.sort(key=lambda note: note.event.number)
        return [note.text for note in told], left_out
