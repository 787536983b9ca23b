"""The lookup of an offset or a time as steps: which segment, which entry of its index, and what is read from there on.

    for step in lookup_offset(log, 23):
        step.kind, step.sentence      "segment" .., "index" .., "scan" .., "batch" ..

What must hold: the steps are those of Segment.find and of reading.find_offset, with the same indexes and batches; the
batch at which they end is the one that a fetch begins with. A look changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from minibroker.in_pieces import finish
from minibroker.log.index import NO_TIMESTAMP
from minibroker.log.message_sets import inner_messages_in_pieces
from minibroker.log.reading import find_time_in_pieces
from minibroker.log.records import DECOMPRESSED_BYTES_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from minibroker.in_pieces import InPieces
    from minibroker.log.partition_log import PartitionLog
    from minibroker.log.segment import Segment

SEGMENT: Final = "segment"
TIME_INDEX: Final = "timeindex"
INDEX: Final = "index"
SCAN: Final = "scan"
BATCH: Final = "batch"
NOTHING: Final = "nothing"
HOPS_PIECE: Final = 500  # batches, a microsecond each
SEGMENT_US: Final = 50


class LookupStep(NamedTuple):
    """One thing that a broker looks at."""

    kind: str
    sentence: str
    numbers: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return the step for JSON."""
        return {"kind": self.kind, "sentence": self.sentence, **self.numbers}


def lookup_offset(log: PartitionLog, offset: int) -> list[LookupStep]:
    """Return the steps to the batch that holds an offset, or to the first one behind it."""
    return finish(lookup_offset_in_pieces(log, offset))


def lookup_offset_in_pieces(log: PartitionLog, offset: int) -> InPieces[list[LookupStep]]:
    """Do so in pieces; a log that loses its beginning or is cleaned meanwhile is as it was when this began."""
    if not log.log_start_offset <= offset < log.log_end_offset:
        where = f"the log holds {log.log_start_offset} to {log.log_end_offset - 1}, {offset} is not there"
        return [LookupStep(NOTHING, where, {"start_offset": log.log_start_offset, "end_offset": log.log_end_offset})]
    index, segments = log.segment_of(offset), list(log.segments)
    segment, count = segments[index], len(segments)
    of_them = f"the last of {count} whose name is not above {offset}" if count > 1 else "the only one"
    steps = [
        LookupStep(
            SEGMENT,
            f"segment {segment.base_offset}: {of_them}",
            {"base_offset": segment.base_offset, "segments": count},
        )
    ]
    found = yield from _within(segment, offset, steps)
    while not found and index + 1 < count:  # compaction has taken what was to come in this one
        index += 1
        segment = segments[index]
        steps.append(
            LookupStep(SEGMENT, f"segment {segment.base_offset}: the next one", {"base_offset": segment.base_offset})
        )
        found = yield from _within(segment, offset, steps)
    return steps


def _within(segment: Segment, offset: int, steps: list[LookupStep]) -> InPieces[bool]:
    """Add the steps within a segment; return whether they end at a batch."""
    named, start = segment.offset_index.entry_before(offset)
    entries = segment.offset_index.count
    numbers = {"entries": entries, "entry_offset": named, "position": start}
    if start:
        words = f"the last of {entries} that is not above {offset} says: {named} is at byte {start:,}"
    else:
        words = f"none of {entries} entries is at or below {offset}: begin at byte 0"
    steps.append(LookupStep(INDEX, f"index: {words}", numbers))
    looked = 0
    for place in segment.hop(start):
        looked += 1
        if not looked % HOPS_PIECE:
            yield HOPS_PIECE
        if place.last_offset < offset:
            continue
        passed = place.position - start
        noun = "batch" if looked == 1 else "batches"
        steps.append(
            LookupStep(
                SCAN,
                f"from byte {start:,} on: {looked} {noun} looked at, {passed:,} bytes passed over",
                {"from": start, "to": place.position, "batches": looked},
            )
        )
        batch = segment.batch_at(place)
        yield SEGMENT_US
        first, records = batch.header_offset, batch.header_count
        if batch.is_wrapper:  # only what is in it knows
            inner = yield from inner_messages_in_pieces(batch, DECOMPRESSED_BYTES_MAX, check_crc=False)
            first, records = inner.first_offset, inner.count
        ends = f"{first} to {batch.last_offset}" if records != 1 else f"{batch.last_offset}"
        steps.append(
            LookupStep(
                BATCH,
                f"the batch of {ends} begins at byte {place.position:,} and has {place.size_bytes:,} bytes",
                {
                    "base_offset": first,
                    "last_offset": batch.last_offset,
                    "position": place.position,
                    "size_bytes": place.size_bytes,
                },
            )
        )
        return True
    steps.append(LookupStep(NOTHING, "nothing from there on ends at it or behind", {"from": start}))
    return False


def lookup_time(log: PartitionLog, timestamp: int) -> list[LookupStep]:
    """Return the steps to the first record that is not older than a time."""
    return finish(lookup_time_in_pieces(log, timestamp))


def lookup_time_in_pieces(log: PartitionLog, timestamp: int) -> InPieces[list[LookupStep]]:
    """Do so in pieces."""
    found = yield from find_time_in_pieces(log, timestamp, limit_offset=log.log_end_offset)
    segment = None
    for each in list(log.segments):
        yield SEGMENT_US
        if each.latest[0] >= timestamp:
            segment = each
            break
    if segment is None or found is None:
        return [LookupStep(NOTHING, "no record is as young as that", {"timestamp": timestamp})]
    steps = [
        LookupStep(
            SEGMENT,
            f"segment {segment.base_offset}: the first whose largest timestamp is not older",
            {"base_offset": segment.base_offset, "segments": len(log.segments)},
        )
    ]
    stamp, offset = segment.time_index.entry_before(timestamp)
    entries = segment.time_index.count
    words = f"none of {entries} entries is older: begin at {segment.base_offset}"
    if stamp != NO_TIMESTAMP:
        words = f"up to {offset} nothing is younger than the last of {entries} entries that is older"
    steps.append(
        LookupStep(
            TIME_INDEX, f"time index: {words}", {"entries": entries, "entry_offset": offset, "entry_timestamp": stamp}
        )
    )
    steps += (yield from lookup_offset_in_pieces(log, max(offset, log.log_start_offset)))[1:]
    steps.append(
        LookupStep(
            SCAN,
            f"then record by record, until one is not older: offset {found.offset}",
            {"offset": found.offset, "timestamp": found.timestamp},
        )
    )
    return steps
