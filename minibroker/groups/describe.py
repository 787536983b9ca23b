"""Description of a consumer group, as ConsumerGroupDescribe shows it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from minibroker.config.resources import GroupConfig
from minibroker.errors import Error
from minibroker.groups.consumer import ConsumerGroup
from minibroker.groups.consumer_state import ConsumerState, Member
from minibroker.groups.target import default_assignor
from minibroker.groups.topics import Topics
from minibroker.protocol.messages.consumer_group_describe import Assignment, ConsumerGroupDescribeResponse

DescribedGroup = ConsumerGroupDescribeResponse.DescribedGroup
CLASSIC, CONSUMER = 0, 1  # types of members


def described(group: ConsumerGroup, topics: Topics, config: GroupConfig) -> DescribedGroup:
    state = group.state
    return DescribedGroup(
        error_code=Error.NONE,
        group_id=state.group_id,
        group_state=state.name,
        group_epoch=state.epoch,
        assignment_epoch=state.target_epoch,
        assignor_name=state.assignor(default_assignor(config)),
        members=[_described_member(member, state, topics) for member in state.members.values()],
    )


def _described_member(member: Member, state: ConsumerState, topics: Topics) -> DescribedGroup.Member:
    held: dict[bytes, list[int]] = {}
    for part in (member.held, member.to_revoke):  # until it has confirmed, it has what it is to give up
        for topic_id, partitions in part.items():
            held.setdefault(topic_id, []).extend(partitions)
    return DescribedGroup.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.pattern,
        assignment=_assignment(held, topics),
        target_assignment=_assignment(state.targets.get(member.member_id, {}), topics),
        member_type=CONSUMER if member.classic is None else CLASSIC,
    )


def _assignment(held: Mapping[bytes, Collection[int]], topics: Topics) -> Assignment:
    """Name the topics; one that has been deleted meanwhile is left out."""
    parts = []
    for topic_id, partitions in held.items():
        topic = topics.find_id(topic_id)
        if topic is not None:
            part = Assignment.TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions))
            parts.append(part)
    return Assignment(topic_partitions=parts)
