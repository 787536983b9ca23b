"""The metadata of a broker that is its own controller: it leads the metadata log in its own directory.

What must hold: the metadata log comes first: what it says is there is there, after a crash too.
A broker of a cluster has its metadata from elsewhere: metadata_in_cluster.py.
"""

from __future__ import annotations

from contextlib import contextmanager

from minibroker.config import check_topic_config
from minibroker.controller.brokers import starting, stopping
from minibroker.controller.controller import Controller
from minibroker.errors import StorageError
from minibroker.log.meta_properties import META_PROPERTIES, MetaProperties
from minibroker.log.storage import OsStorage
from minibroker.metadata.bootstrap import METADATA_DIRECTORY, WrongDirectory, check_alone, format_directory, random_id
from minibroker.metadata.damage import REPAIR, is_blank
from minibroker.metadata.features import supported
from minibroker.metadata.image import TOPIC, MetadataImage
from minibroker.metadata.metadata_log import MetadataLog
from minibroker.replication.replica_set import Partitions
from minibroker.stored.kinds import MetadataRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from minibroker.log.directory import LogDirectory

    Endpoints = list[tuple[str, str, int, str]]  # listener, host, port and security protocol of each

ASKED = "somebody asked for it"


class StandaloneMetadata:
    """One for the life of a broker."""

    image: MetadataImage
    controller: Controller
    log: MetadataLog

    def __init__(self, partitions: Partitions, follow: Callable[..., None], endpoints: Callable[[], Endpoints]):
        """follow: does what records say; endpoints: where the broker listens."""
        self.partitions = partitions
        self.parts = partitions.parts
        self.follow = follow
        self.endpoints = endpoints
        self.broker_epoch = -1

    def format(self, cluster_id: str) -> MetaProperties:
        """Make an empty directory this broker's."""
        parts = self.parts
        check_unclaimed(parts.directory, META_PROPERTIES, repairs=parts.repairs)
        if parts.repairs:
            parts.reporter.say(f"{META_PROPERTIES} is made anew: the directory belongs to cluster {cluster_id} now")
        return format_directory(
            parts.storage,
            cluster_id=cluster_id,
            node_id=parts.node_id,
            directory_id=random_id(parts.chance),
            now_ms=parts.clock.now_ms(),
            features=parts.emulated.bootstrap_features(),
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
        parts = self.parts
        now_ms = parts.clock.now_ms()
        if isinstance(parts.storage, OsStorage):
            check_alone(parts.storage.root)
        is_missing = is_blank(parts.storage) and bool(parts.directory.found())
        if is_missing:
            check_unclaimed(parts.directory, METADATA_DIRECTORY, repairs=parts.repairs)
        self.log = MetadataLog(
            parts.storage,
            node_id=parts.node_id,
            fsync=parts.storage.is_durable,
            segment_bytes=parts.config["metadata.log.segment.bytes"],
        )
        self.image = self.log.load(
            now_ms=now_ms,
            was_clean=parts.directory.was_clean,
            repairs=parts.repairs,
            is_missing=is_missing,
            say=parts.reporter.say,
        )
        self.controller = Controller(
            self.image,
            node_id=parts.node_id,
            new_id=lambda: random_id(parts.chance),
            check_configs=self._check_configs,
            supported_features=supported(parts.emulated.release),
            settings=parts.config.texts,
        )

    def _check_configs(self, resource_type: int, name: str, configs: Mapping[str, str]) -> None:
        if resource_type == TOPIC:
            check_topic_config(configs, self.parts.config)

    async def join(self) -> None:
        """Lead the metadata, write down that this broker is there and leads its partitions."""
        parts = self.parts
        self.log.lead(now_ms=parts.clock.now_ms(), min_insync_replicas=parts.config["min.insync.replicas"])
        steps = starting(
            self.controller,
            parts.node_id,
            next_offset=lambda: self.log.log_end_offset,
            incarnation_id=random_id(parts.chance),
            endpoints=self.endpoints(),
            log_dirs=[parts.directory_id],
            rack=parts.config["broker.rack"],
            clean_epoch=parts.directory.clean_epoch,
        )
        for records in steps:
            self.log.append(records, now_ms=parts.clock.now_ms())
        self.broker_epoch = self.image.brokers[parts.node_id].broker_epoch
        if parts.repairs:
            from minibroker.broker.repair import Restoration

            records = Restoration(self.partitions, self.controller, self.log.rescue).records()
            self.log.append(records, now_ms=parts.clock.now_ms())
            self.log.end_repair()

    async def enter(self) -> None:
        """Return when all partitions are open: then this broker may be there for clients."""
        await self.partitions.open_all()

    async def leave(self) -> None:
        """Write down that this broker stops in order."""
        for records in stopping(self.controller, self.parts.node_id):
            self.log.append(records, now_ms=self.parts.clock.now_ms())

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
            if self.parts.events.observed:
                self._append_and_tell(records)
            else:
                self.log.append(records, now_ms=self.parts.clock.now_ms())
        except StorageError as failure:
            self.parts.disk_failed(failure)
            raise
        self.follow(records, at_once=at_once)
        if not self.log.is_together:
            self.partitions.sync_names()

    def _append_and_tell(self, records: Sequence[MetadataRecord]) -> None:
        """Let watchers know of what is decided here, as they do of a cluster's controller."""
        from minibroker.controller.events import tell_decisions

        with tell_decisions(self.parts.events, self.image, records, ASKED):
            self.log.append(records, now_ms=self.parts.clock.now_ms())

    @contextmanager
    def together(self) -> Iterator[None]:
        """Let changes reach the disk together, when all of them are made; nobody may be told of one before."""
        is_made = False
        try:
            with self.log.together(self.parts.clock.now_ms):
                yield
                is_made = True
        except StorageError as failure:
            if is_made:  # what a change is refused has been said
                self.parts.disk_failed(failure)
            raise
        finally:
            self.partitions.sync_names()

    def allocate_producer_ids(self) -> tuple[int, int]:
        """Return the first of a block of producer ids that nobody had before, and how many they are."""
        records, first, count = self.controller.allocate_producer_ids(self.parts.node_id, self.broker_epoch)
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
