"""Start and stop of a log directory as by its broker, without serving anybody.

    with its lock held:  lead the metadata, register, open every log; change the metadata; stop in order

So logs are recovered after a crash, epochs and checkpoints are written, and the next start finds what a clean stop of a
broker leaves, whether it is one of ours or Kafka's.
Not here: formatting a directory, what is changed (commit.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from minibroker.config import BrokerConfig, TopicConfig, log_settings
from minibroker.controller import brokers
from minibroker.controller.controller import Controller
from minibroker.errors import StorageError
from minibroker.log.directory import LogDirectory
from minibroker.log.meta_properties import MetaProperties
from minibroker.metadata.bootstrap import random_id
from minibroker.metadata.features import supported
from minibroker.metadata.metadata_log import MetadataLog
from minibroker.stored.kinds import MetadataRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.clock import Clock
    from minibroker.log.storage import Storage

ENDPOINT = ("PLAINTEXT", "localhost", 9092, "PLAINTEXT")  # nobody listens there; the next start says where


def begin_metadata(storage: Storage, node_id: int, now_ms: int) -> None:
    """Begin the metadata log of a directory that has just been formatted.

    A broker refuses to start where there are partitions and no metadata, so this comes before the first of them.
    """
    metadata = MetadataLog(storage, node_id=node_id)
    metadata.load(now_ms=now_ms)
    metadata.lead(now_ms=now_ms)
    metadata.close()


class QuietBroker:
    """From start to stop."""

    def __init__(self, storage: Storage, meta: MetaProperties, clock: Clock, chance: Random):
        assert meta.node_id is not None
        self.storage, self.clock, self.chance = storage, clock, chance
        self.node_id = meta.node_id
        self.directory_id = meta.directory_id or random_id(chance)
        self.directory = LogDirectory(storage)

    def start(self, *, is_whole: bool = False) -> None:
        """Lead the metadata and be registered.

        is_whole: all in the directory is as a clean stop leaves it, whatever the mark says.
        """
        now_ms = self.clock.now_ms()
        self.directory.start()
        self.directory.was_clean = self.directory.was_clean or is_whole
        self.metadata = MetadataLog(self.storage, node_id=self.node_id)
        self.image = self.metadata.load(now_ms=now_ms, was_clean=self.directory.was_clean)
        self.metadata.lead(now_ms=now_ms)
        self.controller = Controller(
            self.image,
            node_id=self.node_id,
            new_id=lambda: random_id(self.chance),
            check_configs=lambda kind, name, configs: None,  # who makes a topic has looked at them
            supported_features=supported(),
        )
        registered = self.image.brokers.get(self.node_id)
        endpoints = [ENDPOINT]
        if registered is not None and registered.end_points:
            endpoints = [(each.name, each.host, each.port, ENDPOINT[3]) for each in registered.end_points]
        for records in brokers.starting(
            self.controller,
            self.node_id,
            next_offset=lambda: self.metadata.log_end_offset,
            incarnation_id=random_id(self.chance),
            endpoints=endpoints,
            log_dirs=[self.directory_id],
            rack=registered.rack if registered is not None else None,
            clean_epoch=self.directory.clean_epoch,
        ):
            self.append(records)

    def append(self, records: Sequence[MetadataRecord]) -> None:
        """Change the metadata."""
        self.metadata.append(records, now_ms=self.clock.now_ms())

    def open_logs(self) -> None:
        """Open the logs of all topics."""
        broker = BrokerConfig()
        for name, topic in self.image.topics.items():
            settings = log_settings(TopicConfig(self.image.topic_configs(name), broker))
            for partition in topic.partitions:
                self.directory.open(
                    name, partition.id, settings, now_ms=self.clock.now_ms(), topic_id=topic.id, is_synced=False
                )
        self.directory.sync_names()

    def stop(self) -> None:
        """Leave all as a clean stop does."""
        epoch = self.image.brokers[self.node_id].broker_epoch
        for records in brokers.stopping(self.controller, self.node_id):
            self.append(records)
        self.metadata.close()
        high_watermarks = {key: log.log_end_offset for key, log in self.directory.logs.items()}
        if not self.directory.close(high_watermarks, broker_epoch=epoch):
            raise StorageError("the disk refused what was to be written in the end")
