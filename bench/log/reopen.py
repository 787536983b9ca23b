"""Opening, making and closing the logs of 1,000 partitions, as the start and the stop of a broker do.

One round makes them in an empty log directory, appends a batch to every one, closes them, and opens and closes them
again, with nothing in between and then with a batch appended to each in between. Closing syncs what was written, so its
figures are the disk's as much as ours; the others are as they come behind a process that ended a moment ago, with the
files in the machine's cache. Times are medians over the rounds, in ms for all the partitions.

    python bench/log/reopen.py [ROUNDS [PARTITIONS]]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

from minibroker.log.build import build_batch
from minibroker.log.directory import LogDirectory
from minibroker.log.records import Record
from minibroker.log.settings import LogSettings
from minibroker.log.storage import OsStorage

ROUNDS = 7
PARTITIONS = 1000
START_MS = 1600000000000
AIMS_MS = {"make": 2000.0, "reopen": 1000.0, "close, nothing appended": 1000.0, "close, a batch each": 1000.0}
BATCH = build_batch(2, [Record(b"key", b"v" * 100, (), START_MS)])


class Round:
    """One log directory from its beginning, and how long each step took."""

    def __init__(self, root: str, partitions: int):
        self.root = root
        self.partitions = partitions
        self.took_ms: dict[str, float] = {}
        self.handles: dict[str, int] = {}
        self.directory = LogDirectory(OsStorage(root))

    def step(self, title: str, job: Callable[[], None]) -> None:
        before = open_handles()
        start = time.perf_counter()
        job()
        self.took_ms[title] = (time.perf_counter() - start) * 1e3
        self.handles[title] = open_handles() - before

    def open(self) -> None:
        self.directory = LogDirectory(OsStorage(self.root))
        self.directory.start()
        settings = LogSettings()
        for number in range(self.partitions):
            self.directory.open("t", number, settings, now_ms=START_MS, topic_id=bytes(15) + b"\1")

    def append(self) -> None:
        for log in self.directory.logs.values():
            log.append_as_leader(BATCH, leader_epoch=1, now_ms=START_MS)

    def close(self) -> None:
        self.directory.close()

    def run(self) -> None:
        self.step("make", self.open)
        self.step("close, nothing appended", self.close)
        self.step("reopen, empty", self.open)
        self.step("first append to each", self.append)
        self.step("close, a batch each", self.close)
        self.step("reopen", self.open)
        self.step("close again", self.close)


def open_handles() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def main(rounds: int, partitions: int) -> None:
    done = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as root:
            done.append(Round(root, partitions))
            done[-1].run()
    print(f"Python {sys.version.split()[0]}, medians of {rounds} rounds, {partitions:,} partitions")
    print(f"{'':26}{'ms':>8}{'from':>8}{'to':>8}{'aim':>8}  {'files opened and kept'}")
    for title in done[0].took_ms:
        times = [one.took_ms[title] for one in done]
        aim_ms = AIMS_MS.get(title, 0.0) * partitions / PARTITIONS
        verdict = f"{aim_ms:8.0f}" if aim_ms else f"{'':8}"
        kept = max(one.handles[title] for one in done)
        print(f"{title:26}{statistics.median(times):8.0f}{min(times):8.0f}{max(times):8.0f}{verdict}  {kept:6}")


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    main(*(arguments + [ROUNDS, PARTITIONS][len(arguments) :]))
