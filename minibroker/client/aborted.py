"""Read committed: the filter of batches that belong to aborted transactions.

Brokers send all batches up to the last stable offset, and beside them the aborted transactions in that range: producer
and first offset. A transaction's batches are passed over from there to its abort marker (KIP-98).
Markers and other control batches are never shown, whatever the isolation level.
"""

from __future__ import annotations

from minibroker.log.formats import ABORT
from minibroker.log.records import control_type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from minibroker.log.batches import Batch


class AbortedFilter:
    """For one answer and one partition; batches must come in their order."""

    def __init__(self, aborted: Iterable[tuple[int, int]] = ()):
        """Take pairs of first offset and producer id; none for read uncommitted."""
        self._waiting = sorted(aborted, reverse=True)  # the next one last
        self._aborted_ids: set[int] = set()

    def hides(self, batch: Batch) -> bool:
        """Whether the batch is not for applications; must be asked once of every batch."""
        while self._waiting and self._waiting[-1][0] <= batch.last_offset:
            self._aborted_ids.add(self._waiting.pop()[1])
        if batch.is_control:
            if batch.producer_id in self._aborted_ids and _is_abort(batch):
                self._aborted_ids.remove(batch.producer_id)
            return True
        return batch.is_transactional and batch.producer_id in self._aborted_ids


def _is_abort(batch: Batch) -> bool:
    first = next(batch.records(), None)  # the cleaner may have left an empty batch
    return first is not None and control_type(first) == ABORT
