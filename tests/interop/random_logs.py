"""A log that is dirty in every way: keys, tombstones, transactions, formats, codecs, gaps; drawn from a seed.

Batches are appended as a follower appends them, so that there can be what no leader writes any more: v0 and v1, gaps,
records without key, batches that have been cleaned on another broker.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from minibroker.log.formats import APPEND_TIME
from minibroker.log.partition_log import PartitionLog
from minibroker.log.records import Record
from minibroker.log.recovery import open_log
from minibroker.log.settings import FOREVER, LogSettings
from minibroker.log.storage import OsStorage

START_MS = 1_700_000_000_000
CODECS = {0: (NONE, GZIP, SNAPPY, LZ4), 1: (NONE, GZIP, SNAPPY, LZ4), 2: (NONE, GZIP, SNAPPY, LZ4, ZSTD)}
HEADERS = ((), (("trace", b"\x00\xff"), ("", b""), ("null", None)))


class Producer:
    """One that may have a transaction open."""

    def __init__(self, producer_id: int):
        self.producer_id = producer_id
        self.epoch = self.sequence = 0
        self.is_open = False


class RandomLog:
    """A directory with one log, that gets more and more, at times that pass."""

    def __init__(self, root: Path, seed: int):
        self.chance = chance = Random(seed)
        self.root = root
        self.name = "random-0"
        self.now_ms = START_MS
        self.settings = LogSettings(
            compact=True,
            delete=chance.random() < 0.2,
            segment_bytes=chance.choice([300, 1000, 1000, 4000]),
            segment_ms=chance.choice([5000, FOREVER]),
            segment_index_bytes=chance.choice([480, 4800]),
            index_interval_bytes=chance.choice([0, 100, 1000]),
            delete_retention_ms=chance.choice([0, 2000, 20_000]),
            min_compaction_lag_ms=chance.choice([0, 0, 3000]),
            max_compaction_lag_ms=chance.choice([FOREVER, 10_000]),
            min_cleanable_dirty_ratio=chance.choice([0.0, 0.0, 0.4]),
        )
        self.keys = chance.choice([2, 5, 20, 100])
        self.magic = chance.choice([0, 1, 2, 2, 2, 2])
        self.codecs = chance.choice([(NONE,), (GZIP, SNAPPY, LZ4, ZSTD, NONE)])
        self.append_time = chance.random() < 0.15
        self.leader_epoch = 0
        self.producers = [Producer(producer_id) for producer_id in range(1, chance.choice([2, 3, 5]))]
        self.path = root / self.name
        self.log = self.open()

    def open(self) -> PartitionLog:
        self.log = open_log(
            OsStorage(str(self.root)), self.name, self.settings, was_clean=True, now_ms=self.now_ms, log_start_offset=0
        )
        return self.log

    def grow(self) -> None:
        """Append some batches, and leave the log closed, its files with the time at which they were written."""
        log, chance = self.log, self.chance
        before = {segment.base_offset: segment.size_bytes for segment in log.segments}
        for _ in range(chance.randint(1, 40)):
            self.now_ms += chance.randint(0, 400)
            if self.magic < 2 and chance.random() < 0.03:
                self.magic += 1
            if chance.random() < 0.03:
                self.leader_epoch += 1
            gap = 0 if chance.random() < 0.9 else chance.choice([1, 5, 50] if chance.random() < 0.97 else [1 << 30])
            log.append_as_follower(self.batch(log.log_end_offset + gap), now_ms=self.now_ms)
            if chance.random() < 0.05:
                log.roll(None, self.now_ms)
        if chance.random() < 0.2:
            log.roll(None, self.now_ms)
        grown = [segment.path for segment in log.segments if before.get(segment.base_offset) != segment.size_bytes]
        log.close()
        for path in grown:
            os.utime(self.root / path, ns=(self.now_ms * 1_000_000, self.now_ms * 1_000_000))

    def batch(self, offset: int) -> bytes:
        if self.magic < 2:
            return self.old_batch(offset)
        chance, draw = self.chance, self.chance.random()
        producer = chance.choice(self.producers)
        if draw < 0.35:
            return self.data(offset, None, is_transactional=False)
        if draw < 0.5:
            return self.data(offset, producer, is_transactional=producer.is_open)
        if draw < 0.8 and (producer.is_open or chance.random() < 0.8):
            producer.is_open = True
            return self.data(offset, producer, is_transactional=True)
        return self.marker(offset, producer)

    def old_batch(self, offset: int) -> bytes:
        records = self.records(offset)
        codec = self.chance.choice([each for each in self.codecs if each in CODECS[self.magic]])
        if self.append_time and self.magic:
            return build_batch(1, records, codec=codec, timestamp_type=APPEND_TIME, max_timestamp=self.now_ms)
        return build_batch(self.magic, records, codec=codec)

    def data(self, offset: int, producer: Producer | None, *, is_transactional: bool) -> bytes:
        chance = self.chance
        records = self.records(offset)
        more: dict[str, Any] = {"codec": chance.choice(self.codecs)}
        if producer is not None:
            if chance.random() < 0.05 and not producer.is_open:
                producer.epoch += 1
                producer.sequence = 0
            more |= {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
            more["base_sequence"] = producer.sequence
            producer.sequence += records[-1].offset - offset + 1
        if self.append_time:
            more |= {"timestamp_type": APPEND_TIME, "max_timestamp": self.now_ms}
        if chance.random() < 0.05:  # as another broker has cleaned it
            more["last_offset"] = records[-1].offset + chance.choice([0, 1, 3])
            more["delete_horizon"] = self.now_ms + chance.choice([0, 1000])
            if chance.random() < 0.3:
                del more["delete_horizon"], more["codec"]
                records = []
                more.setdefault("max_timestamp", self.now_ms)
        return build_batch(
            2,
            records,
            base_offset=offset,
            partition_leader_epoch=self.leader_epoch,
            transactional=is_transactional,
            **more,
        )

    def marker(self, offset: int, producer: Producer) -> bytes:
        """End a transaction, or one that was not there; transactions of version 2 raise the epoch each time."""
        if self.chance.random() < 0.3:
            producer.epoch += 1
            producer.sequence = 0
        producer.is_open = False
        return build_transaction_marker(
            commit=self.chance.random() < 0.5,
            offset=offset,
            timestamp=self.now_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            coordinator_epoch=0,
            partition_leader_epoch=self.leader_epoch,
        )

    def records(self, offset: int) -> list[Record]:
        chance = self.chance
        found = []
        for _ in range(chance.choice([1, 1, 2, 3, 8])):
            draw = chance.random()
            key = None if draw < 0.02 else b"" if draw < 0.04 else b"%d" % chance.randrange(self.keys)
            if draw > 0.97:
                key = b"long key " * 9 + (key or b"")
            value = None if chance.random() < 0.25 else b"%d" % chance.randrange(1 << 40) * chance.choice([0, 1, 1, 3])
            found.append(Record(key, value, chance.choice(HEADERS), self.now_ms + chance.randint(-600, 20), offset))
            offset += 1 if chance.random() < 0.95 else 2
        return found
