"""Finding offsets in logs from 10 MB to 10 GB: from an offset to the place in a file that a fetch answer is sent from.

The logs are real files with every header and every index entry in place, as appending leaves them; only the records
are holes that the file system does not store, so 10 GB take some 700 MB of disk. A batch is 64 KB, a segment 1 GB, so
every batch has its index entry: 16,384 to a segment. The last row has batches of one record of 100 bytes in their
place, which a lookup must hop over from one index entry to the next, 4 KB behind it.
Each figure is the median over the rounds, in µs per `read` of an offset drawn evenly from the whole log; a round takes
the sizes in turn, so that a busy moment of the machine hits all of them. Nobody looks at the bytes that are found.
"again" reads the same offset over and over: what is left then is Python, without misses of the processor's caches.

    python bench/log/reads.py [ROUNDS]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from random import Random

from minibroker.log.batches import Batch, batches
from minibroker.log.build import build_batch
from minibroker.log.partition_log import PartitionLog
from minibroker.log.producers import ProducerStates
from minibroker.log.reading import read
from minibroker.log.records import Record
from minibroker.log.recovery import open_log
from minibroker.log.segment import Segment
from minibroker.log.settings import LogSettings
from minibroker.log.snapshots import write_snapshot
from minibroker.log.storage import OsStorage

ROUNDS = 40
LOOKUPS = 1000  # in a round, per log
FETCH_BYTES = 1 << 20
AIM_US = 20.0
LARGE_BATCH_BYTES, LARGE_COUNT = 64 << 10, 600
SMALL = 10 << 20
SIZES = {"10 MB": 10 << 20, "100 MB": 100 << 20, "1 GB": 1 << 30, "10 GB": 10 << 30}


class Header:
    """The beginning of a batch whose records are not there."""

    def __init__(self, batch: Batch, size_bytes: int, count: int):
        self.size_bytes = size_bytes
        self.count = count
        self.max_timestamp = batch.max_timestamp
        self.last_offset = count - 1
        self._bytes = bytearray(batch.view)
        self._bytes[8:12] = (size_bytes - 12).to_bytes(4, "big")
        self._bytes[23:27] = (count - 1).to_bytes(4, "big")
        self._bytes[57:61] = count.to_bytes(4, "big")

    def at(self, base_offset: int, timestamp: int) -> bytearray:
        self.last_offset = base_offset + self.count - 1
        self.max_timestamp = timestamp
        self._bytes[:8] = base_offset.to_bytes(8, "big")
        self._bytes[35:43] = timestamp.to_bytes(8, "big")
        return self._bytes


def make_log(root: str, size_bytes: int, header: Header) -> PartitionLog:
    """Make a log of that size and open it as after a clean stop."""
    storage, settings = OsStorage(root), LogSettings()
    storage.make_directory("t-0")
    offset = 0
    while size_bytes >= header.size_bytes:
        segment = Segment(storage, "t-0", offset)
        segment.create(settings.segment_index_bytes)
        file = storage.open(segment.path)
        position = 0
        while position + header.size_bytes <= min(size_bytes, settings.segment_bytes):
            file.write_at(position, header.at(offset, offset))
            segment.note(header, position, settings.index_interval_bytes)
            position += header.size_bytes
            offset += header.count
        file.truncate(position)
        file.close()
        segment.seal()
        segment.close()
        size_bytes -= position
    write_snapshot(storage, "t-0", offset, ProducerStates())
    return open_log(storage, "t-0", settings, was_clean=True)


def timed(log: PartitionLog, offsets: list[int]) -> float:
    """Return the time of one lookup, in µs."""
    limit = log.log_end_offset
    start = time.perf_counter()
    for offset in offsets:
        read(log, offset, FETCH_BYTES, limit_offset=limit)
    return (time.perf_counter() - start) / len(offsets) * 1e6


def check(log: PartitionLog, offset: int) -> None:
    found = read(log, offset, FETCH_BYTES, limit_offset=log.log_end_offset)
    assert found is not None
    first = next(batches(found.view()))
    assert first.base_offset <= offset <= first.last_offset, (offset, first)


def disk_bytes(root: str) -> int:
    paths = (os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names)
    return sum(os.stat(path).st_blocks * 512 for path in paths)


def main(rounds: int) -> None:
    chance = Random(0)
    (batch,) = batches(build_batch(2, [Record(None, b"v" * 100)]))
    with tempfile.TemporaryDirectory() as directory:
        logs = {}
        for title, size_bytes in SIZES.items():
            header = Header(batch, LARGE_BATCH_BYTES, LARGE_COUNT)
            logs[title] = make_log(os.path.join(directory, title), size_bytes, header)
        logs["10 MB of single records"] = make_log(
            os.path.join(directory, "small"), SMALL, Header(batch, batch.size_bytes, 1)
        )
        print(f"Python {sys.version.split()[0]}, medians of {rounds} interleaved rounds, µs per lookup")
        print(f"{disk_bytes(directory) >> 20} MB of disk in use")
        samples: dict[str, list[tuple[float, float]]] = {title: [] for title in logs}
        for log in logs.values():
            for _ in range(1000):
                check(log, chance.randrange(log.log_end_offset))
        for _ in range(rounds):
            for title, log in logs.items():
                offsets = [chance.randrange(log.log_end_offset) for _ in range(LOOKUPS)]
                samples[title].append((timed(log, offsets), timed(log, offsets[:1] * LOOKUPS)))
        print(f"{'':26}{'segments':>9}{'entries':>9}{'lookup':>8}{'again':>8}")
        for title, log in logs.items():
            lookup, again = (statistics.median(column) for column in zip(*samples[title]))
            entries = sum(segment.offset_index.count for segment in log.segments)
            verdict = "within" if lookup <= AIM_US else "OVER"
            print(f"{title:26}{len(log.segments):9}{entries:9,}{lookup:8.1f}{again:8.1f}  {verdict}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
