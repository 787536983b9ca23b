"""profile: what topics hold, per topic, partition and hour, as a summary, tables, and a report in HTML to send on.

It is SQL over the records and the batches of the data source (profile_sql.py), of log directories and brokers alike.
What must hold: all of it is about the same offsets, which are found once, before anything is read. What is left out,
as broken batches and rows above a limit, is told.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from minibroker.clock import LoopClock
from minibroker.log.compression import CODEC_NAMES, NONE, compress
from minibroker.spark.jobs import profile_sql
from minibroker.spark.jobs.arguments import add_source_arguments, source_options
from minibroker.spark.jobs.codecs_measuring import Piece, pieces_of, read_piece
from minibroker.spark.jobs.page import Row, write_report
from minibroker.spark.jobs.profile_report import profile_report
from minibroker.spark.jobs.profile_tables import Rows, made, problems_of
from minibroker.spark.jobs.progress import Progress
from minibroker.spark.jobs.summary import Summary
from minibroker.spark.jobs.tasks import run_tasks
from minibroker.spark.option_values import OptionError
from minibroker.spark.options import BATCHES, FAIL, SKIP, Options, parse, pinned
from minibroker.spark.reading import all_ranges, plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.clock import Clock

DESCRIPTION = "Say what topics hold: records, bytes, batches, codecs, keys, times, gaps, producers."
EPILOG = """examples:
  minibroker spark profile --path data -t orders --html orders.html
  minibroker spark profile --bootstrap-server localhost:9092 --pattern '^shop' --json > shop.json

A broken batch ends the job; --option mode=skip counts the rest and tells what is broken."""

KEPT = {"pieces": profile_sql.PIECES, "key_counts": profile_sql.KEY_COUNTS, "packs": profile_sql.PACKS}
QUERIES = {
    "parts": profile_sql.PARTS,
    "top_keys": profile_sql.TOP_KEYS,
    "bins": profile_sql.BINS,
    "codecs": profile_sql.CODECS,
    "producers": profile_sql.PRODUCERS,
    "hours": profile_sql.HOURS,
    "broken": profile_sql.BROKEN,
}
CHUNK_OFFSETS = 1_000_000
PARTITIONS = "spark.sql.shuffle.partitions"
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
    chunk_offsets: int = CHUNK_OFFSETS,
) -> Summary:
    """Count what is in topics.

    source: options of the data source, as path and subscribe.
    html: where the report goes.
    chunk_offsets: of so many a task looks at the order.
    """
    progress = progress or Progress(is_wanted=False)
    options = parse(source)
    if options.mode not in (FAIL, SKIP):
        raise OptionError(f"mode is {options.mode}: a profile has no rows to show; it can be {FAIL} or {SKIP}")
    now_ms = (clock or LoopClock()).now_ms()
    with progress.step("planning"):
        ranges = _ranges(options)
    counted: Rows = {name: [] for name in (*QUERIES, "compressibility")}
    if ranges:
        given = pinned(source, ranges)
        counted = _counted(spark, ranges, given, {"now": now_ms, "chunk": chunk_offsets}, progress)
        with progress.step("compressing a sample"):
            counted["compressibility"] = _compressibility(spark, given)
    figures, tables, notes = made(counted, now_ms, is_committed=options.read_committed)
    problems = problems_of(counted, is_committed=options.read_committed)
    if html is not None:
        page = profile_report(figures, problems, notes, tables, counted["bins"])
        notes.append(f"the report is {write_report(html, page)}")
    return Summary("profile", figures, tables, problems, notes)


# Reading


def _ranges(options: Options) -> list[tuple[str, int, int, int]]:
    """Return topic, partition, first and end offset of what holds anything."""
    return [
        (each.log.topic, each.log.partition, each.first_offset, each.end_offset)
        for each in all_ranges(options)
        if each.first_offset < each.end_offset
    ]


def _counted(
    spark: Any,
    ranges: list[tuple[str, int, int, int]],
    told: dict[str, str],
    numbers: dict[str, int],
    progress: Progress,
) -> Rows:
    """Return what the queries find; numbers are what they name besides tables."""

    def source(schema: str, **more: str) -> Any:
        return spark.read.format("minibroker").options(**{**told, **more}).schema(schema).load()

    frames: dict[str, Any] = {
        "ranges": spark.createDataFrame(ranges, profile_sql.RANGES_SCHEMA),
        "rows": source(profile_sql.ROWS_SCHEMA),
        "keys": source(profile_sql.KEYS_SCHEMA),
        "batches": source(profile_sql.BATCHES_SCHEMA, mode=BATCHES),
    }
    names = {name: f"minibroker_profile_{name}" for name in (*frames, *KEPT)}

    def asked(query: str) -> Any:
        return spark.sql(query.format(**names, **numbers))

    # The 200 partitions that Spark comes with are too many for little.
    count = sum(end_offset - first_offset for _, _, first_offset, end_offset in ranges)
    partitions = spark.conf.get(PARTITIONS)
    spark.conf.set(PARTITIONS, str(min(-(-count // CHUNK_OFFSETS), int(partitions))))
    try:
        for name, frame in frames.items():
            frame.createOrReplaceTempView(names[name])
        for name, query in KEPT.items():
            asked(query).persist().createOrReplaceTempView(names[name])
        found = {}
        for name, query in QUERIES.items():
            with progress.step(f"reading {len({each[0] for each in ranges})} topics: {name.replace('_', ' ')}"):
                found[name] = [row.asDict() for row in asked(query).collect()]
        return found
    finally:
        for name in names.values():
            spark.catalog.dropTempView(name)  # and with it what was kept
        spark.conf.set(PARTITIONS, partitions)


def _compressibility(spark: Any, told: dict[str, str]) -> list[Row]:
    """Return what codecs make of a sample of the values of each topic."""
    options = parse(told)
    options.columns = ["key", "value"]
    by_topic: dict[str, list[Any]] = {}
    for task in plan(options):
        by_topic.setdefault(task.topic, []).append(task)
    works = [pieces_of(tasks, options, SAMPLE_BYTES) for tasks in by_topic.values()]
    return [
        {"topic": topic, "codec": CODEC_NAMES[codec], "sampled_bytes": sampled, "compressed_bytes": packed}
        | {"ratio": round(sampled / packed, 3)}
        for topic, (sampled, by_codec) in zip(by_topic, run_tasks(spark, try_codecs, works), strict=True)
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
