"""codecs: Kafka's compression types on one's own records, with a recommendation, costs, and what the articles say.

A sample of each topic is taken by tasks, and measured in tasks: one for each topic and size of batches, each on one
core at a time.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from minibroker.clock import LoopClock
from minibroker.log.compression import NONE
from minibroker.spark.jobs.arguments import add_source_arguments, source_options
from minibroker.spark.jobs.codecs_advice import (
    BALANCED,
    GOALS,
    Advice,
    Comparison,
    Load,
    advise,
    compare,
    cost_of,
    reference_bytes,
)
from minibroker.spark.jobs.codecs_measuring import (
    Measurement,
    Setting,
    Work,
    measure,
    pieces_of,
    read_piece,
    setting_of,
)
from minibroker.spark.jobs.codecs_report import outcome, report
from minibroker.spark.jobs.page import bytes_text
from minibroker.spark.jobs.profile import write_report
from minibroker.spark.jobs.progress import Progress
from minibroker.spark.jobs.summary import Summary, Table
from minibroker.spark.jobs.tasks import run_tasks
from minibroker.spark.option_values import OptionError
from minibroker.spark.options import parse
from minibroker.spark.reading import plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.clock import Clock

DESCRIPTION = "Compare compression types and levels on a sample of your own records, and say which to take."
EPILOG = """examples:
  minibroker spark codecs --path data -t orders --html codecs.html
  minibroker spark codecs --bootstrap-server localhost:9092 -t orders --goal size --rate 50MB
  minibroker spark codecs --path data -t orders --codec lz4,zstd:1,zstd:3 --batch-bytes 16KiB,64KiB

Goals: size takes the highest ratio, throughput the fastest that makes batches at least a tenth smaller, balanced the
shortest way of a byte: compressed, carried over the links, validated, read."""

SETTINGS = "none,gzip:1,gzip,gzip:9,snappy,lz4,lz4:12,zstd:1,zstd,zstd:9"
BATCH_BYTES = "1KiB,4KiB,16KiB,64KiB,256KiB,1MiB"
SAMPLE_BYTES = "4MiB"
SECONDS = 0.5
TOPICS_MAX = 8
UNITS = {"": 1, "k": 1000, "m": 10**6, "g": 10**9, "t": 10**12} | {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument("--goal", choices=GOALS, default=BALANCED, help="what to recommend for (%(default)s)")
    parser.add_argument("--codec", default=SETTINGS, metavar="LIST", help="codecs, with levels behind : (%(default)s)")
    parser.add_argument("--batch-bytes", default=BATCH_BYTES, metavar="LIST", help="sizes of batches (%(default)s)")
    parser.add_argument("--sample-bytes", default=SAMPLE_BYTES, metavar="SIZE", help="of each topic (%(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="CPU time for each figure, about (%(default)s)")
    costs = parser.add_argument_group("costs", "what the topics have to bear")
    costs.add_argument("--rate", default="10MB", metavar="SIZE", help="bytes of records a second (%(default)s)")
    costs.add_argument("--replicas", type=int, default=3, metavar="N", help="copies of each partition (%(default)s)")
    costs.add_argument(
        "--consumers", type=int, default=1, metavar="N", help="groups that read everything (%(default)s)"
    )
    costs.add_argument("--link", default="125MB", metavar="SIZE", help="bytes a second of one link (%(default)s)")
    parser.add_argument("--html", metavar="FILE", help="write a report with charts; one file that needs nothing else")


def run(spark: Any, options: argparse.Namespace, progress: Progress) -> Summary:
    load = Load(size_of("--rate", options.rate), options.replicas, options.consumers, size_of("--link", options.link))
    return codecs(
        spark,
        source=source_options(options),
        goal=options.goal,
        settings=settings_of(options.codec),
        batch_bytes=[size_of("--batch-bytes", each) for each in options.batch_bytes.split(",")],
        sample_bytes=size_of("--sample-bytes", options.sample_bytes),
        seconds=options.seconds,
        load=load,
        html=options.html,
        progress=progress,
    )


def codecs(
    spark: Any,
    *,
    source: Mapping[str, str],
    goal: str = BALANCED,
    settings: Sequence[Setting] | None = None,
    batch_bytes: Sequence[int] | None = None,
    sample_bytes: int | None = None,
    seconds: float = SECONDS,
    load: Load | None = None,
    html: str | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Measure codecs on a sample of topics.

    source: options of the data source, as path and subscribe.
    settings, batch_bytes, sample_bytes: what to try on how much, None is what the command does.
    html: where the report goes.
    """
    progress = progress or Progress(is_wanted=False)
    if load is None:
        load = Load()
    if load.replicas < 1 or load.consumers < 0 or load.rate <= 0 or load.link <= 0 or seconds < 0:
        raise OptionError("costs: there is at least one replica, and no rate, link or time below zero")
    chosen = list(dict.fromkeys([Setting(NONE), *(settings or settings_of(SETTINGS))]))
    sizes = sorted(set(batch_bytes or [size_of("", each) for each in BATCH_BYTES.split(",")]))
    runs, notes = _sampled(spark, source, sample_bytes or size_of("", SAMPLE_BYTES), progress)
    works = [Work(topic, runs[topic], size, chosen, seconds) for topic in runs for size in sizes]
    with progress.step(f"measuring {len(chosen)} settings on {len(sizes)} sizes of batches"):
        measured = [each for found in run_tasks(spark, measure, works) for each in found]
    by_topic = {name: [each for each in measured if each.topic == name] for name in runs}
    advice = {name: advise(found, goal, load) for name, found in by_topic.items()}
    comparisons = {name: compare(found) for name, found in by_topic.items()}
    for name, each in advice.items():
        wanted = " ".join(f"{key}={value}" for key, value in each.properties.items())
        notes.append(f"{name}: take {wanted}, {each.reason}")
    if html is not None:
        about = f"A sample of {bytes_text(sum(len(run) for each in runs.values() for run in each))} of records."
        now_ms = (clock or LoopClock()).now_ms()
        place = write_report(spark, html, report(by_topic, advice, comparisons, load, about, now_ms))
        notes.append(f"the report is {place}")
    figures = {"goal": goal, "rate": load.rate, "replicas": load.replicas, "consumers": load.consumers}
    return Summary("codecs", figures, _tables(measured, advice, comparisons, load), notes=notes)


