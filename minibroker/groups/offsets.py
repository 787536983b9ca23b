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
from typing import Any, Final, TypeVar

from minibroker.errors import Error
from minibroker.groups.records import CoordinatorRecord
from minibroker.stored.group_offsets import OffsetCommitKey, OffsetCommitValue

Place = tuple[str, int]  # topic and partition
Mark = tuple[str, Place, "Stored"]  # what `append` returns, for `commit`

Kept = TypeVar("Kept")

NO_EXPIRY: Final = -1
NOTHING: Final[Mapping[Place, Any]] = {}


class Stored:
    """What one record says of one offset."""

    __slots__ = ("order", "value")

    def __init__(self, value: OffsetCommitValue | None, order: int):
        self.value = value  # None: it is deleted
        self.order = order  # rises with each record: the later one counts, whatever transaction ends first


class OpenOffsets:
    """Where a transaction would commit offsets, until its marker says so; then until all of them count."""

    __slots__ = ("groups", "is_settled", "places", "producer_id", "settled")

    def __init__(self, producer_id: int):
        self.producer_id = producer_id
        self.groups: dict[str, None] = {}
        self.places: dict[tuple[str, Place], None] = {}
        self.is_settled = False
        self.settled: Callable[[Error], object] | None = None  # told then, or why never


