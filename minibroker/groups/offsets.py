"""Committed offsets: up to where a group has read each partition, so the next record that it wants.

    committed     what a group finds when it asks: what every replica in sync has
    pending       what an open transaction would commit; it counts when the transaction's marker says so

What must hold: an offset is a register: whoever asks gets what was committed last, also after the coordinator has
moved. Offsets of a group that is in use do not expire.
"""

from __future__ import annotations

from minibroker.stored.group_offsets import OffsetCommitKey, OffsetCommitValue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from minibroker.groups.records import Row

    Place = tuple[str, int]  # topic and partition

NO_EXPIRY = -1


class Committed:
    """One committed offset."""

    __slots__ = ("at", "value")

    def __init__(self, value: OffsetCommitValue, at: int):
        self.value = value
        self.at = at  # offset of its record: the later one counts, whatever transaction ends first


class Offsets:
    """The offsets of all groups of one partition of __consumer_offsets."""

    def __init__(self) -> None:
        self.committed: dict[str, dict[Place, Committed]] = {}
        self._pending: dict[int, dict[str, dict[Place, Committed]]] = {}  # by producer id

    # As the log tells

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None, at: int, producer_id: int = -1) -> None:
        """Take a row; producer_id: of the transaction that it belongs to."""
        place = (key.topic, key.partition)
        if value is None:
            self._remove(key.group, place)
        elif producer_id >= 0:
            self._pending.setdefault(producer_id, {}).setdefault(key.group, {})[place] = Committed(value, at)
        else:
            self.committed.setdefault(key.group, {})[place] = Committed(value, at)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Let the offsets of a transaction count, or forget them."""
        for group, places in self._pending.pop(producer_id, {}).items():
            for place, found in places.items() if commit else ():
                known = self.committed.setdefault(group, {})
                if place not in known or known[place].at < found.at:
                    known[place] = found

    def _remove(self, group: str, place: Place) -> None:
        places = self.committed.get(group)
        if places is not None:
            places.pop(place, None)
            if not places:
                del self.committed[group]

    # What is asked

    def find(self, group: str, topic: str, partition: int) -> OffsetCommitValue | None:
        found = self.committed.get(group, {}).get((topic, partition))
        return None if found is None else found.value

    def places(self, group: str) -> list[Place]:
        """Return the partitions that a group has offsets of, by topic in the order of their first commit."""
        return list(self.committed.get(group, {}))

    def is_unstable(self, group: str, topic: str, partition: int) -> bool:
        """Whether an open transaction is about to commit another offset."""
        return any((topic, partition) in groups.get(group, {}) for groups in self._pending.values())

    def has_pending(self, group: str) -> bool:
        return any(group in groups for groups in self._pending.values())

    # What makes rows

    def tombstones(self, group: str) -> list[Row]:
        """Return the rows that delete all offsets of a group, those of open transactions too."""
        places = dict.fromkeys(self.committed.get(group, {}))
        for groups in self._pending.values():
            places |= dict.fromkeys(groups.get(group, {}))
        return [tombstone(group, *place) for place in places]

    def expired(
        self, group: str, now_ms: int, retention_ms: int, base_ms: Callable[[str, OffsetCommitValue], int | None]
    ) -> Iterator[Place]:
        """Yield what has expired; base_ms: since when nobody needs an offset of a topic, None: somebody does."""
        for (topic, partition), found in self.committed.get(group, {}).items():
            base = base_ms(topic, found.value)
            if base is None or self.is_unstable(group, topic, partition):
                continue
            expiry_ms = found.value.expire_timestamp
            if now_ms >= (base + retention_ms if expiry_ms == NO_EXPIRY else expiry_ms):
                yield topic, partition


def commit_row(
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
) -> Row:
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_timestamp,
        expire_timestamp=expire_timestamp,
        topic_id=topic_id,
    )
    return OffsetCommitKey(group=group, topic=topic, partition=partition), value


def tombstone(group: str, topic: str, partition: int) -> Row:
    return OffsetCommitKey(group=group, topic=topic, partition=partition), None
