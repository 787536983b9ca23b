"""One run of kafka-dump-log over some files: what it writes, and what it finds wrong.

What must hold: standard output is what the tool of the chosen release writes, including its oddities; broken bytes end
the dump with Kafka's words where it has words of its own. One batch at a time is held, records are read in small
portions, so memory does not grow with the file. Files come in as views by way of the caller.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from os.path import abspath

from minibroker.log.batches import Batch
from minibroker.log.records import Record
from minibroker.tools.dump.batches import (
    BYTES_MAX,
    NEWEST,
    OLDEST,
    Options,
    base_offset_of,
    batch_line,
    file_batches,
    is_valid,
    record_words,
    records_of,
)
from minibroker.tools.dump.decoders import DECODERS, control_text, text_of
from minibroker.tools.dump.indexes import IndexFiles, snapshot_lines, transaction_lines
from minibroker.tools.dump.old_words import OLD_RELEASES, old_lines


class Dump:
    """One run of the tool over some files."""

    def __init__(self, options: Options, view: Callable[[str], memoryview]):
        self.options = options
        self.view = view  # opens a file by its path
        self.indexes = IndexFiles(
            self._other_words, options.verify_only, options.sanity_only, options.message_bytes_max
        )
        self.gaps: dict[str, array[int]] = {}  # by file: an offset, the one that follows it, ...
        self.faults: list[str] = []  # what is wrong, for standard error
        self.ignored: list[str] = []

    @property
    def _other_words(self) -> str:
        """Whose words lines have that are not of batches and records."""
        return OLDEST if self.options.release in OLD_RELEASES else self.options.release

    def lines(self, path: str) -> Iterator[str]:
        """Yield what the tool prints for a file; raise the error that would end it."""
        yield f"Dumping {path}"
        suffix = path[path.rfind(".") :]
        if suffix in (".log", ".checkpoint"):
            yield from self._log(path)
        elif suffix == ".index":
            yield from self.indexes.offset_index(path, self.view(path), self.view(beside(path, ".log")))
        elif suffix == ".timeindex":
            index, log = self.view(beside(path, ".index")), self.view(beside(path, ".log"))
            yield from self.indexes.time_index(path, self.view(path), index, log)
        elif suffix == ".txnindex":
            yield from transaction_lines(path, self.view(path))
        elif suffix == ".snapshot":
            yield from snapshot_lines(self.view(path), self._other_words, self.faults)
        else:
            self.ignored.append(f"Ignoring unknown file {path}")

    def complaints(self) -> Iterator[str]:
        """Yield what the tool writes to standard error when all files have been printed."""
        yield from self.ignored
        yield from self.faults
        yield from self.indexes.complaints()
        newest = self.options.release == NEWEST
        for path, pairs in self.gaps.items():
            yield f"Non-consecutive offsets in {abspath(path)}"
            starts = range(0, len(pairs), 2)
            for at in starts if newest else reversed(starts):
                yield f"  {pairs[at]} is followed by {pairs[at + 1]}"

    @property
    def is_broken(self) -> bool:
        """Whether something was found that must not be; gaps between offsets are what compaction leaves."""
        return bool(self.faults) or self.indexes.is_broken

    def _log(self, path: str) -> Iterator[str]:
        options, name = self.options, path[path.rfind("/") + 1 :]
        yield title_of(name, self._other_words)
        view = self.view(path)[: options.bytes_max]
        position, last_offset = 0, None
        for batch in file_batches(view, name):
            valid = is_valid(batch)
            if not valid:
                self.faults.append(f"{path}: the checksum of the batch at byte {position} is wrong")
            if options.release in OLD_RELEASES:
                for line, offset, has_gaps in old_lines(batch, options):
                    if has_gaps and last_offset is not None and offset is not None and offset != last_offset + 1:
                        self.gaps.setdefault(path, array("q")).extend((last_offset, offset))
                    last_offset = batch.last_offset if offset is None else offset
                    yield line
                position = batch.end_position
                continue
            yield batch_line(batch, options.release, valid)
            if options.deep or options.contents:
                for record, crc, crc_is_valid in records_of(batch):
                    # Kafka: 4.x compares the first record with -1 and reports a gap in front of every segment but
                    # the first; here a gap is between two records.
                    if last_offset is not None and record.offset != last_offset + 1:
                        self.gaps.setdefault(path, array("q")).extend((last_offset, record.offset))
                    last_offset = record.offset
                    yield self._record_line(batch, record, crc, crc_is_valid)
            position = batch.end_position
        if position < len(view) and options.bytes_max == BYTES_MAX:
            yield f"Found {len(view) - position} invalid bytes at the end of {name}"
            self.faults.append(f"{path}: no whole batch at byte {position}")

    def _record_line(self, batch: Batch, record: Record, crc: int | None, valid: bool) -> str:
        options = self.options
        line = ""
        if options.metadata:
            line = record_words(batch, record, crc, valid, options.release)
            if batch.is_control:
                line += control_text(record, options.release)
        if options.contents and not batch.is_control:
            key, value = DECODERS[options.decoder](record, options.release) if options.decoder else text_of(record)
            start = line or "|"
            if key is not None:
                start = line = f"{start} key: {key}"
            if value is not None:
                # Without metadata and key the older tools forget the bar.
                line = f"{start if line or options.release == NEWEST else ''} payload: {value}"
        return line


def beside(path: str, suffix: str) -> str:
    """Return the file of the same segment with another suffix."""
    folder, slash, name = path.rpartition("/")
    return folder + slash + name.split(".")[0] + suffix


def title_of(name: str, release: str) -> str:
    """Return the line above the batches of a file."""
    if name == "bootstrap.checkpoint":
        return "KRaft bootstrap snapshot"
    if name.endswith(".checkpoint"):
        offset, _, epoch = name.removesuffix(".checkpoint").partition("-")
        return f"Snapshot end offset: {base_offset_of(offset)}, epoch: {base_offset_of(epoch)}"
    return f"{'Starting offset' if release == OLDEST else 'Log starting offset'}: {base_offset_of(name)}"
