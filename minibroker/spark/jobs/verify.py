"""verify: log directories checked to the last record, and replicas compared, distributed over segments.

    every segment, large ones in pieces  ->  read by tasks  ->  put together by partition in the driver

The rules are those of `minibroker verify`, and so are the findings: the same code reads the pieces and joins them
(minibroker/tools/verify). A segment whose pieces do not fit together is read once more, whole.
What must hold: nothing is written, and what is found does not depend on how segments were cut.
Not here: comparing replicas (verify_replicas.py).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from minibroker.errors import ProtocolError
from minibroker.log.checkpoints import CLEAN_SHUTDOWN, LOG_STARTS, read_leader_epochs
from minibroker.log.directory import split_name
from minibroker.log.read_only_storage import ReadOnlyStorage
from minibroker.log.segment import Segment
from minibroker.spark.files.directories import logs_in, topics_in
from minibroker.spark.jobs.arguments import TopicFilter, add_directory_arguments, add_repeated
from minibroker.spark.jobs.progress import Progress
from minibroker.spark.jobs.summary import Summary, Table
from minibroker.spark.jobs.tasks import run_tasks
from minibroker.spark.option_values import OptionError, positive
from minibroker.tools.verify.log_directory import LogVerifier, VerifiedCounts, check_root, read_checkpoints
from minibroker.tools.verify.segment_piece import Piece, Problem, are_doubtful, borders, read_piece

DESCRIPTION = (
    "Read everything in log directories and say what is wrong: checksums, offsets, indexes, leader epochs, sequence "
    "numbers, transactions, snapshots; or compare replicas, byte by byte."
)
EPILOG = """examples:
  minibroker spark verify --path data
  minibroker spark verify --path disk1 --path disk2 -t orders --json
  minibroker spark verify --path broker-1/data --against broker-2/data --against broker-3/data

Brokers should be stopped, or it should be copies: what is being written looks broken."""
PIECE_BYTES = 128 * 1024 * 1024


class Work:
    """Segments of one log that a task reads: base offset, piece, of how many pieces, whether it is written to."""

    def __init__(self, root: str, directory: str, log_start: int | None):
        self.root = root
        self.directory = directory
        self.log_start = log_start
        self.parts: list[tuple[int, int, int, bool]] = []
        self.size_bytes = 0


class Log:
    """A log that is being verified."""

    def __init__(self, storage: ReadOnlyStorage, directory: str, verifier: LogVerifier):
        self.storage = storage
        self.directory = directory
        self.verifier = verifier
        self.problems: list[Problem] = list(verifier.begin())
        self.pieces: dict[int, list[Piece]] = {base: [] for base in verifier.bases}

    def segment(self, base: int) -> Segment:
        return Segment(self.storage, self.directory, base)

    def works(self, piece_bytes: int) -> Iterator[Work]:
        """Yield what tasks are to read: small neighbours together, what is large in pieces."""
        work = self._work()
        for base in self.pieces:
            size_bytes = self.storage.size_bytes(f"{self.directory}/{base:020}.log")
            count = max(-(-size_bytes // piece_bytes), 1)
            for number in range(count):
                if work.parts and work.size_bytes + size_bytes // count > piece_bytes:
                    yield work
                    work = self._work()
                work.parts.append((base, number, count, base == self.verifier.bases[-1]))
                work.size_bytes += size_bytes // count
        if work.parts:
            yield work

    def _work(self) -> Work:
        return Work(self.storage.root, self.directory, self.verifier.log_start)

    def take(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            self.pieces[piece.base_offset].append(piece)

    def doubtful(self) -> Work | None:
        """Return what is to be read again, in one piece each."""
        work = self._work()
        for base, pieces in self.pieces.items():
            segment = self.segment(base)
            if are_doubtful(segment, pieces):
                self.pieces[base] = []
                work.parts.append((base, 0, 1, base == self.verifier.bases[-1]))
            segment.close()
        return work if work.parts else None

    def join(self) -> None:
        for base, pieces in self.pieces.items():
            self.problems += self.verifier.add(self.segment(base), pieces)
        self.problems += self.verifier.finish()


class Root:
    """A log directory, or one log of it that was named alone."""

    def __init__(self, path: str, names: Sequence[str], *, is_alone: bool, is_all: bool):
        self.storage = ReadOnlyStorage(path)
        self._is_checked = not is_alone
        self.checkpoints, self.problems = read_checkpoints(self.storage) if self._is_checked else ({}, [])
        self.logs: dict[tuple[str, int], Log] = {}
        for name in names:
            key = split_name(name)
            assert key is not None, name
            start = None if is_alone else self.checkpoints.get(LOG_STARTS, {}).get(key, 0)
            self.logs[key] = Log(self.storage, name, LogVerifier(self.storage, name, VerifiedCounts(), start))
        if not is_all:
            self.checkpoints = {
                name: {key: offset for key, offset in offsets.items() if key in self.logs}
                for name, offsets in self.checkpoints.items()
            }

    def check(self) -> None:
        """Look at the directory's own files, once all logs have been put together."""
        if self._is_checked:
            ends = {key: log.verifier.next_offset for key, log in self.logs.items()}
            self.problems += check_root(self.storage, self.checkpoints, ends)


