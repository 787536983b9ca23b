"""One pass of our cleaner over a log, in a process of its own: `python -m bench.cleaning.ours DIRECTORY MAP_BYTES`.

Prints a line of JSON: seconds and CPU seconds of the pass alone, how long its pieces took (the longest also in CPU
time, as others may use the machine), where it got to, and how much the memory of the process had grown at its peak. A
broker runs a piece in a turn of its loop; here they follow each other.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from bench.cleaning.logs import NOW_MS, opened
from minibroker.cleaner.candidates import cleanable
from minibroker.cleaner.cleaner import clean

MEMORY_PIECES = 500  # so often its memory is looked at


def main(root: str, map_bytes: str) -> None:
    log = opened(Path(root))
    candidate = cleanable(log, first_dirty_offset=None, last_stable_offset=log.log_end_offset, now_ms=NOW_MS)
    before = peak = anonymous_mb()
    work = clean(log, candidate, now_ms=NOW_MS, map_bytes_max=int(map_bytes))
    pieces, busy, clock, busy_clock = [], [], time.perf_counter, time.thread_time
    start, cpu = clock(), time.process_time()
    since, busy_since = start, busy_clock()
    while True:
        try:
            step = next(work)
        except StopIteration as stop:
            cleaned = stop.value
            break
        now = clock()
        pieces.append(now - since)
        busy.append(busy_clock() - busy_since)
        if callable(step):
            step()  # waits for the disk: a broker has a thread for it
        if not len(pieces) % MEMORY_PIECES:
            peak = max(peak, anonymous_mb())
        since, busy_since = clock(), busy_clock()
    seconds, cpu = clock() - start, time.process_time() - cpu
    pieces.sort()
    found = {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "end": cleaned.end_offset,
        "piece_p50_ms": pieces[len(pieces) // 2] * 1e3,
        "piece_p999_ms": pieces[len(pieces) * 999 // 1000] * 1e3,
        "piece_max_ms": pieces[-1] * 1e3,
        "piece_max_cpu_ms": max(busy) * 1e3,
        "grown_mb": peak - before,
    }
    print(json.dumps(found))


def anonymous_mb() -> float:
    """Return the memory of the process without the pages of files that are mapped."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) / 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