def _sampled(
    spark: Any, source: Mapping[str, str], sample_bytes: int, progress: Progress
) -> tuple[dict[str, list[bytes]], list[str]]:
    """Return runs of records by topic, and what should be said of them."""
    options = parse({**source, "includeHeaders": "true"})
    with progress.step("planning"):
        tasks = plan(options)
    names = list(dict.fromkeys(task.topic for task in tasks))
    notes = []
    if len(names) > TOPICS_MAX:
        notes.append(f"only the first {TOPICS_MAX} of {len(names)} topics were measured; name others with --topic")
        names = names[:TOPICS_MAX]
    pieces = [
        (name, piece)
        for name in names
        for piece in pieces_of([task for task in tasks if task.topic == name], options, sample_bytes)
    ]
    with progress.step(f"taking samples of {len(names)} topics"):
        read = run_tasks(spark, read_piece, [piece for _, piece in pieces])
    runs: dict[str, list[bytes]] = {}
    for (name, _), run in zip(pieces, read, strict=True):
        if run:
            runs.setdefault(name, []).append(run)
    empty = [name for name in names if name not in runs]
    if empty:
        notes.append(f"without a record: {', '.join(empty)}")
    if not runs:
        raise OptionError("there is no record to measure on")
    return runs, notes


def _tables(
    measured: Sequence[Measurement],
    advice: Mapping[str, Advice],
    comparisons: Mapping[str, Sequence[Comparison]],
    load: Load,
) -> list[Table]:
    recommended = [
        [each.topic, each.best.setting.name, each.best.setting.level, each.goal, round(each.best.ratio, 4), each.reason]
        for each in advice.values()
    ]
    figures, costs, expected = [], [], []
    reference = reference_bytes(measured)
    for each in sorted(measured, key=lambda each: each.batch_bytes != reference):  # that goes first
        who = [each.topic, each.setting.name, each.setting.level, each.batch_bytes]
        speeds = [_rounded(each.compress_mb_s), _rounded(each.decompress_mb_s)]
        spreads = [round(each.compress_spread, 4), round(each.decompress_spread, 4)]
        amounts = [each.batches, each.records, each.raw_bytes, each.packed_bytes]
        figures.append([*who, round(each.ratio, 4), *speeds, *spreads, each.rounds, *amounts])
        costs.append([*who, *(round(value, 6) for value in cost_of(each, load))])
    for name, rows in comparisons.items():
        for row in rows:
            pair = f"{row.higher.name} > {row.lower.name}"
            expected.append([name, row.figure, pair, outcome(row), *(round(value, 3) for value in row.at_reference)])
    at_reference = sum(each.batch_bytes == reference for each in measured)
    columns = ["topic", "codec", "level", "batch_bytes"]
    speeds_and_spreads = ["compress_mb_s", "decompress_mb_s", "compress_spread", "decompress_spread"]
    cores = ["producer_cores", "broker_cores", "recompress_cores", "consumer_cores"]
    return [
        Table("recommended", ["topic", "compression_type", "level", "goal", "ratio", "reason"], recommended),
        Table(
            "measured",
            [*columns, "ratio", *speeds_and_spreads, "rounds", "batches", "records", "raw_bytes", "packed_bytes"],
            figures,
        ),
        Table("costs", [*columns, *cores, "network_bytes_s", "disk_bytes_s"], costs, at_reference),
        Table("articles", ["topic", "figure", "expected", "measured", "first", "second"], expected),
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


# Values


def settings_of(text: str) -> list[Setting]:
    """Read codecs with commas between them, as lz4,zstd:3."""
    try:
        return [setting_of(each.strip()) for each in text.split(",")]
    except ValueError as error:
        raise OptionError(f"--codec: {error}") from None


def size_of(option: str, text: str) -> int:
    """Read a size, as 16KiB, 50MB or 1000."""
    word = text.strip().lower().removesuffix("b")
    digits = word.rstrip("kmgti")
    unit = UNITS.get(word[len(digits) :])
    if not digits.isdigit() or not digits.isascii() or unit is None or not int(digits):
        raise OptionError(f"{option} {text}: write it as 16KiB, 50MB or 1000")
    return int(digits) * unit
