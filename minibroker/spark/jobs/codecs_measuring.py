"""Measuring codecs on records: ratio, and bytes a second that one core compresses and decompresses.

    records -> batches of a size -> the section of each that Kafka compresses -> every codec and level, in rounds

What is timed is our own codecs (minibroker/log/compression.py): the libraries of C that Kafka's clients use through
JNI, with the same framing. Time is that of the thread on a processor, so what else the machine does disturbs less; a
round takes all settings one after the other, so that a busy moment meets them all. Figures are medians of rounds.
What must hold: what was decompressed is what was compressed. A ratio is that of whole batches, headers included.
Records are a sample: a few long runs of each topic, each from one partition, as what a codec makes of a batch depends
on how much its records have in common. Batches are built within a run.
Not here: what follows from the figures (codecs_advice.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from minibroker.clock import thread_ms
from minibroker.log.compression import CODEC_NAMES, LEVELS, NONE, check_level, compress, decompress
from minibroker.log.formats import HEADER_BYTES
from minibroker.log.records import DECOMPRESSED_BYTES_MAX
from minibroker.spark.columns.building import RowColumns, build_batches
from minibroker.spark.jobs.profile_sizes import sizes_of
from minibroker.spark.options import Options
from minibroker.spark.reading import reader_of

RUNS_MAX = 4  # of a topic
COLUMNS = ["key", "value", "timestamp", "headers"]


class Piece:
    """Where a run begins, and how long it is to be."""

    __slots__ = ("options", "size_bytes", "task")

    def __init__(self, task: Any, options: Options, size_bytes: int):
        self.task = task
        self.options = options
        self.size_bytes = size_bytes


def pieces_of(tasks: Sequence[Any], options: Options, size_bytes: int) -> list[Piece]:
    """Return what to read of a topic: its tasks are those of the data source, for the options with headers."""
    count = min(RUNS_MAX, len(tasks))
    chosen = [tasks[len(tasks) * number // count] for number in range(count)]
    return [Piece(task, options, -(-size_bytes // count)) for task in chosen]


def read_piece(piece: Piece) -> bytes:
    """Return the run as an Arrow stream."""
    found: list[pa.RecordBatch] = []
    left = piece.size_bytes
    batches = reader_of(piece.task, piece.options).batches()
    try:
        for batch in batches:
            part = batch.select(COLUMNS)
            sizes = np.cumsum(sum(np.maximum(sizes_of(part.column(name)), 0) for name in ("key", "value")))
            count = int(np.searchsorted(sizes, left)) + 1
            found.append(part.slice(0, count))
            left -= int(sizes[min(count, len(sizes)) - 1])
            if left <= 0:
                break
    finally:
        batches.close()
    sink = pa.BufferOutputStream()
    if found:
        with pa.ipc.new_stream(sink, found[0].schema) as stream:
            for part in found:
                stream.write_batch(part)
    return bytes(sink.getvalue())


def rows_in(run: bytes) -> pa.Table:
    """Return the records of a run that is not empty."""
    return pa.ipc.open_stream(run).read_all().combine_chunks()


Timer = Callable[[], float]


ROUNDS_MIN, ROUNDS_MAX = 3, 9
TIMED_MS_MIN = 10.0  # less is taken several times: what a clock costs must not count


class Setting(NamedTuple):
    """A codec and its level; None is Kafka's default."""

    codec: int
    level: int | None = None

    @property
    def name(self) -> str:
        return CODEC_NAMES[self.codec]

    @property
    def label(self) -> str:
        return self.name if self.level is None else f"{self.name} {self.level}"

    @property
    def is_default(self) -> bool:
        return self.level is None or self.level == LEVELS[self.codec][2]


class Measurement(NamedTuple):
    """What came out for a setting and a size of batches. Throughput is MB of uncompressed records per CPU second."""

    topic: str
    setting: Setting
    batch_bytes: int  # the most that a batch has without compression
    batches: int
    records: int
    raw_bytes: int  # of the batches without compression, with their headers
    packed_bytes: int
    compress_mb_s: float | None  # None: there is nothing to do
    decompress_mb_s: float | None
    compress_spread: float  # (largest - smallest) / median of the rounds
    decompress_spread: float
    rounds: int

    @property
    def ratio(self) -> float:
        return self.raw_bytes / self.packed_bytes


class Work(NamedTuple):
    """A sample and what to try on it."""

    topic: str
    runs: list[bytes]
    batch_bytes: int
    settings: list[Setting]
    seconds: float  # CPU time for each setting, about


