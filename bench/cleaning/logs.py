"""The logs that are cleaned: what they hold, and how copies of one come to be.

Keys are drawn evenly, so that of each there are ten values or so and one in ten stays. Values are words of hexadecimal
digits, which lz4 makes half as long. Batches are as large as a busy producer's with its default batch.size.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from minibroker.log.build import build_batch
from minibroker.log.compression import LZ4, NONE
from minibroker.log.directory import LogDirectory
from minibroker.log.partition_log import PartitionLog
from minibroker.log.records import Record
from minibroker.log.settings import LogSettings
from minibroker.log.storage import OsStorage

TOPIC = "compacted"
DIRECTORY = f"{TOPIC}-0"
BATCH_BYTES = 16_384
SEGMENT_BYTES = 128 << 20
VALUES_PER_KEY = 10
POOL_BYTES = 1 << 20  # values are slices of it
START_MS = 1_700_000_000_000
NOW_MS = START_MS + 86_400_000
FRAME_BYTES = 22  # what a record takes besides its value, roughly: key, sizes, deltas
CODECS = {"none": NONE, "lz4": LZ4}


class Kind(NamedTuple):
    """What a log is full of."""

    value_bytes: int
    codec: str

    def __str__(self) -> str:
        size = f"{self.value_bytes // 1024} KiB" if self.value_bytes >= 1024 else f"{self.value_bytes} B"
        return size if self.codec == "none" else f"{size}, {self.codec}"


class Written(NamedTuple):
    """A log on the disk. Its last segment is active, and not cleaned."""

    root: Path
    records: int  # in the segments that are cleaned
    size_bytes: int


def settings() -> LogSettings:
    return LogSettings(compact=True, delete=False, segment_bytes=SEGMENT_BYTES)


def opened(root: Path) -> PartitionLog:
    directory = LogDirectory(OsStorage(str(root)))
    directory.start()
    return directory.open(TOPIC, 0, settings(), now_ms=NOW_MS)


def batches(kind: Kind, count: int) -> Iterator[bytes]:
    """Yield so many records in batches."""
    chance = Random(1)
    pool = b" ".join(b"%x" % chance.getrandbits(64) for _ in range(POOL_BYTES // 17 + 1))
    keys = max(1, count // VALUES_PER_KEY)
    per_batch = max(1, BATCH_BYTES // (kind.value_bytes + FRAME_BYTES))
    for first in range(0, count, per_batch):
        records = []
        for number in range(min(per_batch, count - first)):
            place = chance.randrange(POOL_BYTES - kind.value_bytes)
            key = b"key-%08d" % chance.randrange(keys)
            records.append(Record(key, pool[place : place + kind.value_bytes], (), START_MS + first + number, number))
        yield build_batch(2, records, codec=CODECS[kind.codec])


def count_of(kind: Kind, size_bytes: int) -> int:
    """Return how many records take so many bytes without compression."""
    return size_bytes // (kind.value_bytes + FRAME_BYTES)


def write(root: Path, kind: Kind, size_bytes: int) -> Written:
    """Write so many bytes of uncompressed records; all but the last segment is for the cleaner."""
    count = count_of(kind, size_bytes)
    directory = LogDirectory(OsStorage(str(root)))
    directory.start()
    log = directory.open(TOPIC, 0, settings(), now_ms=START_MS)
    for batch in batches(kind, count):
        log.append_as_leader(bytearray(batch), leader_epoch=0, now_ms=START_MS + count)
    log.roll(now_ms=START_MS)
    last = build_batch(2, [Record(b"last", b"", (), START_MS + count, 0)])
    log.append_as_leader(bytearray(last), leader_epoch=0, now_ms=START_MS + count)
    directory.close({(TOPIC, 0): log.log_end_offset}, broker_epoch=1)
    return Written(root, count, sum(segment.size_bytes for segment in log.segments[:-1]))


def copy(written: Written, root: Path) -> Path:
    """Make another log of the same files; the records are not copied, as nobody writes into them."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(written.root, root, copy_function=_link_records)
    return root


def _link_records(source: str, target: str) -> None:
    if source.endswith(".log"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)
