"""Group service of a broker: starts the group coordinator when the first request of a group comes, or there are groups.

So a broker without groups pays nothing for them.
"""

from __future__ import annotations

from minibroker.errors import Error, KafkaError
from minibroker.groups import OFFSETS_TOPIC
from minibroker.metadata.features import GROUP_VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from minibroker.groups.coordinator import Coordinator
    from minibroker.groups.offsets_partition import OffsetsPartition
    from minibroker.parts import Parts
    from minibroker.replication.replica import Replica


class Groups:
    """One for the life of a broker."""

    def __init__(self, parts: Parts, replicas: Mapping[tuple[str, int], Replica]):
        self.parts = parts
        self._replicas = replicas
        protocols = parts.config["group.coordinator.rebalance.protocols"]
        self._knows_consumer_protocol = "consumer" in protocols and parts.emulated.knows_consumer_protocol
        self._coordinator: Coordinator | None = None
        self._has_stopped = False

    @property
    def serves_consumer_protocol(self) -> bool:
        """Whether settings and feature level allow it; if not a client is told what an older broker would say."""
        return self._knows_consumer_protocol and (
            self._has_consumer_groups
            or self.parts.emulated.is_before_4
            or self.parts.metadata.may_have_feature(GROUP_VERSION, 1)
        )

    @property
    def _has_consumer_groups(self) -> bool:
        """Whether the feature level is one at which there can be records of such groups."""
        return self.parts.image.features.get(GROUP_VERSION, 0) >= 1

    def allow_consumer_group(self) -> None:
        """Raise the feature level that the records of such a group need; before 4.0 there was none for them."""
        if not self._has_consumer_groups and not self.parts.emulated.is_before_4:
            self.parts.metadata.need_feature(GROUP_VERSION, 1)

    @property
    def coordinator(self) -> Coordinator:
        """What this broker knows of groups; made when the first of them is asked for, or there is something to read."""
        if self._has_stopped:
            raise KafkaError(Error.NOT_COORDINATOR, "this broker is stopping")
        if self._coordinator is None:
            from minibroker.groups.coordinator import Coordinator

            self._coordinator = Coordinator(self.parts, self._replicas)
        return self._coordinator

    def start(self) -> None:
        """Read what groups there are, as soon as there is a topic that they are kept in."""
        self.parts.watchers[self._look] = None
        self._look()

    def stop(self) -> None:
        """Coordinate nothing from here on, whoever asks: another life of this broker may have the directory soon."""
        self._has_stopped = True
        self.parts.watchers.pop(self._look, None)
        if self._coordinator is not None:
            self._coordinator.stop()
            self._coordinator = None

    def follow_clock(self) -> None:
        """Do once for a request of many groups what is otherwise done for each."""
        if self._coordinator is not None:
            self._coordinator.follow_clock()

    def led(self) -> Iterable[OffsetsPartition]:
        """Return the partitions of groups that this broker leads."""
        return () if self._coordinator is None else self._coordinator.led.values()

    def _look(self) -> None:
        if self._coordinator is None and OFFSETS_TOPIC in self.parts.image.topics:
            self.coordinator.follow()
