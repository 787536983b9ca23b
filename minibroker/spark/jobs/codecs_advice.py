"""Advice on codecs that were measured: costs at a rate, which one to take, how far articles were right.

Costs, for records that come at a rate (bytes a second, uncompressed):
    producers compress once; consumers decompress, each group all of it
    a broker stores and hands on what it gets. Kafka decompresses a batch once to validate its records, and compresses
    it again only if the topic's `compression.type` names another codec
    network: to the leader, to the followers, to the consumers; disks: as many copies as replicas
"Balanced" is the least time for a byte from the producer to the consumers, on one core each and one link.
Not here: measuring (codecs_measuring.py), what the report looks like (codecs_report.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from minibroker.log.compression import GZIP, LEVELS, LZ4, NONE, SNAPPY, ZSTD
from minibroker.spark.jobs.codecs_measuring import Measurement, Setting
from minibroker.spark.jobs.page import bytes_text, size_text

THROUGHPUT, SIZE, BALANCED = GOALS = ("throughput", "size", "balanced")
WORTH_RATIO = 1.1  # below it a codec is work for nothing
SAME = 0.02  # ratios and speeds that are so near each other are the same, at least
REFERENCE_BYTES = 16 * 1024  # batch.size of Kafka's producer


class Load(NamedTuple):
    """What the topic has to bear."""

    rate: float = 10e6  # bytes of records a second, uncompressed
    replicas: int = 3
    consumers: int = 1  # groups, each of which reads everything
    link: float = 125e6  # bytes a second: 1 Gbit/s


class Cost(NamedTuple):
    """What a setting costs at the rate. Cores are CPU seconds a second."""

    producer_cores: float
    broker_cores: float  # to validate; batches stay as they are
    recompress_cores: float  # added if the broker must compress again, with this codec
    consumer_cores: float
    network: float  # bytes a second, over all links
    disk: float  # bytes a second, on all replicas


def cost_of(measured: Measurement, load: Load) -> Cost:
    packed = load.rate / measured.ratio
    compress = _seconds(measured.compress_mb_s) * load.rate
    decompress = _seconds(measured.decompress_mb_s) * load.rate
    return Cost(
        compress,
        decompress,
        compress,
        decompress * load.consumers,
        packed * (load.replicas + load.consumers),
        packed * load.replicas,
    )


def way_seconds(measured: Measurement, load: Load) -> float:
    """Return how long a byte of records is under way, counting all work and all links one after the other."""
    work = _seconds(measured.compress_mb_s) + (1 + load.consumers) * _seconds(measured.decompress_mb_s)
    return work + (load.replicas + load.consumers) / (measured.ratio * load.link)


def _seconds(mb_s: float | None) -> float:
    """Return seconds for a byte."""
    return 0.0 if mb_s is None else 1 / (mb_s * 1e6)


class Advice(NamedTuple):
    topic: str
    goal: str
    best: Measurement
    reason: str

    @property
    def properties(self) -> dict[str, str]:
        """Return what to set in a producer."""
        setting = self.best.setting
        found = {"compression.type": setting.name}
        if not setting.codec or setting.is_default or setting.codec not in LEVELS:
            return found
        return found | {f"compression.{setting.name}.level": str(setting.level)}


def reference_bytes(found: Sequence[Measurement]) -> int:
    """Return the size of batches to judge by: that of Kafka's producers, or the nearest."""
    return min({each.batch_bytes for each in found}, key=lambda size: (abs(size - REFERENCE_BYTES), size))


def advise(found: Sequence[Measurement], goal: str, load: Load) -> Advice:
    """Return which setting to take for a topic; there must be one."""
    reference = reference_bytes(found)
    rows = [each for each in found if each.batch_bytes == reference]
    plain = [each for each in rows if each.setting.codec == NONE]
    worth = [each for each in rows if each.setting.codec != NONE and each.ratio >= WORTH_RATIO]
    if not worth:
        most = max(rows, key=lambda each: each.ratio)
        reason = (
            f"no codec makes batches of {size_text(reference)} {WORTH_RATIO} times smaller ({most.setting.label}: "
            f"{most.ratio:.2f}): the work would be for nothing"
        )
        best = (plain or [most])[0]
    elif goal == SIZE:
        best, reason = _smallest(worth)
    elif goal == THROUGHPUT:
        best = max(worth, key=_compress_speed)
        speed = f"{_compress_speed(best):,.0f} MB/s a core"
        reason = f"the fastest that is worth it: {speed}, {best.ratio:.2f} times smaller"
    else:
        best, reason = _shortest(worth, plain, load)
    return Advice(best.topic, goal, best, reason)


