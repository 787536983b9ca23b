"""Group coordinator of a broker: which partitions of __consumer_offsets it leads, and so which groups are its own.

Not here: one such partition (offsets_partition.py), the groups on it (minibroker/groups), requests (handlers).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from minibroker.clock import CHORE
from minibroker.config.resources import GroupConfig
from minibroker.errors import Error, KafkaError
from minibroker.groups import OFFSETS_TOPIC
from minibroker.groups.consumer import ConsumerGroup
from minibroker.groups.hash_order import partition_of
from minibroker.groups.offsets_partition import OffsetsPartition
from minibroker.groups.topics import ImageTopics
from minibroker.metadata.image import GROUP
from minibroker.parts import Parts
from minibroker.replication.replica import Replica
from minibroker.stored.group_offsets import OffsetCommitValue

if TYPE_CHECKING:
    from minibroker.clock import Timer

NO_ID = bytes(16)
UNREADABLE = """\
{directory} cannot be read from offset {offset} on: {failure}
  Nobody coordinates its groups as long as that is so; clients are told NOT_COORDINATOR, and no offset is lost.
  To go on without what it holds: stop the broker, move the directory away, and start it again (docs/groups.md)."""
JUMP_MS_MIN = 20  # less is how two clocks are read one after the other


class Coordinator:
    """All that one broker coordinates."""

    def __init__(self, parts: Parts, replicas: Mapping[tuple[str, int], Replica]):
        self.parts = parts
        self.replicas = replicas
        self.led: dict[int, OffsetsPartition] = {}
        self.topics = ImageTopics(parts.image)
        # Name and number of partitions of all topics by their ids, as groups have last heard.
        self._known = {topic.id: (topic.name, len(topic.partitions)) for topic in parts.image.topics.values()}
        self._unreadable: dict[int, str] = {}  # partitions that cannot be read, and what has been said of that
        self._expiry: Timer | None = None
        parts.watchers[self._metadata_changed] = None
        self._set_ms = self._clock_set_ms  # how the clock was set when groups last looked at it
        self._expire_later()
        self.follow()

    def stop(self) -> None:
        self.parts.watchers.pop(self._metadata_changed, None)
        if self._expiry is not None:
            self._expiry.cancel()
        for led in list(self.led.values()):
            led.resign()
        self.led.clear()

    def follow(self) -> None:
        """Coordinate what this broker leads, as the metadata say by now."""
        parts = self.parts
        topic = parts.image.topics.get(OFFSETS_TOPIC)
        for number in range(len(topic.partitions)) if topic is not None else ():
            replica, led = self.replicas.get((OFFSETS_TOPIC, number)), self.led.get(number)
            if replica is not None and not (replica.is_leader and replica.log.offline is None):
                replica = None
            if led is not None and (replica is None or led.replica is not replica or led.epoch != replica.leader_epoch):
                del self.led[number]
                led.resign()
                led = None
            if replica is not None and led is None:
                self.lead(replica)

    def _metadata_changed(self) -> None:
        self.follow()
        self._follow_topics(self.parts.changed_topics)

    def lead(self, replica: Replica) -> None:
        """Begin to coordinate a partition, or read it again."""
        led = OffsetsPartition(self, replica)
        self.led[replica.partition] = led

    def _lead_opened(self, number: int) -> OffsetsPartition | None:
        """Coordinate a partition that has just been opened, while others of the topic are still to be."""
        replica = self.replicas.get((OFFSETS_TOPIC, number))
        if replica is not None and replica.is_leader and replica.log.offline is None:
            self.lead(replica)
        return self.led.get(number)

    # What cannot be read

    def unreadable(self, replica: Replica, offset: int, failure: Exception) -> None:
        """Say once that the groups of a partition are not coordinated, and how to go on."""
        if self._unreadable.get(replica.partition) != str(failure):
            self._unreadable[replica.partition] = str(failure)
            self.parts.reporter.say(UNREADABLE.format(directory=replica.log.directory, offset=offset, failure=failure))

    def readable(self, partition: int) -> None:
        if self._unreadable.pop(partition, None) is not None:
            self.parts.reporter.say(f"{OFFSETS_TOPIC}-{partition}: its groups have been read")

    def _follow_topics(self, topic_ids: Iterable[bytes]) -> None:
        """Forget the offsets of topics that have been deleted, and let groups see what there is to read."""
        changed: set[str] = set()
        is_any_gone = False
        for topic_id in topic_ids:
            topic, before = self.parts.image.topics_by_id.get(topic_id), self._known.get(topic_id)
            if topic is None:
                is_any_gone = self._known.pop(topic_id, None) is not None or is_any_gone
                changed |= {before[0]} if before is not None else set()
                continue
            now = topic.name, len(topic.partitions)
            if before is None:
                self.topics.last_created_version = self.topics.version
            if before != now:
                self._known[topic_id] = now
                changed.add(topic.name)
        if not changed:
            return
        for led in list(self.led.values()):
            for group in led.shard.groups.values():
                if isinstance(group, ConsumerGroup):
                    group.topics_changed(changed)
            if is_any_gone:
                led.topics_deleted()

    def is_gone(self, topic: str, offset: OffsetCommitValue) -> bool:
        """Say whether the topic that an offset is of has been deleted, also if there is one of the same name.

        Who coordinates knows all metadata from before it began, and records can only be of topics of then: so a topic
        that is not there has been deleted.
        """
        found = self.parts.image.topics.get(topic)
        return found is None or bytes(offset.topic_id) not in (NO_ID, found.id)

    # The clock

    @property
    def _clock_set_ms(self) -> int:
        return self.parts.clock.now_ms() - self.parts.clock.steady_ms()

    def follow_clock(self) -> None:
        """See to it that a clock which has been set ends nobody's session: sessions go as timers go.

        Groups count by the clock, for their records do. So when it jumps, all that is due jumps with it.
        """
        jumped_ms = self._clock_set_ms - self._set_ms
        if abs(jumped_ms) > JUMP_MS_MIN:
            self._set_ms += jumped_ms
            for led in self.led.values():
                led.shift(jumped_ms)

    # What handlers ask

    def find(self, group_id: str) -> OffsetsPartition:
        """Return the partition of a group; raise if another broker leads it, or it is being read."""
        self.follow_clock()
        return self.find_now(group_id)

    def find_now(self, group_id: str) -> OffsetsPartition:
        """Do what `find` does for one of many groups, and look at the clock no more than once for all of them."""
        topic = self.parts.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            raise KafkaError(Error.NOT_COORDINATOR, f"there is no {OFFSETS_TOPIC} yet")
        number = partition_of(group_id, len(topic.partitions))
        led = self.led.get(number) or self._lead_opened(number)
        if led is None:
            raise KafkaError(Error.NOT_COORDINATOR, f"another broker coordinates {group_id!r}")
        led.check(group_id)
        return led

    # What has had its time

    def _expire_later(self) -> None:
        period_ms = self.parts.config["offsets.retention.check.interval.ms"]
        self._expiry = self.parts.clock.after(period_ms, self._expire, CHORE)

    def _expire(self) -> None:
        self._expire_later()
        for led in list(self.led.values()):
            led.delete_expired()

    def settings_of(self, group_id: str) -> GroupConfig:
        return GroupConfig(self.parts.image.configs.get((GROUP, group_id), {}), self.parts.config)
