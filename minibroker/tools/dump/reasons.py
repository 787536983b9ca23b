"""Reasons why a record has gone from a log: what cleaning may take, and what it must not.

    reasons = Reasons(before, after, Transactions([*before, *after]), cleaned_end=34, is_whole=True)
    reasons.of(batch, record)       Reason("superseded", 29): a later record of its key, at 29, has taken its place

What must hold: who reads the log from its beginning finds the same last value for each key as before. A record that is
missed by that rule is LOST, whatever else may be said of it.
Memory goes with the number of keys and of transactions, never with values: of each key one offset is kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from minibroker.log.formats import ABORT, COMMIT
from minibroker.log.records import Record, control_type

if TYPE_CHECKING:
    from minibroker.log.batches import Batch

KEY_BYTES_MAX = 16  # longer ones are known by a digest of this size

# Kinds of reasons, as they are counted.
SUPERSEDED = "superseded"
EXPIRED = "expired"  # tombstones behind their delete horizon
ABORTED = "aborted"
NO_KEY = "without key"
MARKER = "marker"
RETENTION = "with their segment"
ELSEWHERE = "for reasons outside of the file"  # of a single segment not more can be known
LOST = "lost"  # for no reason that cleaning has


class Reason(NamedTuple):
    """Why one record has gone."""

    kind: str
    offset: int = -1  # of the record that has taken its place
    words: str = ""  # more of it


class Reasons:
    """What is known of the keys and transactions of two states of a log.

    cleaned_end: where the cleaner has ended; what lies behind supersedes nothing yet.
    is_whole: no segment is missing, so a record that nothing supersedes was the last of its key.
    """

    def __init__(
        self,
        before: Iterable[Batch],
        after: Iterable[Batch],
        transactions: Transactions,
        *,
        cleaned_end: int,
        is_whole: bool,
    ):
        self._transactions = transactions
        self._is_whole = is_whole
        self._kept: dict[bytes, int] = {}  # key -> offset of its first record in what is left
        self._gone: dict[bytes, int] = {}  # of the other keys: offset of the last record there was
        for batch in after:
            for record in self._keyed(batch):
                if record.offset < cleaned_end:
                    self._kept.setdefault(_short(record.key), record.offset)
        for batch in before:
            for record in self._keyed(batch):
                key = _short(record.key)
                if record.offset < cleaned_end and key not in self._kept:
                    self._gone[key] = record.offset

    def _keyed(self, batch: Batch) -> Iterable[Record]:
        """Return the records of a batch that may supersede others."""
        if batch.is_control or self._transactions.is_aborted(batch):
            return ()
        return (record for record in batch.records() if record.key is not None)

    def of(self, batch: Batch, record: Record) -> Reason:
        """Return why a record of a data batch has gone."""
        if self._transactions.is_aborted(batch):
            return Reason(ABORTED)
        if record.key is None:
            return Reason(NO_KEY)
        kept = self._kept.get(_short(record.key))
        if kept is not None:
            if kept < record.offset:
                return Reason(LOST, kept, f"an older record of its key, at {kept}, is still there")
            return Reason(SUPERSEDED, kept)
        last = self._gone.get(_short(record.key), record.offset)
        if last > record.offset:
            return Reason(SUPERSEDED, last, "which has gone as well")
        if not self._is_whole:
            return Reason(ELSEWHERE)
        if record.value is None:
            return Reason(EXPIRED)
        return Reason(LOST, words="it was the last of its key")


def _short(key: bytes | None) -> bytes:
    """Return what stands for a key: two keys never share it, as far as 128 bits can promise."""
    assert key is not None
    return bytes(key) if len(key) < KEY_BYTES_MAX else blake2b(key, digest_size=KEY_BYTES_MAX).digest()


class Transactions:
    """How the transactions of a log ended, from the markers before and after it was cleaned."""

    def __init__(self, batches: Iterable[Batch]):
        markers: dict[int, dict[int, bool]] = {}
        for batch in batches:
            if (kind := marker_of(batch)) is not None:
                markers.setdefault(batch.producer_id, {})[batch.last_offset] = kind == ABORT
        self._markers = {producer: sorted(ends.items()) for producer, ends in markers.items()}

    def is_aborted(self, batch: Batch) -> bool:
        """Whether a batch belongs to a transaction that was aborted."""
        if not batch.is_transactional or batch.is_control:
            return False
        ends = self._markers.get(batch.producer_id, ())
        at = bisect_right(ends, (batch.last_offset, True))
        return at < len(ends) and ends[at][1]


def marker_of(batch: Batch) -> int | None:
    """Return ABORT or COMMIT for a batch that ends a transaction; an empty one says no longer how."""
    if batch.is_control and batch.producer_id >= 0:
        for record in batch.records():
            if (kind := control_type(record)) in (ABORT, COMMIT):
                return kind
    return None
