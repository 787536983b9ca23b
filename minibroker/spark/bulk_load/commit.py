"""Commit of a bulk load: staged segments become part of the logs, and new topics part of the metadata.

    a new directory its metadata -> each run its offsets, in the order of the tasks -> names -> topics -> a clean stop

What must hold: a new topic is in the metadata log only when all its records are in place and on the disk, and all new
topics of a load come at once. Until then nothing that a broker would show has changed; of a topic that was there
already, a kill while segments get their names may leave some partitions with their rows and others without.
What is done here costs some µs for each batch and file, and reads no records, only where batches begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
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
    is_new: bool  # made by this load
    expired: int  # of the segments: older than the topic keeps records


class StagedLog:
    """What all tasks have staged for one partition, and the end of the log that it comes behind."""

    def __init__(self, plan: Plan, topic: str, partition: int, pieces: list[Piece]):
        self.topic, self.partition, self.pieces = topic, partition, pieces  # in the order of the tasks
        of_topic = plan.topic_plan(topic)
        epochs, keep_ms = of_topic.leader_epochs, of_topic.retention_ms
        self.is_new, self.leader_epoch = epochs is None, epochs[partition] if epochs else 0
        self.staged = plan.directory(of_topic, partition)
        # Retention judges a segment by its largest timestamp; without any it is as old as its file.
        times = [piece.largest_timestamp for piece in pieces] if keep_ms >= 0 else []
        self.expired = sum(0 <= time < plan.now_ms - keep_ms for time in times)
        self.producers, self.epochs = ProducerStates(), LeaderEpochs()
        self.put_behind(0)

    def put_behind(self, start_offset: int) -> None:
        """Find where the segments of each task begin."""
        self.start_offset = self.end_offset = start_offset
        self.bases: list[int] = []  # of the pieces
        for _, of_task in groupby(self.pieces, lambda piece: piece.task):
            base = self.end_offset
            for piece in of_task:
                self.bases.append(base)
                self.end_offset = base + piece.end_offset

    def path_of(self, piece: Piece, kind: str) -> str:
        return f"{self.staged}/{piece.base_offset:020}{kind}{piece.suffix}"

    @property
    def loaded(self) -> LoadedPartition:
        size_bytes = sum(piece.size_bytes for piece in self.pieces)
        where = self.topic, self.partition, self.start_offset, self.end_offset
        return LoadedPartition(*where, len(self.pieces), size_bytes, self.is_new, self.expired)


class Commit:
    """One for each load; the directory is locked."""

    def __init__(self, storage: OsStorage, options: LoadOptions, clock: Clock, chance: Random):
        self.storage, self.options, self.clock, self.chance = storage, options, clock, chance

    def run(self, plan: Plan, pieces: Sequence[Piece]) -> list[LoadedPartition]:
        if not pieces:
            return []
        logs = [
            StagedLog(plan, *partition, list(some))
            for partition, some in groupby(sorted(pieces), lambda piece: (piece.topic, piece.partition))
        ]
        self._check(plan, logs)
        for log in logs:
            if not log.is_new:
                self._look_at_log(log)
        meta = read_meta_properties(self.storage) or self._format()
        remove_clean_shutdown(self.storage)  # until the end this is work in progress
        for log in logs:
            self._give_offsets(log)
        for log in logs:
            self._give_names(log)
        self._finish(plan, meta, logs)
        return [log.loaded for log in logs]

    def _check(self, plan: Plan, logs: Sequence[StagedLog]) -> None:
        """Raise if somebody else was at work in the directory since the tasks began."""
        is_new = read_meta_properties(self.storage) is None
        if is_new != plan.is_new or not (is_new or read_clean_shutdown(self.storage) is not None):
            raise LoadError(f"{self.storage.root} is not as it was when the load began: a broker was at work there")
        for log in logs:
            for piece in log.pieces:
                path = log.path_of(piece, ".log")
                if self.storage.size_bytes(path) != piece.size_bytes:
                    raise LoadError(f"{path} is not there any more: a broker or another load has removed it")

    def _look_at_log(self, staged: StagedLog) -> None:
        """Note how a log ends that is there already. In a pane before the disk: opening removes what is staged."""
        storage, directory = ReadOnlyStorage(self.storage.root), f"{staged.topic}-{staged.partition}"
        log = open_log(storage, directory, LogSettings(), was_clean=True, now_ms=self.clock.now_ms())
        log.release()
        if (log.epochs.latest_epoch or 0) > staged.leader_epoch:
            raise LoadError(f"a broker was at work on {directory} since the load began")
        staged.producers, staged.epochs = log.producers, log.epochs
        staged.put_behind(log.log_end_offset)

    def _format(self) -> MetaProperties:
        options, now_ms = self.options, self.clock.now_ms()
        meta = format_directory(
            self.storage,
            cluster_id=options.cluster_id or format_id(random_id(self.chance)),
            node_id=1 if options.node_id is None else options.node_id,
            directory_id=random_id(self.chance),
            now_ms=now_ms,
            features=LOWEST if options.release is None else FINALIZED[options.release],
        )
        begin_metadata(self.storage, meta.node_id or 0, now_ms)
        return meta

    # Segments

    def _give_offsets(self, log: StagedLog) -> None:
        """Write true offsets into batches, whose checksums do not cover them."""
        for piece, base in zip(log.pieces, log.bases, strict=True):
            if not base:
                continue
            segment = Segment(self.storage, log.staged, piece.base_offset, suffix=piece.suffix)
            file = self.storage.open(segment.path)
            try:
                for place in segment.hop():
                    file.write_at(place.position, (base + place.base_offset).to_bytes(8, "big"))
                file.sync()
            finally:
                file.close()
                segment.close()

    def _give_names(self, log: StagedLog) -> None:
        """Put segments into their log, batches first: an index without them would be taken for broken."""
        storage, directory = self.storage, log.staged
        if log.epochs.assign(log.leader_epoch, log.start_offset):
            write_leader_epochs(storage, directory, log.epochs)
        for piece, base in zip(log.pieces, log.bases, strict=True):
            for kind in KINDS[:3]:
                storage.rename(log.path_of(piece, kind), f"{directory}/{base + piece.base_offset:020}{kind}")
        write_snapshot(storage, directory, log.end_offset, log.producers)
        storage.sync_directory(directory)

    # Topics

    def _finish(self, plan: Plan, meta: MetaProperties, logs: Sequence[StagedLog]) -> None:
        """Let the metadata know of new topics, and stop as a broker does."""
        new = {topic: random_id(self.chance) for topic in dict.fromkeys(log.topic for log in logs if log.is_new)}
        for log in logs:
            if log.is_new:
                self._show(log, new[log.topic])
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
                    assignments=[(number, [broker.node_id]) for number in range(plan.topic_plan(topic).partitions)],
                    configs=self.options.new_configs,
                )
            except KafkaError as error:
                raise LoadError(f"{topic} cannot be made: {error}") from error
        if records:
            broker.append(records)
        broker.open_logs()
        broker.stop()

    def _show(self, log: StagedLog, topic_id: bytes) -> None:
        """Give the directory of a new partition its name."""
        if self.storage.exists(f"{log.topic}-{log.partition}"):
            # No topic claims it: a broker would set it aside as well when it starts.
            unique = f"{self.chance.getrandbits(128):032x}"
            LogDirectory(self.storage).set_aside(log.topic, log.partition, unique)
        write_topic_id(self.storage, log.staged, topic_id)
        self.storage.rename(log.staged, f"{log.topic}-{log.partition}")
