"""A conversation of several members with the coordinator of one group, each on a connection of its own.

It is held at a level: each API is spoken in the version of that number, counted from the oldest that both sides serve,
or in the newest. So the levels together cover every version of every API. Ids are those of the expected side.
"""

from __future__ import annotations

from typing import Any

from minibroker.protocol.headers import Request
from minibroker.protocol.messages.delete_groups import DeleteGroupsRequest
from minibroker.protocol.messages.describe_groups import DescribeGroupsRequest
from minibroker.protocol.messages.heartbeat import HeartbeatRequest
from minibroker.protocol.messages.join_group import JoinGroupRequest
from minibroker.protocol.messages.leave_group import LeaveGroupRequest
from minibroker.protocol.messages.list_groups import ListGroupsRequest
from minibroker.protocol.messages.offset_commit import OffsetCommitRequest
from minibroker.protocol.messages.offset_delete import OffsetDeleteRequest
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest
from minibroker.protocol.messages.sync_group import SyncGroupRequest
from minibroker.stored.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tests.differential.play import Later, Play
from tests.differential.scenario.build import UNKNOWN_ID

MEMBER_ID_REQUIRED = 79
SESSION_MS, REBALANCE_MS = 30_000, 60_000  # longer than a conversation takes
STATIC_SINCE = 5  # JoinGroup
LEAVE_BATCHES_SINCE = 3
FETCH_BATCHES_SINCE = 8
TOPICS = ("shared",)  # what consumers subscribe to where it does not matter

Protocol = JoinGroupRequest.JoinGroupRequestProtocol
Given = SyncGroupRequest.SyncGroupRequestAssignment
Leaving = LeaveGroupRequest.MemberIdentity
CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
CommitPartition = CommitTopic.OffsetCommitRequestPartition
FetchGroup = OffsetFetchRequest.OffsetFetchRequestGroup
FetchGroupTopic = FetchGroup.OffsetFetchRequestTopics
FetchTopic = OffsetFetchRequest.OffsetFetchRequestTopic
DeleteTopic = OffsetDeleteRequest.OffsetDeleteRequestTopic
DeletePartition = DeleteTopic.OffsetDeleteRequestPartition


