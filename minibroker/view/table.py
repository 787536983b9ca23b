"""Rows by their keys, each as JSON, and with which frame it changed last.

    table.put("orders-0", ["orders", 0, 1], seq=7)
    table.since(6)                                    ["orders-0"]: to be sent to who has got frame 6

What must hold: a row that is put again as it is has not changed. A key that has gone is remembered, for those who still
have its row, up to GONE_MAX of them; whoever is further behind than `lost_seq` needs all rows anew.
"""

from __future__ import annotations

from json import JSONEncoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

# Tables that all viewers get, looked through for each frame or changed by events; those of which each gets a choice.
SMALL = ("cluster", "brokers", "links", "disks", "gates", "rules", "totals")
LISTED = ("topics", "cells", "groups", "transactions")
CHOSEN = ("rows", "logs", "contents", "members", "sums", "clients")
GONE_MAX = 10_000
ROWS_TOGETHER = 250  # written at once

encode = JSONEncoder(separators=(",", ":")).encode


class RowTable:
    """One table of a state."""

    __slots__ = ("_gone", "changed", "lost_seq", "rows", "texts")

    def __init__(self) -> None:
        self.rows: dict[str, object] = {}
        self.texts: dict[str, str] = {}  # the rows as JSON
        self.changed: dict[str, int] = {}  # key -> frame, in the order of the changes; those that have gone, too
        self.lost_seq = 0
        self._gone: dict[str, None] = {}

    def put(self, key: str, row: object, seq: int) -> None:
        """Set a row, or take it away: None."""
        if row is None:
            self.remove(key, seq)
        elif key not in self.rows or self.rows[key] != row:
            self.rows[key] = row
            self.texts[key] = encode(row)
            self._gone.pop(key, None)
            self.changed.pop(key, None)
            self.changed[key] = seq

    def remove(self, key: str, seq: int) -> None:
        if key not in self.rows:
            return
        del self.rows[key], self.texts[key], self.changed[key]
        self.changed[key] = seq
        self._gone[key] = None
        if len(self._gone) > GONE_MAX:
            oldest = next(iter(self._gone))
            del self._gone[oldest]
            self.lost_seq = self.changed.pop(oldest)

    def replace(self, rows: Mapping[str, object], seq: int) -> None:
        """Have these rows and no others."""
        for key in [key for key in self.rows if key not in rows]:
            self.remove(key, seq)
        for key, row in rows.items():
            self.put(key, row, seq)

    def forget(self, key: str) -> None:
        """Have a row no more that nobody looks at: nobody is told of that."""
        self._gone.pop(key, None)
        for known in (self.rows, self.texts, self.changed):
            known.pop(key, None)

    def since(self, seq: int) -> list[str]:
        """Return the keys that have changed after a frame, those that changed first in front."""
        found = []
        for key, changed_seq in reversed(self.changed.items()):
            if changed_seq <= seq:
                break
            found.append(key)
        found.reverse()
        return found


def write_table(name: str, texts: Mapping[str, str], pieces: list[str]) -> Generator[int, None, None]:
    """Write rows as a field of an object, with a comma in front; rows that go meanwhile are left out."""
    keys = list(texts)
    pieces.append(f",{encode(name)}:{{")
    is_first = True
    for start in range(0, len(keys), ROWS_TOGETHER):
        some = [f"{encode(key)}:{texts[key]}" for key in keys[start : start + ROWS_TOGETHER] if key in texts]
        if some:
            pieces += ("" if is_first else ",", ",".join(some))
            is_first = False
        yield len(some)
    pieces.append("}")
