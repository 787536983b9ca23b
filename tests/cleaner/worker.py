"""Does to a log whatever can be done to one that is compacted, and says beforehand what may come of it.

The log is written by plain, idempotent and transactional producers, rolled, cleaned (also half, and with a small map),
its oldest segments dropped, its end truncated, its files purged; it is closed, or left as it is, and opened again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from minibroker.cleaner.candidates import cleanable
from minibroker.cleaner.cleaner import clean
from minibroker.cleaner.retention import apply
from minibroker.log.batches import batches
from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.directory import LogDirectory
from minibroker.log.pruning import purge
from minibroker.log.records import Record
from minibroker.log.settings import LogSettings, ValidationSettings
from minibroker.log.validate import COORDINATOR

from .history import Entry, History

if TYPE_CHECKING:
    from minibroker.log.storage import Storage

DELETE_RETENTION_MS = 60
KEYS = [b"a", b"b", b"c", b"d"]
MAP_BYTES = [1 << 20, 1 << 20, 1000]  # the last holds but a few keys


def settings_of(*, compact: bool = True) -> LogSettings:
    return LogSettings(
        segment_bytes=600,
        index_interval_bytes=150,
        segment_index_bytes=80,
        compact=compact,
        delete=True,
        retention_ms=-1,
        delete_retention_ms=DELETE_RETENTION_MS,
        validation=ValidationSettings(compacted=compact, timestamp_after_max_ms=1 << 60),
    )


class Known(NamedTuple):
    """What may be found after a crash: a beginning of one of these histories, cleaned as far as it says."""

    histories: tuple[History, ...]
    flushed: int  # up to this offset at least
    log_start_min: int  # promised
    log_start_max: int  # tried
    cleaned_end: int
    tombstones_gone: frozenset[int]
    now_ms: int


class Worker:
    """One log, and what is known of it."""

    def __init__(self, storage: Storage, chance: Random, mark: Callable[[Known], None] = lambda known: None):
        self.storage = storage
        self.chance = chance
        self.mark = mark
        self.settings = settings_of()
        self.now: History = ()
        self.tips: list[History] = [()]  # how far each history since the last flush has come
        self.flushed = self.log_start_min = self.log_start_max = self.cleaned_end = self.decided_end = 0
        self.count = self.epoch = self.now_ms = 0
        self.sequences = {1: 0, 2: 0}
        self.first_cleaned: dict[int, int] = {}  # tombstone -> when a pass first came to it
        self.tombstones_gone: frozenset[int] = frozenset()
        self.to_purge: list[str] = []
        self.tell()
        self.open()

    def open(self) -> None:
        self.directory = LogDirectory(self.storage)
        self.directory.start()
        self.log = self.directory.open("t", 0, self.settings, now_ms=self.now_ms, topic_id=bytes(16))
        self._take_sequences()

    def known(self) -> Known:
        return Known(
            tuple(self.tips),
            self.flushed,
            self.log_start_min,
            self.log_start_max,
            self.cleaned_end,
            self.tombstones_gone,
            self.now_ms,
        )

    def tell(self) -> None:
        self.mark(self.known())

    def do(self, action: Callable[[Worker], None]) -> None:
        self.now_ms += self.chance.randint(0, 15)
        action(self)

    # Writing

    def append(self) -> None:
        self.count += 1
        producer_id = self.chance.choice([-1, -1, 1, 2])
        records = [
            Record(
                self.chance.choice(KEYS),
                None if self.chance.random() < 0.2 else b"%d/%d" % (self.count, index),
                (),
                self.now_ms + 1,
            )
            for index in range(self.chance.randint(1, 4))
        ]
        data = build_batch(
            2,
            records,
            codec=self.chance.choice([0, 0, 1]),
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=self.sequences.get(producer_id, -1),
            transactional=producer_id >= 0,
        )
        if producer_id >= 0:
            self.sequences[producer_id] += len(records)
        base = self.log.log_end_offset
        self._grow(Entry(base + index, record.key, record.value, producer_id) for index, record in enumerate(records))
        self.log.append_as_leader(bytearray(data), leader_epoch=self.epoch, now_ms=self.now_ms)

    def end_transaction(self) -> None:
        self._end(self.chance.choice([1, 2]))

    def _end(self, producer_id: int) -> None:
        commit = self.chance.random() < 0.5
        marker = build_transaction_marker(
            offset=0,
            commit=commit,
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=self.now_ms,
            coordinator_epoch=producer_id,  # so that markers of one are not those of the other
        )
        (record,) = next(batches(marker)).records()
        ends = "commit" if commit else "abort"
        self._grow([Entry(self.log.log_end_offset, record.key, record.value, producer_id, ends)])
        self.log.append_as_leader(bytearray(marker), leader_epoch=self.epoch, now_ms=self.now_ms, origin=COORDINATOR)

    def _grow(self, entries: Iterable[Entry]) -> None:
        self.now += tuple(entries)
        self.tips[-1] = self.now
        self.tell()

    def flush(self) -> None:
        self.log.flush()
        self._is_flushed()

    def _is_flushed(self) -> None:
        self.tips = [self.now]
        self.flushed = self.log.log_end_offset
        self.tell()

    def roll(self) -> None:
        self.log.roll(now_ms=self.now_ms)

    # Taking away

    def clean(self) -> None:
        """One pass, now and then given up half way. Mostly everything is decided before."""
        log, key = self.log, ("t", 0)
        if self.chance.random() < 0.7:
            for producer_id in self.sequences:
                self._end(producer_id)
            log.roll(now_ms=self.now_ms)
        log.producers.on_high_watermark_updated(log.log_end_offset)
        candidate = cleanable(
            log,
            first_dirty_offset=self.directory.cleaner_offsets.get(key),
            last_stable_offset=log.last_stable_offset(log.log_end_offset),
            now_ms=self.now_ms,
        )
        self.directory.before_cleaning(*key, candidate.end)
        if log.recovery_point == log.log_end_offset:
            self._is_flushed()
        self.cleaned_end = max(self.cleaned_end, candidate.end)
        self.decided_end = log.log_end_offset  # the high watermark of this log: nobody takes back what is below
        for entry in self.now:
            if entry.value is None and entry.offset < candidate.end:
                self.first_cleaned.setdefault(entry.offset, self.now_ms)
        self.tombstones_gone = frozenset(
            offset for offset, first_ms in self.first_cleaned.items() if first_ms + DELETE_RETENTION_MS <= self.now_ms
        )
        self.tell()
        work = clean(log, candidate, now_ms=self.now_ms, map_bytes_max=self.chance.choice(MAP_BYTES))
        pieces_max = self.chance.choice([3, 10, 1 << 30, 1 << 30])
        while pieces_max:
            try:
                next(work)
            except StopIteration as stop:
                self.to_purge += stop.value.paths
                self.directory.cleaner_offsets[key] = stop.value.end_offset
                self.directory.write_cleaner_offsets()
                return
            pieces_max -= 1
        work.close()

    def drop(self) -> None:
        """Let retention take the oldest segments, by size; at times all of them."""
        log = self.log
        kept_bytes = self.chance.choice([0, 1, 2, 2]) * log.size_bytes // 3
        self.settings.retention_bytes = kept_bytes
        self.log_start_max = log.log_end_offset
        self.tell()
        removed = apply(log, now_ms=self.now_ms, high_watermark=log.log_end_offset)
        self.settings.retention_bytes = -1
        self.to_purge += removed.paths
        if removed:
            self.log_start_min = log.segments[0].base_offset
        self._tell_log_start()

    def delete_records(self) -> None:
        """Move the start of the log, and let retention take what is below; the checkpoint may come later."""
        log = self.log
        self.log_start_max = offset = self.chance.randint(log.log_start_offset, log.log_end_offset)
        self.tell()
        log.advance_log_start(offset)
        removed = apply(log, now_ms=self.now_ms, high_watermark=log.log_end_offset)
        self.to_purge += removed.paths
        if removed:
            self.log_start_min = log.segments[0].base_offset
        self._tell_log_start()

    def _tell_log_start(self) -> None:
        self.log_start_max = self.log.log_start_offset
        self.tell()

    def truncate(self) -> None:
        """Cut off some of what was not cleaned."""
        log = self.log
        lowest = max(self.decided_end, log.log_start_offset, log.log_end_offset - 10)
        offset = self.chance.randint(lowest, log.log_end_offset)
        # A batch goes as a whole.
        kept = next(
            (batch for segment in log.segments for batch in segment.batches() if batch.last_offset >= offset), None
        )
        end = log.log_end_offset if kept is None else min(kept.base_offset, offset)
        if end < log.log_start_offset or end < self.decided_end:
            return
        self.flushed = min(self.flushed, end)
        self.now = tuple(entry for entry in self.now if entry.offset < end)
        self.first_cleaned = {at: ms for at, ms in self.first_cleaned.items() if at < end}
        self.tips.append(self.now)
        self.tell()
        self.directory.truncate_to("t", 0, offset)
        assert log.log_end_offset == end
        self.tips = [self.now]  # the disk has forgotten the other
        self.tell()
        self._take_sequences()
        self.epoch += 1

    def _take_sequences(self) -> None:
        for producer_id in self.sequences:
            entry = self.log.producers.producers.get(producer_id)
            self.sequences[producer_id] = entry.last_sequence + 1 if entry else 0

    def purge(self) -> None:
        purge(self.storage, self.to_purge)
        self.to_purge = []

    # Beginning again

    def checkpoint(self) -> None:
        self.directory.write_checkpoints()
        self.log_start_min = self.log.log_start_offset
        self.tell()

    def close_and_open(self) -> None:
        self.directory.close()
        self._is_flushed()
        self.log_start_min = self.log.log_start_offset
        self.tell()
        self.to_purge = []
        self.open()

    def kill_and_open(self) -> None:
        """The process ends, the machine does not."""
        self.log.release()
        self.to_purge = []
        self.log_start_max = self.log.log_start_offset
        self.open()

    def after_crash(self, storage: Storage) -> Worker:
        """Return another that goes on with what the power left; what that is, somebody has to look at and tell."""
        left = copy(self)
        left.storage, left.to_purge, left.sequences = storage, [], dict(self.sequences)
        left.open()
        return left

    def survived(self, history: History) -> None:
        """Go on from here: what was found after a crash is on the disk."""
        self.now = history
        self.first_cleaned = {at: ms for at, ms in self.first_cleaned.items() if at < self.log.log_end_offset}
        self.log_start_min = self.log_start_max = self.log.log_start_offset
        self.epoch += 1
        self._is_flushed()


ACTIONS: list[Callable[[Worker], None]] = [
    *[Worker.append] * 10,
    *[Worker.end_transaction] * 3,
    *[Worker.clean] * 3,
    *[Worker.flush, Worker.roll, Worker.checkpoint, Worker.drop],
    *[Worker.delete_records, Worker.truncate, Worker.purge, Worker.close_and_open, Worker.kill_and_open],
]
