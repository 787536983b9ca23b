"""The markers of a segment against its .txnindex, while nobody knows which transactions were open where it begins.

Only the first marker of a producer can end a transaction that began before the segment, so these go to whoever puts
segments together. All others are compared here, but for the last stable offset where something of before the segment
may be open: that is then one offset for all entries between two of those first markers, and is handed on with them.
"""

from __future__ import annotations

from collections.abc import Iterable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from minibroker.stored.producers import AbortedTxn

    Row = tuple[int, int, int, int]

NOTHING = -1


class FirstMarker:
    """The first marker of a producer in a segment; the first of all is none, for what comes before."""

    __slots__ = ("due", "indexed", "is_abort", "open_since", "producer_id")

    def __init__(self, producer_id: int, due: Row, *, is_abort: bool, indexed: Row | None):
        self.producer_id = producer_id
        self.due = (
            due  # if nothing of before is open; with NOTHING for where a transaction begins that is not begun here
        )
        self.is_abort = is_abort
        self.indexed = indexed  # what .txnindex has for it
        # Since when one of before is open by the entries up to the next such marker; NOTHING: none is; None: no entry.
        self.open_since: int | None = None


class TransactionFindings:
    """What the markers of a segment say, and what its .txnindex. It can go to another process."""

    def __init__(self, entries: Iterable[AbortedTxn]):
        self.firsts = [FirstMarker(NOTHING, (NOTHING, NOTHING, NOTHING, NOTHING), is_abort=False, indexed=None)]
        self._agrees = True
        self._entries = {entry.last_offset: row_of(entry) for entry in entries}
        self._seen: set[int] = set()

    def take(self, due: Row, *, is_abort: bool) -> None:
        """Note the next marker. due: what is to be in .txnindex if nothing of before the segment is open."""
        producer_id, first_offset, last_offset, _ = due
        indexed = self._entries.pop(last_offset, None)
        if producer_id not in self._seen:
            self._seen.add(producer_id)
            self.firsts.append(FirstMarker(producer_id, due, is_abort=is_abort, indexed=indexed))
        elif not is_abort or first_offset == NOTHING:
            self._agrees = self._agrees and indexed is None
        elif indexed is None or indexed[:3] != due[:3]:
            self._agrees = False
        else:
            open_since = NOTHING if indexed == due else indexed[3]
            last = self.firsts[-1]
            self._agrees = self._agrees and last.open_since in (None, open_since)
            last.open_since = open_since

    def end(self) -> None:
        """All markers have been seen."""
        self._agrees = self._agrees and not self._entries
        self._entries.clear()
        self._seen.clear()

    def agrees(self, before: Mapping[int, int]) -> bool:
        """Return whether .txnindex is what the log gives. before: the transactions that were open, in their order, as
        producers and where each began."""
        is_open = dict(before)
        for marker in self.firsts:
            producer_id, first_offset, last_offset, stable_offset = marker.due
            first_offset = is_open.pop(producer_id, first_offset)
            open_since = next(iter(is_open.values()), NOTHING)
            due = None
            if marker.is_abort and first_offset != NOTHING:
                due = producer_id, first_offset, last_offset, stable_offset if open_since == NOTHING else open_since
            if marker.indexed != due or marker.open_since not in (None, open_since):
                return False
        return self._agrees


def row_of(entry: AbortedTxn) -> Row:
    return entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset
