"""rewrite: a log directory in another record format, or with another compression, as another directory.

    data.staged/    what tasks write; a job that is killed leaves it, and the next one clears it away
    data/           the same under its name, in one step, when all of it has been synced

What must hold: the source is only read, and of a log only what is below the high watermark is taken; offsets stay; what
a format cannot hold is counted and told. Tasks write files of one attempt each; those get their names that the driver
was told of, and the rest goes. Below v2 a log ends where the last transaction has ended, and Kafka's own topics stay as
they are: coordinators and controllers read nothing else.
Kafka: from 4.0 on reads v0 and v1 and writes neither; up to 3.x topics have message.format.version for it.
Not here: what becomes of a segment (rewrite_segments.py).
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from minibroker.config import BrokerConfig, TopicConfig, log_settings
from minibroker.errors import KafkaError, StorageError
from minibroker.log.checkpoints import (
    CLEANER_OFFSETS,
    LEADER_EPOCHS,
    LOG_STARTS,
    PARTITION_METADATA,
    read_file,
    write_clean_shutdown,
    write_file,
    write_leader_epochs,
)
from minibroker.log.compression import CODEC_NAMES, ZSTD, check_level
from minibroker.log.directory import LogDirectory, split_name
from minibroker.log.epochs import LeaderEpochs
from minibroker.log.meta_properties import META_PROPERTIES
from minibroker.log.producers import ProducerStates
from minibroker.log.read_only_storage import ReadOnlyStorage
from minibroker.log.segment import Segment
from minibroker.log.settings import LogSettings
from minibroker.log.snapshots import SUFFIX as SNAPSHOT
from minibroker.log.snapshots import snapshot_path
from minibroker.log.storage import LOCK, OsStorage
from minibroker.metadata.bootstrap import BOOTSTRAP, METADATA_DIRECTORY, METADATA_TOPIC
from minibroker.metadata.image import MetadataImage
from minibroker.metadata.metadata_log import MetadataLog
from minibroker.spark.files.directories import PartitionFiles, find_partitions, logs_in, topics_in
from minibroker.spark.jobs.arguments import (
    ALL_TOPICS,
    TopicFilter,
    add_directory_arguments,
    add_repeated,
    call_with,
    pairs_of,
)
from minibroker.spark.jobs.progress import QUIET, Progress
from minibroker.spark.jobs.rewrite_segments import LOST, Manner, SegmentWork, WrittenSegments, write_segment
from minibroker.spark.jobs.summary import Summary, Table
from minibroker.spark.jobs.tasks import run_tasks
from minibroker.spark.option_values import OptionError
from minibroker.spark.options import INTERNAL_TOPICS
from minibroker.stored.producers import AbortedTxn

STAGED = ".staged"
DESCRIPTION = (
    "Write a log directory in another record format (v0, v1, v2), or compressed in another way, as another directory. "
    "Offsets stay as they are."
)
EPILOG = """examples:
  minibroker spark rewrite --path data --to smaller --codec zstd --level 19
  minibroker spark rewrite --path data --to old --format 1 --codec gzip -t orders --only
  minibroker spark rewrite --path old --to new --format 2

