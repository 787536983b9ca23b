"""The metadata of a broker that is its own controller: it leads the metadata log in its own directory.

What must hold: the metadata log comes first: what it says is there is there, after a crash too.
A broker of a cluster has its metadata from elsewhere: metadata_in_cluster.py.
"""

from __future__ import annotations

from contextlib import contextmanager

from minibroker.controller.brokers import starting, stopping
from minibroker.controller.controller import Controller
from minibroker.errors import StorageError
from minibroker.log.meta_properties import META_PROPERTIES, MetaProperties
from minibroker.log.storage import OsStorage
from minibroker.metadata.bootstrap import METADATA_DIRECTORY, WrongDirectory, check_alone, format_directory, random_id
from minibroker.metadata.damage import REPAIR, is_blank
from minibroker.metadata.features import supported
from minibroker.metadata.image import MetadataImage
from minibroker.metadata.metadata_log import MetadataLog
from minibroker.stored.kinds import MetadataRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from minibroker.broker.broker import Node
    from minibroker.log.directory import LogDirectory


class StandaloneMetadata:
    """One for the life of a broker."""

    image: MetadataImage
    controller: Controller
    log: MetadataLog

    def __init__(self, node: Node):
        self.node = node
        self.broker_epoch = -1

    def format(self, cluster_id: str) -> MetaProperties:
        """Make an empty directory this broker's."""
        node = self.node
        check_unclaimed(node.directory, META_PROPERTIES, repairs=node.repairs)
        if node.repairs:
            node.reporter.say(f"{META_PROPERTIES} is made anew: the directory belongs to cluster {cluster_id} now")
        return format_directory(
            node.storage,
            cluster_id=cluster_id,
            node_id=node.node_id,
            directory_id=random_id(node.chance),
            now_ms=node.clock.now_ms(),
            features=node.emulated.bootstrap_features(),
        )

    def may_have_feature(self, name: str, level: int) -> bool:
        """Return whether a feature is as high, or rises to it when it is needed: unless somebody set it to 0."""
        return self.image.features.get(name, 0) >= level or name not in self.image.features_set_to_0

    def need_feature(self, name: str, level: int) -> None:
        """Raise a feature to the level that a record about to be written needs, if it may have it and has not."""
        if self.image.features.get(name, 0) < level:
            from minibroker.stored.cluster import FeatureLevelRecord

            self.change([FeatureLevelRecord(name=name, feature_level=level)])

    # The broker's life

    async def load(self) -> None:
        """Read the metadata, and change nothing that was in order."""
        node = self.node
        now_ms = node.clock.now_ms()
        if isinstance(node.storage, OsStorage):
            check_alone(node.storage.root)
        is_missing = is_blank(node.storage) and bool(node.directory.found())
        if is_missing:
            check_unclaimed(node.directory, METADATA_DIRECTORY, repairs=node.repairs)
        self.log = MetadataLog(
            node.storage,
            node_id=node.node_id,
            fsync=node.storage.is_durable,
            segment_bytes=node.config["metadata.log.segment.bytes"],
        )
        self.image = self.log.load(
            now_ms=now_ms,
            was_clean=node.directory.was_clean,
            repairs=node.repairs,
            is_missing=is_missing,
            say=node.reporter.say,
        )
        self.controller = Controller(
            self.image,
            node_id=node.node_id,
            new_id=lambda: random_id(node.chance),
            check_configs=node.check_configs,
            supported_features=supported(node.emulated.release),
            settings=node.config.texts,
        )

    async def join(self) -> None:
        """Lead the metadata, write down that this broker is there and leads its partitions."""
        node = self.node
        self.log.lead(now_ms=node.clock.now_ms(), min_insync_replicas=node.config["min.insync.replicas"])
        steps = starting(
            self.controller,
            node.node_id,
            next_offset=lambda: self.log.log_end_offset,
            incarnation_id=random_id(node.chance),
            endpoints=node.endpoints(),
            log_dirs=[node.directory_id],
            rack=node.config["broker.rack"],
            clean_epoch=node.directory.clean_epoch,
        )
        for records in steps:
            self.log.append(records, now_ms=node.clock.now_ms())
        self.broker_epoch = self.image.brokers[node.node_id].broker_epoch
        if node.repairs:
            from minibroker.broker.repair import Restoration

            self.log.append(Restoration(node, self.log.rescue).records(), now_ms=node.clock.now_ms())
            self.log.end_repair()

    async def enter(self) -> None:
        """Be there for clients: it is already."""

    async def leave(self) -> None:
        """Write down that this broker stops in order."""
        for records in stopping(self.controller, self.node.node_id):
            self.log.append(records, now_ms=self.node.clock.now_ms())

    def close(self) -> None:
        self.log.close()

    def release(self) -> None:
        """Let go of the files, whatever is in them."""
        if hasattr(self, "log"):
            self.log.release()

    # Changes

    def change(self, records: Sequence[MetadataRecord], *, at_once: bool = True) -> None:
        """Write records into the metadata log and do what they say; at_once: all of it before this returns."""
        try:
            self.log.append(records, now_ms=self.node.clock.now_ms())
        except StorageError as failure:
            self.node.disk_failed(failure)
            raise
        self.node.follow(records, at_once=at_once)
        if not self.log.is_together:
            self.node.partitions.sync_names()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Let changes reach the disk together, when all of them are made; nobody may be told of one before."""
        is_made = False
        try:
            with self.log.together(self.node.clock.now_ms):
                yield
                is_made = True
        except StorageError as failure:
            if is_made:  # what a change is refused has been said
                self.node.disk_failed(failure)
            raise
        finally:
            self.node.partitions.sync_names()

    def allocate_producer_ids(self) -> tuple[int, int]:
        """Return the first of a block of producer ids that nobody had before, and how many they are."""
        records, first, count = self.controller.allocate_producer_ids(self.node.node_id, self.broker_epoch)
        self.change(records)
        return first, count


def check_unclaimed(directory: LogDirectory, missing: str, *, repairs: bool) -> None:
    """Refuse to begin anew where partitions are: nobody would know of their topics, and they would be set aside."""
    found = directory.found()
    if found and not repairs:
        topic, partition = min(found)
        raise WrongDirectory(
            f"there are directories of {len(found)} partitions, as {topic}-{partition}, and {missing} is missing or "
            f"empty, without which nobody knows their topics; {REPAIR}"
        )
