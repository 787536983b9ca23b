"""verify: log directories checked to the last record, or replicas compared batch by batch, on Spark.

    checked     segments, read by tasks             ->  put together by log in the driver
    compared    the tables of batches of both, joined  ->  of each log the first that differs

What is checked are the rules of `minibroker verify`, and so are the findings: it is the same code.
Compared is what both promise: from the later of both log starts, and of where they have been compacted, as each replica
is for itself, up to the lower high watermark. Batches are the same if their checksums and all that these do not cover
are; segments may begin elsewhere.
What must hold: nothing is written, and what is found does not depend on who reads what.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from minibroker.errors import ProtocolError
from minibroker.log.checkpoints import CLEAN_SHUTDOWN, read_leader_epochs
from minibroker.log.read_only_storage import ReadOnlyStorage
from minibroker.spark.files.directories import PartitionFiles, find_partitions, topics_in
from minibroker.spark.jobs.arguments import ALL_TOPICS, TopicFilter, add_directory_arguments, add_repeated
from minibroker.spark.jobs.progress import QUIET, Progress
from minibroker.spark.jobs.summary import Summary, Table
from minibroker.spark.jobs.tasks import grouped, run_tasks
from minibroker.spark.option_values import OptionError, positive
from minibroker.spark.options import pinned
from minibroker.spark.session import use_source
from minibroker.tools.verify.log_directory import DirectoryVerifier, LogVerifier, VerifiedCounts
from minibroker.tools.verify.segment_findings import Findings

DESCRIPTION = (
    "Read everything in log directories and say what is wrong: checksums, offsets, indexes, leader epochs, sequence "
    "numbers, transactions, snapshots; or compare replicas, batch by batch."
)
EPILOG = """examples:
  minibroker spark verify --path data
  minibroker spark verify --path disk1 --path disk2 -t orders --json
  minibroker spark verify --path broker-1/data --against broker-2/data --against broker-3/data

