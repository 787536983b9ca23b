"""Server-side assignors `uniform` and `range`: who shall read which partition.

range      for each topic the members in order of their ids take a run of its partitions: equal counts of partitions
           give a member the same numbers in all topics, so joins find their other half. Not sticky.
uniform    all partitions of all topics are shared out evenly, and who holds one keeps it as far as that allows.
           Homogeneous: all members want the same topics, so everybody has a quota. Heterogeneous: topics are shared
           out one by one, those with most partitions per subscriber first, then topic by topic evened out again.

What must hold: each partition of a topic that somebody wants goes to exactly one member that wants it.
The order in which members and topics come decides who gets what: callers give them in Kafka's (target.py), and what is
a set in Kafka is gone through in the order of its hash table (coordinator/hashing.py).
Not here: when an assignment is due and what becomes of it (target.py, consumer_change.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from minibroker.coordinator.hashing import as_copied, as_filled
from minibroker.groups.topics import utf16


class Subscriber(NamedTuple):
    """What an assignor knows of a member."""

    instance_id: str | None
    topic_ids: Sequence[bytes]  # of the topics it wants and that exist
    held: Mapping[bytes, Sequence[int]]  # what it was to have so far


Shares = dict[str, dict[bytes, list[int]]]  # by member and topic, in the order in which they were given
Counts = Mapping[bytes, int]  # partitions of each topic
IsHeld = Callable[[bytes, int], bool]  # whether the assignment so far gives the partition to somebody
Assignor = Callable[[Mapping[str, Subscriber], Counts, IsHeld, bool], Shares]

NOBODY = -1
ROUNDS_MAX = 16  # of evening out


def assign_range(members: Mapping[str, Subscriber], counts: Counts, is_held: IsHeld, is_homogeneous: bool) -> Shares:
    """Give each member a run of each topic's partitions."""

    def order(member_id: str) -> tuple[bool, bytes]:
        instance_id = members[member_id].instance_id
        return instance_id is None, utf16(member_id if instance_id is None else instance_id)

    ordered = sorted(members, key=order)
    if is_homogeneous and ordered:
        wanted = dict.fromkeys(ordered, members[ordered[0]].topic_ids)
    else:
        wanted = {member_id: members[member_id].topic_ids for member_id in ordered}
    shares: Shares = {member_id: {} for member_id in ordered}
    subscribers: dict[bytes, list[str]] = {}
    for member_id in ordered:
        for topic_id in wanted[member_id]:
            subscribers.setdefault(topic_id, []).append(member_id)
    for topic_id, takers in subscribers.items():
        quota, extra = divmod(counts[topic_id], len(takers))
        start = 0
        for place, member_id in enumerate(takers):
            end = start + quota + (place < extra)
            if start < end:
                shares[member_id][topic_id] = list(range(start, end))
            start = end
    return shares


def assign_uniform(members: Mapping[str, Subscriber], counts: Counts, is_held: IsHeld, is_homogeneous: bool) -> Shares:
    """Share all partitions out evenly and move as few as possible."""
    if not members:
        return {}
    if is_homogeneous:
        return _by_quota(members, counts, is_held)
    return _Balance(members, counts).shares()


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}


def _by_quota(members: Mapping[str, Subscriber], counts: Counts, is_held: IsHeld) -> Shares:
    """Let everybody keep as much as the quota allows; what is over goes to those below it."""
    topic_ids = next(iter(members.values())).topic_ids
    if not topic_ids:
        return {}
    free = [(topic_id, p) for topic_id in topic_ids for p in range(counts[topic_id]) if not is_held(topic_id, p)]
    least, extras = divmod(sum(counts[topic_id] for topic_id in topic_ids), len(members))
    wanted = set(topic_ids)
    shares: Shares = {}
    below_quota = []
    for place, (member_id, subscription) in enumerate(members.items()):
        room = least + (extras > 0)
        has_extra = extras > 0
        kept: dict[bytes, list[int]] = {}
        for topic_id in as_filled(subscription.held):
            if topic_id not in wanted:
                continue
            partitions = as_copied(subscription.held[topic_id])
            kept_here, given_up = partitions[:room], partitions[room:]
            room -= len(kept_here)
            free += [(topic_id, partition) for partition in given_up]
            if kept_here:
                kept[topic_id] = kept_here
        if room and has_extra and len(members) - place > extras:
            # Enough members follow who may take the extra partitions: this one need not get a new one for it.
            room -= 1
            has_extra = False
        if room:
            below_quota.append((member_id, room))
        extras -= has_extra
        shares[member_id] = kept
    position = 0
    for member_id, room in below_quota:
        for topic_id, partition in free[position : position + room]:
            shares[member_id].setdefault(topic_id, []).append(partition)
        position += room
    assert position >= len(free), "partitions were left over"
    return shares