class Offsets:
    """The offsets of all groups of one partition of __consumer_offsets."""

    def __init__(self) -> None:
        self.committed: dict[str, dict[Place, Stored]] = {}
        self._appended: dict[str, dict[Place, Stored]] = {}  # the last record of a place, while it is not committed
        self._pending: dict[str, dict[Place, dict[OpenOffsets, Stored]]] = {}  # of transactions that are not settled
        self._open: dict[int, OpenOffsets] = {}  # by producer id, until there is a marker
        self._ending: dict[OpenOffsets, None] = {}  # commit, and are not settled
        self._count = 0

    # As the log tells

    def append(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer_id: int = -1) -> Mark | None:
        """Take a record that is in the log, or about to be; producer_id: of the transaction that it belongs to.

        Return what `commit` is to be given when it is committed; None: nothing.
        """
        group, place = key.group, (key.topic, key.partition)
        self._count += 1
        stored = Stored(value, self._count)
        if value is None:
            self._forget_pending(group, place, self._count, are_open=True)  # or their end would bring it back
        elif producer_id >= 0:
            opened = self._open.get(producer_id)
            if opened is None:
                opened = self._open[producer_id] = OpenOffsets(producer_id)
            self._pending.setdefault(group, {}).setdefault(place, {})[opened] = stored
            opened.places[group, place] = opened.groups[group] = None
            return None
        self._appended.setdefault(group, {})[place] = stored
        return group, place, stored

    def store(self, key: OffsetCommitKey, value: OffsetCommitValue) -> Mark:
        """Take a record that counts with that: nothing is in the log that does not. Return what has come to count."""
        self._count += 1
        group, place, stored = key.group, (key.topic, key.partition), Stored(value, self._count)
        self.committed.setdefault(group, {})[place] = stored
        return group, place, stored

    def _forget_pending(self, group: str, place: Place, order: int, *, are_open: bool) -> None:
        """Let transactions not commit what was written before a record that deletes it.

        Those that have ended have come before that record: they count until it is committed.
        """
        by_transaction: dict[OpenOffsets, Stored] = self._pending.get(group, NOTHING).get(place, {})
        for opened, stored in list(by_transaction.items()):
            is_open = self._open.get(opened.producer_id) is opened
            if stored.order < order and is_open is are_open:
                self._take_pending(opened, group, place)
                del opened.places[group, place]
                if is_open and not opened.places:
                    del self._open[opened.producer_id]

    def _take_pending(self, opened: OpenOffsets, group: str, place: Place) -> Stored | None:
        by_transaction: dict[OpenOffsets, Stored] = self._pending.get(group, NOTHING).get(place, {})
        stored = by_transaction.pop(opened, None)
        if stored is not None and not by_transaction:
            _pop(self._pending, group, place)
        return stored

    def end_transaction(self, producer_id: int, *, commit: bool) -> OpenOffsets | None:
        """Let a transaction have no more offsets: its marker is in the log, or about to be.

        Return what `settle` is to be given when the marker is committed; until then nothing counts, or is forgotten.
        """
        ended = self._open.pop(producer_id, None)
        if ended is not None and commit:
            self._ending[ended] = None
        return ended

    def settle(self, ended: OpenOffsets) -> Iterator[Mark | None]:
        """Let the offsets of a transaction count, or forget them, one with each step: others may come in between.

        Yield those that count: not what has been deleted meanwhile, or committed by a record behind them.
        """
        is_commit = ended in self._ending
        for group, place in list(ended.places):
            stored = self._take_pending(ended, group, place)
            known = self.committed.get(group, NOTHING).get(place)
            if is_commit and stored is not None and (known is None or known.order < stored.order):
                self.committed.setdefault(group, {})[place] = stored
                yield group, place, stored
            else:
                yield None
        self._ending.pop(ended, None)
        ended.is_settled = True

    def commit(self, mark: Mark) -> None:
        """Let a record count for whoever asks."""
        group, place, stored = mark
        if stored.value is not None:
            self.committed.setdefault(group, {})[place] = stored
        else:
            _pop(self.committed, group, place)
            self._forget_pending(group, place, stored.order, are_open=False)
        if self._appended.get(group, NOTHING).get(place) is stored:
            _pop(self._appended, group, place)

    def take_back(self, others: Iterable[Mark]) -> None:
        """Forget the records that are not committed but for these: the rest could not be written."""
        self._appended.clear()
        for group, place, stored in others:
            self._appended.setdefault(group, {})[place] = stored

    # Committed: what is asked

    def find(self, group: str, topic: str, partition: int) -> OffsetCommitValue | None:
        found = self.committed.get(group, NOTHING).get((topic, partition))
        return None if found is None else found.value

    def places(self, group: str) -> list[Place]:
        """Return the partitions that a group has offsets of, by topic in the order of their first commit."""
        return list(self.committed.get(group, ()))

    def is_unstable(self, group: str, topic: str, partition: int) -> bool:
        """Whether a transaction is about to commit another offset, or its end is not settled yet."""
        return (topic, partition) in self._pending.get(group, NOTHING)

    def ending(self, group: str) -> list[OpenOffsets]:
        """Return the transactions that have committed offsets of a group which do not count yet."""
        return [ended for ended in self._ending if group in ended.groups]

    # Appended: what is decided by

    def latest(self, group: str) -> Mapping[Place, Stored]:
        """Return the offsets of a group as all that has been written leaves them."""
        committed, appended = self.committed.get(group, NOTHING), self._appended.get(group)
        if appended is None:
            return committed
        found = {**committed, **appended}
        return {place: stored for place, stored in found.items() if stored.value is not None}

    def groups(self) -> Iterable[str]:
        """Return the groups that may have offsets, or would have if a transaction ended."""
        return dict.fromkeys([*self.committed, *self._appended, *self._pending])

    def has_any(self, group: str) -> bool:
        """Whether a group has offsets, or would have if a transaction ended."""
        return bool(self.latest(group)) or self.has_pending(group)

    @property
    def has_any_pending(self) -> bool:
        return bool(self._pending)

    def has_pending(self, group: str, place: Place | None = None) -> bool:
        """Whether a transaction would commit offsets of a group. place: of this partition."""
        places = self._pending.get(group, NOTHING)
        return bool(places) if place is None else place in places

    def is_known(self, group: str, place: Place) -> bool:
        """Whether there is something to delete of a partition."""
        return place in self.latest(group) or self.has_pending(group, place)

    # What makes records

    def tombstones(
        self, group: str, of: Callable[[str, OffsetCommitValue], bool] | None = None
    ) -> list[CoordinatorRecord]:
        """Return the records that delete offsets of a group, those of open transactions too.

        of: whether an offset of a topic is meant; by default all are.
        """
        found: dict[Place, list[Stored]] = {place: [stored] for place, stored in self.latest(group).items()}
        for place, by_producer in self._pending.get(group, NOTHING).items():
            found.setdefault(place, []).extend(by_producer.values())
        return [
            tombstone(group, *place)
            for place, offsets in found.items()
            if of is None or any(stored.value is not None and of(place[0], stored.value) for stored in offsets)
        ]

    def expired(
        self, group: str, now_ms: int, retention_ms: int, base_ms: Callable[[str, OffsetCommitValue], int | None]
    ) -> Iterator[Place]:
        """Yield what has expired; base_ms: since when nobody needs an offset of a topic, None: somebody does."""
        for place, stored in self.latest(group).items():
            assert stored.value is not None
            base = base_ms(place[0], stored.value)
            if base is None or self.has_pending(group, place):
                continue
            expiry_ms = stored.value.expire_timestamp
            if now_ms >= (base + retention_ms if expiry_ms == NO_EXPIRY else expiry_ms):
                yield place


def _pop(offsets: dict[str, dict[Place, Kept]], group: str, place: Place) -> Kept | None:
    places = offsets.get(group)
    if places is None:
        return None
    found = places.pop(place, None)
    if not places:
        del offsets[group]
    return found


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
