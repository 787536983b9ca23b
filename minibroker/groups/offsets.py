"""Committed offsets: up to where a group has read each partition, so the next record that it wants.

    append       a record has been written: from now on whoever decides and writes goes by it
    commit       every replica in sync has it: from now on whoever asks is told
    pending      what an open transaction would commit; it counts when the transaction's marker says so

What must hold: an offset is a register: whoever asks gets what was committed last, also after the coordinator has
moved. What is deleted is deleted by a record behind the last one of its partition, so a commit that is under way is
never overlooked. Offsets of a group that is in use do not expire.
Records that are written and not committed lie over the others (`_appended`): they are few, and without followers none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from minibroker.groups.records import CoordinatorRecord
from minibroker.stored.group_offsets import OffsetCommitKey, OffsetCommitValue

Place = tuple[str, int]  # topic and partition
Mark = tuple[str, Place, "Stored"]  # what `append` returns, for `commit`

NO_EXPIRY = -1
NOTHING: Mapping[Place, Stored] = {}


class Stored:
    """What one record says of one offset."""

    __slots__ = ("order", "value")

    def __init__(self, value: OffsetCommitValue | None, order: int):
        self.value = value  # None: it is deleted
        self.order = order  # rises with each record: the later one counts, whatever transaction ends first


class Offsets:
    """The offsets of all groups of one partition of __consumer_offsets."""

    def __init__(self) -> None:
        self.committed: dict[str, dict[Place, Stored]] = {}
        self._appended: dict[str, dict[Place, Stored]] = {}  # the last record of a place, while it is not committed
        self._pending: dict[int, dict[str, dict[Place, Stored]]] = {}  # by producer id
        self._ending: dict[tuple[str, Place], Stored] = {}  # of transactions whose marker is not committed
        self._count = 0

    # As the log tells

    def append(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer_id: int = -1) -> Mark | None:
        """Take a record that is in the log, or about to be; producer_id: of the transaction that it belongs to.

        Return what `commit` is to be given when it is committed; None: nothing.
        """
        self._count += 1
        place, stored = (key.topic, key.partition), Stored(value, self._count)
        if value is None:
            for groups in self._pending.values():  # or the end of a transaction would bring it back
                groups.get(key.group, {}).pop(place, None)
        elif producer_id >= 0:
            self._pending.setdefault(producer_id, {}).setdefault(key.group, {})[place] = stored
            return None
        self._appended.setdefault(key.group, {})[place] = stored
        return key.group, place, stored

    def commit(self, mark: Mark) -> None:
        """Let a record count for whoever asks."""
        group, place, stored = mark
        if stored.value is not None:
            self.committed.setdefault(group, {})[place] = stored
        else:
            _remove(self.committed, group, place)
        appended = self._appended.get(group)
        if appended is not None and appended.get(place) is stored:
            _remove(self._appended, group, place)
        if self._ending and self._ending.get((group, place)) is stored:
            del self._ending[group, place]

    def take_back(self, others: Iterable[Mark]) -> None:
        """Forget the records that are not committed but for these: the rest could not be written."""
        self._appended.clear()
        for group, place, stored in others:
            self._appended.setdefault(group, {})[place] = stored

    def end_transaction(self, producer_id: int, *, commit: bool) -> list[Mark]:
        """Let the offsets of a transaction count, or forget them: its marker is in the log.

        Return what `commit` is to be given when the marker is committed.
        """
        marks: list[Mark] = []
        for group, places in self._pending.pop(producer_id, {}).items():
            for place, stored in places.items() if commit else ():
                known = self.latest(group).get(place)
                if known is None or known.order < stored.order:
                    self._appended.setdefault(group, {})[place] = self._ending[group, place] = stored
                    marks.append((group, place, stored))
        return marks

    # Committed: what is asked

    def find(self, group: str, topic: str, partition: int) -> OffsetCommitValue | None:
        found = self.committed.get(group, NOTHING).get((topic, partition))
        return None if found is None else found.value

    def places(self, group: str) -> list[Place]:
        """Return the partitions that a group has offsets of, by topic in the order of their first commit."""
        return list(self.committed.get(group, ()))

    def is_unstable(self, group: str, topic: str, partition: int) -> bool:
        """Whether a transaction is about to commit another offset, or its end is not committed yet."""
        place = (topic, partition)
        return (group, place) in self._ending or self._is_pending(group, place)

    # Appended: what is decided by

    def latest(self, group: str) -> Mapping[Place, Stored]:
        """Return the offsets of a group as all that has been written leaves them."""
        committed, appended = self.committed.get(group, NOTHING), self._appended.get(group)
        if appended is None:
            return committed
        found = {**committed, **appended}
        return {place: stored for place, stored in found.items() if stored.value is not None}

    def groups(self) -> Iterable[str]:
        """Return the groups that may have offsets."""
        return dict.fromkeys([*self.committed, *self._appended]) if self._appended else list(self.committed)

    def has_any(self, group: str) -> bool:
        """Whether a group has offsets, or would have if a transaction ended."""
        return bool(self.latest(group)) or self.has_pending(group)

    def has_pending(self, group: str) -> bool:
        return any(groups.get(group) for groups in self._pending.values())

    def _is_pending(self, group: str, place: Place) -> bool:
        return any(place in groups.get(group, NOTHING) for groups in self._pending.values())

    def is_known(self, group: str, place: Place) -> bool:
        """Whether there is something to delete of a partition."""
        return place in self.latest(group) or self._is_pending(group, place)

    # What makes records

    def tombstones(
        self, group: str, of: Callable[[str, OffsetCommitValue], bool] | None = None
    ) -> list[CoordinatorRecord]:
        """Return the records that delete offsets of a group, those of open transactions too.

        of: whether an offset of a topic is meant; by default all are.
        """
        found = dict(self.latest(group))
        for groups in self._pending.values():
            found |= groups.get(group, {})
        return [
            tombstone(group, *place)
            for place, stored in found.items()
            if of is None or (stored.value is not None and of(place[0], stored.value))
        ]

    def expired(
        self, group: str, now_ms: int, retention_ms: int, base_ms: Callable[[str, OffsetCommitValue], int | None]
    ) -> Iterator[Place]:
        """Yield what has expired; base_ms: since when nobody needs an offset of a topic, None: somebody does."""
        for place, stored in self.latest(group).items():
            assert stored.value is not None
            base = base_ms(place[0], stored.value)
            if base is None or self._is_pending(group, place):
                continue
            expiry_ms = stored.value.expire_timestamp
            if now_ms >= (base + retention_ms if expiry_ms == NO_EXPIRY else expiry_ms):
                yield place


def _remove(offsets: dict[str, dict[Place, Stored]], group: str, place: Place) -> None:
    places = offsets.get(group)
    if places is not None:
        places.pop(place, None)
        if not places:
            del offsets[group]


def commit_record(
    group: str,
    topic: str,
    partition: int,
    offset: int,
    *,
    leader_epoch: int,
    metadata: str,
    commit_timestamp: int,
    expire_timestamp: int = NO_EXPIRY,
    topic_id: bytes,
) -> CoordinatorRecord:
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_timestamp,
        expire_timestamp=expire_timestamp,
        topic_id=topic_id,
    )
    return OffsetCommitKey(group=group, topic=topic, partition=partition), value


def tombstone(group: str, topic: str, partition: int) -> CoordinatorRecord:
    return OffsetCommitKey(group=group, topic=topic, partition=partition), None