class _Balance:
    """Shares being worked out where members want different topics. Members are known by their place in the order."""

    def __init__(self, members: Mapping[str, Subscriber], counts: Counts):
        self.members = members
        self.counts = counts
        self.subscribers: dict[bytes, list[int]] = {}
        for place, subscription in enumerate(members.values()):
            for topic_id in subscription.topic_ids:
                self.subscribers.setdefault(topic_id, []).append(place)
        self.owners = {topic_id: [NOBODY] * counts[topic_id] for topic_id in self.subscribers}
        self.loads = [0] * len(members)  # partitions of each member

    def shares(self) -> Shares:
        if not self.owners:
            return {}
        self._keep()
        self._hand_out()
        self._even_out()
        shares: Shares = {member_id: {} for member_id in self.members}
        member_ids = list(self.members)
        for topic_id, owners in self.owners.items():
            for partition, place in enumerate(owners):
                shares[member_ids[place]].setdefault(topic_id, []).append(partition)
        return shares

    def _keep(self) -> None:
        for place, subscription in enumerate(self.members.values()):
            wanted = set(subscription.topic_ids)
            for topic_id, partitions in subscription.held.items():
                if topic_id in wanted:
                    self.loads[place] += len(partitions)
                    for partition in partitions:
                        self.owners[topic_id][partition] = place

    def _hand_out(self) -> None:
        for topic_id in self._ordered(self.owners):
            free = [partition for partition, place in enumerate(self.owners[topic_id]) if place == NOBODY]
            if free:
                queue = _Queue(self.subscribers[topic_id], self.loads)
                for partition in free:
                    self._give(topic_id, partition, queue.next_least())

    def _even_out(self) -> None:
        """Go through the topics round and round until a whole round has moved nothing."""
        ordered = self._ordered(topic_id for topic_id, places in self.subscribers.items() if len(places) > 1)
        last_moved = None
        for _ in range(ROUNDS_MAX):
            for place, topic_id in enumerate(ordered):
                if place == last_moved:
                    return
                if self._even_out_topic(topic_id) or last_moved is None:
                    last_moved = place

    def _even_out_topic(self, topic_id: bytes) -> bool:
        places = [self.loads[place] for place in self.subscribers[topic_id]]
        if max(places) - min(places) <= 1:
            return False
        queue = _Queue(self.subscribers[topic_id], self.loads)
        movable: dict[int, list[int]] = {}  # partitions of each member, taken from the end
        for partition, owner in enumerate(self.owners[topic_id]):
            movable.setdefault(owner, []).append(partition)
        has_moved = False
        while not queue.is_even():
            most = queue.next_most()
            if most is None:
                break
            if not movable.get(most):
                queue.exclude_most()
                continue
            partition = movable[most].pop()
            least = queue.next_least()
            if queue.is_even():
                break
            self._give(topic_id, partition, least)
            has_moved = True
        return has_moved

    def _give(self, topic_id: bytes, partition: int, place: int) -> None:
        before = self.owners[topic_id][partition]
        if before != NOBODY:
            self.loads[before] -= 1
        self.owners[topic_id][partition] = place
        self.loads[place] += 1

    def _ordered(self, topic_ids: Iterable[bytes]) -> list[bytes]:
        """Return topics by partitions per subscriber, most first; then few subscribers first; then by id."""

        def order(topic_id: bytes) -> tuple[float, int, int, int]:
            subscribers = len(self.subscribers[topic_id])
            high, low = (int.from_bytes(half, "big", signed=True) for half in (topic_id[:8], topic_id[8:]))
            return -self.counts[topic_id] / subscribers, subscribers, high, low

        return sorted(topic_ids, key=order)


class _Queue:
    """A topic's subscribers by load: who is to get the next partition, and who is to lose one.

    Two ranges of the sorted list: from its start those with least partitions, from its end those with most. A range
    is gone through once, everybody in it gets (loses) one, and then it is widened by those who have as many now.
    """

    def __init__(self, subscribers: Sequence[int], loads: list[int]):
        self.sorted = sorted(subscribers, key=lambda place: (loads[place], place))
        self.loads = loads
        self.least = loads[self.sorted[0]] - 1  # partitions of those in the range of the least loaded
        self.least_end = 0
        self.least_next = 0
        self.most = loads[self.sorted[-1]] + 1
        self.most_start = self.most_end = len(self.sorted)
        self.most_next = self.most_end - 1

    def next_least(self) -> int:
        if self.least_next >= self.least_end:
            self.least += 1
            while self.least_end < len(self.sorted) and self.loads[self.sorted[self.least_end]] == self.least:
                self.least_end += 1
            self.least_next = 0
        self.least_next += 1
        return self.sorted[self.least_next - 1]

    def next_most(self) -> int | None:
        if self.most_next < self.most_start:
            if self.most_end <= self.most_start and self.most_start > 0:
                self.most = self.loads[self.sorted[self.most_start - 1]]
            else:
                self.most -= 1
            while self.most_start > 0 and self.loads[self.sorted[self.most_start - 1]] == self.most:
                self.most_start -= 1
            self.most_next = self.most_end - 1
        if self.most_next < 0:
            return None
        self.most_next -= 1
        return self.sorted[self.most_next + 1]

    def exclude_most(self) -> None:
        """Take whom next_most named last out of its range: there is nothing to take from that one."""
        place, last = self.most_next + 1, self.most_end - 1
        self.sorted[place], self.sorted[last] = self.sorted[last], self.sorted[place]
        self.most_end = last

    def is_even(self) -> bool:
        return self.most - self.least <= 1
