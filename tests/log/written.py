"""A log directory with a bit of everything, written by our log: to be read, broken, or handed to Kafka.

The same seed gives the same bytes. Small segments, sparse indexes with several entries, and in every log something that
only few logs have.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from minibroker.log.directory import LogDirectory
from minibroker.log.formats import APPEND_TIME
from minibroker.log.meta_properties import MetaProperties, write_meta_properties
from minibroker.log.partition_log import PartitionLog
from minibroker.log.records import Record
from minibroker.log.settings import LogSettings, ValidationSettings
from minibroker.log.validate import COORDINATOR

if TYPE_CHECKING:
    from minibroker.log.storage import Storage

START_MS = 1_600_000_000_000
CODECS = {0: (NONE, GZIP, SNAPPY, LZ4), 1: (NONE, GZIP, SNAPPY, LZ4), 2: (NONE, GZIP, SNAPPY, LZ4, ZSTD)}
WITH_HEADERS = (("trace", b"\x00\xff"), ("", b""), ("null", None), ("trace", "ä€".encode()))


def settings(**validation: object) -> LogSettings:
    return LogSettings(
        segment_bytes=1000,
        index_interval_bytes=200,
        segment_index_bytes=480,
        validation=ValidationSettings(timestamp_after_max_ms=1 << 60, **validation),  # type: ignore[arg-type]
    )


class Writer:
    """Fills logs of one directory."""

    def __init__(self, storage: Storage, seed: int = 0):
        self.directory = LogDirectory(storage)
        self.directory.start()
        self.chance = Random(seed)
        self.now_ms = START_MS

    def log(self, topic: str, **validation: object) -> PartitionLog:
        topic_id = bytes(15) + bytes([len(self.directory.logs) + 1])
        return self.directory.open(topic, 0, settings(**validation), now_ms=START_MS, topic_id=topic_id)

    def records(self, count: int, headers: tuple[tuple[str, bytes | None], ...] = ()) -> list[Record]:
        """Return some records whose times mostly rise."""
        found = []
        for _ in range(count):
            self.now_ms += self.chance.randint(-400, 1000)
            text = b"%d." % self.chance.randrange(10**6)
            key = self.chance.choice([None, b"", b"k%d" % self.chance.randrange(9)])
            found.append(Record(key, self.chance.choice([None, text, text * 4]), headers, self.now_ms))
        return found

    def append(self, log: PartitionLog, data: bytes, *, epoch: int = 0, origin: str = "") -> None:
        kwargs = {"origin": origin} if origin else {}
        log.append_as_leader(bytearray(data), leader_epoch=epoch, now_ms=self.now_ms, **kwargs)

    def fill(self, log: PartitionLog, magic: int, *, batches: int = 24, epoch: int = 0, headers: bool = False) -> None:
        for number in range(batches):
            codec = CODECS[magic][number % len(CODECS[magic])]
            records = self.records(self.chance.randint(1, 5), WITH_HEADERS if headers else ())
            self.append(log, build_batch(magic, records, codec=codec), epoch=epoch)

    def transactions(self, log: PartitionLog, *, steps: int = 40, leave_open: bool = False) -> None:
        """Three producers in transactions at the same time, one that is only idempotent, one that is nothing."""
        sequences = {11: 0, 12: 0, 13: 0, 14: 0}
        is_open: set[int] = set()
        for _ in range(steps):
            producer_id = self.chance.choice([11, 12, 13, 14, -1])
            if producer_id in is_open and self.chance.random() < 0.4:
                self.end(log, producer_id, commit=self.chance.random() < 0.4)
                is_open.remove(producer_id)
                continue
            records = self.records(self.chance.randint(1, 3))
            is_transactional = producer_id in (11, 12, 13)
            data = build_batch(
                2,
                records,
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=sequences.get(producer_id, -1),
                transactional=is_transactional,
                codec=self.chance.choice([NONE, LZ4]),
            )
            self.append(log, data)
            if producer_id >= 0:
                sequences[producer_id] += len(records)
            if is_transactional:
                is_open.add(producer_id)
        for producer_id in sorted(is_open)[1 if leave_open else 0 :]:
            self.end(log, producer_id, commit=False)

    def end(self, log: PartitionLog, producer_id: int, *, commit: bool) -> None:
        self.now_ms += 1
        data = build_transaction_marker(
            offset=0,
            commit=commit,
            timestamp=self.now_ms,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=3,
        )
        self.append(log, data, origin=COORDINATOR)


def write_logs(storage: Storage, seed: int = 0) -> dict[str, PartitionLog]:
    """Fill the root of a storage with logs and close them; return the logs by the names of their directories."""
    writer = Writer(storage, seed)
    for magic in (0, 1):
        writer.fill(writer.log(f"format{magic}", message_format=magic), magic)
    writer.fill(writer.log("format2"), 2, headers=True)
    for magic in (1, 2):
        log = writer.log(f"appendtime{magic}", message_format=magic, timestamp_type=APPEND_TIME)
        writer.fill(log, magic)
    writer.fill(writer.log("recompress", compression_type="gzip"), 2)
    mixed = writer.log("mixed", message_format=0)
    for magic in (0, 1, 2):
        mixed.settings = settings(message_format=magic)
        writer.fill(mixed, magic, batches=10)
    epochs = writer.log("epochs")
    for epoch in (0, 1, 4, 9):
        writer.fill(epochs, 2, batches=7, epoch=epoch)
        if epoch == 4:
            writer.directory.truncate_to("epochs", 0, epochs.log_end_offset - 3)
    writer.transactions(writer.log("txn"))
    writer.transactions(writer.log("open"), steps=12, leave_open=True)
    trimmed = writer.log("trimmed")
    writer.fill(trimmed, 2)
    trimmed.advance_log_start(17)
    late = writer.log("late")
    late.truncate_fully_and_start_at(1 << 40)
    writer.fill(late, 2, batches=12)
    writer.log("empty")
    logs = dict(writer.directory.logs)
    write_meta_properties(storage, MetaProperties(1, "minibroker-test-cluster"), START_MS)
    writer.directory.close({key: log.log_end_offset for key, log in logs.items()})
    return {log.directory: log for log in logs.values()}