Brokers should be stopped, or it should be copies: what is being written looks broken."""
PIECE_BYTES = 128 * 1024 * 1024


class Work(NamedTuple):
    """Segments of one log that a task reads."""

    path: str
    directory: str
    name: str  # of the log, also if it lies alone and no directory is named
    log_start: int | None
    bases: list[int]


def read(work: Work) -> list[Findings]:
    """Read some segments of a log: what a task does."""
    from minibroker.spark.columns.checking import SoundBatches  # numpy, which the driver does without

    storage = ReadOnlyStorage(work.path)
    log = LogVerifier(storage, work.directory, VerifiedCounts(), work.log_start, name=work.name)
    list(log.begin())  # the driver says what is wrong with that
    return [log.read(base, SoundBatches) for base in work.bases]


def verify(
    spark: Any,
    paths: Sequence[str],
    *,
    wanted: TopicFilter = ALL_TOPICS,
    piece_bytes: int = PIECE_BYTES,
    progress: Progress = QUIET,
) -> Summary:
    """Say what is wrong with log directories."""
    wanted.check_found(topics_in(list(paths)))
    directories = {
        path: DirectoryVerifier(ReadOnlyStorage(path), own_name=os.path.basename(path), wants=wanted.wants)
        for path in map(os.path.abspath, paths)
    }
    logs = [(path, log) for path, directory in directories.items() for log in directory.logs]
    if not logs:
        raise OptionError(f"--pattern matches no topic in {', '.join(paths)}")
    works = [(log, work) for path, log in logs for work in _works(path, log, piece_bytes)]
    with progress.step(f"reading {len(logs):,} logs, {sum(len(log.bases) for _, log in logs):,} segments"):
        found: dict[tuple[LogVerifier, int], Findings] = {}
        for (log, work), some in zip(works, run_tasks(spark, read, [work for _, work in works]), strict=True):
            found |= zip([(log, base) for base in work.bases], some, strict=True)
    problems: list[str] = []
    counts: Counter[tuple[str, str]] = Counter()
    for path, directory in directories.items():
        for problem in directory.problems(lambda log, base: found.pop((log, base))):
            counts[path, problem.path.rpartition("/")[0]] += 1
            problems.append(f"{path}/{str(problem).lstrip('/')}")
    columns = ("log", "directory", "segments", "batches", "records", "bytes", "start", "end", "problems")
    rows: list[tuple[Any, ...]] = []
    for path, log in logs:
        seen, start = log.verified, max(log.start_offset, log.log_start or 0)
        found_there = seen.segments, seen.batches, seen.records, seen.size_bytes, start, log.next_offset
        rows.append((log.name, path, *found_there, counts[path, log.directory]))
    sums = {name: sum(row[place] for row in rows) for place, name in enumerate(columns[:6]) if place > 1}
    figures = {"logs": len(logs), **sums, "problems found": len(problems)}
    busy = [path for path, each in directories.items() if not (each.is_log or each.storage.exists(CLEAN_SHUTDOWN))]
    notes = [f"no broker has stopped in order in {path}: what one writes now looks broken" for path in busy]
    return Summary("verify", figures, [Table("logs", columns, rows)], problems, notes)


def _works(path: str, log: LogVerifier, piece_bytes: int) -> Iterator[Work]:
    """Yield what tasks are to read: neighbours together, as long as they are small."""

    def size_of(base: int) -> int:
        return int(log.storage.size_bytes(f"{log.directory}/{base:020}.log"))

    for bases in grouped(log.bases, size_of, piece_bytes):
        yield Work(path, log.directory, log.name, log.log_start, bases)


# Replicas

BATCHES = (
    "topic string, partition int, baseOffset long, lastOffset long, format int, sizeBytes int, crc long, error string, "
    "leaderEpoch int, file string, position long"
)
SIDE = """
    SELECT *, struct(baseOffset, lastOffset, format, sizeBytes, crc, error, leaderEpoch) AS batch,
           struct(coalesce(baseOffset, lastOffset) AS first, lastOffset AS last,
                  concat(file, IF(lastOffset IS NULL, ' cannot be read',
                                  concat(' has ', coalesce(baseOffset, lastOffset), ' to ', lastOffset,
                                         coalesce(concat(' of epoch ', leaderEpoch), ''))),
                         ' at byte ', position, coalesce(concat(' (', sizeBytes, ' bytes, checksum ', crc, ')'), ''),
                         coalesce(concat(', ', error), '')) AS said) AS told
    FROM {batches}
"""
COMPARED = """
    SELECT topic, partition, count_if(same) AS batches, sum(IF(same, sizeBytes, 0)) AS bytes,
           min_by(mine, mine.first) FILTER (WHERE NOT same) AS mine,
           min_by(theirs, theirs.first) FILTER (WHERE NOT same) AS theirs,
           min(coalesce(mine, theirs).said) FILTER (WHERE coalesce(mine, theirs).first IS NULL) AS unread
    FROM (SELECT topic, partition, l.sizeBytes, l.batch <=> f.batch AS same, l.told AS mine, f.told AS theirs
          FROM {leader} l FULL JOIN {follower} f USING (topic, partition, lastOffset))
    GROUP BY topic, partition
