"""Log directory that a job makes a new one of: its logs as a broker opens them, without writing a byte.

What must hold: a log ends where all replicas agreed, or behind its last whole batch if nobody has noted that; what
comes behind it when a broker is at work is none of the job's. Derived files that are missing or broken are made anew
in memory, as at a broker's start.
Not here: reading all of a segment: the driver looks only at what a start would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from minibroker.config import BrokerConfig, TopicConfig, log_settings
from minibroker.errors import KafkaError, ProtocolError, StorageError
from minibroker.log.checkpoints import (
    CLEANER_OFFSETS,
    read_file,
)
from minibroker.log.directory import split_name
from minibroker.log.epochs import LeaderEpochs
from minibroker.log.meta_properties import META_PROPERTIES, read_meta_properties
from minibroker.log.producers import ProducerStates
from minibroker.log.read_only_storage import ReadOnlyStorage
from minibroker.log.recovery import finish_swaps, open_log
from minibroker.log.settings import LogSettings
from minibroker.log.snapshots import load_producers, snapshot_offsets, snapshot_path
from minibroker.log.storage import LOCK, OsStorage
from minibroker.metadata.bootstrap import BOOTSTRAP, METADATA_DIRECTORY, METADATA_TOPIC
from minibroker.metadata.image import MetadataImage
from minibroker.metadata.metadata_log import MetadataLog
from minibroker.spark.files.directories import Root, logs_in, topics_in
from minibroker.spark.jobs.arguments import TopicFilter
from minibroker.spark.option_values import OptionError

TOP = (META_PROPERTIES, BOOTSTRAP, METADATA_DIRECTORY)


class SourceLog:
    """One log, and what is to become of it: whoever makes a new one changes the last few fields."""

    def __init__(self, source: SourceDirectory, directory: str, settings: LogSettings, now_ms: int):
        key = split_name(directory)
        assert key is not None, directory
        self.topic, self.partition = key
        self.directory = directory
        self.storage = ReadOnlyStorage(source.path)
        self.settings = settings
        self.log = open_log(
            self.storage,
            directory,
            settings,
            was_clean=source.was_clean,
            recovery_point=source.recovery_points.get(key, 0),
            log_start_offset=source.log_starts.get(key, 0),
            now_ms=now_ms,
        )
        promised = source.high_watermarks.get(key)
        self.end_offset = self.log.log_end_offset if promised is None else min(promised, self.log.log_end_offset)
        self.start_offset = min(self.log.log_start_offset, self.end_offset)
        self.producers = self.log.producers
        if self.end_offset < self.log.log_end_offset:
            self.producers = self._producers_at(self.end_offset)
        self.epochs = LeaderEpochs(self.log.epochs.entries)
        self.epochs.truncate_from_end(self.end_offset)
        self.cleaned_before = source.cleaner_offsets.get(key)
        # Of the new log.
        self.cleaned_offset = None if self.cleaned_before is None else min(self.cleaned_before, self.end_offset)
        self.first_base = self.log.segments[0].base_offset
        self.snapshots_from = 0  # those of before are not worth keeping
        self.close()

    def __str__(self) -> str:
        return self.directory

    def _producers_at(self, offset: int) -> ProducerStates:
        producers = ProducerStates(self.directory)
        load_producers(producers, self.storage, self.directory, self.log.segments, offset)
        return producers

    def end_at(self, offset: int) -> None:
        """Let the new log end earlier."""
        if offset < self.end_offset:
            self.end_offset, self.start_offset = offset, min(self.start_offset, offset)
            self.producers = self._producers_at(offset)
            self.epochs.truncate_from_end(offset)

    def last_stable_offset(self) -> int:
        self.producers.on_high_watermark_updated(self.end_offset)
        return self.producers.last_stable_offset(self.end_offset, self.start_offset)

    def snapshots(self) -> Iterator[tuple[int, bytes]]:
        """Yield the snapshots of producers that the new log is to have."""
        for offset in snapshot_offsets(self.storage, self.directory):
            if self.snapshots_from <= offset < self.end_offset:
                yield offset, read_file(self.storage, snapshot_path(self.directory, offset))
        yield self.end_offset, self.producers.snapshot_bytes()

    def close(self) -> None:
        """Close the files; whoever looks into a segment again opens them again, and closes them behind it.

        There may be more segments than a process can have files open.
        """
        self.log.release()


class SourceDirectory(Root):
    """A log directory to be read."""

    def __init__(self, path: str, wanted: TopicFilter, now_ms: int, settings: Mapping[str, str] | None = None):
        found = logs_in(path)
        super().__init__(found[0][0])
        self.now_ms = now_ms
        self.is_alone = len(found) == 1 and path.rstrip("/").rpartition("/")[2] == found[0][1]
        wanted.check_found(topics_in([path]))
        self.names = [name for _, name in found]
        self.cleaner_offsets = self._read(CLEANER_OFFSETS)
        self._image = self._metadata()
        self._given = dict(settings or {})

    def _metadata(self) -> MetadataImage | None:
        """Return what the directory itself says of its topics, if its broker was its own controller."""
        try:
            meta = read_meta_properties(self.storage)
            if meta is None or not self.storage.list(METADATA_DIRECTORY):
                return None
            storage = ReadOnlyStorage(self.path)
            return MetadataLog(storage, node_id=meta.node_id or 1).load(now_ms=self.now_ms)
        except (ProtocolError, KafkaError, StorageError):
            return None  # then the settings are the default ones, or what was said

    def settings_of(self, topic: str) -> LogSettings:
        """Return a topic's settings: what was said, else those in the metadata, else Kafka's own."""
        known = {} if self._image is None else self._image.topic_configs(topic)
        try:
            return log_settings(TopicConfig({**known, **self._given}, BrokerConfig()))
        except (KafkaError, ValueError) as error:
            raise OptionError(f"--config: {error}") from error

    def open(self, name: str) -> SourceLog:
        key = split_name(name)
        assert key is not None, name
        return SourceLog(self, name, self.settings_of(key[0]), self.now_ms)

    def opened(self, is_changed: Callable[[str, int], bool], *, only: bool) -> tuple[list[SourceLog], list[SourceLog]]:
        """Return the logs of the partitions that a job changes, and those that it copies: none, with `only`.

        The metadata of a directory are no partition of a topic: `top` has them.
        """
        changed, copied = [], []
        for name in self.names:
            key = split_name(name)
            assert key is not None, name
            if key[0] == METADATA_TOPIC:
                continue
            if is_changed(*key):
                changed.append(self.open(name))
            elif not only and not self.is_alone:
                copied.append(self.open(name))
        return changed, copied

    @property
    def top(self) -> list[str]:
        """Names of what lies beside the logs and belongs to any copy of the directory."""
        return [name for name in TOP if self.storage.exists(name)]

    def notes(self) -> list[str]:
        """Return what to say of a new directory that was made of this one."""
        late = f"a broker is at work in {self.path}: what it has written since is not in the new directory"
        return [late] if is_at_work(self.path) else []


def is_at_work(root: str) -> bool:
    """Return whether a broker holds a log directory."""
    storage = OsStorage(root)
    if not storage.exists(LOCK):
        return False
    try:
        storage.lock()
    except StorageError as failure:
        return "at work" in str(failure)  # a lock that we may not even open says nothing
    storage.unlock()
    return False


def opened(root: str, directory: str) -> ReadOnlyStorage:
    """Return a directory to read from, its log as a start would find it."""
    storage = ReadOnlyStorage(root)
    finish_swaps(storage, directory)
    return storage
