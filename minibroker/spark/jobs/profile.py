"""profile: what topics hold, per topic, partition and hour, as a summary, tables, and a report in HTML to send on.

Tasks count records and batches of the data source (profile_counting.py), of log directories and brokers alike; what
they have counted is put together by tasks, too, where it grows with the data (profile_keys.py, profile_sql.py).
What must hold: all of it is about the same offsets, which are found once, before anything is read. What is left out,
as broken batches and rows above a limit, is told.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

from minibroker.clock import LoopClock
from minibroker.log.compression import CODEC_NAMES, NONE, compress
from minibroker.spark.arrow_map import map_in_arrow
from minibroker.spark.jobs import profile_sql
from minibroker.spark.jobs.arguments import add_source_arguments, check_mode, source_options
from minibroker.spark.jobs.codecs_measuring import Piece, pieces_of, read_piece
from minibroker.spark.jobs.page import ReportFile, Row
from minibroker.spark.jobs.profile_counting import FACTS_SCHEMA, HEADERS, ROWS, Work, count_works
from minibroker.spark.jobs.profile_keys import key_rows
from minibroker.spark.jobs.profile_report import profile_report
from minibroker.spark.jobs.profile_tables import Counted, Range, made, problems_of
from minibroker.spark.jobs.progress import Progress
from minibroker.spark.jobs.summary import Summary
from minibroker.spark.jobs.tasks import run_tasks, slices_of
from minibroker.spark.option_values import Limit
from minibroker.spark.options import BATCHES, OPTIONS, Options, parse, pinned
from minibroker.spark.reading import all_ranges, plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.clock import Clock

DESCRIPTION = "Say what topics hold: records, bytes, batches, codecs, keys, times, gaps, producers."
EPILOG = """examples:
  minibroker spark profile --path data -t orders --html orders.html
  minibroker spark profile --bootstrap-server localhost:9092 --pattern '^shop' --json > shop.json

A broken batch ends the job; --option mode=skip counts the rest and tells what is broken."""

PARTITIONS, COMPILES = "spark.sql.shuffle.partitions", "spark.sql.codegen.wholeStage"
SHUFFLED_RECORDS = 1_000_000  # of which a partition gets the facts
SAMPLE_BYTES = 1 << 20  # of a topic: compressed by way of trial
TRIAL_BYTES = 64 * 1024  # in pieces of this size


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument("--html", metavar="FILE", help="write a report with charts; one file that needs nothing else")


def run(spark: Any, options: argparse.Namespace, progress: Progress) -> Summary:
    return profile(spark, source=source_options(options), html=options.html, progress=progress)


def profile(
    spark: Any,
    *,
    source: Mapping[str, str],
    html: str | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Count what is in topics.

    source: options of the data source, as path and subscribe.
    html: where the report goes.
    """
    progress = progress or Progress(is_wanted=False)
    check_mode(OPTIONS.by_true_names(source))
    options = parse(source)
    place = None if html is None else ReportFile(html)
    now_ms, lost = (clock or LoopClock()).now_ms(), list[str]()
    with progress.step("planning"):
        ranges = _ranges(options, lost.append)
    counted = Counted(ranges, now_ms)
    if ranges:
        given = pinned(source, ranges)
        with progress.step("planning tasks"):
            works = _works(given, ranges, now_ms)
        _count(spark, works, counted, progress)
        with progress.step("compressing a sample"):
            counted.compressibility = _compressibility(spark, works)
    figures, tables, notes = made(counted, is_committed=options.read_committed)
    problems = lost + problems_of(counted, is_committed=options.read_committed)
    if place is not None:
        page = profile_report(figures, problems, notes, tables, counted.bins(), counted.hours)
        place.write(page, notes, problems)
    return Summary("profile", figures, tables, problems, notes)


# Reading


def _ranges(options: Options, tell: Callable[[str], None]) -> list[Range]:
    """Return topic, partition, first and end offset of what holds anything; `tell` is told of data loss."""
    return [
        (each.log.topic, each.log.partition, each.first_offset, each.end_offset)
        for each in all_ranges(options, tell=tell)
        if each.first_offset < each.end_offset
    ]


