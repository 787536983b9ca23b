"""Building batches out of columns, beside building them of single records, in one run.

Records have values of 200 bytes and keys of 8, a millisecond apart, unless the row says otherwise. Rounds take the two
ways in turn, so that a busy moment of the machine hits both; figures are medians over the rounds, in millions of
records per second on one core. "over" is how many times more columns are, the median of the ratios within each round.
Single records are objects already when the clock starts, as columns are arrays. "partitioned" is how many keys find
their partition.

    python bench/codec/column_building.py [ROUNDS]
"""

import random
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from minibroker.client.partitioner import partition_of_key
from minibroker.log.build import build_batch
from minibroker.log.compression import CODEC_NAMES, GZIP, LZ4, NONE, SNAPPY, ZSTD
from minibroker.log.records import Record
from minibroker.spark.columns.building import RowColumns, build_batches
from minibroker.spark.columns.partitions import partitions_of
from minibroker.spark.columns.reader import HEADERS

START_MS = 1600000000000
VALUE_BYTES = 200
COUNT = 100_000
ROUNDS = 7
WORDS = ("order", "customer", "amount", "EUR", "created", "2026", "shipped", "address", "items", "discount")

Jobs = dict[str, Callable[[], object]]


def records(sizes: str, headers: int) -> list[Record]:
    """Return records whose values compress about as well as JSON does."""
    chance = random.Random(7)

    def value(size: int) -> bytes:
        text = " ".join(chance.choice(WORDS) + str(chance.randrange(1000)) for _ in range(size // 8 + 1))
        return text.encode()[:size]

    pool = [value(VALUE_BYTES if sizes == "alike" else chance.randrange(2 * VALUE_BYTES)) for _ in range(999)]
    extra = tuple(("trace", b"0123456789") for _ in range(headers))
    return [
        Record(b"key%05d" % chance.randrange(100000), chance.choice(pool), extra, START_MS + number)
        for number in range(COUNT)
    ]


def jobs(batch_bytes: int, codec: int = NONE, sizes: str = "alike", headers: int = 0) -> Jobs:
    """Return both ways to build, and to find partitions."""
    rows = records(sizes, headers)
    columns = RowColumns(
        pa.array([row.key for row in rows], pa.binary()),
        pa.array([row.value for row in rows], pa.binary()),
        np.array([row.timestamp for row in rows]),
        pa.array([[{"key": key, "value": value} for key, value in row.headers] for row in rows], HEADERS),
    )
    counts = [batch.count for batch in build_batches(columns, batch_bytes=batch_bytes)]

    def one_by_one() -> None:
        start = 0
        for count in counts:
            build_batch(2, rows[start : start + count], codec=codec, base_offset=start)
            start += count

    return {
        "one by one": one_by_one,
        "columns": lambda: [batch.size_bytes for batch in build_batches(columns, batch_bytes=batch_bytes, codec=codec)],
        "partitioned": lambda: partitions_of(columns.keys, 12),
        "one by one ": lambda: [partition_of_key(row.key or b"", 12) for row in rows[: COUNT // 10]],
    }


def measure(jobs: Jobs, rounds: int) -> dict[str, list[float]]:
    """Return the CPU times of each job in seconds, one per round, the jobs taking turns."""
    samples: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds + 1):
        for name, job in jobs.items():
            start = time.process_time()
            job()
            samples[name].append(time.process_time() - start)
    return {name: times[1:] for name, times in samples.items()}


def main(rounds: int) -> None:
    rows: dict[str, dict[str, object]] = {
        "batches of 16 KiB": {"batch_bytes": 16 * 1024},
        "batches of 128 KiB": {"batch_bytes": 128 * 1024},
        "batches of 1 MiB": {"batch_bytes": 1024 * 1024},
        "sizes of 0 to 400": {"batch_bytes": 128 * 1024, "sizes": "mixed"},
        "two headers each": {"batch_bytes": 128 * 1024, "headers": 2},
        **{CODEC_NAMES[codec]: {"batch_bytes": 128 * 1024, "codec": codec} for codec in (GZIP, SNAPPY, LZ4, ZSTD)},
    }
    print(f"{'M records/s':20}{'one by one':>12}{'columns':>12}{'over':>8}{'partitioned':>14}{'over':>8}")
    for title, settings in rows.items():
        single, columns, partitioned, placed = measure(jobs(**settings), rounds).values()  # type: ignore[arg-type]
        ratio = statistics.median(slow / fast for slow, fast in zip(single, columns, strict=True))
        placed_ratio = statistics.median(10 * slow / fast for slow, fast in zip(placed, partitioned, strict=True))
        print(
            f"{title:20}{COUNT / statistics.median(single) / 1e6:12.2f}"
            f"{COUNT / statistics.median(columns) / 1e6:12.2f}{ratio:7.1f}x"
            f"{COUNT / statistics.median(partitioned) / 1e6:14.2f}{placed_ratio:7.1f}x",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
