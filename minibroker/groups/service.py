"""Group service of a broker: what of groups there is before the first of them, and the coordinator from then on."""

from __future__ import annotations

from minibroker.coordinator.service import CoordinatorService
from minibroker.groups import OFFSETS_TOPIC
from minibroker.metadata.features import GROUP_VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from minibroker.groups.coordinator import Coordinator
    from minibroker.groups.offsets_partition import OffsetsPartition
    from minibroker.parts import Parts
    from minibroker.replication.replica import Replica


class Groups(CoordinatorService["Coordinator"]):
    """One for the life of a broker."""

    def __init__(self, parts: Parts, replicas: Mapping[tuple[str, int], Replica]):
        super().__init__(parts, OFFSETS_TOPIC)
        self._replicas = replicas
        protocols = parts.config["group.coordinator.rebalance.protocols"]
        self._knows_consumer_protocol = "consumer" in protocols and parts.emulated.knows_consumer_protocol

    def make(self) -> Coordinator:
        """Return the group coordinator."""
        from minibroker.groups.coordinator import Coordinator

        return Coordinator(self.parts, self._replicas)

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

    def follow_clock(self) -> None:
        """Do once for a request of many groups what is otherwise done for each."""
        if self.made is not None:
            self.made.follow_clock()

    def led(self) -> Iterable[OffsetsPartition]:
        """Return the partitions of groups that this broker leads."""
        return () if self.made is None else self.made.led.values()
