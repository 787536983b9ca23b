"""Topics that compaction has left full of holes, for foreign clients to read: NAME, NAME-zstd and NAME-txn.

    NAME, NAME-zstd    of offsets 0 to 119 there are those from 20 to 59 and from 80 to 99 that three divides. In front
                       of them, between them and behind them whole ranges are gone; the last batch is an empty one, kept
                       for its producer; batches were compressed (in NAME as far as every client can read it)
    NAME-txn           ten offsets a transaction, the last of them its marker; every other one was aborted. Up to 99
                       cleaned, so of aborted ones there is nothing left; then one more of each kind, not cleaned. The
                       last is an aborted one

The record at an offset has key `key-OFFSET` and the value of that number, so scripts know by formula what there is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from minibroker import Broker
from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from minibroker.log.directory import LogDirectory
from minibroker.log.partition_log import PartitionLog
from minibroker.log.records import Record
from minibroker.log.settings import LogSettings
from minibroker.log.storage import OsStorage
from tests.clients.python.script import sample_value

ZSTD_SUFFIX, TXN_SUFFIX = "-zstd", "-txn"
CODECS = {"": (NONE, GZIP, SNAPPY, LZ4), ZSTD_SUFFIX: (ZSTD,)}
END = 120
TOMBSTONES = 100  # from here on
PER_BATCH = 10
TRANSACTIONS_CLEANED = 100  # up to here
KEPT_PRODUCER = 7
SETTINGS = {"cleanup_policy": "compact", "delete_retention_ms": 0, "min_cleanable_dirty_ratio": 0.99}


def is_left(offset: int) -> bool:
    return offset % 3 == 0 and (20 <= offset < 60 or 80 <= offset < 100)


def is_committed(offset: int) -> bool:
    return offset // PER_BATCH % 2 == 0 and offset % PER_BATCH != PER_BATCH - 1


LEFT = [offset for offset in range(END) if is_left(offset)]
COMMITTED = [offset for offset in range(END) if is_committed(offset)]
ABORTED = [*range(END - PER_BATCH, END - 1)]  # in the active segment: there to read for who reads what is not committed


def write(root: Path, name: str, base_ms: int) -> None:
    """Make the topics in the directory of a broker that does not run; they are to be cleaned yet."""
    with Broker(data_dir=root) as broker:
        for suffix in (*CODECS, TXN_SUFFIX):
            broker.create_topic(name + suffix, **SETTINGS)
    directory = LogDirectory(OsStorage(str(root)))
    directory.start()
    for suffix, codecs in CODECS.items():
        log = directory.open(name + suffix, 0, LogSettings(compact=True), now_ms=base_ms)
        _write_superseded(log, codecs, base_ms)
    _write_transactions(directory.open(name + TXN_SUFFIX, 0, LogSettings(compact=True), now_ms=base_ms), base_ms)
    directory.close({key: log.log_end_offset for key, log in directory.logs.items()})


def clean(broker: Broker, name: str) -> None:
    """Compact the topics, and once more, as tombstones and markers only then go; check that it was as intended."""
    for suffix, wanted in (("", LEFT), (ZSTD_SUFFIX, LEFT), (TXN_SUFFIX, COMMITTED + ABORTED)):
        for _ in range(2):
            (row,) = broker.compact_now(name + suffix)
            assert row.passes, row.reason
        assert [record.offset for record in broker.records(name + suffix)] == wanted


def _write_superseded(log: PartitionLog, codecs: tuple[int, ...], base_ms: int) -> None:
    """What shall go has one of twenty keys, each of which ends with a tombstone."""
    for number, first in enumerate(range(0, END, PER_BATCH)):
        records = []
        for offset in range(first, first + PER_BATCH):
            key = b"key-%d" % offset if is_left(offset) else b"old-%d" % (offset % (END - TOMBSTONES))
            value = None if offset >= TOMBSTONES else sample_value("cleaned", offset)
            records.append(Record(key, value, (), base_ms + offset, offset))
        codec = NONE if first >= TOMBSTONES else codecs[number % len(codecs)]
        producer: dict[str, Any] = {"producer_id": KEPT_PRODUCER, "producer_epoch": 0, "base_sequence": first}
        log.append_as_follower(
            build_batch(2, records, codec=codec, base_offset=first, partition_leader_epoch=0, **producer),
            now_ms=base_ms,
        )
        if number % 4 == 3:
            log.roll(now_ms=base_ms)
    log.roll(now_ms=base_ms)


def _write_transactions(log: PartitionLog, base_ms: int) -> None:
    for number, first in enumerate(range(0, END, PER_BATCH)):
        marker = first + PER_BATCH - 1
        records = [
            Record(b"key-%d" % offset, sample_value("cleaned", offset), (), base_ms + offset, offset)
            for offset in range(first, marker)
        ]
        producer: dict[str, Any] = {"producer_id": KEPT_PRODUCER, "producer_epoch": 0}
        data = build_batch(
            2,
            records,
            codec=GZIP if number % 3 == 0 else NONE,
            base_offset=first,
            partition_leader_epoch=0,
            base_sequence=number * (PER_BATCH - 1),
            transactional=True,
            **producer,
        )
        end = build_transaction_marker(
            commit=is_committed(first),
            offset=marker,
            timestamp=base_ms + marker,
            coordinator_epoch=0,
            partition_leader_epoch=0,
            **producer,
        )
        log.append_as_follower(data, now_ms=base_ms)
        log.append_as_follower(end, now_ms=base_ms)
        if marker + 1 in (TRANSACTIONS_CLEANED // 2, TRANSACTIONS_CLEANED):
            log.roll(now_ms=base_ms)
