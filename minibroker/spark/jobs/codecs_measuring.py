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
import pyarrow.compute as pc

from minibroker.clock import thread_ms
from minibroker.log.compression import CODEC_NAMES, LEVELS, NONE, check_level, compress, decompress
from minibroker.log.formats import HEADER_BYTES
from minibroker.log.records import DECOMPRESSED_BYTES_MAX
from minibroker.spark.columns.building import RowColumns, build_batches
from minibroker.spark.options import Options
from minibroker.spark.reading import reader_of

RUNS_MAX = 4  # of a topic
ROUNDS = 5


class Piece(NamedTuple):
    """Where a run begins, and how long it is to be."""

    task: Any  # of the data source
    options: Options
    size_bytes: int  # of keys and values


def pieces_of(tasks: Sequence[Any], options: Options, size_bytes: int) -> list[Piece]:
    """Return what to read of a topic, of which these are the tasks: runs from all over it."""
    count = min(RUNS_MAX, len(tasks))
    return [Piece(tasks[len(tasks) * number // count], options, -(-size_bytes // count)) for number in range(count)]


def read_piece(piece: Piece, told: list[str] | None = None) -> list[pa.RecordBatch]:
    """Return the records of a run; `told` gets what was left out of it, or looks odd."""
    found: list[pa.RecordBatch] = []
    left = piece.size_bytes
    reader = reader_of(piece.task, piece.options)
    batches = reader.batches()
    length = pc.binary_length  # pyright: ignore[reportAttributeAccessIssue]  # made when it is imported
    try:
        for batch in batches:
            sizes = sum(pc.fill_null(length(batch.column(name)), 0).to_numpy() for name in ("key", "value"))
            ends = np.cumsum(sizes)
            found.append(batch.slice(0, int(np.searchsorted(ends, left)) + 1))
            left -= int(ends[found[-1].num_rows - 1])
            if left <= 0:
                break
    finally:
        batches.close()
    if told is not None:
        told += [*(f"left out {text}" for text in reader.left_out), *reader.noticed]
    return found


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
        return self.level is None or (self.codec in LEVELS and self.level == LEVELS[self.codec][2])


def setting_of(text: str) -> Setting:
    """Read `zstd` or `zstd:3`; raise ValueError for what there is not."""
    name, colon, level = text.partition(":")
    if name not in CODEC_NAMES:
        raise ValueError(f"there is no codec {name!r}; there are {', '.join(CODEC_NAMES)}")
    codec = CODEC_NAMES.index(name)
    try:
        return Setting(codec, check_level(codec, int(level)) if colon else None)
    except ValueError as error:
        raise ValueError(f"{text}: {error}") from None


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
    spread: float  # (slowest - fastest) / median of the rounds, of compressing or decompressing, whichever is more

    @property
    def ratio(self) -> float:
        return self.raw_bytes / self.packed_bytes


class Work(NamedTuple):
    """A sample and what to try on it."""

    topic: str
    pieces: list[Piece]
    batch_bytes: int
    settings: list[Setting]
    seconds: float  # CPU time for each setting, about


def measure(work: Work) -> tuple[list[Measurement], list[str]]:
    """Measure all settings on batches of one size, nothing if there is no record; and what the sample lacks."""
    told: list[str] = []
    sections, records = sections_of([read_piece(piece, told) for piece in work.pieces], work.batch_bytes)
    if not sections:
        return [], told
    trials = [Trial(setting, sections, work.seconds * 1000 / ROUNDS, thread_ms) for setting in work.settings]
    for _ in range(ROUNDS):
        for trial in trials:
            trial.run()
    return [trial.measured(work, records) for trial in trials], told


def sections_of(runs: Sequence[list[pa.RecordBatch]], batch_bytes: int) -> tuple[list[bytes], list[int]]:
    """Return what a codec gets of each batch, and how many records that is."""
    sections, records = [], []
    for run in filter(None, runs):
        table = pa.Table.from_batches(run).combine_chunks()
        keys, values, times, headers = (
            table.column(name).chunk(0) for name in ("key", "value", "timestamp", "headers")
        )
        rows = RowColumns(keys, values, times.cast(pa.int64()).to_numpy() // 1000, headers)
        for batch in build_batches(rows, batch_bytes=batch_bytes):
            sections.append(bytes(memoryview(batch.data)[HEADER_BYTES:]))
            records.append(batch.count)
    return sections, records


class Trial:
    """One setting over the rounds, each of which takes about so long; slow levels get less of the sample."""

    def __init__(self, setting: Setting, sections: list[bytes], round_ms: float, timer: Callable[[], float]):
        self._setting = setting
        self._timer = timer
        self._packed: list[bytes] = []
        started = timer()
        for section in sections:
            self._packed.append(compress(setting.codec, section, level=setting.level))
            if timer() - started > round_ms:
                break
        self._sections = sections[: len(self._packed)]
        compressed = timer()
        for section, packed in zip(self._sections, self._packed, strict=True):
            assert decompress(setting.codec, packed, DECOMPRESSED_BYTES_MAX) == section
        # How often to compress and to decompress in a round.
        spans = compressed - started, timer() - compressed
        self._times = [int(min(max(round_ms / 2 / max(span, 1e-3), 1), 1000)) for span in spans]
        self._rounds: list[tuple[float, float]] = []

    def run(self) -> None:
        codec, level = self._setting
        if codec == NONE:
            return
        started = self._timer()
        for _ in range(self._times[0]):
            for section in self._sections:
                compress(codec, section, level=level)
        compressed = self._timer()
        for _ in range(self._times[1]):
            for packed in self._packed:
                decompress(codec, packed, DECOMPRESSED_BYTES_MAX)
        spans = compressed - started, self._timer() - compressed
        self._rounds.append((spans[0] / self._times[0], spans[1] / self._times[1]))

    def measured(self, work: Work, records: list[int]) -> Measurement:
        count, section_bytes = len(self._sections), sum(map(len, self._sections))
        both = [sorted(each) for each in zip(*self._rounds)]
        middles = [max(median(each), 1e-6) for each in both]
        compress_mb_s, decompress_mb_s = [section_bytes / 1e3 / each for each in middles] or [None, None]
        return Measurement(
            work.topic,
            self._setting,
            work.batch_bytes,
            count,
            sum(records[:count]),
            section_bytes + HEADER_BYTES * count,
            sum(map(len, self._packed)) + HEADER_BYTES * count,
            compress_mb_s,
            decompress_mb_s,
            max(((each[-1] - each[0]) / middle for each, middle in zip(both, middles)), default=0.0),
        )
