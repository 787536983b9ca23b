"""Appending to a log, beside the same bytes by plain `os.writev` after a check of their CRC-32C, in one run.

Each row is one batch appended again and again, at the end of a file on the disk of the machine, never synced: what is
compared is the way to the system, not the disk. Rounds take the two in turn, so that a busy moment of the machine hits
both; figures are medians over the rounds, in µs per batch. "over" is how many times longer the log takes, the median of
the ratios within each round.
`bytes` cannot be written to, so the header is copied before offset and epoch are put into it; a `bytearray`, as a
receive buffer is, is changed in place.

    python bench/log/appends.py [ROUNDS]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

from minibroker.log.batches import crc32c
from minibroker.log.build import build_batch
from minibroker.log.compression import LZ4
from minibroker.log.partition_log import PartitionLog
from minibroker.log.records import Record
from minibroker.log.recovery import open_log
from minibroker.log.settings import LogSettings
from minibroker.log.storage import OsStorage

START_MS = 1600000000000
LARGE_COUNT = 9_500  # records of 100 bytes, framed: just below the 1,048,588 bytes that a batch may have
ROUNDS = 60
FILE_BYTES_MAX = 64 << 20  # then both begin anew, so that the machine's cache has room for them
CRC_POSITION = 21  # what the checksum of a v2 batch covers begins here

ROWS: dict[str, tuple[int, int, bool, LogSettings]] = {  # records, codec, may be written to, settings
    "1 MB, bytes": (LARGE_COUNT, 0, False, LogSettings()),
    "1 MB, bytearray": (LARGE_COUNT, 0, True, LogSettings()),
    "1 MB lz4, bytearray": (LARGE_COUNT, LZ4, True, LogSettings()),
    "1 record, bytes": (1, 0, False, LogSettings()),
    "1 record, bytearray": (1, 0, True, LogSettings()),
    "10 records, bytearray": (10, 0, True, LogSettings()),
}


class Plain:
    """A file that is only written to."""

    def __init__(self, path: str):
        self.handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.size_bytes = 0

    def append(self, data: bytes | bytearray) -> None:
        view = memoryview(data)
        if crc32c(view[CRC_POSITION:]) != int.from_bytes(view[17:21], "big"):
            raise ValueError("wrong checksum")
        self.size_bytes += os.writev(self.handle, [view])

    def restart(self) -> None:
        os.ftruncate(self.handle, 0)
        self.size_bytes = 0


class Log:
    """A partition with nothing but these batches."""

    def __init__(self, log: PartitionLog):
        self.log = log

    def append(self, data: bytes | bytearray) -> None:
        self.log.append_as_leader(data, leader_epoch=3, now_ms=START_MS)
        if type(data) is bytearray:
            data[:8] = bytes(8)  # a client counts from 0

    def restart(self) -> None:
        self.log.truncate_fully_and_start_at(0)


def timed(append: Callable[[bytes | bytearray], None], data: bytes | bytearray, repeats: int) -> float:
    """Return the time of one append, in µs."""
    start = time.perf_counter()
    for _ in range(repeats):
        append(data)
    return (time.perf_counter() - start) / repeats * 1e6


def measure(directory: str, data: bytes | bytearray, settings: LogSettings, rounds: int) -> list[tuple[float, float]]:
    """Return the times of log and plain file, one pair per round."""
    log = open_log(OsStorage(directory), "t-0", settings, was_clean=True)
    log.truncate_fully_and_start_at(0)
    ways = Log(log), Plain(os.path.join(directory, "plain"))
    repeats = 4 if len(data) > 100_000 else 500
    for way in ways:
        timed(way.append, data, repeats)
    samples = []
    for number in range(rounds):
        order = ways if number % 2 else ways[::-1]
        took = {way: timed(way.append, data, repeats) for way in order}
        samples.append((took[ways[0]], took[ways[1]]))
        if ways[1].size_bytes > FILE_BYTES_MAX:
            for way in ways:
                way.restart()
    log.close()
    os.close(ways[1].handle)
    return samples


def main(rounds: int) -> None:
    print(f"Python {sys.version.split()[0]}, medians of {rounds} interleaved rounds, µs per batch")
    print(f"{'':30}{'bytes':>9}{'log':>10}{'writev+CRC':>12}{'over':>7}")
    for title, (count, codec, writable, settings) in ROWS.items():
        records = [Record(None, os.urandom(50).hex().encode(), (), START_MS) for _ in range(count)]
        data: bytes | bytearray = build_batch(2, records, codec=codec)
        if writable:
            data = bytearray(data)
        with tempfile.TemporaryDirectory() as directory:
            samples = measure(directory, data, settings, rounds)
        ours, plain = (statistics.median(column) for column in zip(*samples))
        ratio = statistics.median(ours / plain for ours, plain in samples)
        print(f"{title:30}{len(data):9,}{ours:10.1f}{plain:12.1f}{ratio:6.2f}x", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
