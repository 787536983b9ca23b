"""Who gets what in the classic groups of the simulation: what the leader of a group works out, and how members say it.

eager          everybody has given up everything, so all is shared out anew, and goes round with each generation
cooperative    everybody keeps what it has, up to its share; what one gives up another gets in the next generation
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from minibroker.stored.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

TopicPartition = tuple[str, int]
Shares = dict[str, list[TopicPartition]]
VERSION = 2  # of the bytes that members exchange: with partitions that they own, and since which generation


class Wish(NamedTuple):
    """What a member said as it joined."""

    topics: tuple[str, ...]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1  # in which it got them


def encode_wish(wish: Wish) -> bytes:
    Owned = ConsumerProtocolSubscription.TopicPartition
    message = ConsumerProtocolSubscription(
        topics=list(wish.topics),
        owned_partitions=[Owned(topic=topic, partitions=parts) for topic, parts in by_topic(wish.owned)],
        generation_id=wish.generation,
    )
    return VERSION.to_bytes(2, "big") + message.encode(VERSION)


def decode_wish(data: bytes) -> Wish:
    message, _ = ConsumerProtocolSubscription.decode_from(data, 2, VERSION)
    owned = frozenset((topic.topic, part) for topic in message.owned_partitions for part in topic.partitions)
    return Wish(tuple(message.topics), owned, message.generation_id)


def encode_share(share: Iterable[TopicPartition]) -> bytes:
    Assigned = ConsumerProtocolAssignment.TopicPartition
    rows = [Assigned(topic=topic, partitions=parts) for topic, parts in by_topic(share)]
    return VERSION.to_bytes(2, "big") + ConsumerProtocolAssignment(assigned_partitions=rows).encode(VERSION)


def decode_share(data: bytes) -> list[TopicPartition]:
    if not data:
        return []
    message, _ = ConsumerProtocolAssignment.decode_from(data, 2, VERSION)
    return [(topic.topic, part) for topic in message.assigned_partitions for part in topic.partitions]


def by_topic(places: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for topic, part in sorted(places):
        found.setdefault(topic, []).append(part)
    return list(found.items())


def eager(wishes: Mapping[str, Wish], counts: Mapping[str, int], generation: int) -> Shares:
    shares: Shares = {member: [] for member in wishes}
    for topic, takers in _takers(wishes):
        for part in range(counts[topic]):
            shares[takers[(part + generation) % len(takers)]].append((topic, part))
    return shares


def cooperative(wishes: Mapping[str, Wish], counts: Mapping[str, int], generation: int) -> Shares:
    claimed = {place for wish in wishes.values() for place in wish.owned}
    shares: Shares = {member: [] for member in wishes}
    for topic, takers in _takers(wishes):
        kept = {member: _kept(wishes, member, topic, counts[topic], len(takers)) for member in takers}
        for part in range(counts[topic]):
            if (topic, part) not in claimed:
                kept[min(takers, key=lambda member: len(kept[member]))].append((topic, part))
        for member, places in kept.items():
            shares[member] += places
    return shares


def _kept(wishes: Mapping[str, Wish], member: str, topic: str, count: int, takers: int) -> list[TopicPartition]:
    """Return what a member keeps of a topic; of what several claim, who got it last has it."""
    own = wishes[member]
    rivals = [wish for other, wish in wishes.items() if other != member]
    mine = [
        place
        for place in sorted(own.owned)
        if place[0] == topic and not any(place in wish.owned and wish.generation >= own.generation for wish in rivals)
    ]
    return mine[: -(-count // takers)]


def _takers(wishes: Mapping[str, Wish]) -> list[tuple[str, list[str]]]:
    topics = sorted({topic for wish in wishes.values() for topic in wish.topics})
    return [(topic, sorted(member for member, wish in wishes.items() if topic in wish.topics)) for topic in topics]


ASSIGNORS: dict[str, Callable[[Mapping[str, Wish], Mapping[str, int], int], Shares]] = {
    "eager": eager,
    "cooperative": cooperative,
}
