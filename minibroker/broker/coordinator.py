"""The coordinator of groups: which partitions of __consumer_offsets this broker leads, and so which groups are its own.

Not here: one such partition (led_partition.py), the groups on it (minibroker/groups), requests (handlers).
"""

from __future__ import annotations

from minibroker.broker.group_topics import ImageTopics
from minibroker.broker.led_partition import LedPartition, nobody_waits
from minibroker.config.group import GroupConfig
from minibroker.errors import Error, KafkaError
from minibroker.groups.consumer import ConsumerGroup
from minibroker.groups.names import OFFSETS_TOPIC, partition_of
from minibroker.metadata.image import GROUP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.node import Node
    from minibroker.clock import Timer
    from minibroker.groups.classic import Done
    from minibroker.groups.records import Row

    Write = tuple[str, list[Row], Done]  # for which group

JUMP_MS_MIN = 20  # less is how two clocks are read one after the other


class Coordinator:
    """All that one broker coordinates."""

    def __init__(self, node: Node):
        self.node = node
        self.led: dict[int, LedPartition] = {}
        self.topics = ImageTopics(node.image)
        self._partition_counts: dict[str, int] = {}  # of all topics, as groups have last heard
        self._expiry: Timer | None = None
        node.watchers[self.follow] = None
        self._set_ms = self._clock_set_ms  # how the clock was set when groups last looked at it
        self._expire_later()
        self.follow()

    def stop(self) -> None:
        self.node.watchers.pop(self.follow, None)
        if self._expiry is not None:
            self._expiry.cancel()
        for led in list(self.led.values()):
            led.resign()
        self.led.clear()

    def follow(self) -> None:
        """Coordinate what this broker leads, as the metadata say by now."""
        node = self.node
        topic = node.image.topics.get(OFFSETS_TOPIC)
        for number in range(len(topic.partitions)) if topic is not None else ():
            replica, led = node.replicas.get((OFFSETS_TOPIC, number)), self.led.get(number)
            if replica is not None and not (replica.is_leader and replica.log.offline is None):
                replica = None
            if led is not None and (replica is None or led.replica is not replica or led.epoch != replica.leader_epoch):
                del self.led[number]
                led.resign()
                led = None
            if replica is not None and led is None:
                self.led[number] = LedPartition(self, replica)
        self._follow_topics()

    def _follow_topics(self) -> None:
        """Forget the offsets of topics that have been deleted, and let groups see what there is to read."""
        counts = {name: len(topic.partitions) for name, topic in self.node.image.topics.items()}
        before, self._partition_counts = self._partition_counts, counts
        if before == counts:
            return
        gone = before.keys() - counts.keys()
        changed = gone | {name for name, count in counts.items() if before.get(name) != count}
        if counts.keys() - before.keys():
            self.topics.last_created_version = self.topics.version
        for led in self.led.values():
            for group in led.shard.groups.values():
                if isinstance(group, ConsumerGroup):
                    group.topics_changed(changed)
            rows = led.shard.topics_deleted(gone) if gone else []
            if rows:
                led.write("", rows, nobody_waits)

    # The clock

    @property
    def _clock_set_ms(self) -> int:
        return self.node.clock.now_ms() - self.node.clock.steady_ms()

    def follow_clock(self) -> None:
        """See to it that a clock which has been set ends nobody's session: sessions go as timers go.

        Groups count by the clock, for their rows do. So when it jumps, all that is due jumps with it.
        """
        jumped_ms = self._clock_set_ms - self._set_ms
        if abs(jumped_ms) > JUMP_MS_MIN:
            self._set_ms += jumped_ms
            for led in self.led.values():
                led.shift(jumped_ms)

    # What handlers ask

    def find(self, group_id: str) -> LedPartition:
        """Return the partition of a group; raise if another broker leads it, or it is being read."""
        self.follow_clock()
        topic = self.node.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            raise KafkaError(Error.NOT_COORDINATOR, f"there is no {OFFSETS_TOPIC} yet")
        led = self.led.get(partition_of(group_id, len(topic.partitions)))
        if led is None:
            raise KafkaError(Error.NOT_COORDINATOR, f"another broker coordinates {group_id!r}")
        if led.is_loading:
            raise KafkaError(
                Error.COORDINATOR_LOAD_IN_PROGRESS, f"the groups of {led.replica.partition} are being read"
            )
        return led

    # What has had its time

    def _expire_later(self) -> None:
        period_ms = self.node.config["offsets.retention.check.interval.ms"]
        self._expiry = self.node.clock.after(period_ms, self._expire)

    def _expire(self) -> None:
        self._expire_later()
        now_ms = self.node.clock.now_ms()
        retention_ms = self.node.config["offsets.retention.minutes"] * 60_000
        for led in self.led.values():
            if not led.is_loading:
                rows = led.shard.expire_offsets(now_ms, retention_ms)
                if rows:
                    led.write("", rows, nobody_waits)

    def settings_of(self, group_id: str) -> GroupConfig:
        return GroupConfig(self.node.image.configs.get((GROUP, group_id), {}), self.node.config)