def setting_of(text: str) -> Setting:
    """Read `zstd` or `zstd:3`; raise ValueError for what there is not."""
    name, colon, level = text.partition(":")
    if name not in CODEC_NAMES:
        raise ValueError(f"there is no codec {name!r}; there are {', '.join(CODEC_NAMES)}")
    codec = CODEC_NAMES.index(name)
    if not colon:
        return Setting(codec)
    try:
        return Setting(codec, check_level(codec, int(level)))
    except ValueError as error:
        raise ValueError(f"{text}: {error}") from None


def measure(work: Work) -> list[Measurement]:
    """Measure all settings on batches of one size."""
    sections, records = sections_of(work.runs, work.batch_bytes)
    if not sections:
        return []
    trials = [Trial(setting, sections, work.seconds * 1000, thread_ms) for setting in work.settings]
    for number in range(ROUNDS_MAX):
        for trial in trials:
            if number < ROUNDS_MIN or not trial.is_over:
                trial.run()
    return [trial.measured(work, records) for trial in trials]


def sections_of(runs: Sequence[bytes], batch_bytes: int) -> tuple[list[bytes], list[int]]:
    """Return what a codec gets of each batch, and how many records that is."""
    sections, records = [], []
    for run in runs:
        if not run:
            continue
        table = rows_in(run)
        times = table.column("timestamp").chunk(0).cast(pa.int64()).to_numpy() // 1000
        rows = RowColumns(
            table.column("key").chunk(0), table.column("value").chunk(0), times, table.column("headers").chunk(0)
        )
        for batch in build_batches(rows, batch_bytes=batch_bytes):
            sections.append(bytes(memoryview(batch.data)[HEADER_BYTES:]))
            records.append(batch.count)
    return sections, records


class Trial:
    """One setting over the rounds."""

    def __init__(self, setting: Setting, sections: list[bytes], budget_ms: float, timer: Timer):
        self._setting = setting
        self._sections = sections
        self._budget_ms = budget_ms
        self._timer = timer
        self._packed: list[bytes] = []
        self._times: tuple[int, int] = 1, 1  # how often to compress and decompress in a round
        self._compress_ms: list[float] = []
        self._decompress_ms: list[float] = []
        self._spent_ms = 0.0

    @property
    def is_over(self) -> bool:
        return self._setting.codec == NONE or self._spent_ms >= self._budget_ms

    def run(self) -> None:
        """Do one round; the first one says how much of the sample there is time for, and is not counted."""
        if self._setting.codec == NONE:
            return
        if not self._packed:
            self._prepare()
        started = self._timer()
        for _ in range(self._times[0]):
            for section in self._sections:
                compress(self._setting.codec, section, level=self._setting.level)
        compressed = self._timer()
        for _ in range(self._times[1]):
            for packed in self._packed:
                decompress(self._setting.codec, packed, DECOMPRESSED_BYTES_MAX)
        ended = self._timer()
        self._compress_ms.append((compressed - started) / self._times[0])
        self._decompress_ms.append((ended - compressed) / self._times[1])
        self._spent_ms += ended - started

    def _prepare(self) -> None:
        codec, level = self._setting
        started = self._timer()
        for section in self._sections:
            self._packed.append(compress(codec, section, level=level))
            if self._timer() - started > self._budget_ms / ROUNDS_MIN:
                break  # slow levels get less to do
        self._sections = self._sections[: len(self._packed)]
        compressed = self._timer()
        for section, packed in zip(self._sections, self._packed, strict=True):
            assert decompress(codec, packed, DECOMPRESSED_BYTES_MAX) == section
        spans = compressed - started, self._timer() - compressed
        self._times = _times_for(spans[0]), _times_for(spans[1])

    def measured(self, work: Work, records: list[int]) -> Measurement:
        count = len(self._sections)
        section_bytes = sum(map(len, self._sections))
        headers = HEADER_BYTES * count
        packed = section_bytes if self._setting.codec == NONE else sum(map(len, self._packed))
        return Measurement(
            work.topic,
            self._setting,
            work.batch_bytes,
            count,
            sum(records[:count]),
            section_bytes + headers,
            packed + headers,
            _speed(section_bytes, self._compress_ms),
            _speed(section_bytes, self._decompress_ms),
            _spread(self._compress_ms),
            _spread(self._decompress_ms),
            len(self._compress_ms),
        )


def _times_for(span_ms: float) -> int:
    return int(np.clip(np.ceil(TIMED_MS_MIN / max(span_ms, 1e-3)), 1, 1000))


def _speed(size_bytes: int, times: list[float]) -> float | None:
    """Return MB a second."""
    return size_bytes / 1e3 / max(median(times), 1e-6) if times else None


def _spread(times: list[float]) -> float:
    return (max(times) - min(times)) / median(times) if times and median(times) else 0.0
