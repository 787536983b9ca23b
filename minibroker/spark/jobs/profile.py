"""profile: what topics hold, per topic, partition and hour, as a summary, tables, and a report in HTML to send on.

One pass: tasks read and count, their counts are merged, no record leaves a task. Log directories and brokers alike are
read with the headers of their batches, as brokers hand out what they store.
What must hold: of the same log both give the same figures.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from minibroker.clock import LoopClock
from minibroker.spark.jobs.arguments import add_source_arguments, source_options
from minibroker.spark.jobs.page import iso_text
from minibroker.spark.jobs.profile_counts import Counts
from minibroker.spark.jobs.profile_findings import findings
from minibroker.spark.jobs.profile_reading import Work, count_tasks, merge, planned
from minibroker.spark.jobs.profile_report import report
from minibroker.spark.jobs.profile_tables import Profile, tables
from minibroker.spark.jobs.progress import Progress
from minibroker.spark.jobs.summary import Summary
from minibroker.spark.jobs.tasks import run_tasks
from minibroker.spark.option_values import OptionError
from minibroker.spark.options import FAIL, QUARANTINE, Options, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.clock import Clock

DESCRIPTION = "Say what topics hold: records, bytes, batches, codecs, keys, times, gaps, producers."
EPILOG = """examples:
  minibroker spark profile --path data -t orders --html orders.html
  minibroker spark profile --bootstrap-server localhost:9092 --pattern '^shop' --json > shop.json

A broken batch ends the job; --option mode=skip counts the rest and tells what is broken."""

# Counts that come to the driver at most: a work is several tasks of a large log. Each of these may hold the keys of a
# partition, some MB.
WORKS_MAX = 128


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
    options = parse(source)
    if options.mode == QUARANTINE:
        raise OptionError(f"mode is {QUARANTINE}: a profile has no rows to show; it can be {FAIL} or skip")
    now_ms = (clock or LoopClock()).now_ms()
    counts = _counted(spark, options, now_ms, progress)
    found = Profile(counts)
    made, notes = tables(found), findings(found)
    if html is not None:
        place = write_report(spark, html, report(found, notes, made, now_ms))
        notes.append(f"the report is {place}")
    return Summary("profile", _figures(found, now_ms), made, counts.left_out, notes)


def _counted(spark: Any, options: Options, now_ms: int, progress: Progress) -> Counts:
    with progress.step("planning"):
        tasks, counts = planned(options, now_ms)
    # Neighbours go together: they have keys in common, so their counts are smaller together.
    size = max(-(-len(tasks) // WORKS_MAX), 1)
    works = [Work(tasks[begin : begin + size], options, now_ms) for begin in range(0, len(tasks), size)]
    with progress.step(f"reading {len({task.topic for task in tasks})} topics"):
        return merge(counts, run_tasks(spark, count_tasks, works))


def _figures(found: Profile, now_ms: int) -> dict[str, Any]:
    parts = [partition for _, _, partition in found.partitions()]
    oldest, newest = found.span()
    figures: dict[str, Any] = {
        "topic_count": len(found.topics),
        "partition_count": len(parts),
        "records": sum(part.records for part in parts),
        "key_and_value_bytes": sum(part.key_bytes + part.value_bytes for part in parts),
    }
    figures["batches"] = sum(part.batches for part in parts)
    figures["stored_bytes"] = sum(part.batch_bytes for part in parts)
    return figures | {"oldest": iso_text(oldest), "newest": iso_text(newest), "profiled_at": iso_text(now_ms)}


def write_report(spark: Any, path: str, text: str) -> str:
    """Write a report; return where it is."""
    from minibroker.spark.folders import open_folder

    above, _, name = path.rpartition("/")
    if not name:
        raise OptionError(f"--html {path}: name a file, as {path}report.html")
    folder = open_folder(above or ("/" if path.startswith("/") else "."), spark)
    folder.write(name, text.encode())
    return str(folder.at(name))