def _works(told: dict[str, str], ranges: Sequence[Range], now_ms: int) -> list[Work]:
    """Return what tasks count: records, then headers of batches."""
    first = {(topic, partition): first_offset for topic, partition, first_offset, _ in ranges}
    works = []
    for more, columns in (({}, ROWS), ({"mode": BATCHES}, HEADERS)):
        options = parse({**told, **more})
        options.columns = columns
        tasks, options = plan(options), _for_tasks(options)
        works += [Work(task, options, first[task.topic, task.partition], now_ms) for task in tasks]
    return works


def _for_tasks(options: Options) -> Options:
    """Return options without what tasks have been planned by: their own offsets they know, and of all it is much."""
    found = copy(options)
    found.assigned, found.starting, found.ending = None, Limit(""), Limit("")
    return found


def _count(spark: Any, works: list[Work], counted: Counted, progress: Progress) -> None:
    view, count = "minibroker_profile_facts", len(works)
    before = {name: spark.conf.get(name) for name in (PARTITIONS, COMPILES)}
    _set(spark, {COMPILES: "false"})  # queries over few facts take less than to compile them
    numbers = spark.range(0, count, 1, slices_of(spark, count))
    facts = map_in_arrow(numbers, count_works(works), FACTS_SCHEMA).persist()
    try:
        facts.createOrReplaceTempView(view)

        def asked(query: str) -> list[Row]:
            rows = spark.sql(query.format(facts=view, partitions=len(counted.ranges))).collect()
            return [row.asDict() for row in rows]

        with progress.step(f"reading {len({each.task.topic for each in works})} topics"):
            counted.join(asked(profile_sql.STRETCHES))
        # The 200 partitions that Spark comes with are too many for little. Records count, not offsets: what was cleaned
        # is gone.
        partitions = min(-(-counted.records // SHUFFLED_RECORDS), int(before[PARTITIONS]))
        _set(spark, {PARTITIONS: str(max(partitions, 1))})
        with progress.step("counting keys, hours and producers"):
            counted.keys = [row.asDict() for row in key_rows(facts, counted.records, counted.key_bytes).collect()]
            counted.hours = asked(profile_sql.HOURS)
            counted.producers = asked(profile_sql.PRODUCERS)
    finally:
        spark.catalog.dropTempView(view)
        facts.unpersist()
        _set(spark, before)


def _set(spark: Any, settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        spark.conf.set(name, value)


def _compressibility(spark: Any, works: Sequence[Work]) -> list[Row]:
    """Return what codecs make of a sample of the values of each topic."""
    by_topic: dict[str, list[Any]] = {}
    for work in works:
        if work.options.mode != BATCHES:
            by_topic.setdefault(work.task.topic, []).append(work.task)
    options = copy(works[0].options)
    options.columns = ["key", "value"]
    samples = [pieces_of(tasks, options, SAMPLE_BYTES) for tasks in by_topic.values()]
    return [
        {"topic": topic, "codec": CODEC_NAMES[codec], "sampled_bytes": sampled, "compressed_bytes": packed}
        | {"ratio": round(sampled / packed, 3)}
        for topic, (sampled, by_codec) in zip(by_topic, run_tasks(spark, try_codecs, samples), strict=True)
        for codec, packed in by_codec.items()
        if sampled
    ]


def try_codecs(pieces: list[Piece]) -> tuple[int, dict[int, int]]:
    """Return how many bytes of values there are in pieces of a topic, and how many each codec makes of them."""
    runs = [
        b"".join(value for batch in read_piece(piece) for value in batch.column("value").to_pylist() if value)
        for piece in pieces
    ]
    parts = [run[begin : begin + TRIAL_BYTES] for run in runs for begin in range(0, len(run), TRIAL_BYTES)]
    codecs = [codec for codec in range(len(CODEC_NAMES)) if codec != NONE]
    return sum(map(len, parts)), {codec: sum(len(compress(codec, part)) for part in parts) for codec in codecs}
