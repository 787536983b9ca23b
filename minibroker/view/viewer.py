"""One who looks: server-sent events, first a state and then frames, as fast as he reads and no faster.

    event: state                  all there is; again when nobody knows any more what has changed since his last frame
    id: 5d2c.0
    data: {"v": 1, "boot": "5d2c", "seq": 0, ...}

    event: frame                  what has changed, and what happened
    id: 5d2c.1
    data: {"seq": 1, "t": ..., "set": {"rows": {"orders-0": [...]}}, "gone": {"topics": ["old"]}, "said": [...]}

What must hold: a frame is made when there is room for it, of rows as they are then; so nothing is kept for who reads
slowly. More than RATE_BYTES a second are not sent for long: the next frame waits until this one has been paid for.
"""

from __future__ import annotations

from minibroker.view.rows import key_of
from minibroker.view.table import CHOSEN, LISTED, SMALL, encode, write_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Protocol

    from minibroker.view.selection import Selection
    from minibroker.view.state import ViewState

    class Sink(Protocol):
        """Where a viewer's bytes go."""

        @property
        def is_full(self) -> bool: ...

        def send(self, data: bytes) -> None: ...

        def close(self, reason: str = "") -> None: ...

    Work = Generator[int, None, None]


RATE_BYTES = 64 * 1024  # a second
DELAY_MS_MAX = 1000  # between two frames, however large the first was
HEARTBEAT_MS = 1000  # a frame comes so often though nothing has changed
FULL_MS_MAX = 60_000  # who has read nothing for so long may come again


