"""The partitions of one broker: opened, led, followed and let go as the metadata say."""

from __future__ import annotations

from functools import partial

from minibroker.config import log_settings
from minibroker.event_kinds import Recover
from minibroker.metadata.image import BROKER
from minibroker.replication.replica import Replica

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.node import Node
    from minibroker.log.settings import LogSettings
    from minibroker.metadata.image import Partition, Topic

METADATA_TOPIC = "__cluster_metadata"


class Partitions:
    """The replicas of a broker, by topic and partition."""

    def __init__(self, node: Node):
        self.node = node
        self.replicas: dict[tuple[str, int], Replica] = {}
        self._topics: dict[bytes, Topic] = {}  # whose partitions have been opened

    def set_strays_aside(self) -> None:
        """See to it that nobody takes what a deleted topic left for the log of a new one."""
        claimed = {
            (topic.name, partition.id)
            for topic in self.node.image.topics.values()
            for partition in topic.partitions
            if self.node.node_id in partition.replicas
        }
        for topic_name, number in self.node.directory.found():
            if (topic_name, number) not in claimed and topic_name != METADATA_TOPIC:
                name = self.node.directory.set_aside(topic_name, number, f"{self.node.chance.getrandbits(128):032x}")
                self.node.reporter.say(f"{topic_name}-{number} belongs to no topic; it is called {name} now")

    def take(self, topic: Topic) -> None:
        """Lead, follow or let go of the partitions of a topic, as the metadata say."""
        self._topics[topic.id] = topic
        for partition in topic.partitions:
            key = (topic.name, partition.id)
            replica = self.replicas.get(key)
            if self.node.node_id not in partition.replicas:
                if replica is not None:
                    self._delete(key)
                continue
            if replica is None:
                replica = self._open(topic, partition)
            replica.take(
                partition,
                steady_ms=self.node.clock.steady_ms(),
                lag_ms_max=self.node.config["replica.lag.time.max.ms"],
                find_broker=self.node.image.brokers.get,
                truncate=partial(self._cut, key),
            )
            if self.node.replication is not None:
                self.node.replication.took(replica)

    def _open(self, topic: Topic, partition: Partition) -> Replica:
        node, key = self.node, (topic.name, partition.id)
        log = node.directory.open(
            topic.name,
            partition.id,
            self._log_settings(topic.name),
            now_ms=node.clock.now_ms(),
            topic_id=topic.id,
            is_synced=False,
        )
        replica = self.replicas[key] = Replica(
            topic.name,
            topic.id,
            partition.id,
            node.node_id,
            log,
            high_watermark=node.directory.high_watermarks.get(key, 0),
            events=node.events,
        )
        replica.min_in_sync = node.topic_config(topic.name)["min.insync.replicas"]
        node.chores.settle(log.settings)
        recovery = log.recovery
        if recovery.reason:
            node.reporter.say(f"{log.directory}: {recovery.cut_bytes} bytes cut off after a crash: {recovery.reason}")
        if node.events.observed and not node.directory.was_clean and log.next_offset:
            event = Recover(
                **replica.place, end_offset=log.next_offset, cut_bytes=recovery.cut_bytes, why=recovery.reason
            )
            node.events.emit(event)
        return replica

    def delete_topic(self, topic_id: bytes) -> None:
        topic = self._topics.pop(topic_id, None)
        for partition in topic.partitions if topic is not None else ():
            if (topic.name, partition.id) in self.replicas:  # type: ignore[union-attr]
                self._delete((topic.name, partition.id))  # type: ignore[union-attr]

    def _delete(self, key: tuple[str, int]) -> None:
        replica = self.replicas.pop(key)
        replica.leave()
        self.node.chores.left(key)
        if self.node.replication is not None:
            self.node.replication.left(replica)
        self.node.directory.purge(self.node.directory.delete(*key, f"{self.node.chance.getrandbits(128):032x}"))

    def take_configs(self, resource_type: int, name: str) -> None:
        """Have the settings of a topic take effect, or those of brokers, which all topics fall back on."""
        settings_by_topic = {}
        for replica in self.replicas.values():
            if resource_type == BROKER or replica.topic == name:
                if replica.topic not in settings_by_topic:
                    config = self.node.topic_config(replica.topic)
                    settings_by_topic[replica.topic] = (
                        self._log_settings(replica.topic),
                        config["min.insync.replicas"],
                    )
                replica.log.settings, min_in_sync = settings_by_topic[replica.topic]
                replica.set_min_in_sync(min_in_sync, self.node.clock.steady_ms())
                self.node.chores.settle(replica.log.settings)

    def _cut(self, key: tuple[str, int], offset: int, why: str) -> None:
        """Cut the log of a partition back to an offset."""
        if offset < self.replicas[key].high_watermark:
            # An unclean election: what was committed is so no longer, and no crash may bring the claim back.
            ends = {each: replica.high_watermark for each, replica in self.replicas.items()}
            self.node.directory.write_high_watermarks({**ends, key: offset})
        self.node.directory.truncate_to(*key, offset)
        self.node.chores.forget_checkpoint()

    def _log_settings(self, topic: str) -> LogSettings:
        config = self.node.topic_config(topic)
        return log_settings(config, self.node.appearance.message_format(config.overrides))
