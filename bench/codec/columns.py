"""Reading records as columns, beside reading them one by one, in one run.

Each row is one chunk of a topic: records of 200 bytes, uncompressed v2 in batches of 16 KiB, unless the row says
otherwise. Keys are 8 bytes. Rounds take the readers in turn, so that a busy moment of the machine hits all of them;
figures are medians over the rounds, in millions of records per second on one core. "over" is how many times more that
is than one by one, the median of the ratios within each round.
Columns are offset, timestamp and value; then with the key; then with key and headers; and the first once more with
checksums unchecked. One by one means every field of every record, checksums checked.

    python bench/codec/columns.py [ROUNDS]
"""

import random
import statistics
import sys
import time
from collections.abc import Callable

from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.compression import CODEC_NAMES, GZIP, LZ4, NONE, SNAPPY, ZSTD
from minibroker.log.records import Record
from minibroker.spark.columns.reader import ColumnReader

START_MS = 1600000000000
VALUE_BYTES = 200
RECORD_BYTES = 217
CHUNK_BYTES = 24 * 1024 * 1024  # more than is read at once
ROUNDS = 9

Jobs = dict[str, Callable[[], object]]
WORDS = ("order", "customer", "amount", "EUR", "created", "2026", "shipped", "address", "items", "discount")


def value_of(chance: random.Random, size: int) -> bytes:
    """Return something that compresses about as well as JSON does."""
    text = " ".join(chance.choice(WORDS) + str(chance.randrange(1000)) for _ in range(size // 8 + 1))
    return text.encode()[:size]


def chunk(
    batch_bytes: int, *, magic: int = 2, codec: int = NONE, sizes: str = "alike", headers: int = 0, step_ms: int = 1
) -> tuple[bytes, int]:
    """Return batches, and how many records are in them."""
    chance = random.Random(7)
    per_batch = max(1, batch_bytes // RECORD_BYTES)
    pool = [
        value_of(chance, VALUE_BYTES if sizes == "alike" else chance.randrange(2 * VALUE_BYTES)) for _ in range(999)
    ]
    extra = tuple(("trace", b"0123456789") for _ in range(headers))
    parts, count = [], 0
    for _ in range(CHUNK_BYTES // batch_bytes):
        rows = [
            Record(b"key%05d" % chance.randrange(100000), chance.choice(pool), extra, START_MS + (count + n) * step_ms)
            for n in range(per_batch)
        ]
        parts.append(build_batch(magic, rows, codec=codec, base_offset=count))
        count += per_batch
    return b"".join(parts), count


def readers(data: bytes) -> Jobs:
    def one_by_one() -> None:
        for batch in batches(data):
            for record in batch.records(check_crc=True):
                record.offset, record.timestamp, record.key, record.value, record.headers  # noqa: B018

    def columns(keys: bool, headers: bool, check_crc: bool) -> Callable[[], object]:
        def read() -> int:
            return sum(map(len, ColumnReader(data, keys=keys, headers=headers, check_crc=check_crc)))

        return read

    return {
        "one by one": one_by_one,
        "columns": columns(False, False, True),
        "with key": columns(True, False, True),
        "with headers": columns(True, True, True),
        "no checksum": columns(False, False, False),
    }


def measure(jobs: Jobs, rounds: int) -> dict[str, list[float]]:
    """Return the CPU times of each job in seconds, one per round, the jobs taking turns."""
    samples: dict[str, list[float]] = {name: [] for name in jobs}
    for job in jobs.values():
        job()
    for _ in range(rounds):
        for name, job in jobs.items():
            start = time.process_time()
            job()
            samples[name].append(time.process_time() - start)
    return samples


def main(rounds: int) -> None:
    rows: dict[str, dict[str, object]] = {
        "batches of 1 KiB": {"batch_bytes": 1024},
        "batches of 16 KiB": {"batch_bytes": 16 * 1024},
        "batches of 128 KiB": {"batch_bytes": 128 * 1024},
        "batches of 1 MiB": {"batch_bytes": 1024 * 1024},
        "sizes of 0 to 400": {"batch_bytes": 16 * 1024, "sizes": "mixed"},
        "the same in 1 MiB": {"batch_bytes": 1024 * 1024, "sizes": "mixed"},
        "a record a second": {"batch_bytes": 16 * 1024, "step_ms": 1000},
        "two headers each": {"batch_bytes": 16 * 1024, "headers": 2},
        **{CODEC_NAMES[codec]: {"batch_bytes": 16 * 1024, "codec": codec} for codec in (GZIP, SNAPPY, LZ4, ZSTD)},
        "v1": {"batch_bytes": 16 * 1024, "magic": 1},
        "v1 lz4": {"batch_bytes": 16 * 1024, "magic": 1, "codec": LZ4},
        "v0 lz4": {"batch_bytes": 16 * 1024, "magic": 0, "codec": LZ4},
    }
    names = list(readers(b""))
    print(f"{'M records/s':20}" + "".join(f"{name:>14}{'over' if name != names[0] else '':>8}" for name in names))
    for title, settings in rows.items():
        data, count = chunk(**settings)  # type: ignore[arg-type]
        samples = measure(readers(data), rounds)
        line = f"{title:20}"
        for name in names:
            line += f"{count / statistics.median(samples[name]) / 1e6:14.2f}"
            if name == names[0]:
                line += " " * 8
            else:
                ratio = statistics.median(slow / fast for slow, fast in zip(samples[names[0]], samples[name]))
                line += f"{ratio:7.1f}x"
        print(line, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
