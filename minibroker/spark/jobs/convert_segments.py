"""What tasks of a conversion do with a segment: its batches in another format or codec, in one new segment or several.

The rules are those of log/convert.py. Below v2 there are no transactions, so what was aborted is left out there, with
the markers: nobody could tell it from the rest. Checksums are looked at first, for what is written gets new ones.
What must hold: offsets stay; segments do not become larger than their topic allows, so unpacked ones are cut.
"""

from __future__ import annotations

from collections.abc import Iterator

from minibroker.cleaner.cleaner import Scan
from minibroker.cleaner.transactions import Transactions
from minibroker.errors import ProtocolError, UnknownCodec
from minibroker.log.batches import Batch, batches
from minibroker.log.compression import ZSTD
from minibroker.log.convert import RUN_BYTES_MAX, convert
from minibroker.log.segment import OFFSET_DELTA_MAX, Segment
from minibroker.spark.jobs.directory_in import opened
from minibroker.spark.jobs.directory_out import WrittenSegment, begin_segment, end_segment
from minibroker.stored.producers import AbortedTxn

# What a format cannot hold, as the summary calls it.
LOST = ("headers", "aborted batches", "markers", "producer batches", "timestamps")


class Conversion:
    """A segment, and what is to become of it."""

    def __init__(self, root: str, target: str, directory: str, base_offset: int, end_offset: int):
        self.root = root
        self.target = target
        self.directory = directory
        self.base_offset = base_offset
        self.end_offset = end_offset  # what ends there or behind it is left out
        self.magic: int | None = None  # None: each batch keeps its own
        self.codec: int | None = None
        self.level: int | None = None
        self.segment_bytes = 0
        self.index_interval_bytes = 0
        self.aborted: list[AbortedTxn] = []  # those that may have records in it


def convert_segment(work: Conversion) -> list[WrittenSegment]:
    """Write a segment anew: what a task does."""
    segment = Segment(opened(work.root, work.directory), work.directory, work.base_offset)
    scan = Scan(segment)
    converter = _Converter(work, segment.modified_ms)
    try:
        for batch in scan:
            if batch.last_offset >= work.end_offset:
                break
            converter.take(batch)
    except ProtocolError as error:
        raise scan.placed(error) from None
    converter.write_run()
    converter.end(segment)
    segment.close()
    return converter.written


class _Converter:
    def __init__(self, work: Conversion, modified_ms: int):
        self.work = work
        self.written: list[WrittenSegment] = []
        self._modified_ms = modified_ms
        self._transactions = Transactions()
        self._transactions.add_aborted(work.aborted)
        self._new = begin_segment(work.target, work.directory, work.base_offset)
        self._run = bytearray()  # single messages of one format that may become one batch
        self._run_magic = 0
        self._counts: dict[str, int] = dict.fromkeys(("bytes before", "batches before", "batches", *LOST), 0)

    def take(self, batch: Batch) -> None:
        work, counts = self.work, self._counts
        counts["bytes before"] += batch.size_bytes
        counts["batches before"] += 1
        magic = batch.magic if work.magic is None else work.magic
        if magic < 2 and batch.magic == 2:
            if self._transactions.see(batch) and not batch.is_control:
                counts["aborted batches"] += 1
                return
            if batch.is_control:
                counts["markers"] += 1
                return
            counts["producer batches"] += batch.producer_id >= 0
            counts["headers"] += sum(len(record.headers) for record in batch.records())
        if magic == 0 < batch.magic:
            counts["timestamps"] += batch.count
        if magic < 2 and work.codec is None and batch.codec == ZSTD:
            reason = f"zstd, which format {magic} does not know: say another codec"
            raise UnknownCodec(reason, batch.position, "batch")
        is_single = batch.magic < 2 and not batch.codec
        if not is_single or len(self._run) >= RUN_BYTES_MAX or batch.magic != self._run_magic:
            self.write_run()
        if is_single:
            self._run += batch.view
            self._run_magic = batch.magic
        else:
            self._write(_converted(work, batch.view, magic))

    def write_run(self) -> None:
        """Write the messages that have been gathered."""
        if self._run:
            magic = self._run_magic if self.work.magic is None else self.work.magic
            self._write(_converted(self.work, self._run, magic))
            self._run = bytearray()

    def _write(self, pieces: Iterator[bytes | memoryview]) -> None:
        work = self.work
        for piece in pieces:
            added = list(batches(piece))
            new = self._new
            is_far = added[-1].last_offset - new.base_offset > OFFSET_DELTA_MAX
            if new.size_bytes and (new.size_bytes + len(piece) > work.segment_bytes or is_far):
                self._end_segment()
                self._new = new = begin_segment(work.target, work.directory, added[0].base_offset)
            new.append([piece], added, work.index_interval_bytes)
            self._counts["batches"] += len(added)

    def _end_segment(self) -> None:
        self._new.seal()
        self.written.append(end_segment(self._new, self._modified_ms, self._counts))
        self._counts = dict.fromkeys(self._counts, 0)

    def end(self, segment: Segment) -> None:
        """End the last segment; which transactions were aborted stays with the segments that have the markers."""
        work = self.work
        if work.magic is None or work.magic == 2:
            entries = [each for each in segment.transaction_index.entries() if each.last_offset < work.end_offset]
            bases = [each.base_offset for each in self.written] + [self._new.base_offset]
            for base, behind, holder in zip(bases, [*bases[1:], 1 << 62], [*self.written, None], strict=True):
                mine = [each for each in entries if base <= each.last_offset < behind]
                owner = self._new
                if holder is not None and mine:
                    owner = Segment(self._new.storage, work.directory, base, suffix=holder.suffix)
                for entry in mine:
                    owner.transaction_index.add(entry)
                if owner is not self._new:
                    owner.transaction_index.sync()
                    owner.close()
        self._end_segment()


def _converted(work: Conversion, data: bytearray | memoryview, magic: int) -> Iterator[bytes | memoryview]:
    return convert(data, magic, codec=work.codec, level=work.level)
