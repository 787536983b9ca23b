"""convert: a log directory in another record format, or with another compression, as another directory.

    open each log  ->  each segment converted by a task  ->  published under its name, with all that a broker needs

What must hold: the source is never written to; offsets stay; what a format cannot hold is counted and told. Below v2
there are no transactions: aborted data and markers are left out, as nobody could tell them from the rest, and a log
ends where the last transaction has ended. Segments do not become larger than their topic allows, so unpacked ones are
cut. Kafka's own topics stay as they are below v2: coordinators and controllers read nothing else.
Kafka: from 4.0 on reads v0 and v1 and writes neither; up to 3.x topics have message.format.version for it.
Not here: rules for a batch (log/convert.py).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from minibroker.cleaner.cleaner import Scan
from minibroker.cleaner.transactions import Transactions
from minibroker.clock import LoopClock
from minibroker.errors import ProtocolError, UnknownCodec
from minibroker.log.aborted import aborted_between
from minibroker.log.batches import Batch, batches
from minibroker.log.compression import CODEC_NAMES, ZSTD, check_level
from minibroker.log.convert import RUN_BYTES_MAX
from minibroker.log.convert import convert as convert_batches
from minibroker.log.epochs import LeaderEpochs
from minibroker.log.producers import ProducerStates
from minibroker.log.segment import OFFSET_DELTA_MAX, Segment
from minibroker.spark.jobs.arguments import TopicFilter, add_new_directory_arguments, pairs_of
from minibroker.spark.jobs.directory_in import SourceDirectory, SourceLog, opened
from minibroker.spark.jobs.directory_out import (
    Copy,
    NewDirectory,
    WrittenSegment,
    begin_segment,
    copies_of,
    copy,
    end_segment,
)
from minibroker.spark.jobs.progress import Progress
from minibroker.spark.jobs.summary import Summary, Table
from minibroker.spark.jobs.tasks import run_tasks
from minibroker.spark.option_values import OptionError
from minibroker.spark.options import INTERNAL_TOPICS
from minibroker.stored.producers import AbortedTxn

DESCRIPTION = (
    "Write a log directory in another record format (v0, v1, v2), or compressed in another way, as another directory. "
    "Offsets stay as they are."
)
EPILOG = """examples:
  minibroker spark convert --path data --to smaller --codec zstd --level 19
  minibroker spark convert --path data --to old --format 1 --codec gzip -t orders --only
  minibroker spark convert --path old --to new --format 2

The new directory is the whole of the old one, other topics copied; with --only it holds nothing else."""


class Manner:
    """What is to become of the batches."""

    def __init__(self, magic: int | None, codec: str | None, level: int | None):
        if magic is None and codec is None:
            raise OptionError("nothing is to be done: say --format 0, 1 or 2, or --codec")
        if codec is not None and codec not in CODEC_NAMES:
            raise OptionError(f"--codec {codec}: it can be {', '.join(CODEC_NAMES)}")
        self.magic = magic
        self.codec = None if codec is None else CODEC_NAMES.index(codec)
        self.level = level
        if magic is not None and magic < 2 and self.codec == ZSTD:
            raise OptionError(f"--codec zstd: format {magic} does not know it; gzip, snappy and lz4 it does")
        if level is not None:
            if self.codec is None:
                raise OptionError("--level is of a codec: say --codec too")
            try:
                check_level(self.codec, level)
            except ValueError as error:
                raise OptionError(f"--level: {error}") from error

    @property
    def is_old(self) -> bool:
        return self.magic is not None and self.magic < 2

    def takes(self, topic: str) -> bool:
        """Return whether a topic can become like this."""
        return topic not in INTERNAL_TOPICS or not self.is_old


def convert(
    spark: Any,
    path: str,
    target: str,
    *,
    magic: int | None = None,
    codec: str | None = None,
    level: int | None = None,
    wanted: TopicFilter | None = None,
    only: bool = False,
    settings: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Write a converted copy of a log directory; without `magic` or `codec` batches keep theirs."""
    manner = Manner(magic, codec, level)
    wanted, progress = wanted or TopicFilter(), progress or Progress(is_wanted=False)
    source = SourceDirectory(path, wanted, LoopClock().now_ms(), settings)
    with closing(NewDirectory(target, [path])) as new:
        with progress.step(f"opening {len(source.names):,} logs"):
            logs, copied = source.opened(lambda *key: wanted.wants(*key) and manner.takes(key[0]), only=only)
            if not logs:
                raise OptionError(f"no topic in {source.path} is to be converted")
        new.begin([*logs, *copied])
        works: list[Conversion | Copy] = [work for log in logs for work in _works(log, new.root, manner)]
        works += [work for log in copied for work in copies_of(log, new.root)]
        with progress.step(f"converting {len(logs):,} logs, {len(works):,} segments with those that are copied"):
            written = [each for some in run_tasks(spark, write, works) for each in some]
        with progress.step("putting it in its place"):
            new.take_top(source.storage, [] if only or source.is_alone else source.top)
            new.publish([*logs, *copied], written)
    names = {log.directory for log in logs}
    return _summary(source, target, logs, copied, [each for each in written if each.directory in names])


