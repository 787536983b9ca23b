"""Shard of the group coordinator: the groups of one partition of __consumer_offsets, and their offsets.

    replay    what the log says, record by record, while it is loaded
    append    what is written from then on; commit: it has become safe
    groups    those of both protocols by their ids, as all that was written leaves them
    ending    those that were deleted, until the records that say so are committed

What must hold: what `replay` makes of the records of a log is what the coordinator had that wrote them, up to who is
about to join. Whoever decides and writes goes by what was appended, whoever answers by what is committed.
Pure. Not here: reading and writing the log, timers (groups/offsets_partition.py), requests (the handlers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from minibroker.config import BrokerConfig
from minibroker.config.resources import GroupConfig
from minibroker.errors import Error, KafkaError
from minibroker.groups.classic import ClassicGroup, Clock, Done, Write
from minibroker.groups.classic_states import DEAD
from minibroker.groups.consumer import ConsumerGroup
from minibroker.groups.offsets import Mark, Offsets, tombstone
from minibroker.groups.records import CoordinatorRecord
from minibroker.stored.consumer_groups import ConsumerGroupMetadataKey
from minibroker.stored.group_offsets import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from minibroker.stored.kinds import CoordinatorKey, CoordinatorValue

SettingsOf = Callable[[str], GroupConfig]
Group = ClassicGroup | ConsumerGroup
WriteOf = Callable[[str, list[CoordinatorRecord], Done], None]  # for which group
ToldOf = Callable[[str, str, str, str], None]  # group, state before and now, why
IsGone = Callable[[str, OffsetCommitValue], bool]  # whether the topic that an offset is of has been deleted


class Shard:
    """The groups of one partition."""

    def __init__(self, config: BrokerConfig, settings_of: SettingsOf, write: WriteOf, clock: Clock, told: ToldOf):
        """settings_of: the settings of one group, which may differ from the broker's."""
        self.config = config
        self.settings_of = settings_of
        self.write = write
        self.clock = clock
        self.groups: dict[str, Group] = {}
        self.ending: dict[str, Group] = {}
        self.offsets = Offsets()
        self._told = told
        # The last record of each classic group until it is made of it, None: it is deleted.
        self._classic_records: dict[str, GroupMetadataValue | None] = {}
        # Groups of which an offset was read, until they are made: it makes one, also if its transaction is aborted.
        self._of_offsets: dict[str, None] = {}

    # As the log tells

    def replay_offset(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer_id: int = -1
    ) -> Mark | None:
        """Take a record of an offset that is read; return what counts when it is committed."""
        if value is not None:
            self._of_offsets[key.group] = None
        return self.offsets.append(key, value, producer_id)

    def replay(self, key: CoordinatorKey, value: CoordinatorValue | None) -> None:
        """Take another committed record. The last record of a classic group is all there is to know of it."""
        if isinstance(key, GroupMetadataKey):
            self._classic_records[key.group] = value  # type: ignore[assignment]
            if value is None:
                self._of_offsets.pop(key.group, None)
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
                self._of_offsets.pop(group_id, None)

    def loaded_ids(self) -> list[str]:
        """Return the groups that have been read, for `load_group`."""
        return list(dict.fromkeys([*self._classic_records, *self.groups, *self._of_offsets]))

    def load_group(self, group_id: str, now_ms: int) -> None:
        """Make of the records of one group what they say, and begin its sessions.

        Also when the last of its records are committed after the others.
        """
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            self._classic_records.pop(group_id, None)
            self._of_offsets.pop(group_id, None)
            group.loaded(now_ms, self.settings_of(group_id))
            return
        if group_id in self._classic_records:
            value = self._classic_records.pop(group_id)
            self.groups.pop(group_id, None)
            if value is not None:
                self.groups[group_id] = group = self.new_classic(group_id)
                group.restore(value, now_ms)
        if group_id in self._of_offsets or self.offsets.has_any(group_id):
            self._of_offsets.pop(group_id, None)
            group = self.find_or_make(group_id)  # who only commits has no record of its own
        if isinstance(group, ClassicGroup):
            group.loaded(now_ms)

    def count_of(self, group_id: str) -> int:
        """Return how many members and offsets a group has."""
        group = self.groups.get(group_id)
        return (0 if group is None else len(group.member_ids)) + len(self.offsets.committed.get(group_id, ()))

    def make_groups_of_offsets(self) -> None:
        """Have a group for all offsets: records that would have deleted them with their groups could not be written."""
        for group_id in self.offsets.groups():
            if group_id not in self.groups and self.offsets.has_any(group_id):
                self.find_or_make(group_id)

    # What is written

    def append(self, records: Iterable[CoordinatorRecord], producer_id: int = -1) -> list[Mark]:
        """Take records that are about to be written; return those that count when they are committed, for `commit`.

        producer_id: of the transaction that they belong to. Groups are up to who writes; an offset makes one, if there
        is none.
        """
        marks = []
        for key, value in records:
            if isinstance(key, OffsetCommitKey):
                mark = self.offsets.append(key, value, producer_id)  # type: ignore[arg-type]
                if mark is not None:
                    marks.append(mark)
                if value is not None and key.group not in self.groups:
                    self.find_or_make(key.group)
        return marks

    def store(self, records: Iterable[CoordinatorRecord]) -> Iterator[Mark]:
        """Take offsets that count with that: do what `append` does, and commit them; yield what has come to count."""
        for key, value in records:
            yield self.offsets.store(key, value)  # type: ignore[arg-type]
            if key.group not in self.groups:  # type: ignore[attr-defined]
                self.find_or_make(key.group)  # type: ignore[attr-defined]

    # Groups

    def find(self, group_id: str) -> Group | None:
        return self.groups.get(group_id)

    def find_shown(self, group_id: str) -> Group | None:
        """Return the group that there is for whoever asks: one that was deleted is there until that is committed."""
        return self.groups.get(group_id) or self.ending.get(group_id)

    def shown(self) -> Iterator[Group]:
        """Yield the groups that there are for whoever asks."""
        yield from self.groups.values()
        for group_id, group in self.ending.items():
            if group_id not in self.groups:
                yield group

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
            self._told(group_id, "", group.state.name, "")
        return group

    def new_classic(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, self.config, self._writer(group_id), self.clock, self._teller(group_id))

    def _writer(self, group_id: str) -> Write:
        return lambda records, done: self.write(group_id, records, done)

    def _teller(self, group_id: str) -> Callable[[str, str, str], None]:
        return lambda before, after, why: self._told(group_id, before, after, why)

    # Groups that go

    def deletion(self, group_id: str) -> tuple[list[CoordinatorRecord], Group]:
        """Return the records that delete a group that nobody is in, and the group."""
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        group.check_delete()
        return self.offsets.tombstones(group_id) + group.tombstones(), group

    def begin_end(self, group: Group) -> None:
        """The records that delete a group are about to be written: who comes from now on finds none."""
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]
            self.ending[group.group_id] = group

    def keep(self, group: Group) -> None:
        """The records that delete a group could not be written."""
        if self.ending.get(group.group_id) is group:
            del self.ending[group.group_id]
            self.groups.setdefault(group.group_id, group)

    def end_group(self, group: Group, now_ms: int) -> None:
        """The records that delete a group are committed."""
        if self.ending.get(group.group_id) is group:
            del self.ending[group.group_id]
        if not isinstance(group, ClassicGroup):
            self._told(group.group_id, group.state.name, DEAD.name, "it is gone")
        elif group.state is not DEAD:
            group.end(Error.NOT_COORDINATOR, now_ms)

    def drop_unwritten(self, group_id: str, now_ms: int) -> None:
        """Forget a classic group that nobody is in and that no record speaks of.

        Kafka: keeps it until the next check of what has expired.
        """
        group = self.groups.get(group_id)
        if (
            isinstance(group, ClassicGroup)
            and group.is_idle
            and not group.has_record
            and not self.offsets.has_any(group_id)
        ):
            del self.groups[group_id]
            group.end(Error.NOT_COORDINATOR, now_ms)

    def end(self, now_ms: int) -> None:
        """Tell all who wait that another broker coordinates them now."""
        for group in (*self.groups.values(), *self.ending.values()):
            if isinstance(group, ClassicGroup) and group.state is not DEAD:
                group.end(Error.NOT_COORDINATOR, now_ms)
        self.groups.clear()
        self.ending.clear()

    # What has had its time

    def expired(
        self, group: Group, now_ms: int, retention_ms: int, is_gone: IsGone
    ) -> tuple[list[CoordinatorRecord], bool]:
        """Return the records that delete offsets of a group that nobody needs any more, and whether it has no others.

        Those of topics that are gone are among them: what was to be done when they went may not have been.
        """
        group_id = group.group_id
        gone = dict.fromkeys(self.offsets.expired(group_id, now_ms, retention_ms, group.expiry_base_ms))
        gone |= dict.fromkeys((key.topic, key.partition) for key, _ in self._gone(group_id, is_gone))
        records: list[CoordinatorRecord] = [tombstone(group_id, *place) for place in gone]
        has_others = self.offsets.has_pending(group_id) or self.offsets.latest(group_id).keys() - gone.keys()
        is_over = group.is_idle and not has_others
        if is_over:
            records += group.tombstones()
        return records, is_over

    def topics_deleted(self, group_id: str, is_gone: IsGone) -> list[CoordinatorRecord]:
        """Return the records that delete the offsets of a group of topics that are gone."""
        return self._gone(group_id, is_gone)  # type: ignore[return-value]

    def _gone(self, group_id: str, is_gone: IsGone) -> list[tuple[OffsetCommitKey, None]]:
        return self.offsets.tombstones(group_id, is_gone)  # type: ignore[return-value]
