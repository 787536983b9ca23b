"""Target assignment of a consumer group: who shall hold what once everybody has given up what must move.

It is computed for a group epoch, by the assignor that most members ask for, from the targets so far.
Not here: how partitions are shared out (assignors.py), how members get there (consumer_change.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from minibroker.config.resources import GroupConfig
from minibroker.coordinator.hashing import as_copied, as_filled, as_sized, as_timeline
from minibroker.groups.assignors import ASSIGNORS, Shares, Subscriber
from minibroker.groups.consumer_state import Member, Target, target_epoch_record, target_record
from minibroker.groups.records import CoordinatorRecord
from minibroker.groups.topics import Topics

Matches = Mapping[str, Collection[str]]  # by regular expression the topics that it matched


def subscribed_names(member: Member, matches: Matches) -> list[str]:
    """Return the topics that a member wants, in the order of Kafka's set of them."""
    names = as_copied(sorted(member.topic_names))
    matched = as_copied(sorted(matches.get(member.pattern, ()))) if member.pattern else []
    large, small = (names, matched) if len(names) > len(matched) else (matched, names)
    return list(dict.fromkeys([*large, *small]))


def subscribed_ids(member: Member, matches: Matches, topics: Topics) -> list[bytes]:
    """Return the ids of those that exist."""
    found = map(topics.find, subscribed_names(member, matches))
    return [topic.topic_id for topic in found if topic is not None]


def is_homogeneous_group(members: Collection[Member], matches: Matches) -> bool:
    """Say whether all members want the same topics, as far as Kafka looks: by one pattern, or by name."""
    by_name = Counter(name for member in members for name in member.topic_names)
    patterns = Counter(member.pattern for member in members if member.pattern)
    by_pattern = Counter(name for matched in matches.values() for name in matched)
    if patterns:
        is_one = next(iter(patterns.values())) == len(members)
        return is_one and not by_name and all(count == 1 for count in by_pattern.values())
    return not by_pattern.keys() - by_name.keys() and all(count == len(members) for count in by_name.values())


def default_assignor(config: GroupConfig) -> str:
    name: str = config.broker["group.consumer.assignors"][0]
    return name


def compute_target(
    group_id: str,
    group_epoch: int,
    assignor: str,
    members: Mapping[str, Member],
    *,
    members_most: int,
    joining: str | None,
    targets: Mapping[str, Target],
    is_held: Callable[[bytes, int], bool],
    matches: Matches,
    is_homogeneous: bool,
    topics: Topics,
    now_ms: int,
) -> tuple[list[CoordinatorRecord], Shares]:
    """Return records with what has changed, and the whole assignment.

    members: with the changes that are being made. joining: the one that the group does not know yet.
    members_most: that the group has had.
    """
    known = as_timeline((member_id for member_id in members if member_id != joining), members_most)
    ordered = as_filled([*known, *([joining] if joining is not None else [])])
    subscriptions, counts = {}, {}
    for member_id in ordered:
        member = members[member_id]
        names = subscribed_names(member, matches)
        found = [topic for topic in map(topics.find, names) if topic is not None]
        counts.update({topic.topic_id: len(topic.racks) for topic in found})
        topic_ids = as_copied((topic.topic_id for topic in found), len(names))
        subscriptions[member_id] = Subscriber(member.instance_id, topic_ids, targets.get(member_id, {}))
    shares = ASSIGNORS[assignor](subscriptions, counts, is_held, is_homogeneous)
    records = []
    for member_id in ordered:
        share = shares.get(member_id, {})
        old = targets.get(member_id)
        if old is None or _sets(old) != _sets(share):
            before = [topic_id for topic_id in as_filled(list(old or ())) if topic_id in share]
            order = as_sized(before, [topic_id for topic_id in share if topic_id not in before])
            records.append(target_record(group_id, member_id, {topic_id: share[topic_id] for topic_id in order}))
    records.append(target_epoch_record(group_id, group_epoch, now_ms))
    return records, shares


def _sets(target: Target) -> dict[bytes, set[int]]:
    return {topic_id: set(partitions) for topic_id, partitions in target.items()}
