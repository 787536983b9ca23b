"""Verification of the two sparse indexes of a segment against its batches.

Of a segment that was read whole each entry is judged. Of one that was cut each piece counts the entries that belong to
it and are right; where one is not, or none of the pieces knows an entry, the segment is to be read whole.
Not here: what batches say of themselves (segment_piece.py).
"""

from __future__ import annotations

from bisect import bisect_left

from minibroker.errors import ProtocolError
from minibroker.log.index import NO_TIMESTAMP, OffsetIndex, TimeIndex
from minibroker.tools.verify.findings import Piece, Problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator
    from typing import Protocol

    from minibroker.log.segment import Segment

    class Found(Protocol):
        """The batches of a piece: where each lies, its last offset, its largest timestamp."""

        piece: Piece
        positions: array[int]
        ends: array[int]
        times: array[int]


# Indexes of a whole segment


def check_offset_index(segment: Segment, found: Found) -> Iterator[Problem]:
    index = segment.offset_index
    entries = index.entries() if index.exists else []
    wanted = {offset for offset, _ in entries}
    last_at = {offset: at for at, offset in enumerate(found.ends) if offset in wanted}
    for number, (offset, position) in enumerate(entries):
        at = _at(found.positions, position)
        if at is None:
            yield Problem(index.path, f"entry {number}", f"no batch begins at byte {position}")
        # Kafka up to 3.9 names the last offset of all batches that were appended together.
        elif last_at.get(offset, -1) < at:
            yield Problem(index.path, f"entry {number}", f"no batch from byte {position} on ends with offset {offset}")


def _at(positions: array[int], position: int) -> int | None:
    """Return which batch begins at a position."""
    at = bisect_left(positions, position)
    return at if at < len(positions) and positions[at] == position else None


def check_time_index(segment: Segment, found: Found) -> Iterator[Problem]:
    index, ends, times = segment.time_index, found.ends, found.times
    entries = index.entries() if index.exists else []
    at, newest = 0, NO_TIMESTAMP
    for number, (timestamp, offset) in enumerate(entries):
        held = NO_TIMESTAMP
        while at < len(ends) and (at == 0 or ends[at - 1] < offset):
            held = times[at]
            newest = max(newest, held)
            at += 1
        if at and ends[at - 1] < offset:
            yield Problem(index.path, f"entry {number}", f"offset {offset} is behind the segment's end")
        elif timestamp != newest or (held != NO_TIMESTAMP and held != timestamp):
            yield Problem(
                index.path, f"entry {number}", f"{timestamp} at offset {offset}; the largest so far is {newest}"
            )


def check_form(segment: Segment, index: OffsetIndex | TimeIndex, is_active: bool) -> Iterator[Problem]:
    """Check an index by itself: its length, and that its entries go up."""
    yield from _check_length(segment, index.path, index.count * index.entry.size, index.entry.size, is_active)
    if index.exists:
        try:
            index.check()
        except ProtocolError as error:
            yield Problem(index.path, "", str(error))


def _check_length(segment: Segment, path: str, used_bytes: int, entry_bytes: int, is_active: bool) -> Iterator[Problem]:
    """Only the active segment's indexes are longer than their entries, and only by zeros."""
    if not segment.storage.exists(path):
        if segment.size_bytes:
            yield Problem(path, "", "is missing; the next start makes it")
        return
    size_bytes = segment.storage.size_bytes(path)
    if size_bytes % entry_bytes:
        yield Problem(path, f"byte {size_bytes}", f"ends within an entry of {entry_bytes} bytes")
    elif size_bytes > used_bytes and not is_active:
        yield Problem(path, f"byte {used_bytes}", f"{size_bytes - used_bytes} bytes of zeros at the end")
    elif size_bytes > used_bytes:
        file = segment.storage.open(path)
        try:
            if any(file.read_at(used_bytes, size_bytes - used_bytes)):
                yield Problem(path, f"byte {used_bytes}", "entries behind zeros")
        finally:
            file.close()


# Indexes of a segment that was cut


def borders(segment: Segment, count: int) -> list[int]:
    """Return positions that cut a segment into at most so many pieces of about the same size, both ends among them."""
    index = segment.offset_index
    known = [position for _, position in index.entries()] if count > 1 and index.exists else []
    found = [0]
    for number in range(1, count):
        at = bisect_left(known, segment.size_bytes * number // count)
        if at < len(known) and found[-1] < known[at] < segment.size_bytes:
            found.append(known[at])
    return [*found, segment.size_bytes]


def look_at_indexes(segment: Segment, found: Found) -> None:
    """Count the entries that belong to a piece and are right; any that is not makes it doubtful."""
    piece, positions, ends, times = found.piece, found.positions, found.ends, found.times
    if not positions or piece.first is None or any(after <= offset for after, offset in zip(ends[1:], ends)):
        piece.is_doubtful = True
        return
    for offset, position in segment.offset_index.entries() if segment.offset_index.exists else ():
        if piece.start <= position < piece.end:
            at, last = _at(positions, position), bisect_left(ends, offset)
            is_right = at is not None and last < len(ends) and ends[last] == offset and last >= at
            piece.is_doubtful = piece.is_doubtful or not is_right
            piece.offset_entries += 1
    newest, upto = NO_TIMESTAMP, 0
    for timestamp, offset in segment.time_index.entries() if segment.time_index.exists else ():
        if piece.first[0] <= offset <= ends[-1]:
            at = bisect_left(ends, offset)
            newest = max(newest, max(times[upto : at + 1], default=NO_TIMESTAMP))
            piece.is_doubtful = piece.is_doubtful or not timestamp == newest == times[at]
            upto = at + 1
            piece.time_entries += 1
            if piece.first_noted is None:
                piece.first_noted = timestamp


def are_doubtful(segment: Segment, pieces: list[Piece]) -> bool:
    """Return whether a segment must be read whole to say what is wrong with it; pieces in their order."""
    if len(pieces) == 1:
        return False
    newest = NO_TIMESTAMP
    for piece in pieces:
        if piece.is_doubtful or (piece.first_noted is not None and piece.first_noted < newest):
            return True
        newest = max(newest, piece.newest)
    offsets, times = segment.offset_index, segment.time_index
    return sum(piece.offset_entries for piece in pieces) != (offsets.count if offsets.exists else 0) or sum(
        piece.time_entries for piece in pieces
    ) != (times.count if times.exists else 0)
