"""Log directory that a bulk load writes to: its owner, its topics, leavings of loads before, the lock.

The directory is that of a broker which is its own controller: topics stand in its metadata log, and one that does not
is nobody's. An absent directory is made, as `minibroker serve` or `kafka-storage format` would.
What must hold: looking changes nothing but that it removes what a load left that ended before its time; a broker at
work keeps us out, and we keep brokers out while the lock is held.
Not here: what tasks write (segments.py), how that becomes part of the logs (commit.py).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from random import Random

from minibroker.config import BrokerConfig, TopicConfig, check_topic_config, log_settings
from minibroker.errors import KafkaError
from minibroker.log.checkpoints import read_clean_shutdown
from minibroker.log.directory import split_name
from minibroker.log.formats import APPEND_TIME
from minibroker.log.meta_properties import MetaProperties, read_meta_properties
from minibroker.log.read_only_storage import ReadOnlyStorage
from minibroker.log.storage import OsStorage
from minibroker.metadata.bootstrap import BOOTSTRAP, METADATA_DIRECTORY, WrongDirectory, check_directory
from minibroker.metadata.image import MetadataImage
from minibroker.metadata.metadata_log import MetadataLog
from minibroker.spark.bulk_load.broker import QuietBroker
from minibroker.spark.bulk_load.commit import Commit, LoadedPartition
from minibroker.spark.bulk_load.options import CONFIG, LoadOptions
from minibroker.spark.bulk_load.plans import STAGED, LoadError, Piece, Plan, TopicPlan, check_topic
from minibroker.spark.option_values import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.clock import Clock

LEFT_DIRECTORY = re.compile(r".+-\d+\.([0-9a-f]{16})[0-9a-f]{6}-delete")  # as tasks name it; brokers have 32 digits
LEFT_FILE = re.compile(rf"\d{{20}}\.\w+\.load-([0-9a-f]{{16}})-\d+-\d+\{STAGED}")


class LoadDirectory:
    """A log directory, from `look` to `commit`; locked within `with`."""

    def __init__(self, options: LoadOptions, clock: Clock):
        self.options = options
        self.storage = OsStorage(options.path)
        self.clock = clock
        self.chance = Random()
        self.load_id = f"{self.chance.getrandbits(64):016x}"
        self.left: list[str] = []  # ids of loads that ended before their time, whose leavings were removed

    def __enter__(self) -> LoadDirectory:
        """Keep brokers and other loads off; raise StorageError if one is at work."""
        self.storage.make_directory("")
        self.storage.lock()
        return self

    def __exit__(self, *_: object) -> None:
        self.storage.unlock()

    # Before the tasks

    def look(self) -> Plan:
        """Return what tasks must know; raise OptionError for what cannot be loaded here."""
        options, default = self.options, BrokerConfig()
        self.left = sweep(self.storage)
        for load_id in self.left:
            print(f"minibroker removed what the load {load_id} had left, which never ended", file=sys.stderr)
        meta = self._owner()
        image = MetadataImage() if meta is None else self._image(meta)
        topics = {}
        for name, topic in image.topics.items():
            epochs = [max(partition.leader_epoch, 0) for partition in topic.partitions]
            config = TopicConfig(image.topic_configs(name), default)
            topics[name] = self._plan_of(name, len(topic.partitions), epochs, config)
        if options.topic is not None:
            self._check_topic(options.topic, topics)
        try:
            check_topic_config(options.new_configs, default)
        except KafkaError as error:
            raise OptionError(f"{CONFIG}*: {error}") from error
        for name in topics if options.topic is None else {options.topic} & topics.keys():
            self._check_configs(name, image.topic_configs(name))
        new_topic = self._plan_of("", options.partitions or 1, None, TopicConfig(options.new_configs, default))
        return Plan(self.storage.root, meta is None, self.load_id, self.clock.now_ms(), topics, new_topic, options)

    def _owner(self) -> MetaProperties | None:
        """Return whose directory it is; None: nobody's yet."""
        meta = read_meta_properties(self.storage)
        if meta is None:
            found = [name for name in self.storage.list("") if name not in (".lock", "lost+found")]
            if found:
                raise OptionError(
                    f"{self.storage.root} holds {found[0]} and no meta.properties: it is not the directory of a broker"
                )
            return None
        node_id = self.options.node_id if self.options.node_id is not None else meta.node_id or 0
        try:
            check_directory(self.storage, node_id=node_id, cluster_id=self.options.cluster_id or None)
        except WrongDirectory as error:
            raise OptionError(str(error)) from error
        if not any(map(self.storage.exists, (METADATA_DIRECTORY, BOOTSTRAP))):
            raise OptionError(
                f"{self.storage.root} has no {METADATA_DIRECTORY}: its broker belongs to a cluster whose controllers "
                "are elsewhere, and would know nothing of what is loaded"
            )
        return meta

    def _image(self, meta: MetaProperties) -> MetadataImage:
        """Return what the directory's metadata say. If nobody stopped here in order, that is done first."""
        node_id = meta.node_id or 0
        image = MetadataLog(ReadOnlyStorage(self.storage.root), node_id=node_id).load(now_ms=self.clock.now_ms())
        others = {*image.brokers, *image.controllers} - {node_id}
        if others:
            raise OptionError(
                f"{self.storage.root} belongs to a cluster with the nodes {sorted(others)} in it too: they would not "
                "have what is loaded here"
            )
        if read_clean_shutdown(self.storage) is None:
            broker = QuietBroker(self.storage, meta, self.clock, self.chance)
            broker.start()
            broker.open_logs()
            broker.stop()
            image = broker.image
        return image

    def _plan_of(self, name: str, partitions: int, epochs: list[int] | None, config: TopicConfig) -> TopicPlan:
        settings = log_settings(config)
        return TopicPlan(
            name=name,
            partitions=partitions,
            leader_epochs=epochs,
            segment_bytes=self.options.segment_bytes or settings.segment_bytes,
            segment_ms=settings.segment_age_max_ms,
            index_bytes=settings.segment_index_bytes,
            index_interval_bytes=self.options.index_interval_bytes or settings.index_interval_bytes,
            max_message_bytes=settings.validation.max_message_bytes,
            is_compacted=settings.compact,
            has_append_time=settings.validation.timestamp_type == APPEND_TIME,
            retention_ms=settings.retention_ms if settings.delete else -1,
        )

    def _check_topic(self, name: str, topics: Mapping[str, TopicPlan]) -> None:
        try:
            check_topic(name)
        except LoadError as error:
            raise OptionError(f"option topic: {error}") from error
        found, asked = topics.get(name), self.options.partitions
        if found is not None and asked not in (None, found.partitions):
            raise OptionError(f"{name} has {found.partitions} partitions, not {asked}: leave the option out")

    def _check_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        for name, value in self.options.configs.items():
            if configs.get(name) != value:
                raise OptionError(
                    f"{CONFIG}{name} is for new topics: {topic} is there already and has "
                    f"{configs.get(name, 'the default')}"
                )

    # After the tasks

    def commit(self, plan: Plan, pieces: Sequence[Piece]) -> list[LoadedPartition]:
        """Make staged segments part of the logs; return what was added, by topic and partition."""
        return Commit(self.storage, self.options, self.clock, self.chance).run(plan, pieces)

    def drop(self) -> None:
        """Remove what tasks have staged."""
        sweep(self.storage)


def sweep(storage: OsStorage) -> list[str]:
    """Remove what loads have staged, whichever they were; return their ids."""
    found: dict[str, None] = {}
    for name in storage.list(""):
        match = LEFT_DIRECTORY.fullmatch(name)
        if match:
            found[match[1]] = None
            for inner in storage.list(name):
                storage.remove(f"{name}/{inner}")
            storage.remove(name)
        elif split_name(name) is not None:
            for inner in storage.list(name):
                match = LEFT_FILE.fullmatch(inner)
                if match:
                    found[match[1]] = None
                    storage.remove(f"{name}/{inner}")
    return list(found)
