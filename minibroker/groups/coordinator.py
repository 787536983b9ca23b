"""Group coordinator of a broker: which partitions of __consumer_offsets it leads, and so which groups are its own.

Not here: how they are followed and found (coordinator/partitions.py), one such partition (offsets_partition.py), the
groups on it (minibroker/groups), requests (handlers).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from minibroker.clock import CHORE
from minibroker.coordinator.partitions import LedPartitions
from minibroker.groups import OFFSETS_TOPIC
from minibroker.groups.consumer import ConsumerGroup
from minibroker.groups.offsets_partition import OffsetsPartition
from minibroker.groups.topics import ImageTopics
from minibroker.parts import Parts
from minibroker.replication.replica import Replica

if TYPE_CHECKING:
    from minibroker.clock import Timer

JUMP_MS_MIN: Final = 20  # less is how two clocks are read one after the other


class Coordinator(LedPartitions[OffsetsPartition]):
    """All groups that one broker coordinates."""

    def __init__(self, parts: Parts, replicas: Mapping[tuple[str, int], Replica]):
        super().__init__(parts, replicas, OFFSETS_TOPIC, self._made, contents="groups", page="docs/groups.md")
        self.topics = ImageTopics(parts.image)
        # Name and number of partitions of all topics by their ids, as groups have last heard.
        self._known = {topic.id: (topic.name, len(topic.partitions)) for topic in parts.image.topics.values()}
        # How the clock was set when groups last looked at it.
        self._set_ms = parts.clock.now_ms() - parts.clock.steady_ms()
        self._expire_later()
        self.follow()

    def _made(self, replica: Replica) -> OffsetsPartition:
        return OffsetsPartition(self, replica, self.topics, self.follow_clock)

    def stop(self) -> None:
        """Coordinate nothing any more."""
        self._expiry.cancel()
        super().stop()

    def _metadata_changed(self) -> None:
        super()._metadata_changed()
        self._follow_topics(self.parts.changed_topics)

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

    # The clock

    def follow_clock(self) -> None:
        """See to it that a clock which has been set ends nobody's session: sessions go as timers go.

        Groups count by the clock, for their records do. So when it jumps, all that is due jumps with it.
        """
        clock = self.parts.clock
        jumped_ms = clock.now_ms() - clock.steady_ms() - self._set_ms
        if abs(jumped_ms) > JUMP_MS_MIN:
            self._set_ms += jumped_ms
            for led in self.led.values():
                led.shift(jumped_ms)

    # What handlers ask

    def find(self, key: str) -> OffsetsPartition:
        """Return the partition of a group by its id; raise if another broker leads it, or it is being read."""
        self.follow_clock()
        return super().find(key)

    def find_now(self, group_id: str) -> OffsetsPartition:
        """Do what `find` does for one of many groups, and look at the clock no more than once for all of them."""
        return super().find(group_id)

    # What has had its time

    def _expire_later(self) -> None:
        period_ms = self.parts.config["offsets.retention.check.interval.ms"]
        self._expiry: Timer = self.parts.clock.after(period_ms, self._expire, CHORE)

    def _expire(self) -> None:
        self._expire_later()
        for led in list(self.led.values()):
            led.delete_expired()
