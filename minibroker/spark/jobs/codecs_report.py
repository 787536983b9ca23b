"""The report of codecs: what to take, first; then ratio against throughput, sizes of batches, costs, the articles.

Not here: what pages and charts look like (page.py, charts.py), the figures (codecs_advice.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from minibroker.log.compression import CODEC_NAMES, NONE
from minibroker.spark.jobs import charts, page
from minibroker.spark.jobs.charts import Axis, Dot, Series
from minibroker.spark.jobs.codecs_advice import Advice, Comparison, Load, cost_of, reference_bytes
from minibroker.spark.jobs.codecs_measuring import Measurement
from minibroker.spark.jobs.page import bytes_text, figure, size_text, time_text

WIDE = 1080
DAY_SECONDS = 86_400


def report(
    found: dict[str, list[Measurement]],
    advice: dict[str, Advice],
    comparisons: dict[str, list[Comparison]],
    load: Load,
    about: str,
    now_ms: int,
) -> str:
    """Return the page; measured, advice and comparisons are by topic."""
    names = list(found)
    title = f"Codecs for {names[0]}" if len(names) == 1 else f"Codecs for {len(names)} topics"
    made = page.Page(title, f"Measured on {time_text(now_ms)} UTC. {about}")
    made.add("What to take", _advice(advice, found))
    for name in names:
        made.add(name, _topic(found[name], comparisons[name], load))
    return made.add("How it was measured", _manner()).html()


def _advice(advice: dict[str, Advice], found: dict[str, list[Measurement]]) -> str:
    html = ""
    for name, each in advice.items():
        best = each.best
        tiles = [
            (f"compression.type for {name}", best.setting.name, "" if best.setting.is_default else best.setting.label),
            ("Ratio", f"{best.ratio:.2f}", f"in batches of {size_text(best.batch_bytes)}"),
        ]
        if best.compress_mb_s and best.decompress_mb_s:
            tiles.append(("Compress", f"{best.compress_mb_s:,.0f} MB/s", "a core"))
            tiles.append(("Decompress", f"{best.decompress_mb_s:,.0f} MB/s", "a core"))
        html += page.tiles(tiles)
        html += f"<p>By the goal {escape(each.goal)}: {escape(each.reason)}.</p>{_by_size(each, found[name])}"
        setting = "\n".join(f"{key}={value}" for key, value in each.properties.items())
        html += f"<pre><code>{escape(setting)}</code></pre>"
    return html + (
        "<p>Set it in the producers, and leave <code>compression.type=producer</code> (the default) on the topic: then "
        "brokers store what they get. Levels are settings of producers from Kafka 3.8 on.</p>"
    )


def _by_size(advice: Advice, found: Sequence[Measurement]) -> str:
    """Say what larger batches would do."""
    largest = max(
        (each for each in found if each.setting == advice.best.setting), key=lambda each: each.batch_bytes, default=None
    )
    if largest is None or largest.ratio < advice.best.ratio * 1.05:
        return ""
    return (
        f"<p>Larger batches help: in {size_text(largest.batch_bytes)} its ratio is {largest.ratio:.2f}. Producers fill "
        "them with <code>batch.size</code> and <code>linger.ms</code>.</p>"
    )


def _topic(found: Sequence[Measurement], comparisons: Sequence[Comparison], load: Load) -> str:
    reference = reference_bytes(found)
    here = [each for each in found if each.batch_bytes == reference]
    names = [(CODEC_NAMES[codec], codec) for codec in sorted({each.setting.codec for each in found} - {NONE})]
    html = page.charts(
        _trade(here, reference, names),
        _by_batch("Ratio by size of batches", found, names, lambda each: each.ratio, Axis("ratio", _number)),
        _by_batch(
            "Compression by size of batches",
            found,
            names,
            lambda each: each.compress_mb_s or 0,
            Axis("MB/s a core", lambda value: f"{value:,.0f}", is_log=True),
        ),
    )
    html += "<h3>What the articles say</h3>" + _articles(comparisons, reference)
    html += f"<h3>What it costs at {bytes_text(load.rate)}/s</h3>" + _costs(here, load, reference)
    return html + "<h3>All that was measured</h3>" + _measured(found)


def _trade(here: Sequence[Measurement], reference: int, names: list[tuple[str, int]]) -> str:
    series = []
    for name, codec in names:
        dots = [
            Dot(
                each.compress_mb_s,
                each.ratio,
                f"ratio {each.ratio:.2f}, {each.compress_mb_s:,.0f} MB/s (±{each.compress_spread / 2:.0%})",
                each.setting.label,
                each.compress_mb_s * (1 - min(each.compress_spread / 2, 0.9)),
                each.compress_mb_s * (1 + each.compress_spread / 2),
            )
            for each in here
            if each.setting.codec == codec and each.compress_mb_s
        ]
        series.append(Series(name, dots, codec))
    speed = Axis("MB/s that one core compresses", lambda value: f"{value:,.0f}", is_log=True)
    chart = charts.scatter(series, "Ratio against throughput", speed, Axis("ratio", _number), width=WIDE)
    about = (
        f"In batches of {size_text(reference)}. Right is faster, up is smaller; lines show the spread of the rounds."
    )
    return figure(chart, "Ratio against throughput", about=about, below=charts.legend(names), is_wide=True)


def _by_batch(
    title: str,
    found: Sequence[Measurement],
    names: list[tuple[str, int]],
    value: Callable[[Measurement], float],
    axis: Axis,
) -> str:
    series = []
    for name, codec in names:
        rows = sorted(_of_default(found, codec), key=lambda each: each.batch_bytes)
        dots = [
            Dot(each.batch_bytes, value(each), f"{size_text(each.batch_bytes)}: {_number(value(each))}")
            for each in rows
        ]
        series.append(Series(name, dots, codec))
    sizes = sorted({each.batch_bytes for each in found})
    cells = [[size_text(size), *(_cell(found, codec, size, value) for _, codec in names)] for size in sizes]
    bytes_axis = Axis("bytes of a batch without compression", size_text, is_log=True, ticks=sizes)
    return figure(
        charts.lines(series, title, bytes_axis, axis),
        title,
        about="At the default levels.",
        below=charts.legend(names),
        table=page.table(["batch", *(name for name, _ in names)], cells),
    )


def _of_default(found: Sequence[Measurement], codec: int) -> list[Measurement]:
    mine = [each for each in found if each.setting.codec == codec]
    return [each for each in mine if each.setting.is_default] or mine


def _cell(found: Sequence[Measurement], codec: int, size: int, value: Callable[[Measurement], float]) -> str:
    return next((_number(value(each)) for each in _of_default(found, codec) if each.batch_bytes == size), "–")


def _measured(found: Sequence[Measurement]) -> str:
    rows = [
        [
            each.setting.label,
            size_text(each.batch_bytes),
            f"{each.ratio:.2f}",
            _speed(each.compress_mb_s, each.compress_spread),
            _speed(each.decompress_mb_s, each.decompress_spread),
            round(each.records / each.batches),
            bytes_text(each.raw_bytes),
        ]
        for each in sorted(found, key=lambda each: (each.batch_bytes, each.setting.codec, each.setting.level or 0))
    ]
    columns = ["codec", "batch", "ratio", "compress MB/s", "decompress MB/s", "records a batch", "measured on"]
    return page.table(columns, rows)


def _speed(mb_s: float | None, spread: float) -> str | None:
    return None if mb_s is None else f"{mb_s:,.0f} ±{spread / 2:.0%}"


def _costs(here: Sequence[Measurement], load: Load, reference: int) -> str:
    rows = []
    for each in sorted(here, key=lambda each: -each.ratio):
        cost = cost_of(each, load)
        rows.append(
            [
                each.setting.label,
                f"{cost.producer_cores:.3f}",
                f"{cost.broker_cores:.3f}",
                f"{cost.recompress_cores:.3f}",
                f"{cost.consumer_cores:.3f}",
                f"{bytes_text(cost.network)}/s",
                bytes_text(cost.disk * DAY_SECONDS),
            ]
        )
    columns = ["codec", "producers", "brokers: validate", "recompress", "consumers", "network", "disks, a day"]
    about = (
        f"In batches of {size_text(reference)}; replicas: {load.replicas}, groups of consumers: {load.consumers}. "
        "Work is in cores. A broker of Kafka unpacks a batch once to validate it; it compresses again only if the "
        "topic's compression.type is another codec than the producer's. The network carries each batch to the leader, "
        "to the other replicas, and to each group."
    )
    return f"<p>{escape(about)}</p>{page.table(columns, rows)}"


def _articles(comparisons: Sequence[Comparison], reference: int) -> str:
    rows = []
    for each in comparisons:
        unit = "" if each.figure == "ratio" else " MB/s"
        first, second = (_number(value) + unit for value in each.at_reference)
        rows.append(
            [
                each.figure,
                f"{each.higher.name} > {each.lower.name}",
                outcome(each),
                f"{each.higher.name} {first}, {each.lower.name} {second}",
                each.reason or "as expected",
            ]
        )
    about = (
        "Articles about Kafka's codecs usually rank throughput LZ4 > Snappy > zstd, gzip and ratio zstd > LZ4 > gzip > "
        f"Snappy. On these records, at the default levels (figures: batches of {size_text(reference)}):"
    )
    return f"<p>{escape(about)}</p>{page.table(['', 'expected', 'measured', 'figures', 'why it may differ'], rows)}"


def outcome(comparison: Comparison) -> str:
    """Say for which sizes of batches an expectation holds."""
    said = [("holds", comparison.holds), ("no difference", comparison.same), ("the other way", comparison.differs)]
    there = [(word, sizes) for word, sizes in said if sizes]
    if len(there) == 1:
        return there[0][0]
    return ", ".join(f"{word} at {', '.join(size_text(size) for size in sizes)}" for word, sizes in there)


def _number(value: float) -> str:
    return (
        f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}".rstrip("0").rstrip(".")
    )


def _manner() -> str:
    said = [
        "Batches were built from records that follow each other in the topic, as a producer would lay them out. A "
        "batch's size is that before compression; Kafka's producers guess what a codec will make of a batch and put "
        "more records into one, so with batch.size=16384 and a ratio of 4 look at the row of 64 KiB.",
        "Ratio is the bytes of whole batches without compression by those with it. Throughput is MB of uncompressed "
        "records by CPU time of one thread; all settings were taken in turn in each of several rounds, the figure is "
        "the median of the rounds, and ± half of how far they lay apart.",
        "The libraries are those of C that the Java clients use as well, with Kafka's framing; what a JVM adds, and "
        "what building and checking batches costs, is not in it. As there each batch is a stream of its own, "
        "whose length zstd is not told: at high levels it sets up tables for megabytes, however small a batch is. Only "
        "at its default level zstd keeps its tables from batch to batch here, which makes batches of few KiB look "
        "cheaper than they are in a Java client; level 1 shows by how much, about.",
    ]
    return "".join(f"<p>{escape(each)}</p>" for each in said)