def verify(
    spark: Any,
    paths: Sequence[str],
    *,
    wanted: TopicFilter | None = None,
    piece_bytes: int = PIECE_BYTES,
    progress: Progress | None = None,
) -> Summary:
    """Say what is wrong with log directories."""
    wanted, progress = wanted or TopicFilter(), progress or Progress(is_wanted=False)
    roots = _roots(paths, wanted)
    logs = [log for root in roots for log in root.logs.values()]
    works = [(log, work) for log in logs for work in log.works(piece_bytes)]
    with progress.step(f"reading {len(logs):,} logs, {sum(len(log.pieces) for log in logs):,} segments"):
        _read(spark, works)
    again = [(log, work) for log in logs if (work := log.doubtful()) is not None]
    if again:
        with progress.step(f"reading {sum(len(work.parts) for _, work in again):,} segments again, whole"):
            _read(spark, again)
    for log in logs:
        log.join()
    for root in roots:
        root.check()
    return _summary(roots)


def _read(spark: Any, works: list[tuple[Log, Work]]) -> None:
    for (log, _), pieces in zip(works, run_tasks(spark, read, [work for _, work in works]), strict=True):
        log.take(pieces)


def read(work: Work) -> list[Piece]:
    """Read some segments of a log: what a task does."""
    storage = ReadOnlyStorage(work.root)
    try:
        epochs = read_leader_epochs(storage, work.directory)
    except ProtocolError:
        epochs = None  # the driver says so
    from minibroker.spark.columns.checking import sound_batches  # numpy, which the driver does without

    found: list[Piece] = []
    verifier = LogVerifier(storage, work.directory, VerifiedCounts())
    for base, number, count, is_active in work.parts:
        segment = Segment(storage, work.directory, base)
        cuts = borders(segment, count)
        # Where an index knows too few places there are fewer pieces.
        for start, end in list(pairwise(cuts))[number : number + 1]:
            found.append(
                read_piece(
                    segment,
                    epochs,
                    work.log_start,
                    is_active=is_active,
                    has_sequences=verifier.has_sequences,
                    start=start,
                    end=end,
                    sound=sound_batches(segment.view(0, segment.size_bytes), start, end),
                )
            )
        segment.close()
    return found


def _roots(paths: Sequence[str], wanted: TopicFilter) -> list[Root]:
    found: dict[tuple[str, bool], dict[str, None]] = {}
    for path in paths:
        storage = ReadOnlyStorage(path)
        is_alone = any(name.endswith(".log") for name in storage.list(""))
        for root, name in logs_in(path):
            if wanted.wants(*_key(name)):
                found.setdefault((root, is_alone), {})[name] = None
    wanted.check_found(topics_in(list(paths)))
    if not found:
        raise OptionError(f"--pattern matches no topic in {', '.join(paths)}")
    return [
        Root(root, list(names), is_alone=is_alone, is_all=wanted.is_all) for (root, is_alone), names in found.items()
    ]


def _key(name: str) -> tuple[str, int]:
    key = split_name(name)
    assert key is not None, name
    return key


def _summary(roots: list[Root]) -> Summary:
    columns = ("log", "directory", "segments", "batches", "records", "bytes", "start", "end", "problems")
    rows, told, sums = [], [], VerifiedCounts()
    for root in roots:
        for (topic, partition), log in root.logs.items():
            seen, verifier = log.verifier.verified, log.verifier
            for name in vars(sums):
                setattr(sums, name, getattr(sums, name) + getattr(seen, name))
            rows.append(
                (
                    f"{topic}-{partition}",
                    root.storage.root,
                    seen.segments,
                    seen.batches,
                    seen.records,
                    seen.size_bytes,
                    max(verifier.start_offset, verifier.log_start or 0),
                    verifier.next_offset,
                    len(log.problems),
                )
            )
            told += [f"{root.storage.root}/{problem}" for problem in log.problems]
        told += [f"{root.storage.root}/{problem}" for problem in root.problems]
    figures = {
        "logs": sums.logs,
        "segments": sums.segments,
        "batches": sums.batches,
        "records": sums.records,
        "bytes": sums.size_bytes,
        "problems found": len(told),
    }
    notes = [
        f"no broker has stopped in order in {root.storage.root}: what one writes now looks broken"
        for root in roots
        if not root.storage.exists(CLEAN_SHUTDOWN)
    ]
    return Summary("verify", figures, [Table("logs", columns, rows)], told, notes)


# The command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_directory_arguments(parser)
    what = "compare with the logs of a follower instead, up to the lower high watermark"
    add_repeated(parser, "--against", metavar="DIR", help=what)
    parser.add_argument(
        "--piece-bytes", metavar="N", help=f"how much of a segment a task reads at most ({PIECE_BYTES})"
    )


def run(spark: Any, options: argparse.Namespace, progress: Progress) -> Summary:
    piece_bytes = positive("--piece-bytes", options.piece_bytes) if options.piece_bytes else PIECE_BYTES
    wanted = TopicFilter.of(options)
    if options.against:
        from minibroker.spark.jobs.verify_replicas import compare

        return compare(spark, options.path, options.against, wanted=wanted, piece_bytes=piece_bytes, progress=progress)
    return verify(spark, options.path, wanted=wanted, piece_bytes=piece_bytes, progress=progress)
