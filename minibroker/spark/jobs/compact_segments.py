"""Segments of a compaction, in tasks: where transactions begin and end, and groups of them written anew.

    look      batch headers of a segment  ->  the few batches by which `Transactions` of any place behind is known
    rewrite   neighbouring segments       ->  one, without what has been superseded

Both use the cleaner's own code: `Transactions`, `BatchFilter`, `Scan`. In the place of its offset map stands a bit for
each record that is superseded (compact_keys.py found out), so a task needs memory for one segment's offsets and not
for all keys of a partition.
What must hold: bytes are those that the broker's cleaner writes, if its map has room for all keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from minibroker.cleaner.batch_filter import BatchFilter
from minibroker.cleaner.cleaner import WRITE_BYTES, Scan
from minibroker.cleaner.offset_map import OffsetMap
from minibroker.cleaner.transactions import Transactions
from minibroker.errors import ProtocolError
from minibroker.in_pieces import finish
from minibroker.log.batches import Batch, batches
from minibroker.log.records import Record
from minibroker.log.segment import Segment
from minibroker.spark.columns.reader import ColumnReader
from minibroker.spark.jobs.directory_in import opened
from minibroker.spark.jobs.directory_out import WrittenSegment, begin_segment, end_segment
from minibroker.stored.producers import AbortedTxn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.cleaner.batch_filter import LastBatch
    from minibroker.cleaner.keys import MapKey
    from minibroker.log.storage import Chunk

KEYLESS = "without a key"  # of what a task counts
BUCKET_BITS = 15  # Spark's bitmaps are of 32,768 bits


class Look:
    """A segment of which the transactions are wanted."""

    def __init__(self, root: str, directory: str, base_offset: int, aborted: list[AbortedTxn]):
        self.root = root
        self.directory = directory
        self.base_offset = base_offset
        self.aborted = aborted  # those that may have records in it


class SeenBatch:
    """A batch as `Transactions` wants to see it."""

    def __init__(self, batch: Batch, record: Record | None):
        self.last_offset = batch.last_offset
        self.is_control = batch.is_control
        self.is_transactional = batch.is_transactional
        self.producer_id = batch.producer_id
        self._record = record

    def records(self) -> Iterator[Record]:
        return iter(() if self._record is None else (self._record,))


def look(work: Look) -> list[SeenBatch]:
    """Return the markers of a segment, and of the data what changes something."""
    segment = Segment(opened(work.root, work.directory), work.directory, work.base_offset)
    transactions = Transactions()
    transactions.add_aborted(work.aborted)
    found: list[SeenBatch] = []
    known: dict[int, bool] = {}  # producer id -> whether its data since the last marker was aborted
    scan = Scan(segment)
    for batch in _placed(scan):
        if batch.is_control:
            found.append(SeenBatch(batch, next(batch.records(), None)))
            transactions.see(batch)
            known.pop(batch.producer_id, None)
        elif batch.is_transactional:
            is_aborted = transactions.see(batch)
            if known.get(batch.producer_id) is not is_aborted:
                known[batch.producer_id] = is_aborted
                found.append(SeenBatch(batch, None))
    segment.close()
    return found


def _placed(scan: Scan) -> Iterator[Batch]:
    try:
        yield from scan
    except ProtocolError as error:
        raise scan.placed(error) from None


class Source:
    """One of the segments that are to become one."""

    def __init__(self, base_offset: int, modified_ms: int, keeps_old_tombstones: bool, aborted: list[AbortedTxn]):
        self.base_offset = base_offset
        self.modified_ms = modified_ms
        self.keeps_old_tombstones = keeps_old_tombstones
        self.aborted = aborted


class Rewrite:
    """Neighbours that are to become one segment, and all that must be known for it."""

    def __init__(self, root: str, target: str, directory: str, sources: list[Source]):
        self.root = root
        self.target = target
        self.directory = directory
        self.sources = sources
        self.transactions = Transactions()  # as they are where the first one begins
        self.superseded: dict[int, bytes] = {}
        self.end_offset = 0  # what is below is decided
        self.kept_end = 0
        self.now_ms = 0
        self.delete_retention_ms = 0
        self.index_interval_bytes = 0
        self.producers: Mapping[int, LastBatch] = {}
        self.upgrades = True
        self.may_be_keyless = False  # brokers take no records without keys for topics that are compacted


class SupersededOffsets(OffsetMap):
    """An offset map of which only the answers are known: a bit for each offset of a record whose key comes again."""

    def __init__(self, bits: Mapping[int, bytes], end_offset: int):
        super().__init__(1 << 12)
        self.end_offset = end_offset
        self._bits = bits  # 32,768 offsets each, by their number

    def superseded(self, keys: list[MapKey], offsets: list[int]) -> list[bool]:
        bits = self._bits
        if not bits:
            return [False] * len(offsets)
        found = []
        for offset in offsets:
            some, place = bits.get(offset >> BUCKET_BITS), offset & (1 << BUCKET_BITS) - 1
            found.append(some is not None and some[place >> 3] >> (place & 7) & 1 == 1)
        return found

    def latest(self, key: bytes) -> int:
        raise NotImplementedError("only of offsets it is known")


def rewrite(work: Rewrite) -> WrittenSegment:
    """Write one segment: what a task does."""
    storage, transactions = opened(work.root, work.directory), work.transactions
    new = begin_segment(work.target, work.directory, work.sources[0].base_offset)
    keep = BatchFilter(
        SupersededOffsets(work.superseded, work.end_offset),
        transactions,
        now_ms=work.now_ms,
        delete_retention_ms=work.delete_retention_ms,
        producers=work.producers,
        uncleanable_offset=work.kept_end,
        upgrades=work.upgrades,
    )
    writer = _Writer(new, work.index_interval_bytes)
    counts = {"records before": 0, "records": 0, "bytes before": 0, "segments before": len(work.sources), KEYLESS: 0}
    for source in work.sources:
        transactions.add_aborted(source.aborted)
        keep.keeps_old_tombstones = source.keeps_old_tombstones
        segment = Segment(storage, work.directory, source.base_offset)
        counts["bytes before"] += segment.size_bytes
        scan = Scan(segment)
        for batch in _placed(scan):
            filtered = finish(keep.filter(batch))
            counts["records before"] += filtered.records_read
            counts["records"] += filtered.records_kept
            if work.may_be_keyless and filtered.records_kept < filtered.records_read:
                counts[KEYLESS] += keyless_in(batch, work.end_offset)
            if filtered.data is not None:
                writer.add(filtered.data, batch)
        segment.close()
    writer.write()
    for entry in transactions.kept:
        new.transaction_index.add(entry)
    new.seal()
    return end_segment(new, work.sources[-1].modified_ms, counts)


def keyless_in(batch: Batch, end_offset: int) -> int:
    """Return how many records below an offset have no key; compaction removes them all."""
    columns = ColumnReader(batch.view, end_offset=end_offset, values=False, check_crc=False)
    return sum(each.keys.null_count for each in columns if each.keys is not None)


class _Writer:
    """Gathers what is kept, and writes it when it is worth the while."""

    def __init__(self, segment: Segment, index_interval_bytes: int):
        self._segment = segment
        self._index_interval_bytes = index_interval_bytes
        self._chunks: list[Chunk] = []
        self._added: list[Batch] = []
        self._size_bytes = 0

    def add(self, data: bytes | memoryview, batch: Batch) -> None:
        """Take what is left of a batch; a view of it says that it is as it was."""
        self._chunks.append(data)
        self._size_bytes += len(data)
        self._added += (batch,) if type(data) is memoryview else batches(data)
        if self._size_bytes >= WRITE_BYTES:
            self.write()

    def write(self) -> None:
        if self._chunks:
            self._segment.append(self._chunks, self._added, self._index_interval_bytes)
            self._chunks, self._added, self._size_bytes = [], [], 0
