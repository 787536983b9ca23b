"""All that concerns groups, level by level: their topics, classic groups, their offsets, consumer groups."""

from __future__ import annotations

from minibroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from minibroker.protocol.messages.delete_groups import DeleteGroupsRequest
from minibroker.protocol.messages.describe_groups import DescribeGroupsRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.join_group import JoinGroupRequest
from minibroker.protocol.messages.list_groups import ListGroupsRequest
from minibroker.protocol.messages.offset_commit import OffsetCommitRequest
from tests.differential.play import Play
from tests.differential.scenario import classic_groups, consumer_groups, group_offsets, static_members
from tests.differential.scenario.broken import break_body
from tests.differential.scenario.build import create_request, new_topic
from tests.differential.scenario.consumer_talk import ConsumerTalk
from tests.differential.scenario.talk import Talk, offset_delete

TOPICS = [new_topic("shared", 2), new_topic("other", 4), new_topic("more-topics", 1)]


def play_groups(play: Play) -> None:
    """Play every conversation at every level that both sides know."""
    if not play.versions(JoinGroupRequest):
        return
    play.ask("create the topics of groups", create_request(*TOPICS))
    play.settle(*(topic.name for topic in TOPICS))
    classic_groups.find_coordinators(play)
    for level in range(max(len(play.versions(api)) for api in (JoinGroupRequest, OffsetCommitRequest))):
        classic_groups.one_member(play, level)
        classic_groups.two_members(play, level)
        classic_groups.votes(play, level)
        classic_groups.connect_workers(play, level)
        classic_groups.join_badly(play, level)
        classic_groups.unusual_joins(play, level)
        classic_groups.dropped(play, level)
        static_members.play_static_members(play, level)
        group_offsets.commit_and_fetch(play, level)
        group_offsets.look_at_groups(play, level)
        consumer_groups.play_consumer_groups(play, level)
    _break_requests(play)
    classic_groups.never_answered(play)


def _break_requests(play: Play) -> None:
    """Send requests that would change nothing, in every broken form."""
    talk = Talk(play, "broken", 0)
    for request in (
        FindCoordinatorRequest(key="g", coordinator_keys=["g"]),
        talk.join("a", session_ms=0),
        talk.sync("a"),
        talk.heartbeat("a", instance="i"),
        talk.leave("a", reason="none"),
        talk.commit("a", {"unknown-topic": {0: 1}}),
        talk.fetch({"unknown-topic": [0]}),
        offset_delete(talk.group, {"shared": [0]}),
        DescribeGroupsRequest(groups=[talk.group]),
        ListGroupsRequest(states_filter=["Stable"], types_filter=["consumer"]),
        DeleteGroupsRequest(groups_names=[talk.group]),
        ConsumerTalk(play, "broken", 0).beat("a", -3, member_id="a", owned={"unknown-topic": [0]}),
        ConsumerGroupDescribeRequest(group_ids=[talk.group], include_authorized_operations=False),
    ):
        versions = play.versions(type(request))
        for version in sorted({versions[0], versions[-1]}) if versions else ():
            break_body(play, request, version)
