"""Whether this broker coordinates groups: not before there are any, so that who needs none pays nothing for them."""

from __future__ import annotations

from minibroker.errors import Error, KafkaError
from minibroker.groups.names import OFFSETS_TOPIC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from minibroker.broker.coordinator import Coordinator
    from minibroker.broker.led_partition import LedPartition
    from minibroker.broker.node import Node


class Groups:
    """One for the life of a broker."""

    def __init__(self, node: Node):
        self.node = node
        # Since 4.0; and where it is switched off a client is told what a broker that does not know it would say.
        protocols = node.config["group.coordinator.rebalance.protocols"]
        self.serves_consumer_protocol = "consumer" in protocols and not node.appearance.is_before_4
        self._coordinator: Coordinator | None = None
        self._has_stopped = False

    @property
    def coordinator(self) -> Coordinator:
        """What this broker knows of groups; made when the first of them is asked for, or there is something to read."""
        if self._has_stopped:
            raise KafkaError(Error.NOT_COORDINATOR, "this broker is stopping")
        if self._coordinator is None:
            from minibroker.broker.coordinator import Coordinator

            self._coordinator = Coordinator(self.node)
        return self._coordinator

    def start(self) -> None:
        """Read what groups there are, as soon as there is a topic that they are kept in."""
        self.node.watchers[self._look] = None
        self._look()

    def stop(self) -> None:
        """Coordinate nothing from here on, whoever asks: another life of this broker may have the directory soon."""
        self._has_stopped = True
        self.node.watchers.pop(self._look, None)
        if self._coordinator is not None:
            self._coordinator.stop()
            self._coordinator = None

    def led(self) -> Iterable[LedPartition]:
        """Return the partitions of groups that this broker leads."""
        return () if self._coordinator is None else self._coordinator.led.values()

    def _look(self) -> None:
        if self._coordinator is None and OFFSETS_TOPIC in self.node.image.topics:
            self.coordinator.follow()
