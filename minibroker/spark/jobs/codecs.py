"""codecs: Kafka's compression types on one's own records, with a recommendation, costs, and what the articles say.

There is a task for each topic and size of batches: it reads the topic's sample, a few runs of records, and measures.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minibroker.clock import LoopClock
from minibroker.log.compression import NONE
from minibroker.spark.jobs.arguments import add_source_arguments, check_mode, source_options
from minibroker.spark.jobs.codecs_advice import (
    ARTICLES,
    BALANCED,
    GOALS,
    Advice,
    Comparison,
    Cost,
    Load,
    advise,
    compare,
    cost_of,
    reference_bytes,
)
from minibroker.spark.jobs.codecs_measuring import Measurement, Piece, Setting, Work, measure, pieces_of, setting_of
from minibroker.spark.jobs.codecs_report import codecs_report
from minibroker.spark.jobs.page import ReportFile, bytes_text, some_of, some_text, time_text
from minibroker.spark.jobs.progress import Progress
from minibroker.spark.jobs.summary import Summary, Table
from minibroker.spark.jobs.tasks import run_tasks
from minibroker.spark.option_values import OptionError
from minibroker.spark.options import OPTIONS, parse
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
TOLD_MAX = 20  # sentences about what the samples lack
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
    load = load or Load()
    if load.replicas < 1 or load.consumers < 0 or load.rate <= 0 or load.link <= 0 or seconds < 0:
        raise OptionError("costs: there is at least one replica, and no rate, link or time below zero")
    place, told = None if html is None else ReportFile(html), list[str]()
    chosen = list(dict.fromkeys([Setting(NONE), *(settings or settings_of(SETTINGS))]))
    sizes = sorted(set(batch_bytes or [size_of("", each) for each in BATCH_BYTES.split(",")]))
    with progress.step("planning"):
        pieces, notes = _planned(source, sample_bytes or size_of("", SAMPLE_BYTES), told.append)
    works = [Work(topic, pieces[topic], size, chosen, seconds) for topic in pieces for size in sizes]
    with progress.step(f"measuring {len(chosen)} settings on {len(sizes)} sizes of batches"):
        found = run_tasks(spark, measure, works)
    measured = [each for of_work, _ in found for each in of_work]
    told += dict.fromkeys(text for _, of_work in found for text in of_work)  # all sizes are of the same sample
    problems = told[:TOLD_MAX] + ([f"{len(told) - TOLD_MAX} more like these"] if len(told) > TOLD_MAX else [])
    by_topic = {name: rows for name in pieces if (rows := [each for each in measured if each.topic == name])}
    if not by_topic:
        raise OptionError("; ".join(["there is no record to measure on", *problems[:1]]))
    if empty := pieces.keys() - by_topic.keys():
        notes.append(f"without a record: {', '.join(sorted(empty))}")
    advice = {name: advise(rows, goal, load) for name, rows in by_topic.items()}
    for name, each in advice.items():
        wanted = " ".join(f"{key}={value}" for key, value in each.properties.items())
        notes.append(f"{name}: take {wanted}, {each.reason}")
    notes.append(f"articles rank codecs so: {'; '.join(f'{what} ({url})' for what, url in ARTICLES)}")
    tables = _tables(by_topic, advice, load)
    if place is not None:
        about = f"Measured on {time_text((clock or LoopClock()).now_ms())} UTC, for {bytes_text(load.rate)}/s, "
        consumers = some_text(load.consumers, "group")
        about += f"{some_text(load.replicas, 'replica')} and {consumers} of consumers."
        page = codecs_report(f"Codecs for {some_of(by_topic)}", about, advice, tables)
        place.write(page, notes, problems)
    figures = {"goal": goal, "rate": load.rate, "replicas": load.replicas, "consumers": load.consumers}
    return Summary("codecs", figures, tables, problems, notes)


def _planned(
    source: Mapping[str, str], sample_bytes: int, tell: Callable[[str], None]
) -> tuple[dict[str, list[Piece]], list[str]]:
    """Return what to read of each topic, and what should be said of it."""
    check_mode(OPTIONS.by_true_names(source))
    options = parse({**source, "includeHeaders": "true"})
    tasks = plan(options, tell=tell)
    names, notes = list(dict.fromkeys(task.topic for task in tasks)), []
    if len(names) > TOPICS_MAX:
        notes.append(f"only the first {TOPICS_MAX} of {len(names)} topics were measured; name others with --topic")
    by_topic = {name: [task for task in tasks if task.topic == name] for name in names[:TOPICS_MAX]}
    return {name: pieces_of(found, options, sample_bytes) for name, found in by_topic.items()}, notes


def _tables(found: Mapping[str, Sequence[Measurement]], advice: Mapping[str, Advice], load: Load) -> list[Table]:
    rows = [each for of_topic in found.values() for each in of_topic]
    reference = reference_bytes(rows)
    rows.sort(key=lambda each: each.batch_bytes != reference)  # that goes first
    who = [[each.topic, each.setting.name, each.setting.level, each.batch_bytes] for each in rows]
    columns = ["topic", "codec", "level", "batch_bytes"]
    recommended = [
        [name, each.best.setting.name, each.best.setting.level, round(each.best.ratio, 4)]
        for name, each in advice.items()
    ]
    speeds = [
        [round(each.ratio, 4), _rounded(each.compress_mb_s), _rounded(each.decompress_mb_s), round(each.spread, 4)]
        for each in rows
    ]
    costs = [[round(value, 6) for value in cost_of(each, load)] for each in rows]
    amounts = [[each.batches, each.records, each.raw_bytes, each.packed_bytes] for each in rows]
    expected = [
        [name, *each[:3], round(each.first, 3), round(each.second, 3)]
        for name, of_topic in found.items()
        for each in compare(of_topic)
    ]
    return [
        Table("recommended", ["topic", "compression_type", "level", "ratio"], recommended),
        Table("measured", [*columns, "ratio", "compress_mb_s", "decompress_mb_s", "spread"], _beside(who, speeds)),
        Table("costs", [*columns, *Cost._fields], _beside(who, costs), sum(row[3] == reference for row in who)),
        Table("samples", [*columns, "batches", "records", "raw_bytes", "packed_bytes"], _beside(who, amounts), 0),
        Table("articles", ["topic", *Comparison._fields], expected),
    ]


def _beside(who: list[list[Any]], rows: list[list[Any]]) -> list[list[Any]]:
    return [[*left, *right] for left, right in zip(who, rows, strict=True)]


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
