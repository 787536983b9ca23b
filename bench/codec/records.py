"""Reading and building records, beside kafka-python's pure Python and aiokafka's compiled extension, in one run.

Each row is one job that all of them do on the same records: 100 of 100 bytes with an 8 byte key, uncompressed, unless
the row says otherwise. Rounds take the libraries in turn, so that a busy moment of the machine hits all of them;
figures are medians over the rounds, in µs per batch. "over" is how many times longer the other one takes, the median of
the ratios within each round.
Reading means every field of every record, checksums unchecked; building begins with ready keys and values.

    python bench/codec/records.py [ROUNDS]
"""

import statistics
import sys
import time
from collections.abc import Callable

from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.compression import CODEC_NAMES, GZIP
from minibroker.log.records import Record

COUNT = 100
START_MS = 1600000000000
ROUNDS = 60
ROUND_SECONDS = 0.004  # per library and row

RECORDS = [Record(b"key-%04d" % n, b"v" * 100, (), START_MS + n) for n in range(COUNT)]
WITH_HEADERS = [record._replace(headers=(("trace", b"0123456789"), ("kind", b"a"))) for record in RECORDS]
HEADER_SCAN_BATCHES = 200

Jobs = dict[str, Callable[[], object]]


def reading(data: bytes) -> Jobs:
    """Return how each library reads all records of a buffer."""

    def ours() -> None:
        for batch in batches(data):
            for record in batch.records():
                record.offset, record.timestamp, record.key, record.value, record.headers  # noqa: B018

    jobs: Jobs = {"minibroker": ours}
    for name, memory_records in READERS.items():

        def theirs(memory_records: Callable[..., object] = memory_records) -> None:
            found = memory_records(data)
            while found.has_next():  # type: ignore[attr-defined]
                for record in found.next_batch():  # type: ignore[attr-defined]
                    record.offset, record.timestamp, record.key, record.value, record.headers  # noqa: B018

        jobs[name] = theirs
    return jobs


def building(magic: int, records: list[Record], codec: int = 0) -> Jobs:
    """Return how each library makes one batch of all records."""
    rows = [(n, record.timestamp, record.key, record.value, list(record.headers)) for n, record in enumerate(records)]
    given = [(record.key, record.value, record.headers, record.timestamp) for record in records]

    def ours() -> bytes:
        return build_batch(magic, [Record(*row) for row in given], codec=codec)

    jobs: Jobs = {"minibroker": ours}
    for name, new_builder in BUILDERS.items():

        def theirs(new_builder: Callable[..., object] = new_builder) -> object:
            builder = new_builder(magic, codec)
            append = builder.append  # type: ignore[attr-defined]
            for offset, timestamp, key, value, headers in rows:
                append(offset, timestamp, key, value, headers)
            return builder.build()  # type: ignore[attr-defined]

        jobs[name] = theirs
    return jobs


def header_scan() -> Jobs:
    """Return how the headers of many v2 batches are read and their records left alone."""
    data = build_batch(2, RECORDS) * HEADER_SCAN_BATCHES

    def ours() -> int:
        return sum(batch.last_offset for batch in batches(data))

    jobs: Jobs = {"minibroker": ours}
    for name, memory_records in READERS.items():

        def theirs(memory_records: Callable[..., object] = memory_records) -> int:
            found, total = memory_records(data), 0
            while found.has_next():  # type: ignore[attr-defined]
                total += found.next_batch().base_offset  # type: ignore[attr-defined]
            return total

        jobs[name] = theirs
    return jobs


READERS: dict[str, Callable[..., object]] = {}
BUILDERS: dict[str, Callable[..., object]] = {}


def find_libraries() -> None:
    """Fill the tables above with what is installed."""
    try:
        import kafka.record.default_records as pure
        import kafka.record.legacy_records as pure_legacy
        import kafka.record.memory_records as pure_memory
    except ImportError:
        print("kafka-python is not installed")
    else:
        READERS["kafka-python"] = pure_memory.MemoryRecords
        BUILDERS["kafka-python"] = lambda magic, codec: (
            pure.DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 20)
            if magic == 2
            else _without_headers(pure_legacy.LegacyRecordBatchBuilder(magic, codec, 1 << 20))
        )
    try:
        import aiokafka.record._crecords as compiled
    except ImportError:
        print("aiokafka's compiled extension is not installed")
    else:
        READERS["aiokafka (C)"] = compiled.MemoryRecords
        BUILDERS["aiokafka (C)"] = lambda magic, codec: (
            compiled.DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
            if magic == 2
            else _without_headers(compiled.LegacyRecordBatchBuilder(magic, codec, 1 << 20))
        )


class _without_headers:
    """A builder of old formats, called like one of v2."""

    def __init__(self, builder: object):
        append = builder.append  # type: ignore[attr-defined]
        self.append = lambda offset, timestamp, key, value, headers: append(offset, timestamp, key, value)
        self.build = builder.build  # type: ignore[attr-defined]


def measure(jobs: Jobs, rounds: int) -> dict[str, list[float]]:
    """Return the times of each job in µs, one per round, the jobs taking turns."""
    repeats = {}
    for name, job in jobs.items():
        job()
        start = time.perf_counter()
        job()
        repeats[name] = max(1, int(ROUND_SECONDS / (time.perf_counter() - start)))
    samples: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                job()
            samples[name].append((time.perf_counter() - start) / repeats[name] * 1e6)
    return samples


def main(rounds: int) -> None:
    find_libraries()
    rows: dict[str, tuple[Jobs, int]] = {}
    for magic in (0, 1, 2):
        rows[f"read v{magic}"] = reading(build_batch(magic, RECORDS)), 1
    rows["read v2, two headers each"] = reading(build_batch(2, WITH_HEADERS)), 1
    for magic in (1, 2):
        rows[f"read v{magic} {CODEC_NAMES[GZIP]}"] = reading(build_batch(magic, RECORDS, codec=GZIP)), 1
    rows["read v2, 1 record"] = reading(build_batch(2, RECORDS[:1])), 1
    for magic in (0, 1, 2):
        rows[f"build v{magic}"] = building(magic, RECORDS), 1
    rows["build v2, two headers each"] = building(2, WITH_HEADERS), 1
    rows["build v2, 1 record"] = building(2, RECORDS[:1]), 1
    rows["header scan v2, per batch"] = header_scan(), HEADER_SCAN_BATCHES

    names = ["minibroker", *READERS]
    print(f"{'':28}" + "".join(f"{name:>14}{'over' if name != names[0] else '':>8}" for name in names))
    for title, (jobs, share) in rows.items():
        samples = measure(jobs, rounds)
        line = f"{title:28}"
        for name in names:
            line += f"{statistics.median(samples[name]) / share:14.2f}"
            if name == names[0]:
                line += " " * 8
            else:
                ratio = statistics.median(theirs / ours for theirs, ours in zip(samples[name], samples[names[0]]))
                line += f"{ratio:7.2f}x"
        print(line, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
