"""compact: log directories compacted without a broker, by the cleaner's rules, into another directory.

    open each log            what may be cleaned: below the last stable offset, not too young, not the active segment
    look at transactions     batch headers of all segments, for where each new segment begins
    find what is superseded  keys and offsets, shuffled by key (compact_keys.py)
    write                    groups of neighbours, each in a task; all else is copied
    publish                  under its name, with checkpoints, when all of it is on the disk

The cleaner of a broker notes keys in a map, and what has no room waits for its next pass. Here all keys have room, so
one run does what several of its passes would; where one is enough the segments are the same, byte for byte.
What must hold: the source is never written to; of a log only what is below the high watermark is taken.
Not here: retention. A topic whose policy is not compact is copied, unless it was named.
"""

from __future__ import annotations

import argparse
import pickle
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from minibroker.cleaner.batch_filter import last_batches
from minibroker.cleaner.candidates import cleanable, segments_between
from minibroker.cleaner.cleaner import ends_of, grouped
from minibroker.cleaner.transactions import Transactions
from minibroker.clock import LoopClock
from minibroker.log.aborted import aborted_between
from minibroker.log.segment import Segment
from minibroker.spark.jobs.arguments import TopicFilter, add_new_directory_arguments, pairs_of
from minibroker.spark.jobs.compact_keys import Keys
from minibroker.spark.jobs.compact_segments import KEYLESS, Look, Rewrite, SeenBatch, Source, look, rewrite
from minibroker.spark.jobs.directory_in import SourceDirectory, SourceLog
from minibroker.spark.jobs.directory_out import Copy, NewDirectory, WrittenSegment, copies_of, copy
from minibroker.spark.jobs.progress import Progress
from minibroker.spark.jobs.summary import Summary, Table
from minibroker.spark.jobs.tasks import run_tasks
from minibroker.spark.option_values import OptionError

DESCRIPTION = (
    "Compact a log directory without a broker, by the rules of the broker's cleaner, into another directory: the last "
    "value of each key stays, tombstones and markers go when their time is over."
)
EPILOG = """examples:
  minibroker spark compact --path data --to compacted -t prices
  minibroker spark compact --path data --to compacted --all --config delete.retention.ms=0

Settings of topics are read from the directory's metadata, if its broker was its own controller; --config goes first.
The new directory is the whole of the old one, other topics copied; with --only it holds nothing else."""


