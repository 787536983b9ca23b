"""Logs that are to be cleaned, written record by record, and what is read of them before and afterwards."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from minibroker.cleaner.candidates import Candidate, cleanable
from minibroker.cleaner.cleaner import Cleaned, clean
from minibroker.in_pieces import finish
from minibroker.log import reading
from minibroker.log.aborted import aborted_transactions
from minibroker.log.batches import Batch, batches
from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.formats import ABORT
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.records import Record, control_type
from minibroker.log.recovery import open_log
from minibroker.log.settings import LogSettings
from tests.log.audit import all_batches

NOW_MS = 1_700_000_000_000
MAP_BYTES = 1 << 20

Row = tuple[int, bytes | None, bytes | None]  # offset, key, value


class DirtyLog:
    """A log of one batch after another, in memory. Time stands still until somebody moves it."""

    def __init__(self, **settings: Any):
        self.now_ms = NOW_MS
        self.storage = MemoryStorage(lambda: self.now_ms)
        self.settings = LogSettings(
            **{"compact": True, "delete": False, "delete_retention_ms": 1000, "min_cleanable_dirty_ratio": 0.0}
            | settings
        )
        self.sequences: dict[int, int] = {}
        self.log = open_log(self.storage, "t-0", self.settings, was_clean=True, now_ms=self.now_ms)

    def reopen(self) -> None:
        self.log.close()
        self.log = open_log(self.storage, "t-0", self.settings, was_clean=True, now_ms=self.now_ms)

    def append(self, data: bytes) -> None:
        self.log.append_as_follower(data, now_ms=self.now_ms)

    def put(self, *pairs: tuple[bytes | None, bytes | None], magic: int = 2, codec: int = 0, gap: int = 0) -> None:
        """Append a batch of keys and values."""
        offset = self.log.log_end_offset + gap
        records = [Record(key, value, (), self.now_ms, offset + number) for number, (key, value) in enumerate(pairs)]
        if magic < 2:
            self.append(build_batch(magic, records, codec=codec))
        else:
            self.append(build_batch(2, records, base_offset=offset, codec=codec, partition_leader_epoch=0))

    def put_all(self, text: str) -> None:
        """Append a batch each: "a1 b2 a-" are a with 1, b with 2, a without value."""
        for word in text.split():
            self.put((word[:1].encode(), None if word[1:] == "-" else word[1:].encode()))

    def send(self, producer_id: int, *pairs: tuple[bytes, bytes | None], transactional: bool = True) -> None:
        offset, sequence = self.log.log_end_offset, self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + len(pairs)
        self.append(
            build_batch(
                2,
                [Record(key, value, (), self.now_ms, offset + number) for number, (key, value) in enumerate(pairs)],
                base_offset=offset,
                partition_leader_epoch=0,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=transactional,
            )
        )

    def end(self, producer_id: int, *, commit: bool) -> None:
        self.append(
            build_transaction_marker(
                commit=commit,
                offset=self.log.log_end_offset,
                timestamp=self.now_ms,
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
                partition_leader_epoch=0,
            )
        )

    def roll(self) -> None:
        self.log.roll(None, self.now_ms)

    def candidate(self, first_dirty: int | None = None) -> Candidate:
        log = self.log
        return cleanable(
            log,
            first_dirty_offset=first_dirty,
            last_stable_offset=log.last_stable_offset(log.log_end_offset),
            now_ms=self.now_ms,
        )

    def clean(self, first_dirty: int | None = None, *, map_bytes_max: int = MAP_BYTES, **more: Any) -> Cleaned:
        found = self.candidate(first_dirty)
        return finish(clean(self.log, found, now_ms=self.now_ms, map_bytes_max=map_bytes_max, **more))

    def files(self, *suffixes: str) -> dict[str, bytes]:
        names = [name for name in self.storage.list("t-0") if not suffixes or name.endswith(suffixes)]
        return {name: content(self.storage, f"t-0/{name}") for name in names}

    def batches(self) -> list[Batch]:
        return all_batches(self.log)

    def rows(self) -> list[Row]:
        """Return all records but markers."""
        return [
            (record.offset, record.key, record.value)
            for batch in self.batches()
            if not batch.is_control
            for record in batch.records(check_crc=True)
        ]

    def committed(self) -> list[Row]:
        """Read as a consumer with isolation.level=read_committed does, up to the last stable offset."""
        log, offset, rows = self.log, self.log.log_start_offset, []
        aborted_ids: set[int] = set()
        limit = log.last_stable_offset(log.log_end_offset)
        while (found := reading.read(log, offset, 300, limit_offset=limit)) is not None:
            to_come = sorted(aborted_transactions(log, found, offset), key=lambda entry: entry.first_offset)
            aborted_ids.clear()
            for batch in batches(found.view()):
                while to_come and to_come[0].first_offset <= batch.last_offset:
                    aborted_ids.add(to_come.pop(0).producer_id)
                if batch.is_control:
                    if any(control_type(record) == ABORT for record in batch.records()):
                        aborted_ids.discard(batch.producer_id)
                elif not (batch.is_transactional and batch.producer_id in aborted_ids):
                    rows += [(each.offset, each.key, each.value) for each in batch.records() if each.offset >= offset]
                offset = batch.next_offset
        return rows


def filled(text: str, **settings: Any) -> DirtyLog:
    """Return a log with a segment per part of the text ("a1 b1 | a2"), and an empty one behind."""
    dirty = DirtyLog(**settings)
    for part in text.split("|"):
        dirty.put_all(part)
        dirty.roll()
    return dirty


def begun(dirty: DirtyLog) -> Generator[int, None, Cleaned]:
    """Return a pass that has not done anything yet."""
    return clean(dirty.log, dirty.candidate(), now_ms=dirty.now_ms, map_bytes_max=MAP_BYTES)


def content(storage: MemoryStorage, path: str) -> bytes:
    file = storage.open(path)
    return file.read_at(0, file.size_bytes)


def latest(rows: list[Row]) -> dict[bytes | None, tuple[int, bytes | None]]:
    """Return offset and value of the last record of each key."""
    return {key: (offset, value) for offset, key, value in rows}
