"""The masters of all instances, in the controller of a cluster or in a broker on its own."""

from __future__ import annotations

from minibroker.instances.master import FlowMaster
from minibroker.instances.reports import Report, Share

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from minibroker.events import EventStream
    from minibroker.instances.settings import Instances
    from minibroker.metadata.image import MetadataImage


class Masters:
    """One master for each instance of which anything is promised or limited."""

    def __init__(
        self,
        instances: Instances,
        image: Callable[[], MetadataImage],
        epoch: int,
        events: EventStream,
        say: Callable[[str], object],
        *,
        began_ms: int,
        is_first: bool,
    ):
        """epoch: rises with each new controller. is_first: none was before that a broker may have heard of."""
        self.instances = instances
        self._image = image
        self._events = events
        self._say = say
        self._counted_offset = image().offset
        self._masters = {
            each.name: FlowMaster(
                epoch,
                each.promised,
                instances.partitions(each, image()),
                each.lease_ms,
                began_ms - each.lease_ms if is_first else began_ms,
                rule=each.rule,
                capacity_bytes=each.capacity_bytes,
            )
            for each in instances
            if each.is_measured
        }

    def take(self, name: str, report: Report, now_ms: int) -> Share | None:
        """Return the answer to a broker's report of an instance; None if there is none."""
        self._count_partitions()
        master = self._masters.get(name)
        if master is None:
            return None
        rounds, was_full = list(master.rounds), master.is_full
        share = master.take(report, now_ms)
        if master.is_full is not was_full and (master.is_full or was_full):
            self._say_full(name, master)
        if self._events.observed:
            self._tell(name, master, rounds, was_full)
        return share

    def _count_partitions(self) -> None:
        image = self._image()
        if image.offset != self._counted_offset:
            self._counted_offset = image.offset
            for instance in self.instances:
                if (master := self._masters.get(instance.name)) is not None:
                    counts = self.instances.partitions(instance, image)
                    if counts != master.partitions:
                        master.set_partitions(counts)

    def _say_full(self, name: str, master: FlowMaster) -> None:
        instance = next(each for each in self.instances if each.name == name)
        what = "refused" if instance.refuses else "held back"
        state = f"is full: records for it are {what}" if master.is_full else "takes records again"
        self._say(f"instance {name} {state}, for {_why(master)}")

    def _tell(self, name: str, master: FlowMaster, rounds: list[Any], was_full: bool | None) -> None:
        from minibroker.event_kinds import InstanceFull, InstanceShares

        for direction, before, after in zip(("produced", "fetched"), rounds, master.rounds, strict=True):
            if after is not before and after != before:
                self._events.emit(
                    InstanceShares(
                        instance=name,
                        direction=direction,
                        step=after.step,
                        brokers=tuple(sorted(after.shares)),
                        shares=tuple(round(after.shares[broker]) for broker in sorted(after.shares)),
                    )
                )
        if master.is_full is not was_full and (master.is_full or was_full):
            self._events.emit(InstanceFull(instance=name, is_full=bool(master.is_full), why=_why(master)))

    def rows(self) -> list[dict[str, Any]]:
        """Return what there is to see: a row for each instance and broker that has partitions of it or reports."""
        self._count_partitions()
        return [
            {"instance": instance.name, "full_policy": "refuse" if instance.refuses else "hold", **row}
            for instance in self.instances
            if (master := self._masters.get(instance.name)) is not None
            for row in master.rows()
        ]


def _why(master: FlowMaster) -> str:
    return "there is room again" if not master.is_full else f"it has {master.capacity_bytes} bytes or more"