def _smallest(worth: list[Measurement]) -> tuple[Measurement, str]:
    highest = max(each.ratio for each in worth)
    best = max([each for each in worth if each.ratio >= highest * (1 - SAME)], key=_compress_speed)
    reason = f"the smallest: {best.ratio:.2f} times at {_compress_speed(best):,.0f} MB/s a core"
    if best.ratio < highest:
        reason += f"; what is up to {SAME:.0%} smaller is slower"
    return best, reason


def _shortest(worth: list[Measurement], plain: list[Measurement], load: Load) -> tuple[Measurement, str]:
    by_way = sorted((way_seconds(each, load) * 1e9, place, each) for place, each in enumerate(worth + plain))
    ways = [f"{each.setting.label} {way:.1f}" for way, _, each in by_way[1:4]]
    ways += [f"none {way:.1f}" for way, _, each in by_way[4:] if each.setting.codec == NONE]
    way, _, best = by_way[0]
    reason = (
        f"the shortest way: {way:.1f} ms for a MB to be compressed, carried {load.replicas + load.consumers} times "
        f"over {bytes_text(load.link)}/s, validated and read; {', '.join(ways)}"
    )
    return best, reason


def _compress_speed(measured: Measurement) -> float:
    return measured.compress_mb_s or 0.0


# The articles

# LZ4 > Snappy > zstd, gzip; and zstd > LZ4 > gzip > Snappy.
EXPECTED = (
    *(("throughput", LZ4, SNAPPY), ("throughput", SNAPPY, ZSTD), ("throughput", SNAPPY, GZIP)),
    *(("ratio", ZSTD, LZ4), ("ratio", LZ4, GZIP), ("ratio", GZIP, SNAPPY)),
)
# Why it may be the other way.
REASONS = {
    ("throughput", LZ4, SNAPPY): "both look for repetitions only and are within reach of each other: which is faster "
    "depends on how long those are, on the library, and on the blocks of 64 and 32 KiB that Kafka gives them; in small "
    "batches it counts what setting up an LZ4 frame takes",
    ("throughput", SNAPPY, ZSTD): "on small or very repetitive batches zstd has little to code",
    ("throughput", SNAPPY, GZIP): "on very repetitive batches gzip has little to code",
    ("ratio", ZSTD, LZ4): "small batches leave nothing to code, and a frame of zstd is no shorter",
    ("ratio", LZ4, GZIP): "gzip codes what is left by how frequent it is (Huffman), LZ4 only points at repetitions: on "
    "text, JSON and other data with uneven bytes gzip is smaller; LZ4 comes first only where there is next to nothing "
    "to compress, by its shorter frame",
    ("ratio", GZIP, SNAPPY): "tiny batches, where 18 bytes of gzip's own header and trailer count",
}


class Comparison(NamedTuple):
    """An expectation beside what was measured, by sizes of batches."""

    topic: str
    figure: str  # throughput or ratio
    higher: Setting
    lower: Setting
    holds: list[int]  # sizes of batches
    same: list[int]  # within the noise
    differs: list[int]
    at_reference: tuple[float, float]
    reason: str  # empty if it holds everywhere


def compare(found: Sequence[Measurement]) -> list[Comparison]:
    """Return each expectation for which both codecs were measured at their default levels."""
    by_place = {
        (each.batch_bytes, each.setting.codec): each
        for each in found
        if each.setting.codec and _is_default(each.setting)
    }
    reference = reference_bytes(found)
    sizes = sorted({each.batch_bytes for each in found})
    made = []
    for figure, higher, lower in EXPECTED:
        outcomes: dict[int, list[int]] = {1: [], 0: [], -1: []}
        for size in sizes:
            one, other = by_place.get((size, higher)), by_place.get((size, lower))
            if one is not None and other is not None:
                outcomes[_order(figure, one, other)].append(size)
        if (reference, higher) not in by_place or (reference, lower) not in by_place:
            continue
        one, other = by_place[reference, higher], by_place[reference, lower]
        reason = REASONS[figure, higher, lower] if outcomes[0] or outcomes[-1] else ""
        values = _figure(figure, one), _figure(figure, other)
        made.append(
            Comparison(
                one.topic, figure, one.setting, other.setting, outcomes[1], outcomes[0], outcomes[-1], values, reason
            )
        )
    return made


def _is_default(setting: Setting) -> bool:
    return setting.codec not in LEVELS or setting.is_default


def _figure(figure: str, measured: Measurement) -> float:
    return measured.ratio if figure == "ratio" else _compress_speed(measured)


def _order(figure: str, one: Measurement, other: Measurement) -> int:
    """Return 1 if the first is higher, -1 if lower, 0 if the noise does not let one say."""
    first, second = _figure(figure, one), _figure(figure, other)
    noise = SAME if figure == "ratio" else max(SAME, (one.compress_spread + other.compress_spread) / 2)
    if abs(first - second) <= noise * max(first, second):
        return 0
    return 1 if first > second else -1
