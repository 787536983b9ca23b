"""Service of a coordinator: it is made when the first request needs it, or there are records to read.

So a broker pays nothing for what nobody asks it to coordinate.
"""

from __future__ import annotations

from functools import cached_property
from typing import Generic, TypeVar

from minibroker.errors import Error, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from minibroker.coordinator.partitions import LedPartitions
    from minibroker.parts import Parts

C = TypeVar("C", bound="LedPartitions[Any]")


class CoordinatorService(Generic[C]):
    """One for the life of a broker."""

    def __init__(self, parts: Parts, topic: str):
        """topic: in which the coordinator keeps its state."""
        self.parts = parts
        self._topic = topic
        self._has_stopped = False

    @cached_property
    def coordinator(self) -> C:
        """What this broker coordinates; made when somebody asks for it, or there is something to read."""
        if self._has_stopped:
            raise KafkaError(Error.NOT_COORDINATOR, "this broker is stopping")
        return self.make()

    def make(self) -> C:
        """Return a coordinator; its modules are imported here."""
        raise NotImplementedError

    @property
    def made(self) -> C | None:
        """The coordinator, if there is one already."""
        return self.__dict__.get("coordinator")

    def start(self) -> None:
        """Read what there is, as soon as there is a topic that it is kept in."""
        self.parts.watchers[self._look] = None
        self._look()

    def stop(self) -> None:
        """Coordinate nothing from here on, whoever asks: another life of this broker may have the directory soon."""
        self._has_stopped = True
        self.parts.watchers.pop(self._look, None)
        coordinator: C | None = self.__dict__.pop("coordinator", None)
        if coordinator is not None:
            coordinator.stop()

    def _look(self) -> None:
        if self.made is None and self._topic in self.parts.image.topics:
            self.coordinator.follow()