class Plan:
    """What is to be done to one log."""

    def __init__(self, number: int, log: SourceLog, *, takes_all: bool, now_ms: int):
        self.number = number
        self.log = log
        self.now_ms = now_ms
        self.leaves_active = takes_all and log.end_offset < log.log.log_end_offset
        if takes_all and not self.leaves_active:
            log.log.roll(now_ms=now_ms)  # in memory
        part = log.log
        self.candidate = cleanable(
            part,
            first_dirty_offset=log.cleaned_before,
            last_stable_offset=log.last_stable_offset(),
            now_ms=now_ms,
            high_watermark=log.end_offset,
        )
        # Like the cleaner, which ends where the map does, and that of this job has room for all.
        self.end_offset = max(self.candidate.end, self.candidate.first_dirty)
        end_offset = min(self.end_offset, self.candidate.end)
        self.segments = segments_between(part, -1, end_offset)
        self.ends = ends_of(self.segments, self.candidate.end)
        self.groups = grouped(self.segments, self.candidate.end, part.settings)
        self.aborted = [
            aborted_between(part, segment.base_offset, end)
            for segment, end in zip(self.segments, self.ends, strict=True)
        ]
        if self.segments:
            log.cleaned_offset = self.end_offset
            log.snapshots_from = self.candidate.end
        log.close()

    def looks(self) -> list[Look]:
        log = self.log
        return [
            Look(log.storage.root, log.directory, segment.base_offset, aborted)
            for segment, aborted in zip(self.segments, self.aborted, strict=True)
        ]

    def key_works(self) -> list[Keys]:
        found = []
        for look_at, end in zip(self.looks(), self.ends, strict=True):
            work = Keys(self.number, look_at.root, look_at.directory, look_at.base_offset, self.candidate.first_dirty)
            work.aborted = [
                (entry.producer_id, entry.first_offset, entry.last_offset)
                for entry in look_at.aborted
                if entry.first_offset < end
            ]
            found.append(work)
        return found

    def rewrites(self, target: str, seen: list[list[SeenBatch]], superseded: Mapping[int, bytes]) -> list[Rewrite]:
        """Return the work on each group; `seen` is what was looked at, by segments."""
        log, settings = self.log, self.log.settings
        horizon_ms = self._legacy_horizon_ms()
        producers = last_batches(log.producers)
        transactions = Transactions()
        found = []
        at = 0
        for group in self.groups:
            work = Rewrite(log.storage.root, target, log.directory, [])
            work.transactions = pickle.loads(pickle.dumps(transactions))
            for segment in group:
                aborted = self.aborted[at]
                modified_ms = segment.modified_ms
                work.sources.append(Source(segment.base_offset, modified_ms, modified_ms > horizon_ms, aborted))
                transactions.add_aborted(aborted)
                for batch in seen[at]:
                    transactions.see(batch)  # type: ignore[arg-type]
                at += 1
            transactions.kept = []
            first, end = group[0].base_offset >> 15, self.ends[at - 1] >> 15
            work.superseded = {bucket: bits for bucket, bits in superseded.items() if first <= bucket <= end}
            work.end_offset = self.end_offset
            work.kept_end = self.candidate.kept_end
            work.now_ms = self.now_ms
            work.delete_retention_ms = settings.delete_retention_ms
            work.index_interval_bytes = settings.index_interval_bytes
            work.producers = producers
            work.may_be_keyless = not settings.compact
            found.append(work)
        log.close()
        return found

    def _legacy_horizon_ms(self) -> int:
        """Return up to which file time tombstones of v0 and v1 may go: they have no horizon of their own."""
        seen: Sequence[Segment] = segments_between(self.log.log, -1, self.candidate.first_dirty)
        return seen[-1].modified_ms - self.log.settings.delete_retention_ms if seen else 0


