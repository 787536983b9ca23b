"""Aborted transactions that a reader has to know, from the .txnindex files of a log: their records are not to be seen.

Markers come behind the records that they are about, so what a piece of a log holds is decided there or later, in
another segment maybe. An index that is gone or damaged is made anew from the log.
"""

from __future__ import annotations

from itertools import islice

from minibroker.errors import ProtocolError
from minibroker.log.index import FIRST, LAST, aborted_of
from minibroker.log.producers import ProducerStates
from minibroker.log.reading import damaged, end_offset_of
from minibroker.log.snapshots import load_producers, snapshot_offsets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from minibroker.log.partition_log import PartitionLog
    from minibroker.log.segment import Segment, Slice
    from minibroker.stored.producers import AbortedTxn

ABORTED_PIECE = 500  # transactions


def aborted_transactions(log: PartitionLog, found: Slice, offset: int) -> Aborted:
    """Return the aborted transactions that may have records between `offset` and the end of what was read."""
    index = log.segments.index(found.segment)
    end_offset = found.segment.offset_index.offset_at(found.position + found.size_bytes)
    if end_offset is None:
        end_offset = end_offset_of(log, index)
    try:
        return Aborted(log, offset, end_offset)
    except ProtocolError as error:
        raise damaged(log, error) from error


def aborted_between(log: PartitionLog, start_offset: int, end_offset: int) -> list[AbortedTxn]:
    """Return the aborted transactions that may have records at `start_offset` or behind, and before `end_offset`."""
    return list(Aborted(log, start_offset, end_offset))


class Aborted:
    """Aborted transactions that may have records at `start_offset` or behind, and before `end_offset`.

    Their entries have been taken from the indexes: others may have their turn before they are read, piece by piece.
    """

    __slots__ = ("_end_offset", "_log", "_start_offset", "_stored", "size_bytes")

    def __init__(self, log: PartitionLog, start_offset: int, end_offset: int):
        self._log = log
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._stored: list[tuple[Segment, bytes]] = []
        self.size_bytes = 0
        for segment in log.segments[log.segment_of(start_offset) :]:
            entries, is_over = _aborted_in(log, segment, start_offset, end_offset)
            if entries:
                self._stored.append((segment, entries))
                self.size_bytes += len(entries)
            if is_over:
                break

    def __iter__(self) -> Iterator[AbortedTxn]:
        return (aborted_of(row) for rows in self.pieces() for row in rows)

    def in_pieces(self) -> Iterator[list[tuple[int, ...]]]:
        """Yield them as rows of .txnindex; LogDamaged if the log is."""
        try:
            yield from self.pieces()
        except ProtocolError as error:
            raise damaged(self._log, error) from error

    def pieces(self) -> Iterator[list[tuple[int, ...]]]:
        """Yield them as rows of .txnindex."""
        start_offset, end_offset = self._start_offset, self._end_offset
        for segment, entries in self._stored:
            rows = segment.transaction_index.rows(entries)
            try:
                while piece := list(islice(rows, ABORTED_PIECE)):
                    start_offset = piece[-1][LAST] + 1
                    yield [row for row in piece if row[FIRST] < end_offset]
            except ProtocolError:
                _restore_aborted(self._log, segment)
                yield from Aborted(self._log, start_offset, end_offset).pieces()
                return


def _aborted_in(log: PartitionLog, segment: Segment, start_offset: int, end_offset: int) -> tuple[bytes, bool]:
    """Return what the index of a segment has, making it anew if it cannot be read or is gone."""
    index = segment.transaction_index
    try:
        if index.is_trusted or index.exists or not _had_markers(log, segment):
            index.is_trusted = True
            return index.between(start_offset, end_offset)
    except ProtocolError:
        pass
    _restore_aborted(log, segment)
    return index.between(start_offset, end_offset)


def _restore_aborted(log: PartitionLog, segment: Segment) -> None:
    """Make the index of a segment anew."""
    index = segment.transaction_index
    index.remove()
    end_offset = segment.next_offset()
    load_producers(
        ProducerStates(),
        log.storage,
        log.directory,
        log.segments,
        end_offset,
        from_offset=segment.base_offset,
        on_abort=lambda holder, aborted: index.add(aborted) if holder is segment else None,
    )
    index.is_trusted = True


def _had_markers(log: PartitionLog, segment: Segment) -> bool:
    """Return whether a transaction can have ended in the segment, by what was known of producers behind it."""
    end_offset = segment.next_offset()
    if end_offset == segment.base_offset:
        return False
    known = log.producers
    if segment is not log.active:
        if end_offset not in snapshot_offsets(log.storage, log.directory):
            return True
        known = ProducerStates()
        load_producers(known, log.storage, log.directory, log.segments, end_offset)
    return known.has_markers