def write(work: Conversion | Copy) -> list[WrittenSegment]:
    """Write a segment, or what becomes of it: what a task does."""
    return convert_segment(work) if isinstance(work, Conversion) else [copy(work)]


def _works(log: SourceLog, target: str, manner: Manner) -> Iterator[Conversion]:
    """Yield the work on each segment, and let the log be what it will be."""
    if manner.is_old:
        log.end_at(log.last_stable_offset())
    for segment in log.log.segments:
        if segment.base_offset > log.end_offset:
            break
        work = Conversion(log.storage.root, target, log.directory, segment.base_offset, log.end_offset)
        work.magic, work.codec, work.level = manner.magic, manner.codec, manner.level
        work.segment_bytes = log.settings.segment_bytes
        work.index_interval_bytes = log.settings.index_interval_bytes
        if manner.is_old:
            work.aborted = aborted_between(log.log, segment.base_offset, segment.next_offset())
        yield work
    if manner.is_old:
        # Neither producers nor leaders are known of old batches.
        log.producers, log.epochs = ProducerStates(log.directory), LeaderEpochs()
        log.snapshots_from = log.end_offset
    log.close()


def _summary(
    source: SourceDirectory,
    target: str,
    logs: list[SourceLog],
    copied: list[SourceLog],
    converted: list[WrittenSegment],
) -> Summary:
    columns = ("log", "end", "batches before", "batches", "bytes before", "bytes", "segments")
    rows: list[tuple[Any, ...]] = []
    for log in logs:
        mine = [each for each in converted if each.directory == log.directory]
        counts = [sum(each.counts[name] for each in mine) for name in columns[2:5]]
        rows.append((log.directory, log.end_offset, *counts, sum(each.size_bytes for each in mine), len(mine)))
    lost = {name: sum(each.counts[name] for each in converted) for name in LOST}
    notes = [f"the new directory is {target}", *source.notes()]
    if any(lost.values()):
        told = ", ".join(f"{count:,} {name}" for name, count in lost.items() if count)
        notes.append(f"lost, for the format has no place for it: {told}")
    cut = [log for log in logs if log.end_offset < log.log.log_end_offset]
    if cut:
        notes.append(
            f"{len(cut)} logs end before their last record: below the high watermark, or the first open transaction"
        )
    figures = {
        "logs converted": len(logs),
        "logs copied": len(copied),
        "bytes before": sum(row[4] for row in rows),
        "bytes": sum(row[5] for row in rows),
    }
    tables = [Table("logs", columns, rows), Table("lost", ("what", "count"), [row for row in lost.items() if row[1]])]
    return Summary("convert", figures, tables, notes=notes)


# The command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_new_directory_arguments(parser, "converted", "segment.bytes=536870912")
    parser.add_argument("--format", type=int, choices=(0, 1, 2), help="of the records; without it they keep theirs")
    parser.add_argument("--codec", choices=CODEC_NAMES, help="of the batches; without it they keep theirs")
    parser.add_argument("--level", type=int, metavar="N", help="of the codec, Kafka's default without it")


def run(spark: Any, options: argparse.Namespace, progress: Progress) -> Summary:
    return convert(
        spark,
        options.path,
        options.to,
        magic=options.format,
        codec=options.codec,
        level=options.level,
        wanted=TopicFilter.of(options),
        only=options.only,
        settings=pairs_of("--config", options.config),
        progress=progress,
    )


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
    return convert_batches(data, magic, codec=work.codec, level=work.level)
