"""One partition of __consumer_offsets: the groups whose ids fall on it, and their offsets.

    apply     what the log says, row by row, while it is loaded and while others write
    groups    those of both protocols by their ids

What must hold: what `apply` makes
of the rows of a log is what the coordinator had that wrote them, up to who is about to join.
Pure. Not here: reading and writing the log, timers (broker/coordinator.py), requests (the handlers).
"""

from __future__ import annotations

from minibroker.errors import Error, KafkaError
from minibroker.groups.classic import ClassicGroup
from minibroker.groups.classic_states import DEAD
from minibroker.groups.consumer import ConsumerGroup
from minibroker.groups.offsets import Offsets, tombstone
from minibroker.stored.consumer_groups import ConsumerGroupMetadataKey
from minibroker.stored.group_offsets import GroupMetadataKey, OffsetCommitKey

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from minibroker.config import BrokerConfig
    from minibroker.config.group import GroupConfig
    from minibroker.groups.classic import Clock, Done, Write
    from minibroker.groups.records import Row
    from minibroker.stored.group_offsets import GroupMetadataValue
    from minibroker.stored.kinds import CoordinatorKey, CoordinatorValue

    SettingsOf = Callable[[str], GroupConfig]
    Group = ClassicGroup | ConsumerGroup
    WriteOf = Callable[[str, list[Row], Done], None]  # for which group
    ToldOf = Callable[[str, str, str, str], None]  # group, state before and now, why


class Shard:
    """The groups of one partition."""

    def __init__(self, config: BrokerConfig, settings_of: SettingsOf, write: WriteOf, clock: Clock, told: ToldOf):
        """settings_of: the settings of one group, which may differ from the broker's."""
        self.config = config
        self.settings_of = settings_of
        self.write = write
        self.clock = clock
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self._told = told
        self._classic_rows: dict[str, GroupMetadataValue] = {}  # until all has been read

    # As the log tells

    def apply(self, key: CoordinatorKey, value: CoordinatorValue | None, at: int, producer_id: int = -1) -> None:
        """Take one row; at: its offset. The last row of a classic group is all there is to know of it."""
        if isinstance(key, OffsetCommitKey):
            self.offsets.apply(key, value, at, producer_id)  # type: ignore[arg-type]
        elif isinstance(key, GroupMetadataKey):
            self._classic_rows.pop(key.group, None)
            if value is not None:
                self._classic_rows[key.group] = value  # type: ignore[assignment]
        else:
            group_id: str = key.group_id  # type: ignore[attr-defined]  # all others have it
            group = self.groups.get(group_id)
            if not isinstance(group, ConsumerGroup):
                if value is None:
                    return
                group = self.groups[group_id] = ConsumerGroup(group_id)
            group.apply(key, value)
            if value is None and isinstance(key, ConsumerGroupMetadataKey):
                del self.groups[group_id]

    def loaded(self, now_ms: int) -> None:
        """Begin to coordinate: sessions run from now on."""
        for group_id, value in self._classic_rows.items():
            if group_id not in self.groups:
                restored = self.groups[group_id] = self.new_classic(group_id)
                restored.restore(value, now_ms)
        self._classic_rows.clear()
        self.make_groups_of_offsets()
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                group.loaded(now_ms, self.settings_of(group.group_id))

    def make_groups_of_offsets(self) -> None:
        """Have a group for all offsets: who only commits has no row of its own."""
        for group_id in self.offsets.committed:
            self.find_or_make(group_id)

    # Groups

    def find(self, group_id: str) -> Group | None:
        return self.groups.get(group_id)

    def classic(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def consumer(self, group_id: str) -> ConsumerGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def find_or_make(self, group_id: str) -> Group:
        """Return a group; a new one is classic, as long as nobody of the other protocol is in it."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = self.new_classic(group_id)
        return group

    def new_classic(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, self.config, self._writer(group_id), self.clock, self._teller(group_id))

    def _writer(self, group_id: str) -> Write:
        return lambda rows, done: self.write(group_id, rows, done)

    def _teller(self, group_id: str) -> Callable[[str, str, str], None]:
        return lambda before, after, why: self._told(group_id, before, after, why)

    def delete(self, group_id: str, now_ms: int) -> list[Row]:
        """Delete a group that nobody is in; return the rows that say so."""
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        group.check_delete()
        rows = self.offsets.tombstones(group_id) + group.tombstones()
        self._forget(group, now_ms)
        return rows

    def _forget(self, group: Group, now_ms: int) -> None:
        self.groups.pop(group.group_id, None)
        if not isinstance(group, ClassicGroup):
            self._told(group.group_id, group.state.name, DEAD.name, "it is gone")
        elif group.state is not DEAD:
            group.end(Error.NOT_COORDINATOR, now_ms)

    def end(self, now_ms: int) -> None:
        """Tell all who wait that another broker coordinates them now."""
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                group.end(Error.NOT_COORDINATOR, now_ms)
        self.groups.clear()

    # What has had its time

    def expire_offsets(self, now_ms: int, retention_ms: int) -> list[Row]:
        """Return the rows that delete offsets that nobody needs any more, and the groups that had no others."""
        rows: list[Row] = []
        for group in list(self.groups.values()):
            gone = list(self.offsets.expired(group.group_id, now_ms, retention_ms, group.expiry_base_ms))
            rows += [tombstone(group.group_id, *place) for place in gone]
            left = len(self.offsets.places(group.group_id)) - len(gone)
            if group.is_idle and not left and not self.offsets.has_pending(group.group_id):
                rows += group.tombstones()
                self._forget(group, now_ms)
        return rows

    def topics_deleted(self, topics: Iterable[str]) -> list[Row]:
        """Return the rows that delete the offsets of topics that are gone."""
        gone = frozenset(topics)
        return [
            tombstone(group_id, topic, partition)
            for group_id, places in self.offsets.committed.items()
            for topic, partition in places
            if topic in gone
        ]
