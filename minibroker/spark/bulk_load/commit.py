"""Commit of a bulk load: staged segments become part of the logs, and new topics part of the metadata.

    a new directory its metadata -> each run its offsets, in the order of the tasks -> names -> topics -> a clean stop

What must hold: a new topic is in the metadata log only when all its records are in place and on the disk, and all new
topics of a load come at once. Until then nothing that a broker would show has changed; of a topic that was there
already, a kill while segments get their names may leave some partitions with their rows and others without.
What is done here costs some µs for each batch and file, and reads no records, only where batches begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from random import Random
from typing import NamedTuple

from minibroker.errors import KafkaError
from minibroker.log.checkpoints import (
    format_id,
    read_clean_shutdown,
    remove_clean_shutdown,
    write_leader_epochs,
    write_topic_id,
)
from minibroker.log.directory import LogDirectory
from minibroker.log.epochs import LeaderEpochs
from minibroker.log.meta_properties import MetaProperties, read_meta_properties
from minibroker.log.producers import ProducerStates
from minibroker.log.read_only_storage import ReadOnlyStorage
from minibroker.log.recovery import open_log
from minibroker.log.segment import KINDS, Segment
from minibroker.log.settings import LogSettings
from minibroker.log.snapshots import write_snapshot
from minibroker.log.storage import OsStorage
from minibroker.metadata.bootstrap import format_directory, random_id
from minibroker.metadata.features import FINALIZED, LOWEST
from minibroker.spark.bulk_load.broker import QuietBroker, begin_metadata
from minibroker.spark.bulk_load.options import LoadOptions
from minibroker.spark.bulk_load.plans import LoadError, Piece, Plan
from minibroker.stored.kinds import MetadataRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.clock import Clock


class LoadedPartition(NamedTuple):
    """What a load has added to a partition."""

    topic: str
    partition: int
    first_offset: int
    end_offset: int
    segments: int
    size_bytes: int


class StagedLog:
    """What all tasks have staged for one partition."""

    def __init__(self, plan: Plan, topic: str, partition: int):
        self.topic, self.partition = topic, partition
        self.plan = plan.topic_plan(topic)
        self.staged = plan.directory(self.plan, partition)
        self.pieces: list[Piece] = []  # in the order of the tasks
        self.start_offset = 0  # where the log ended before
        self.producers = ProducerStates()
        self.epochs = LeaderEpochs()

    def based(self) -> Iterator[tuple[Piece, int]]:
        """Yield the segments and the offset where those of their task begin."""
        base, task, end = self.start_offset, -1, 0
        for piece in self.pieces:
            if piece.task != task:
                base, task = base + end, piece.task
            end = piece.end_offset
            yield piece, base

    @property
    def end_offset(self) -> int:
        piece, base = list(self.based())[-1]
        return base + piece.end_offset

    @property
    def leader_epoch(self) -> int:
        return 0 if self.plan.leader_epochs is None else self.plan.leader_epochs[self.partition]

    def path_of(self, piece: Piece, kind: str) -> str:
        return f"{self.staged}/{piece.base_offset:020}{kind}{piece.suffix}"


class Commit:
    """One for each load; the directory is locked."""

    def __init__(self, storage: OsStorage, options: LoadOptions, clock: Clock, chance: Random):
        self.storage, self.options, self.clock, self.chance = storage, options, clock, chance

    def run(self, plan: Plan, pieces: Sequence[Piece]) -> list[LoadedPartition]:
        runs: dict[tuple[str, int], StagedLog] = {}
        for piece in sorted(pieces, key=lambda each: (each.topic, each.partition, each.task, each.base_offset)):
            key = piece.topic, piece.partition
            runs.setdefault(key, StagedLog(plan, *key)).pieces.append(piece)
        if not runs:
            return []
        self._check(plan, runs.values())
        for run in runs.values():
            if run.plan.leader_epochs is not None:
                self._look_at_log(run)
        meta = read_meta_properties(self.storage) or self._format()
        remove_clean_shutdown(self.storage)  # until the end this is work in progress
        for run in runs.values():
            self._give_offsets(run)
        for run in runs.values():
            self._give_names(run)
        self._finish(meta, list(runs.values()))
        return [
            LoadedPartition(
                *(run.topic, run.partition, run.start_offset, run.end_offset, len(run.pieces)),
                sum(piece.size_bytes for piece in run.pieces),
            )
            for run in runs.values()
        ]

    def _check(self, plan: Plan, runs: Iterable[StagedLog]) -> None:
        """Raise if somebody else was at work in the directory since the tasks began."""
        is_new = read_meta_properties(self.storage) is None
        if is_new != plan.is_new or not (is_new or read_clean_shutdown(self.storage) is not None):
            raise LoadError(f"{self.storage.root} is not as it was when the load began: a broker was at work there")
        for run in runs:
            for piece in run.pieces:
                path = run.path_of(piece, ".log")
                if self.storage.size_bytes(path) != piece.size_bytes:
                    raise LoadError(f"{path} is not there any more: a broker or another load has removed it")

    def _look_at_log(self, run: StagedLog) -> None:
        """Note how a log ends that is there already. In a pane before the disk: opening removes what is staged."""
        storage, directory = ReadOnlyStorage(self.storage.root), f"{run.topic}-{run.partition}"
        log = open_log(storage, directory, LogSettings(), was_clean=True, now_ms=self.clock.now_ms())
        log.release()
        if (log.epochs.latest_epoch or 0) > run.leader_epoch:
            raise LoadError(f"a broker was at work on {directory} since the load began")
        run.start_offset, run.producers, run.epochs = log.log_end_offset, log.producers, log.epochs

    def _format(self) -> MetaProperties:
        options = self.options
        node_id = 1 if options.node_id is None else options.node_id
        now_ms = self.clock.now_ms()
        meta = format_directory(
            self.storage,
            cluster_id=options.cluster_id or format_id(random_id(self.chance)),
            node_id=node_id,
            directory_id=random_id(self.chance),
            now_ms=now_ms,
            features=LOWEST if options.release is None else FINALIZED[options.release],
        )
        begin_metadata(self.storage, node_id, now_ms)
        return meta

    # Segments

    def _give_offsets(self, run: StagedLog) -> None:
        """Write true offsets into batches, whose checksums do not cover them."""
        for piece, base in run.based():
            if not base:
                continue
            segment = Segment(self.storage, run.staged, piece.base_offset, suffix=piece.suffix)
            file = self.storage.open(segment.path)
            try:
                for place in segment.hop():
                    file.write_at(place.position, (base + place.base_offset).to_bytes(8, "big"))
                file.sync()
            finally:
                file.close()
                segment.close()

    def _give_names(self, run: StagedLog) -> None:
        """Put segments into their log, batches first: an index without them would be taken for broken."""
        storage, directory = self.storage, run.staged
        if run.epochs.assign(run.leader_epoch, run.start_offset):
            write_leader_epochs(storage, directory, run.epochs)
        for piece, base in run.based():
            for kind in KINDS[:3]:
                storage.rename(run.path_of(piece, kind), f"{directory}/{base + piece.base_offset:020}{kind}")
        write_snapshot(storage, directory, run.end_offset, run.producers)
        storage.sync_directory(directory)

    # Topics

    def _finish(self, meta: MetaProperties, runs: list[StagedLog]) -> None:
        """Let the metadata know of new topics, and stop as a broker does."""
        plans = {run.topic: run.plan for run in runs if run.plan.leader_epochs is None}
        new = {topic: random_id(self.chance) for topic in plans}
        for run in runs:
            if run.topic in new:
                self._show(run, new[run.topic])
        self.storage.sync_directory("")
        broker = QuietBroker(self.storage, meta, self.clock, self.chance)
        broker.start(is_whole=True)
        records: list[MetadataRecord] = []
        for topic, topic_id in new.items():
            broker.controller.new_id = partial(bytes, topic_id)
            try:
                records += broker.controller.create_topic(
                    topic,
                    partitions=-1,
                    replication_factor=-1,
                    assignments=[(number, [broker.node_id]) for number in range(plans[topic].partitions)],
                    configs=self.options.configs,
                )
            except KafkaError as error:
                raise LoadError(f"{topic} cannot be made: {error}") from error
        if records:
            broker.append(records)
        broker.open_logs()
        broker.stop()

    def _show(self, run: StagedLog, topic_id: bytes) -> None:
        """Give the directory of a new partition its name."""
        if self.storage.exists(f"{run.topic}-{run.partition}"):
            # No topic claims it: a broker would set it aside as well when it starts.
            unique = f"{self.chance.getrandbits(128):032x}"
            LogDirectory(self.storage).set_aside(run.topic, run.partition, unique)
        write_topic_id(self.storage, run.staged, topic_id)
        self.storage.rename(run.staged, f"{run.topic}-{run.partition}")
