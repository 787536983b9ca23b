"""A conversation with the coordinator of a consumer group (KIP-848), in which members know their epoch."""

from __future__ import annotations

from typing import Any

from minibroker.protocol.headers import Request
from minibroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from minibroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minibroker.protocol.messages.describe_groups import DescribeGroupsRequest
from minibroker.protocol.messages.list_groups import ListGroupsRequest
from tests.differential.play import Play
from tests.differential.scenario.build import UNKNOWN_ID
from tests.differential.scenario.talk import Talk

Owned = ConsumerGroupHeartbeatRequest.TopicPartitions
OWN_ID_SINCE = 1  # the client makes the member id, and can subscribe by a regular expression
LEAVE, LEAVE_STATIC = -1, -2
REBALANCE_MS = 60_000
Partitions = dict[str, list[int]]


class ConsumerTalk(Talk):
    """A talk in which members know their epoch."""

    def __init__(self, play: Play, subject: str, level: int, *, random_ids: bool = False):
        super().__init__(play, subject, level)
        # Assignors go by member ids, so these are random only where members do not share anything.
        self._random_ids = random_ids and not self.has(ConsumerGroupHeartbeatRequest, OWN_ID_SINCE)
        self.epoch: dict[str, int] = {}  # who -> member epoch
        self.learnt: dict[str, Partitions] = {}  # who -> what it was last told to have

    def version(self, request: type[Request]) -> int:
        """Return the version of an API that is spoken here: of those that are not its own, the oldest or the newest."""
        own = (ConsumerGroupHeartbeatRequest, ConsumerGroupDescribeRequest)
        return super().version(request) if request in own or not self.level else self.play.newest(request)

    def beat(
        self,
        who: str,
        epoch: int | None = None,
        *,
        topics: list[str] | None = None,
        owned: Partitions | None = None,
        member_id: str | None = None,
        **given: Any,
    ) -> ConsumerGroupHeartbeatRequest:
        """Return a ConsumerGroupHeartbeat; what is not given is unchanged."""
        return ConsumerGroupHeartbeatRequest(
            group_id=given.pop("group", self.group),
            member_id=self.member.get(who, "") if member_id is None else member_id,
            member_epoch=self.epoch.get(who, 0) if epoch is None else epoch,
            subscribed_topic_names=topics,
            topic_partitions=None
            if owned is None
            else [
                Owned(topic_id=self.play.ids.get(name, UNKNOWN_ID), partitions=indexes)
                for name, indexes in owned.items()
            ],
            **given,
        )

    def arrive(self, who: str, topics: list[str] | None = None, **given: Any) -> Any:
        """Join."""
        given.setdefault("member_id", self.member.get(who, "" if self._random_ids else f"member-{who}"))
        given.setdefault("rebalance_timeout_ms", REBALANCE_MS)
        return self.say(who, f"{who} joins", 0, topics=topics, owned={}, **given)

    def say(self, who: str, step: str, epoch: int | None = None, **given: Any) -> Any:
        """Ask with a heartbeat, and take in the answer."""
        answer = self.ask(who, step, self.beat(who, epoch, **given))
        if answer is not None and answer.error_code == 0:
            self.member[who] = answer.member_id
            self.epoch[who] = answer.member_epoch
            if answer.assignment is not None:
                names = {topic_id: name for name, topic_id in self.play.ids.items()}
                rows = answer.assignment.topic_partitions
                self.learnt[who] = {names.get(row.topic_id, "?"): row.partitions for row in rows}
        return answer

    def confirm(self, who: str, step: str = "") -> Any:
        """Say that what was told is done."""
        return self.say(who, step or f"{who} confirms", owned=self.learnt.get(who, {}))

    def see(self, step: str) -> None:
        """Compare all that can be seen of the group from outside."""
        self.ask(
            "admin",
            f"described, {step}",
            ConsumerGroupDescribeRequest(group_ids=[self.group], include_authorized_operations=False),
        )
        self.ask("admin", f"described as classic, {step}", DescribeGroupsRequest(groups=[self.group]))
        self.ask("admin", f"listed, {step}", ListGroupsRequest())

    def finish(self) -> None:
        """Let all leave, delete the group, hang up."""
        for who in self.epoch:
            self.ask(who, f"{who} leaves at the end", self.beat(who, LEAVE))
            self.member.pop(who, None)
        super().finish()