The new directory is the whole of the old one, other topics copied; with --only it holds nothing else."""


def rewrite(
    spark: Any,
    path: str,
    target: str,
    *,
    magic: int | None = None,
    codec: str | None = None,
    level: int | None = None,
    wanted: TopicFilter = ALL_TOPICS,
    only: bool = False,
    settings: Mapping[str, str] | None = None,
    progress: Progress = QUIET,
) -> Summary:
    """Write a copy of a log directory with other batches; without `magic` or `codec` they keep theirs."""
    manner = _manner(magic, codec, level)
    wanted.check_found(topics_in([path]))
    (root, _), *_ = logs_in(path)
    source, image = ReadOnlyStorage(root), MetadataImage()
    if source.exists(METADATA_DIRECTORY):  # its broker was its own controller
        image = MetadataLog(source, node_id=0).load(now_ms=0)
    takes_rest = not only and root == os.path.abspath(path)  # and not a log alone
    logs: list[NewLog] = []
    for (topic, partition), files in find_partitions([path], ALL_TOPICS).items():
        is_wanted = wanted.wants(topic, partition) and not (manner.is_old and topic in INTERNAL_TOPICS)
        # The metadata log lies beside the logs.
        if topic != METADATA_TOPIC and (is_wanted or takes_rest):
            logs.append(NewLog(files, _settings(image, topic, settings or {}), manner if is_wanted else None))
    changed = [log for log in logs if log.is_changed]
    if not changed:
        raise OptionError(f"no topic in {path} is to be rewritten")
    with _new_directory(target, path) as storage:
        _copy_known(ReadOnlyStorage(root), storage, logs, takes_rest=takes_rest)
        works = [work for log in logs for work in log.works(storage.root)]
        with progress.step(f"rewriting {len(changed):,} logs, {len(works):,} segments with those that are copied"):
            written = run_tasks(spark, write_segment, works)
        with progress.step("putting it in its place"):
            _finish(storage, logs, written)
    return _summary(target, logs, written)


def _manner(magic: int | None, codec: str | None, level: int | None) -> Manner:
    if magic is None and codec is None:
        raise OptionError("nothing is to be done: say --format 0, 1 or 2, or --codec")
    if codec is not None and codec not in CODEC_NAMES:
        raise OptionError(f"--codec {codec}: it can be {', '.join(CODEC_NAMES)}")
    manner = Manner(magic, None if codec is None else CODEC_NAMES.index(codec), level)
    if manner.is_old and manner.codec == ZSTD:
        raise OptionError(f"--codec zstd: format {magic} does not know it; gzip, snappy and lz4 it does")
    if level is not None:
        if manner.codec is None:
            raise OptionError("--level is of a codec: say --codec too")
        try:
            check_level(manner.codec, level)
        except ValueError as error:
            raise OptionError(f"--level: {error}") from error
    return manner


def _settings(image: MetadataImage, topic: str, given: Mapping[str, str]) -> LogSettings:
    """Return what was said, else what the directory's own metadata say, else Kafka's defaults."""
    try:
        return log_settings(TopicConfig({**image.topic_configs(topic), **given}, BrokerConfig()))
    except (KafkaError, ValueError) as error:
        raise OptionError(f"--config: {error}") from error


class NewLog:
    """A log of the new directory."""

    def __init__(self, files: PartitionFiles, settings: LogSettings, manner: Manner | None):
        self.files = files
        self.settings = settings
        self.manner = manner or Manner()
        self.is_changed = manner is not None
        promised = files.end_offset if files.high_watermark is None else files.high_watermark
        # One that was noted before the start moved is raised to it, as in Kafka.
        self.end_offset = max(min(promised, files.end_offset), files.start_offset)

    def works(self, target: str) -> Iterator[SegmentWork]:
        """Yield the work on each segment."""
        files, settings = self.files, self.settings
        aborted: list[AbortedTxn] = []
        if self.manner.is_old:
            self.end_offset, aborted = files.transactions(0, self.end_offset)
        for index, part in enumerate(files.parts):
            start, behind = part.base_offset, files.next_base(index) or files.end_offset
            if start <= self.end_offset:
                yield SegmentWork(
                    *(files.root.path, target, files.directory, start, self.end_offset, files.next_base(index)),
                    self.manner,
                    *(settings.segment_bytes, settings.index_interval_bytes),
                    [each for each in aborted if each.first_offset < behind and each.last_offset >= start],
                )

    def problems(self) -> Iterator[str]:
        """Say what the log has lost for certain."""
        files = self.files
        if lost := files.missing_end():
            yield f"{lost}; so does the new log"
        if files.bytes_behind and files.root.was_clean:
            yield f"{files} in {files.root.path}: the last {files.bytes_behind} bytes are no whole batch, and left out"
        for lost in files.missing_segments(0, self.end_offset):
            yield f"{lost}: what was in it is missing"

    def keeps(self, name: str) -> bool:
        """Return whether a file is of the new log too. Of old batches neither producers nor leaders are known."""
        return name == PARTITION_METADATA or (not self.manner.is_old and name.endswith((SNAPSHOT, LEADER_EPOCHS)))


def _copy_known(source: OsStorage, target: OsStorage, logs: Sequence[NewLog], *, takes_rest: bool) -> None:
    """Copy what lies beside the segments."""
    names = [LOG_STARTS, CLEANER_OFFSETS, *((META_PROPERTIES, BOOTSTRAP) if takes_rest else ())]
    folders = {log.files.directory: log.keeps for log in logs}
    if takes_rest and source.exists(METADATA_DIRECTORY):
        folders[METADATA_DIRECTORY] = lambda name: True
    for folder, keeps in folders.items():
        target.make_directory(folder)
        names += [f"{folder}/{name}" for name in source.list(folder) if keeps(name)]
    for name in filter(source.exists, names):
        write_file(target, name, read_file(source, name))


def _finish(storage: OsStorage, logs: Sequence[NewLog], written: Sequence[WrittenSegments]) -> None:
    """Give segments their names; then open each log and leave it as a broker that stops."""
    reached = dict.fromkeys((log.files.directory for log in logs), -1)
    for each in written:
        for base_offset, suffix, next_offset in each.segments:
            Segment(storage, each.directory, base_offset, suffix=suffix).rename("")
            reached[each.directory] = max(next_offset, reached[each.directory])
    for log in logs:
        folder = log.files.directory
        if reached[folder] < log.end_offset:
            # What was last has gone. Offsets do not come again, so the log goes on in a segment that begins there.
            Segment(storage, folder, log.end_offset).create(0)
        if log.manner.is_old:  # or opening would look for them
            _write_producers(storage, log, ProducerStates())
            write_leader_epochs(storage, folder, LeaderEpochs())
    write_clean_shutdown(storage)
    directory = LogDirectory(storage)
    directory.start()
    ends = {(log.files.topic, log.files.partition): log.end_offset for log in logs}
    if storage.exists(CLEANER_OFFSETS):
        directory.cleaner_offsets = {key: min(offset, ends[key]) for key, offset in directory.cleaner_offsets.items()}
        directory.write_cleaner_offsets()
    for key, log in zip(ends, logs, strict=True):
        opened = directory.open(*key, log.settings, now_ms=0)
        _write_producers(storage, log, opened.producers)
        opened.active.sync()
        opened.release()
        storage.sync_directory(log.files.directory)
    directory.close(ends)


def _write_producers(storage: OsStorage, log: NewLog, producers: ProducerStates) -> None:
    write_file(storage, snapshot_path(log.files.directory, log.end_offset), producers.snapshot_bytes())


@contextmanager
def _new_directory(target: str, source: str) -> Iterator[OsStorage]:
    """Yield a directory beside its place, which appears there when it is whole; of one that fails nothing stays."""
    above, _, name = os.path.abspath(target).rpartition("/")
    beside, staged = OsStorage(above or "/"), name + STAGED
    if beside.list(name):
        raise OptionError(f"{target} is not empty: name a directory that is not there yet")
    if f"{os.path.realpath(above)}/{name}/".startswith(f"{os.path.realpath(source)}/"):
        raise OptionError(f"{target} lies within {source}, which is read")
    beside.make_directory(staged)
    storage = OsStorage(beside.real_path(staged))
    try:
        storage.lock()
    except StorageError as failure:
        raise OptionError(f"{storage.root}: another job is writing it ({failure})") from failure
    try:
        _clear(storage)  # what a job left that was killed
        yield storage
        storage.remove(LOCK)
        storage.sync_directory("")
        beside.rename(staged, name)
        beside.sync_directory("")
    finally:
        storage.unlock()
        if beside.exists(staged):
            _clear(storage)
            storage.remove(LOCK)
            beside.remove(staged)


def _clear(storage: OsStorage) -> None:
    for name in storage.list(""):
        for inner in storage.list(name) if split_name(name) else ():
            storage.remove(f"{name}/{inner}")
        if name != LOCK:
            storage.remove(name)


def _summary(target: str, logs: Sequence[NewLog], written: Sequence[WrittenSegments]) -> Summary:
    columns = ("batches before", "batches", "bytes before", "bytes", "segments")
    changed = {log.files.directory: log for log in logs if log.is_changed}
    counts = {name: Counter[str]() for name in changed}
    for each in written:
        if each.directory in changed:
            counts[each.directory].update(each.counts, segments=len(each.segments))
    problems = [text for log in logs for text in log.problems()]
    problems += [text for each in written for text in each.problems]
    rows = [(name, log.end_offset, *(counts[name][what] for what in columns)) for name, log in changed.items()]
    sums = sum(counts.values(), Counter[str]())
    lost = [(name, sums[name]) for name in LOST if sums[name]]
    notes, root = [f"the new directory is {target}"], logs[0].files.root
    if not root.was_clean:
        notes.append(f"no broker has stopped in order in {root.path}: what one writes now is not in the new directory")
    missing = Counter[str]()
    for each in written:
        missing[each.directory] += each.counts["missing"]
    for log in logs:
        count = missing[log.files.directory]
        if count and not log.files.cleaned_to:
            never = "the cleaner has no note of the log" if log.files.was_never_cleaned else "nobody notes a cleaning"
            notes.append(f"{log.files}: {count} offsets have no record, and {never}: is a segment missing?")
        if early := [base for base in log.files.index_bases if base < log.files.start_offset]:
            said = ", ".join(map(str, sorted(early)))
            notes.append(f"{log.files}: of the segments that begin at {said} only indexes are left: deleted, or lost?")
    cut = sum(log.end_offset < log.files.end_offset for log in changed.values())
    if cut:
        notes.append(
            f"{cut} logs end before their last record: below the high watermark, or the first open transaction"
        )
    figures = {"logs rewritten": len(changed), "logs copied": len(logs) - len(changed)}
    figures |= {name: sums[name] for name in ("bytes before", "bytes")}
    tables = [Table("logs", ("log", "end", *columns), rows), Table("lost", ("what", "count"), lost)]
    return Summary("rewrite", figures, tables, problems, notes)


# The command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_directory_arguments(parser, several=False)
    target = "the directory to make; it must not be there yet"
    parser.add_argument("--to", dest="target", required=True, metavar="DIR", help=target)
    parser.add_argument("--only", action="store_true", help="leave out the topics that are not rewritten")
    add_repeated(parser, "--config", help="a setting of the topics, as segment.bytes=536870912")
    form = "of the records; without it they keep theirs"
    parser.add_argument("--format", dest="magic", type=int, choices=(0, 1, 2), help=form)
    parser.add_argument("--codec", choices=CODEC_NAMES, help="of the batches; without it they keep theirs")
    parser.add_argument("--level", type=int, metavar="N", help="of the codec, Kafka's default without it")


def run(spark: Any, options: argparse.Namespace, progress: Progress) -> Summary:
    settings = pairs_of("--config", options.config)
    return call_with(rewrite, options, spark, wanted=TopicFilter.of(options), settings=settings, progress=progress)