"""


def compare(
    spark: Any,
    leaders: Sequence[str],
    followers: Sequence[str],
    *,
    wanted: TopicFilter = ALL_TOPICS,
    progress: Progress = QUIET,
) -> Summary:
    """Compare the logs of followers with those of a leader."""
    mine = find_partitions(list(leaders), wanted)
    wanted.check_found(topics_in(list(leaders)))
    rows: list[tuple[Any, ...]] = []
    notes: list[str] = []
    problems: list[str] = []
    differing = 0
    for path in followers:
        others = find_partitions([path], wanted)
        pairs = {key: (files, others[key]) for key, files in mine.items() if key in others}
        if len(pairs) < len(mine):
            notes.append(f"{len(mine) - len(pairs)} of {len(mine)} logs are not in {path}")
        ranges = {key: _promised(*pair) for key, pair in pairs.items()}
        with progress.step(f"comparing {len(pairs):,} logs with {path}"):
            found = _compared(spark, ",".join(leaders), path, ranges)
        for key, pair in pairs.items():
            batches, size_bytes, *first = found.get(key, (0, 0))
            offset = min((side.first for side in first[:2] if side), default=None)
            rows.append((str(pair[0]), path, *ranges[key], batches, size_bytes, offset))
            told = [*_epoch_problems(*pair, *ranges[key]), *([_problem(*pair, offset, *first)] if any(first) else ())]
            problems += told
            differing += bool(told)
    columns = ("log", "follower", "from", "up to", "batches", "bytes", "differs at")
    sums = {name: sum(row[columns.index(name)] for row in rows) for name in ("batches", "bytes")}
    figures = {"logs compared": len(rows), **sums, "logs that differ": differing}
    return Summary("verify", figures, [Table("replicas", columns, rows)], problems, notes)


def _promised(leader: PartitionFiles, follower: PartitionFiles) -> tuple[int, int]:
    """Return from which offset to which both promise the same records."""
    start, end = 0, 1 << 62
    for files in (leader, follower):
        start = max(start, files.start_offset, files.root.cleaner_offsets.get((files.topic, files.partition), 0))
        end = min(end, files.end_offset if files.high_watermark is None else files.high_watermark, files.end_offset)
    return start, max(start, end)


def _compared(
    spark: Any, leader: str, follower: str, ranges: dict[tuple[str, int], tuple[int, int]]
) -> dict[tuple[str, int], tuple[Any, ...]]:
    """Return what `COMPARED` finds, by topic and partition."""
    wanted = [(*key, *bounds) for key, bounds in ranges.items() if bounds[0] < bounds[1]]
    if not wanted:
        return {}
    use_source(spark)
    told = pinned({}, wanted)
    reader = spark.read.format("minibroker").options(**told, mode="batches", failOnDataLoss="false").schema(BATCHES)
    sides = {
        name: spark.sql(SIDE, batches=reader.option("path", path).load())
        for name, path in (("leader", leader), ("follower", follower))
    }
    return {(row[0], row[1]): tuple(row[2:]) for row in spark.sql(COMPARED, **sides).collect()}


def _problem(
    leader: PartitionFiles, follower: PartitionFiles, offset: int | None, mine: Any, theirs: Any, unread: str | None
) -> str:
    """Say what both have at the first difference: their first batches of those that differ, if these overlap."""
    sides = [
        own.said if own and (not other or own.first <= other.last) else f"{files.root.path}/{files} has nothing there"
        for files, own, other in ((leader, mine, theirs), (follower, theirs, mine))
    ]
    where = "" if offset is None else f" from offset {offset} on: {', '.join(sides)}"
    return f"{leader} differs{where}" + (f"; {unread}" if unread else "")


def _epoch_problems(leader: PartitionFiles, follower: PartitionFiles, first: int, end: int) -> Iterator[str]:
    """Compare where leaders began, within what both have."""
    starts: list[dict[int, int]] = []
    for files in (leader, follower):
        try:
            entries = read_leader_epochs(files.storage, files.directory).entries
        except ProtocolError as error:
            yield f"{files} in {files.root.path}: {error}"
            return
        starts.append({epoch: start for epoch, start in entries if first < start < end})
    for epoch in sorted({epoch for epoch, _ in starts[0].items() ^ starts[1].items()}):
        ours, theirs = (each.get(epoch, "no offset") for each in starts)
        yield f"{leader}: epoch {epoch} begins at {ours} in {leader.root.path}, at {theirs} in {follower.root.path}"


# The command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_directory_arguments(parser)
    what = "compare with the logs of a follower instead, up to the lower high watermark"
    add_repeated(parser, "--against", metavar="DIR", help=what)
    parser.add_argument(
        "--piece-bytes", metavar="N", help=f"how much a task reads at most, but for whole segments ({PIECE_BYTES})"
    )


def run(spark: Any, options: argparse.Namespace, progress: Progress) -> Summary:
    wanted = TopicFilter.of(options)
    if options.against:
        return compare(spark, options.path, options.against, wanted=wanted, progress=progress)
    piece_bytes = positive("--piece-bytes", options.piece_bytes) if options.piece_bytes else PIECE_BYTES
    return verify(spark, options.path, wanted=wanted, piece_bytes=piece_bytes, progress=progress)