class Talk:
    """One group at one level, with what its members know of themselves."""

    def __init__(self, play: Play, subject: str, level: int):
        self.play = play
        self.subject = subject
        self.level = level
        self.group = f"{subject.replace(' ', '-')}-{level}"
        self.member: dict[str, str] = {}  # who -> member id
        self.generation = -1

    # Asking

    def version(self, request: type[Request]) -> int:
        """Return the version of an API that is spoken here."""
        versions = self.play.versions(request)
        return versions[min(self.level, len(versions) - 1)]

    def has(self, request: type[Request], since: int) -> bool:
        """Whether an API is spoken in a version that has something."""
        return self.version(request) >= since

    def ask(self, who: str, step: str, request: Request, version: int | None = None) -> Any:
        """Ask both sides as one of the members."""
        version = self.version(type(request)) if version is None else version
        return self.play.ask(f"{self.subject}: {step}", request, version, who)

    def ask_later(self, who: str, step: str, request: Request) -> Later:
        """Ask both sides as one who then waits for others."""
        return self.play.ask_later(f"{self.subject}: {step}", request, self.version(type(request)), who)

    def wait_for_state(self, state: str, members: int | None = None) -> None:
        """Wait until the group is in a state, with so many members: a join that waits shows in no other way."""

        def holds(answer: Any) -> bool:
            group = answer.groups[0]
            return bool(group.group_state == state and members in (None, len(group.members)))

        request = DescribeGroupsRequest(groups=[self.group])
        self.play.wait_for(f"{self.group} to be {state}", request, holds, self.version(DescribeGroupsRequest))

    # The classic protocol

    def enter(self, who: str, **given: Any) -> Any:
        """Join for the first time, with a second request where an id is required; return the last answer."""
        answer = self.ask(who, f"{who} joins", self.join(who, **given))
        self._know(who, answer)
        if answer is not None and answer.error_code == MEMBER_ID_REQUIRED:
            answer = self.ask(who, f"{who} joins with its id", self.join(who, **given))
            self._know(who, answer)
        return answer

    def enter_later(self, who: str, **given: Any) -> Later:
        """Join a group that first has to wait for its other members."""
        if self.has(JoinGroupRequest, 4) and "instance" not in given:
            self._know(who, self.ask(who, f"{who} asks for an id", self.join(who, **given)))
        return self.rejoin_later(who, **given)

    def rejoin(self, who: str, step: str = "", **given: Any) -> Any:
        """Join again where nobody else has to."""
        answer = self.ask(who, step or f"{who} joins again", self.join(who, **given))
        self._know(who, answer)
        return answer

    def rejoin_later(self, who: str, **given: Any) -> Later:
        """Join again; the answer waits for the others."""
        later = self.ask_later(who, f"{who} joins and waits", self.join(who, **given))

        def finish() -> Any:
            answer = later.answer()
            self._know(who, answer)
            return answer

        return Later(finish)

    def _know(self, who: str, answer: Any) -> None:
        if answer is not None and answer.member_id:
            self.member[who] = answer.member_id
        if answer is not None and answer.error_code == 0:
            self.generation = answer.generation_id

    def join(
        self,
        who: str,
        *,
        member_id: str | None = None,
        instance: str | None = None,
        protocols: list[tuple[str, bytes]] | None = None,
        kind: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        reason: str | None = None,
    ) -> JoinGroupRequest:
        """Return a member's JoinGroup."""
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=self.member.get(who, "") if member_id is None else member_id,
            group_instance_id=instance,
            protocol_type=kind,
            protocols=[Protocol(name=name, metadata=data) for name, data in protocols or [("range", subscription())]],
            reason=reason,
        )

    def sync(
        self,
        who: str,
        assignments: dict[str, bytes] | None = None,
        *,
        generation: int | None = None,
        member_id: str | None = None,
        instance: str | None = None,
        kind: str | None = "consumer",
        protocol: str | None = "range",
    ) -> SyncGroupRequest:
        """Return a member's SyncGroup; assignments by who gets them."""
        return SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member.get(who, "") if member_id is None else member_id,
            group_instance_id=instance,
            protocol_type=kind,
            protocol_name=protocol,
            assignments=[
                Given(member_id=self.member.get(name, name), assignment=data)
                for name, data in (assignments or {}).items()
            ],
        )

    def heartbeat(
        self, who: str, *, generation: int | None = None, member_id: str | None = None, instance: str | None = None
    ) -> HeartbeatRequest:
        """Return a member's Heartbeat."""
        return HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member.get(who, "") if member_id is None else member_id,
            group_instance_id=instance,
        )

    def leave(self, *who: str, instances: dict[str, str] | None = None, reason: str | None = None) -> LeaveGroupRequest:
        """Return a LeaveGroup of members, and of others by instance id (instance -> member id)."""
        ids = [self.member.get(name, name) for name in who]
        return LeaveGroupRequest(
            group_id=self.group,
            member_id=ids[0] if ids else "",
            members=[
                *(Leaving(member_id=member_id, reason=reason) for member_id in ids),
                *(Leaving(member_id=mid, group_instance_id=name) for name, mid in (instances or {}).items()),
            ],
        )

    # Offsets

    def commit(
        self,
        who: str,
        offsets: dict[str, dict[int, int]],
        *,
        generation: int | None = None,
        member_id: str | None = None,
        instance: str | None = None,
        metadata: str | None = "m",
        epoch: int = -1,
        retention_ms: int = -1,
    ) -> OffsetCommitRequest:
        """Return an OffsetCommit; offsets by topic and partition. Nobody ("") commits outside of any membership."""
        if generation is None:
            generation = self.generation if who else -1
        return OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=self.member.get(who, "") if member_id is None else member_id,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[
                CommitTopic(
                    topic_id=self.play.ids.get(topic, UNKNOWN_ID),
                    name=topic,
                    partitions=[
                        CommitPartition(
                            partition_index=index,
                            committed_offset=offset,
                            committed_leader_epoch=epoch,
                            committed_metadata=metadata,
                        )
                        for index, offset in partitions.items()
                    ],
                )
                for topic, partitions in offsets.items()
            ],
        )

    def fetch(
        self,
        topics: dict[str, list[int]] | None,
        *,
        group: str | None = None,
        member_id: str | None = None,
        epoch: int = -1,
        stable: bool = False,
    ) -> OffsetFetchRequest:
        """Return an OffsetFetch of one group; None asks for everything."""
        group = self.group if group is None else group
        return OffsetFetchRequest(
            group_id=group,
            topics=None
            if topics is None
            else [FetchTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
            groups=[fetch_group(self.play, group, topics, member_id, epoch)],
            require_stable=stable,
        )

    # Looking

    def look(self, step: str, who: str = "admin") -> None:
        """Compare all that can be seen of the group from outside."""
        self.ask(who, f"described, {step}", DescribeGroupsRequest(groups=[self.group]))
        self.ask(who, f"listed, {step}", ListGroupsRequest())

    def delete(self, step: str = "deleted") -> None:
        """Delete the group."""
        self.ask("admin", step, DeleteGroupsRequest(groups_names=[self.group]))

    def finish(self) -> None:
        """Let all leave, delete the group, hang up: later conversations list what is there."""
        for who in self.member:
            self.ask(who, f"{who} leaves at the end", self.leave(who))
        self.delete("deleted at the end")
        self.play.hang_up()


def fetch_group(
    play: Play, group: str, topics: dict[str, list[int]] | None, member_id: str | None = None, epoch: int = -1
) -> FetchGroup:
    """Return the part of an OffsetFetch that is one group's."""
    return FetchGroup(
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        topics=None
        if topics is None
        else [
            FetchGroupTopic(topic_id=play.ids.get(name, UNKNOWN_ID), name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ],
    )


def offset_delete(group: str, topics: dict[str, list[int]]) -> OffsetDeleteRequest:
    """Return an OffsetDelete."""
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            DeleteTopic(name=name, partitions=[DeletePartition(partition_index=index) for index in indexes])
            for name, indexes in topics.items()
        ],
    )


def subscription(*topics: str, version: int = 1, owned: dict[str, list[int]] | None = None) -> bytes:
    """Return what a consumer sends as its metadata; without topics those of most conversations."""
    Owned = ConsumerProtocolSubscription.TopicPartition
    message = ConsumerProtocolSubscription(
        topics=list(topics or TOPICS),
        owned_partitions=[Owned(topic=name, partitions=indexes) for name, indexes in (owned or {}).items()],
    )
    return version.to_bytes(2, "big") + bytes(message.encode(version))


def assignment(topics: dict[str, list[int]], version: int = 1) -> bytes:
    """Return what a leader gives to a consumer."""
    Assigned = ConsumerProtocolAssignment.TopicPartition
    rows = [Assigned(topic=name, partitions=indexes) for name, indexes in topics.items()]
    return version.to_bytes(2, "big") + bytes(ConsumerProtocolAssignment(assigned_partitions=rows).encode(version))
