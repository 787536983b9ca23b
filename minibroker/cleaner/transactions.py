"""Transactions as a pass over a log meets them: which data was aborted, which markers nobody needs any longer.

`see` is shown every batch of the pass in the order of the log, data and markers. A transaction that was aborted is
known beforehand, from the transaction indexes of the segments; one that was committed shows itself by its data.
The same bookkeeping as that of CleanedTransactionMetadata in Kafka.
What must hold: a marker may go only if no batch of its transaction has been seen in this pass. Aborted data itself goes
at once, but the marker was needed for it until then: so it goes one pass later than the data, or more.
Not here: until when a marker that may go is kept all the same, the delete horizon (batch_filter.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from minibroker.log.batches import Batch
from minibroker.log.formats import ABORT, COMMIT
from minibroker.log.records import control_type
from minibroker.stored.producers import AbortedTxn


class Transactions:
    """What is known of transactions at one point of a pass."""

    def __init__(self) -> None:
        # Entries of aborted transactions whose data and marker were both there: the index of the segment that the
        # marker is written to must have them. Whoever writes it takes them out.
        self.kept: list[AbortedTxn] = []
        # First offset, a number that makes it unique, entry: those to come, the one that begins first on top.
        self._to_come: list[tuple[int, int, AbortedTxn]] = []
        self._added = 0
        self._aborted: dict[int, _Aborted] = {}  # by producer id, from the transaction's first offset to its marker
        self._committed: set[int] = set()  # producer ids with data seen since their last marker that was not aborted

    def add_aborted(self, entries: Iterable[AbortedTxn]) -> None:
        """Announce aborted transactions before the pass comes to their first batch; twice does no harm."""
        for entry in entries:
            self._added += 1
            heappush(self._to_come, (entry.first_offset, self._added, entry))

    def see(self, batch: Batch) -> bool:
        """Return whether the batch may go: aborted data, or a marker of which no data is left."""
        to_come = self._to_come
        while to_come and to_come[0][0] <= batch.last_offset:
            entry = heappop(to_come)[2]
            self._aborted.setdefault(entry.producer_id, _Aborted(entry))
        if batch.is_control:
            return self._see_marker(batch)
        if not batch.is_transactional:
            return False
        aborted = self._aborted.get(batch.producer_id)
        if aborted is None:
            self._committed.add(batch.producer_id)
            return False
        aborted.has_data = True
        return True

    def _see_marker(self, batch: Batch) -> bool:
        record = next(batch.records(), None)
        if record is None:
            return True  # emptied by an earlier pass
        kind = control_type(record)
        if kind == ABORT:
            aborted = self._aborted.pop(batch.producer_id, None)
            if aborted is None or not aborted.has_data:
                return True
            self.kept.append(aborted.entry)
            return False
        if kind == COMMIT:
            had_data = batch.producer_id in self._committed
            self._committed.discard(batch.producer_id)
            return not had_data
        return False


class _Aborted:
    __slots__ = ("entry", "has_data")

    def __init__(self, entry: AbortedTxn):
        self.entry = entry
        self.has_data = False  # a batch of it has been seen in this pass
