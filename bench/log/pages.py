"""Where the bytes of a file in memory may lie: the ways that there are, beside a file on the disk, in one run.

Each way takes batches of one length until it has FILE_BYTES, and is then let go. Rounds take the ways in turn; figures
are medians over the rounds, in CPU seconds per GiB: writing, and giving back. Where a virtual machine returns free
memory to its host, pages that come back from there cost some 2 s per GiB more; which way gets such pages depends on
what was free before. "most" is the largest of the rounds, which shows it.

    python bench/log/pages.py [ROUNDS]
"""

from __future__ import annotations

import mmap
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.pages import MADV_POPULATE_WRITE
from minibroker.log.storage import OsStorage

GIB = 1 << 30
FILE_BYTES = 256 << 20
BATCH_BYTES = 1 << 20, 16 << 10, 1 << 10
ROUNDS = 7


def doubling(batch: memoryview, count: int) -> object:
    """Move to a new buffer of twice the length when one is full."""
    buffer, end = bytearray(len(batch)), 0
    for _ in range(count):
        if end + len(batch) > len(buffer):
            longer = bytearray(2 * (end + len(batch)))
            memoryview(longer)[:end] = memoryview(buffer)[:end]
            buffer = longer
        memoryview(buffer)[end : end + len(batch)] = batch
        end += len(batch)
    return buffer


def pieces(batch: memoryview, count: int) -> object:
    return [bytes(batch) for _ in range(count)]


def mapped(advice: int | None, ahead_bytes: int) -> Callable[[memoryview, int], object]:
    """Return a way with addresses for the whole file; of pages are so many asked for at once, 0: each by a fault."""

    def write(batch: memoryview, count: int) -> object:
        pages = mmap.mmap(-1, FILE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if advice is not None:
            pages.madvise(advice)
        end = touched = 0
        for _ in range(count):
            if ahead_bytes and end + len(batch) > touched:
                pages.madvise(MADV_POPULATE_WRITE, touched, ahead_bytes)
                touched += ahead_bytes
            pages[end : end + len(batch)] = batch
            end += len(batch)
        return pages

    return write


def memfd(batch: memoryview, count: int) -> object:
    file = open(os.memfd_create("bench"), "r+b", buffering=0)  # noqa: SIM115
    for number in range(count):
        os.pwritev(file.fileno(), [batch], number * len(batch))
    return file


def stored(storage: OsStorage | MemoryStorage) -> Callable[[memoryview, int], object]:
    """Return one of our own."""

    def write(batch: memoryview, count: int) -> object:
        file = storage.open("f", create=True)
        storage.remove("f")
        for _ in range(count):
            file.append([batch])
        return file

    return write


def ways_of(directory: str) -> dict[str, Callable[[memoryview, int], object]]:
    ways = {"a buffer that doubles": doubling, "pieces": pieces, "pages, each by a fault": mapped(None, 0)}
    ways["pages, by the megabyte"] = mapped(None, 1 << 20)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        ways["pages of 2 MiB"] = mapped(mmap.MADV_HUGEPAGE, 0)
    if hasattr(os, "memfd_create"):
        ways["memfd, pwritev"] = memfd
    return ways | {
        "our files in memory": stored(MemoryStorage(int)),
        "our files on a disk": stored(OsStorage(directory)),
    }


def measured(way: Callable[[memoryview, int], object], batch: memoryview) -> tuple[float, float]:
    start = time.process_time()
    kept = way(batch, FILE_BYTES // len(batch))
    written = time.process_time()
    del kept
    return (written - start) / FILE_BYTES * GIB, (time.process_time() - written) / FILE_BYTES * GIB


def main(rounds: int) -> None:
    print(f"Python {sys.version.split()[0]}, medians of {rounds} interleaved rounds, CPU s per GiB")
    print(f"{'batches of':>10} {'':26}{'write':>8}{'most':>8}{'free':>8}")
    with tempfile.TemporaryDirectory() as directory:
        ways = ways_of(directory)
        for batch_bytes in BATCH_BYTES:
            batch = memoryview(bytearray(os.urandom(batch_bytes)))
            samples: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
            for number in range(rounds):
                for name in list(ways)[:: 1 if number % 2 else -1]:
                    samples[name].append(measured(ways[name], batch))
            for name, found in samples.items():
                writes, frees = zip(*found)
                print(
                    f"{batch_bytes:10,} {name:26}{statistics.median(writes):8.2f}{max(writes):8.2f}"
                    f"{statistics.median(frees):8.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
