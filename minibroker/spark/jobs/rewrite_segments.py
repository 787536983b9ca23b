"""Segments of a log directory written anew into another: what the tasks of `rewrite` do.

    batches of a segment  ->  those that stay  ->  converted  ->  segments of this attempt, on the disk

What must hold: offsets stay, every checksum is looked at, files keep their times, by which retention and tombstones of
old formats are judged. Below v2 there are no transactions: aborted data and markers are left out, as nobody could tell
them from the rest. What becomes larger than a segment may be is cut.
Not here: rules for a batch (log/convert.py), what lies beside the segments (rewrite.py).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from minibroker.cleaner.cleaner import Scan
from minibroker.cleaner.transactions import Transactions
from minibroker.errors import InvalidValue, ProtocolError, UnknownCodec
from minibroker.log.batches import Batch, batches
from minibroker.log.compression import ZSTD
from minibroker.log.convert import RUN_BYTES_MAX, convert
from minibroker.log.read_only_storage import ReadOnlyStorage
from minibroker.log.recovery import finish_swaps
from minibroker.log.segment import CLEANED, OFFSET_DELTA_MAX, OFFSET_MAX, Segment
from minibroker.log.storage import OsStorage
from minibroker.spark.files.directories import has_been_cut
from minibroker.spark.jobs.tasks import attempt
from minibroker.stored.producers import AbortedTxn

# What a format cannot hold, as the summary calls it.
LOST = ("headers", "aborted batches", "markers", "producer batches", "timestamps")


class Manner(NamedTuple):
    """What is to become of batches; None: each keeps its own."""

    magic: int | None = None
    codec: int | None = None
    level: int | None = None

    @property
    def is_old(self) -> bool:
        return self.magic is not None and self.magic < 2


class SegmentWork(NamedTuple):
    """A segment, and what is to become of it."""

    source: str
    target: str
    directory: str
    base_offset: int
    end_offset: int  # what ends behind it is left out
    next_base: int | None  # where the segment behind it begins, None: it is the last
    manner: Manner
    segment_bytes: int
    index_interval_bytes: int
    aborted: list[AbortedTxn]  # those that may have records in it, if it goes below v2


class WrittenSegments(NamedTuple):
    """What a task has made of a segment, under the names that its attempt gave it."""

    directory: str
    segments: list[tuple[int, str, int]]  # base offset, suffix, the offset behind
    counts: Counter[str]
    problems: list[str]


def write_segment(work: SegmentWork) -> WrittenSegments:
    """Write what a segment becomes: what a task does."""
    storage = ReadOnlyStorage(work.source)
    finish_swaps(storage, work.directory)
    source = Segment(storage, work.directory, work.base_offset)
    written = WrittenSegments(work.directory, [], Counter(), [])
    for new in _rewritten(work, source, written.counts):
        written.segments.append((new.base_offset, new.suffix, new.next_offset()))
        written.counts["bytes"] += new.size_bytes
        new.close()
        new.storage.set_modified_ms(new.path, source.modified_ms)
    # Of one that is empty the driver says it; the last one's end has its own rules.
    missing, behind = written.counts["missing"], work.next_base or 0
    if missing and behind and source.size_bytes and has_been_cut(work.source, source, behind - missing):
        written.problems.append(f"{work.source}/{source.path} has been cut: its index names batches behind its end")
    source.close()
    return written


def _begin(work: SegmentWork, base_offset: int) -> Segment:
    new = Segment(OsStorage(work.target), work.directory, base_offset, suffix=f".{attempt()}{CLEANED}")
    new.create(0)
    return new


def _rewritten(work: SegmentWork, source: Segment, counts: Counter[str]) -> Iterator[Segment]:
    entries = [] if work.manner.is_old else source.transaction_index.entries()
    aborted = deque(entry for entry in entries if entry.last_offset < work.end_offset)
    new = _begin(work, work.base_offset)
    for piece in _converted(work, source, counts):
        added = list(batches(piece))
        is_full = new.size_bytes + len(piece) > work.segment_bytes
        if new.size_bytes and (is_full or added[-1].last_offset - new.base_offset > OFFSET_DELTA_MAX):
            yield _ended(new, aborted, added[0].base_offset)
            new = _begin(work, added[0].base_offset)
        new.append([piece], added, work.index_interval_bytes)
        counts["batches"] += len(added)
    yield _ended(new, aborted, OFFSET_MAX)


def _ended(new: Segment, aborted: deque[AbortedTxn], border: int) -> Segment:
    """Put a segment on the disk that goes up to an offset; transactions are noted where their markers are."""
    while aborted and aborted[0].last_offset < border:
        new.transaction_index.add(aborted.popleft())
    new.seal()
    new.sync()
    return new


def _converted(work: SegmentWork, source: Segment, counts: Counter[str]) -> Iterator[bytes | memoryview]:
    scan, (to_magic, codec, level) = Scan(source), work.manner
    try:
        for run, magic in _runs(_kept(work, scan, counts)):
            yield from convert(run, magic if to_magic is None else to_magic, codec=codec, level=level)
    except ProtocolError as error:
        raise scan.placed(error) from None


def _kept(work: SegmentWork, scan: Scan, counts: Counter[str]) -> Iterator[Batch]:
    """Yield the batches that stay; count them, and what they and the others lose."""
    transactions, reached, stream = Transactions(), work.base_offset, iter(scan)
    transactions.add_aborted(work.aborted)
    for batch in stream:
        if batch.magic == 2:
            _check_place(work, scan, stream, batch, reached)
        if batch.last_offset >= work.end_offset:
            break
        reached = batch.next_offset
        counts["bytes before"] += batch.size_bytes
        counts["batches before"] += 1
        magic = batch.magic if work.manner.magic is None else work.manner.magic
        is_aborted = magic < 2 and transactions.see(batch)
        if magic < 2 and batch.is_control:
            counts["markers"] += 1
        elif is_aborted:
            counts["aborted batches"] += 1
        else:
            _count_lost(batch, magic, counts)
            if magic < 2 and work.manner.codec is None and batch.codec == ZSTD:
                reason = f"zstd, which format {magic} does not know: say another codec"
                raise UnknownCodec(reason, batch.position, "batch")
            yield batch
        if batch.next_offset >= work.end_offset:
            break  # what is behind may be half written
    counts["missing"] += max(min(work.next_base or work.end_offset, work.end_offset) - reached, 0)


def _check_place(work: SegmentWork, scan: Scan, stream: Iterator[Batch], batch: Batch, reached: int) -> None:
    """Raise for a batch that cannot be where it is by its offsets, the first of which no checksum covers."""
    first, last, piece = batch.base_offset, batch.last_offset, scan.position
    is_wrong = first < reached or (work.next_base is not None and last >= work.next_base)
    if not is_wrong and last + 1 >= work.end_offset and first > reached:
        # It seems to be the last one or behind the end, and there is a gap before it.
        try:
            following = next(stream, None)
        except ProtocolError:
            following = None  # what is behind may be half written
        is_wrong = following is not None and following.magic == 2 and following.base_offset <= last
    if is_wrong:
        reason = f"a batch with the offsets {first} to {last} cannot be here"
        raise InvalidValue(reason, piece + batch.position - scan.position, "batch.base_offset")


def _count_lost(batch: Batch, magic: int, counts: Counter[str]) -> None:
    if magic < batch.magic == 2:
        counts["producer batches"] += batch.producer_id >= 0
        counts["headers"] += sum(len(record.headers) for record in batch.records())
    if magic == 0 < batch.magic:
        counts["timestamps"] += batch.count


def _runs(stream: Iterable[Batch]) -> Iterator[tuple[bytearray | memoryview, int]]:
    """Yield batches and their format; single messages together that may become one batch."""
    run, run_magic = bytearray(), 0
    for batch in stream:
        is_single = batch.magic < 2 and not batch.codec
        if run and (not is_single or batch.magic != run_magic or len(run) >= RUN_BYTES_MAX):
            yield run, run_magic
            run = bytearray()
        if is_single:
            run += batch.view
            run_magic = batch.magic
        else:
            yield batch.view, batch.magic
    if run:
        yield run, run_magic
