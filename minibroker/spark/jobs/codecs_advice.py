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

from minibroker.log.compression import CODEC_NAMES, GZIP, LZ4, NONE, SNAPPY, ZSTD
from minibroker.spark.jobs.codecs_measuring import Measurement
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
    network_bytes_s: float  # over all links
    disk_bytes_s: float  # on all replicas


def cost_of(measured: Measurement, load: Load) -> Cost:
    packed = load.rate / measured.ratio
    compress = _seconds(measured.compress_mb_s) * load.rate
    decompress = _seconds(measured.decompress_mb_s) * load.rate
    links = packed * (load.replicas + load.consumers)
    return Cost(compress, decompress, compress, decompress * load.consumers, links, packed * load.replicas)


def way_seconds(measured: Measurement, load: Load) -> float:
    """Return how long a byte of records is under way, counting all work and all links one after the other."""
    work = _seconds(measured.compress_mb_s) + (1 + load.consumers) * _seconds(measured.decompress_mb_s)
    return work + (load.replicas + load.consumers) / (measured.ratio * load.link)


def _seconds(mb_s: float | None) -> float:
    """Return seconds for a byte."""
    return 0.0 if mb_s is None else 1 / (mb_s * 1e6)


class Advice(NamedTuple):
    best: Measurement
    reason: str

    @property
    def properties(self) -> dict[str, str]:
        """Return what to set in a producer."""
        setting = self.best.setting
        level = {} if setting.is_default else {f"compression.{setting.name}.level": str(setting.level)}
        return {"compression.type": setting.name, **level}


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
        return Advice(
            (plain or [most])[0],
            f"no codec makes batches of {size_text(reference)} {WORTH_RATIO} times smaller ({most.setting.label}: "
            f"{most.ratio:.2f}): the work would be for nothing",
        )
    if goal == BALANCED:
        return _shortest(worth + plain, load)
    least = max(each.ratio for each in worth) * (1 - SAME) if goal == SIZE else 0
    best = max([each for each in worth if each.ratio >= least], key=_compress_speed)
    kind = f"the smallest, to {SAME:.0%}" if goal == SIZE else "the fastest that is worth it"
    return Advice(best, f"{kind}: {best.ratio:.2f} times smaller at {_compress_speed(best):,.0f} MB/s a core")


def _shortest(rows: list[Measurement], load: Load) -> Advice:
    ways = sorted(((way_seconds(each, load) * 1e9, each) for each in rows), key=lambda way: way[0])
    others = [
        f"{each.setting.label} {ms:.1f}"
        for rank, (ms, each) in enumerate(ways)
        if 0 < rank < 4 or (rank and each.setting.codec == NONE)
    ]
    return Advice(
        ways[0][1],
        f"the shortest way: {ways[0][0]:.1f} ms for a MB to be compressed, carried {load.replicas + load.consumers} "
        f"times over {bytes_text(load.link)}/s, validated and read; {', '.join(others)}",
    )


def _compress_speed(measured: Measurement) -> float:
    return measured.compress_mb_s or 0.0


# The articles: who says what, and where.
ARTICLES = (
    (
        "Zhang Boyi on CSDN, after Hu Xi's course on Kafka: throughput LZ4 > Snappy > zstd, gzip; ratio zstd > LZ4 > "
        "gzip > Snappy",
        "https://blog.csdn.net/zhanglong_4444/article/details/103679803",
    ),
    (
        "Tencent Cloud, CKafka: throughput LZ4 > Snappy > gzip; ratio LZ4 > gzip > Snappy",
        "https://www.tencentcloud.com/document/product/597/34004",
    ),
    (
        "Conduktor, the other way about gzip: its ratio is the highest, then zstd",
        "https://docs.conduktor.io/learn/advanced/producers/compression",
    ),
)
# Figure, what should be higher, what lower -> why it may be the other way.
EXPECTED = {
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
    """What articles say beside what was measured."""

    figure: str  # throughput or ratio
    expected: str
    measured: str  # for which sizes of batches it holds
    first: float  # in batches of the reference
    second: float


def pair(higher: int, lower: int) -> str:
    return f"{CODEC_NAMES[higher]} > {CODEC_NAMES[lower]}"


def compare(found: Sequence[Measurement]) -> list[Comparison]:
    """Return each expectation for which both codecs were measured at their default levels."""
    of_default = {(each.batch_bytes, each.setting.codec): each for each in found if each.setting.is_default}
    reference = reference_bytes(found)
    sizes = sorted({each.batch_bytes for each in found})
    made = []
    for figure, higher, lower in EXPECTED:
        both = [(of_default.get((size, higher)), of_default.get((size, lower))) for size in [reference, *sizes]]
        values = [(_figure(figure, one), _figure(figure, other)) for one, other in both if one and other]
        if not values:
            continue
        outcomes: dict[str, list[str]] = {"holds": [], "no difference": [], "the other way": []}
        for size, (one, other) in zip(sizes, both[1:], strict=True):
            if one and other:
                outcomes[_outcome(figure, one, other)].append(size_text(size))
        there = {said: at for said, at in outcomes.items() if at}
        said = ", ".join(f"{each} at {', '.join(at)}" if len(there) > 1 else each for each, at in there.items())
        made.append(Comparison(figure, pair(higher, lower), said, *values[0]))
    return made


def _figure(figure: str, measured: Measurement) -> float:
    return measured.ratio if figure == "ratio" else _compress_speed(measured)


def _outcome(figure: str, one: Measurement, other: Measurement) -> str:
    first, second = _figure(figure, one), _figure(figure, other)
    noise = SAME if figure == "ratio" else max(SAME, (one.spread + other.spread) / 2)
    if abs(first - second) <= noise * max(first, second):
        return "no difference"
    return "holds" if first > second else "the other way"