class Viewer:
    """One of a feed."""

    def __init__(self, state: ViewState, selection: Selection, sink: Sink, may_look: Callable[[], bool]):
        """may_look: asked before each frame, for rules change."""
        self.selection = selection
        self._may_look = may_look
        self.places: list[tuple[str, int]] = []  # that he looks at now
        self.groups: list[str] = []
        self.is_new = True  # nothing has been sent yet
        self._state = state
        self._sink = sink
        self._seq = _known_seq(state, selection.since)  # of the last frame that he has; -1: he needs a state
        self._is_resuming = self._seq >= 0
        self._has: dict[str, dict[str, None]] = {}  # by table, of what he has chosen, the keys that he has been sent
        self._due_ms = self._sent_ms = self._full_since_ms = 0
        self._places_left_out = 0
        self._looked: tuple[int, int] = (0, 0)
        self._left_out: dict[str, int] = {}  # how much is not shown, by table

    def look(self) -> None:
        """See what there is of what he has chosen."""
        image = self._state.source.image
        looked = (id(image), image.offset)
        if looked != self._looked:
            self._looked = looked
            self.places, self._places_left_out = self.selection.places(image)
        self.groups, groups_left_out = self.selection.group_ids(self._state.tables["groups"].rows)
        counts = {"rows": self._places_left_out, "members": groups_left_out}
        self._left_out = {name: count for name, count in counts.items() if count}

    def is_due(self, now_ms: int) -> bool:
        """Whether there is room, and time, for a frame."""
        if not self._sink.is_full:
            self._full_since_ms = 0
            if now_ms >= self._due_ms and not self._may_look():
                self.close("it may not look any more")
                return False
            return now_ms >= self._due_ms
        self._full_since_ms = self._full_since_ms or now_ms
        if now_ms - self._full_since_ms > FULL_MS_MAX:
            self.close("it has read nothing for a minute")
        return False

    def close(self, reason: str = "") -> None:
        self._sink.close(reason)

    def send_frame(self, now_ms: int) -> Work:
        """Send what has changed, or all if he has nothing yet."""
        pieces: list[str] = []
        state, seq = self._state, self._state.seq
        name = "frame" if self._seq >= 0 else "state"
        if name == "state":
            self._has = {table: self._chosen(table) for table in CHOSEN}
            chosen = {table: {key: state.tables[table].texts[key] for key in keys} for table, keys in self._has.items()}
            yield from state.write(pieces, chosen, seq, self._left_out)
        else:
            yield from self._write_frame(pieces, is_silent=now_ms - self._sent_ms < HEARTBEAT_MS)
        self._seq, self.is_new = seq, False
        if pieces:
            data = f"event: {name}\nid: {state.boot}.{seq}\ndata: {''.join(pieces)}\n\n".encode()
            self._sink.send(data)
            self._sent_ms = now_ms
            self._due_ms = now_ms + min(len(data) * 1000 // RATE_BYTES, DELAY_MS_MAX)

    def _write_frame(self, pieces: list[str], *, is_silent: bool) -> Work:
        """Write what has changed; nothing if nothing has and nobody needs to know that."""
        state = self._state
        changed: list[str] = []
        gone: dict[str, list[str]] = {}
        anew: list[str] = list(CHOSEN) if self._is_resuming else []
        yield from self._write_common(changed, gone, anew)
        yield from self._write_chosen(changed, gone)
        self._is_resuming = False
        said, left_out = state.said.since(self._seq, {key_of(*place) for place in self.places})
        if not (changed or gone or anew or said or left_out) and is_silent:
            return
        pieces.append(f"{{{state.head(state.seq)}")
        if anew:
            pieces.append(f',"anew":{encode(anew)}')
        if changed:
            changed[0] = changed[0].removeprefix(",")
            pieces += (',"set":{', *changed, "}")
        if gone:
            pieces.append(f',"gone":{encode(gone)}')
        if said:
            pieces.append(f',"said":[{",".join(said)}]')
        if left_out:
            pieces.append(f',"left_out":{encode(left_out)}')
        if state.is_quiet:
            pieces.append(',"is_quiet":true')
        pieces.append("}")

    def _write_common(self, changed: list[str], gone: dict[str, list[str]], anew: list[str]) -> Work:
        """Write what has changed of the tables that everybody gets."""
        for name in (*SMALL, *LISTED):
            table = self._state.tables[name]
            if self._seq < table.lost_seq:
                anew.append(name)
                yield from write_table(name, table.texts, changed)
            elif keys := table.since(self._seq):
                texts = {key: table.texts[key] for key in keys if key in table.texts}
                if texts:
                    yield from write_table(name, texts, changed)
                if len(texts) < len(keys):
                    gone[name] = [key for key in keys if key not in table.texts]

    def _write_chosen(self, changed: list[str], gone: dict[str, list[str]]) -> Work:
        """Write what has changed of what he looks at, and what is there no more."""
        for name in CHOSEN:
            table, has, wanted = self._state.tables[name], self._has.get(name, {}), self._chosen(name)
            self._has[name] = wanted
            texts = {key: table.texts[key] for key in wanted if key not in has or table.changed[key] > self._seq}
            if texts:
                yield from write_table(name, texts, changed)
            if lost := [key for key in has if key not in wanted]:
                gone[name] = lost

    def _chosen(self, name: str) -> dict[str, None]:
        """Return the keys of a table that he has chosen, of those that there are."""
        table = self._state.tables[name]
        if name == "rows":
            return {key: None for place in self.places if (key := key_of(*place)) in table.texts}
        if name == "logs" or (name == "contents" and self.selection.contents):
            wanted = {key_of(*place) for place in self.places}
            return {key: None for key in table.texts if key.rpartition("@")[0] in wanted}
        if name == "members":
            return {key: None for key in self.groups if key in table.texts}
        is_wanted = (name == "sums" and self.selection.sums) or (name == "clients" and self.selection.clients)
        return dict.fromkeys(table.texts) if is_wanted else {}


def _known_seq(state: ViewState, since: str) -> int:
    """Return the last frame that somebody has of a state, -1 if he has none."""
    boot, _, seq = since.partition(".")
    is_known = boot == state.boot and seq.isascii() and seq.isdecimal() and len(seq) < 16
    return int(seq) if is_known and int(seq) <= state.seq else -1
