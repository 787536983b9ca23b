"""A directory that looks like a terabyte: sparse files with a batch at their end, and indexes to go with them."""

from __future__ import annotations

import os
from pathlib import Path

from minibroker.log.build import build_batch
from minibroker.log.checkpoints import HIGH_WATERMARKS, format_offsets
from minibroker.log.index import OFFSET_ENTRY, TIME_ENTRY
from minibroker.log.records import Record

START_MS = 1_700_000_000_000
SEGMENT_BYTES = 10_000_000
SEGMENT_RECORDS = 50_000
SEGMENT_MS = 60_000
INDEX_INTERVAL_BYTES = 4096
TIME_ENTRIES = 100
LINKS_MAX = 30_000  # file systems count them in 16 bits


def make_sparse(root: Path, partitions: int, segments: int, topic: str = "events") -> None:
    """Make logs of so many segments each: a last batch is all that there is in a segment."""
    names = [root / f"{topic}-{partition}" for partition in range(partitions)]
    last = _last_batch(0, START_MS)
    last_at = SEGMENT_BYTES - len(last)
    steps = range(INDEX_INTERVAL_BYTES, last_at - INDEX_INTERVAL_BYTES, INDEX_INTERVAL_BYTES)
    entries = [OFFSET_ENTRY.pack(SEGMENT_RECORDS * position // SEGMENT_BYTES, position) for position in steps]
    entries.append(OFFSET_ENTRY.pack(SEGMENT_RECORDS - 1, last_at))
    shared = root / "index"
    for number, directory in enumerate(names):
        directory.mkdir(parents=True)
        for segment in range(segments):
            if (number * segments + segment) % LINKS_MAX == 0:
                # Offsets in it are relative, so that of one segment is that of all.
                shared.unlink(missing_ok=True)
                shared.write_bytes(b"".join(entries))
            base = str(directory / f"{segment * SEGMENT_RECORDS:020}")
            start_ms = START_MS + segment * SEGMENT_MS
            os.link(shared, base + ".index")
            _write(base + ".log", _last_batch(segment * SEGMENT_RECORDS, start_ms + SEGMENT_MS - 1), last_at)
            _write(base + ".timeindex", _times(start_ms), 0)
    shared.unlink()
    ends = {(topic, partition): segments * SEGMENT_RECORDS for partition in range(partitions)}
    (root / HIGH_WATERMARKS).write_bytes(format_offsets(ends))


def _last_batch(base_offset: int, timestamp: int) -> bytes:
    offset = base_offset + SEGMENT_RECORDS - 1
    return build_batch(2, [Record(None, b"x" * 200, (), timestamp, offset)], base_offset=offset)


def _times(start_ms: int) -> bytes:
    return b"".join(
        TIME_ENTRY.pack(
            start_ms + SEGMENT_MS * (number + 1) // TIME_ENTRIES - 1, SEGMENT_RECORDS * (number + 1) // TIME_ENTRIES - 1
        )
        for number in range(TIME_ENTRIES)
    )


def _write(path: str, data: bytes, position: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(handle, data, position)
    finally:
        os.close(handle)