def compact(
    spark: Any,
    path: str,
    target: str,
    *,
    wanted: TopicFilter | None = None,
    takes_all: bool = False,
    only: bool = False,
    settings: Mapping[str, str] | None = None,
    now_ms: int | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Write a compacted copy of a log directory.

    takes_all: what lies in the active segment too. only: leave out what is not compacted.
    settings: of topics, before what the directory's metadata say.
    """
    wanted, progress = wanted or TopicFilter(), progress or Progress(is_wanted=False)
    now_ms = LoopClock().now_ms() if now_ms is None else now_ms
    source = SourceDirectory(path, wanted, now_ms, settings)
    with closing(NewDirectory(target, [path])) as new:
        with progress.step(f"opening {len(source.names):,} logs"):
            plans, copied = _opened(source, wanted, takes_all, only, now_ms)
        written = _write(spark, new, plans, copied, progress)
        with progress.step("putting it in its place"):
            new.take_top(source.storage, [] if only or source.is_alone else source.top)
            new.publish([*(plan.log for plan in plans), *copied], written)
    return _summary(source, target, plans, copied, written)


def _opened(
    source: SourceDirectory, wanted: TopicFilter, takes_all: bool, only: bool, now_ms: int
) -> tuple[list[Plan], list[SourceLog]]:
    def is_wanted(topic: str, partition: int) -> bool:
        return wanted.wants(topic, partition) and (not wanted.is_all or source.settings_of(topic).compact)

    logs, copied = source.opened(is_wanted, only=only)
    if not logs:
        raise OptionError(
            f"no topic in {source.path} is to be compacted: name some with --topic, or say --config "
            "cleanup.policy=compact"
        )
    return [Plan(number, log, takes_all=takes_all, now_ms=now_ms) for number, log in enumerate(logs)], copied


def _write(
    spark: Any, new: NewDirectory, plans: list[Plan], copied: list[SourceLog], progress: Progress
) -> list[WrittenSegment]:
    new.begin([*(plan.log for plan in plans), *copied])
    looks = [work for plan in plans for work in plan.looks()]
    with progress.step(f"looking at transactions in {len(looks):,} segments"):
        seen = iter(run_tasks(spark, look, looks))
    with progress.step("finding what is superseded"):
        superseded = find_superseded(spark, [work for plan in plans for work in plan.key_works()])
    rewrites = [
        work
        for plan in plans
        for work in plan.rewrites(new.root, [next(seen) for _ in plan.segments], superseded.get(plan.number, {}))
    ]
    copies = [work for plan in plans for work in copies_of(plan.log, new.root, plan.candidate.end)]
    copies += [work for log in copied for work in copies_of(log, new.root)]
    works: list[Rewrite | Copy] = [*rewrites, *copies]
    with progress.step(f"writing {len(works):,} segments"):
        return run_tasks(spark, write, works)


def write(work: Rewrite | Copy) -> WrittenSegment:
    """Write a segment: what a task does."""
    return rewrite(work) if isinstance(work, Rewrite) else copy(work)


def find_superseded(spark: Any, works: list[Keys]) -> dict[int, dict[int, bytes]]:
    """Return of each log a bit for each offset whose key comes again."""
    from minibroker.spark.jobs import compact_table  # all else here does without PySpark

    return compact_table.find_superseded(spark, works)


def _summary(
    source: SourceDirectory, target: str, plans: list[Plan], copied: list[SourceLog], written: list[WrittenSegment]
) -> Summary:
    columns = ("log", "cleaned up to", "end", "records before", "records", "bytes before", "bytes", "segments")
    rows: list[tuple[Any, ...]] = []
    for plan in plans:
        mine = [each for each in written if each.directory == plan.log.directory]
        sums = {
            name: sum(each.counts.get(name, 0) for each in mine)
            for name in ("records before", "records", "bytes before")
        }
        size_bytes = sum(each.size_bytes for each in mine)
        end = max(plan.end_offset, plan.log.start_offset)
        rows.append((plan.log.directory, end, plan.log.end_offset, *sums.values(), size_bytes, len(mine)))
    notes = [f"the compacted directory is {target}", *source.notes()]
    if left := [str(plan.log) for plan in plans if plan.leaves_active]:
        notes.append(f"the active segment is left alone where it goes beyond the high watermark: {', '.join(left[:5])}")
    figures = {
        "logs compacted": len(plans),
        "logs copied": len(copied),
        "records before": sum(row[3] for row in rows),
        "records": sum(row[4] for row in rows),
        "bytes before": sum(row[5] for row in rows),
        "bytes": sum(row[6] for row in rows),
    }
    keyless: dict[str, int] = {}
    for each in written:
        keyless[each.directory] = keyless.get(each.directory, 0) + each.counts.get(KEYLESS, 0)
    problems = [
        f"{name}: {count:,} records without a key are left out, as Kafka's cleaner leaves them out"
        for name, count in sorted(keyless.items())
        if count
    ]
    return Summary("compact", figures, [Table("logs", columns, rows)], problems, notes)


# The command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_new_directory_arguments(parser, "compacted", "delete.retention.ms=0 or min.compaction.lag.ms=3600000")
    parser.add_argument("--all", action="store_true", help="compact what lies in the active segment too")


def run(spark: Any, options: argparse.Namespace, progress: Progress) -> Summary:
    return compact(
        spark,
        options.path,
        options.to,
        wanted=TopicFilter.of(options),
        takes_all=options.all,
        only=options.only,
        settings=pairs_of("--config", options.config),
        progress=progress,
    )
