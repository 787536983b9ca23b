"""What members of the classic protocol say to each other, past the coordinator: who wants what, and who gets what.

The coordinator hands these bytes on without a look. Who gets what is worked out by the member that leads:

    share_in_ranges   each topic is cut into as many pieces as there are members (Kafka's range)
    share_keeping     who has something keeps it, up to a fair share; what another one has is given to nobody yet, for
                      it has to be given up first (the idea of Kafka's cooperative-sticky)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minibroker.stored.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

Place = tuple[str, int]

VERSION = 3
VERSION_BYTES = VERSION.to_bytes(2, "big")


def subscription_bytes(topics: list[str], owned: Iterable[Place], generation: int) -> bytes:
    Owned = ConsumerProtocolSubscription.TopicPartition
    rows = [Owned(topic=topic, partitions=numbers) for topic, numbers in _by_topic(owned).items()]
    found = ConsumerProtocolSubscription(topics=topics, owned_partitions=rows, generation_id=generation)
    return VERSION_BYTES + found.encode(VERSION)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    return ConsumerProtocolSubscription.decode_from(data, 2, VERSION)[0]


def assignment_bytes(places: Iterable[Place]) -> bytes:
    Assigned = ConsumerProtocolAssignment.TopicPartition
    rows = [Assigned(topic=topic, partitions=numbers) for topic, numbers in _by_topic(places).items()]
    return VERSION_BYTES + ConsumerProtocolAssignment(assigned_partitions=rows).encode(VERSION)


def read_assignment(data: bytes) -> list[Place]:
    if not data:
        return []
    found, _ = ConsumerProtocolAssignment.decode_from(data, 2, VERSION)
    return sorted((each.topic, number) for each in found.assigned_partitions for number in each.partitions)


def _by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in sorted(places):
        found.setdefault(topic, []).append(number)
    return found


def share_in_ranges(
    wishes: Mapping[str, ConsumerProtocolSubscription], counts: Mapping[str, int]
) -> dict[str, list[Place]]:
    """Return by member what it gets. counts: partitions by topic."""
    parts: dict[str, list[Place]] = {member: [] for member in sorted(wishes)}
    for topic, count in counts.items():
        readers = [member for member in parts if topic in wishes[member].topics]
        start = 0
        for index, member in enumerate(readers):
            size = count // len(readers) + (index < count % len(readers))
            parts[member] += [(topic, number) for number in range(start, start + size)]
            start += size
    return parts


def share_keeping(
    wishes: Mapping[str, ConsumerProtocolSubscription], counts: Mapping[str, int]
) -> dict[str, list[Place]]:
    """Return by member what it gets now; every member reads every topic here."""
    everything = [(topic, number) for topic, count in counts.items() for number in range(count)]
    owned = {
        member: [(each.topic, number) for each in wish.owned_partitions for number in each.partitions]
        for member, wish in wishes.items()
    }
    # Who has most is first in line for what cannot be shared evenly.
    members = sorted(wishes, key=lambda member: (-len(owned[member]), member))
    sizes = {
        member: len(everything) // len(members) + (index < len(everything) % len(members))
        for index, member in enumerate(members)
    }
    parts = {member: sorted(owned[member])[: sizes[member]] for member in members}
    held = {place for places in owned.values() for place in places}
    free = [place for place in everything if place not in held]
    for member in members:
        while free and len(parts[member]) < sizes[member]:
            parts[member].append(free.pop(0))
    return parts
