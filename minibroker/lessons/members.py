"""The members of groups in a lesson: each does one thing at a time, and says what it was answered.

    eager         JoinGroup, SyncGroup; gives everything up before it joins again
    cooperative   the same requests; keeps what it has until it is told otherwise
    consumer      ConsumerGroupHeartbeat (KIP-848): the broker works out who has what

A real consumer sends its heartbeats, and joins again, by itself. Here that is what the student commands.
What must hold: they speak to the coordinator's port as every client does. An answer that comes late, because others had
to do something first, is told with whatever made it come.
Not here: what members of the classic protocol say to each other (sharing.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from minibroker.errors import Error, KafkaError
from minibroker.lessons.clients import LONG_PATIENCE_MS, Asking, check
from minibroker.lessons.sharing import (
    Place,
    assignment_bytes,
    read_assignment,
    read_subscription,
    share_in_ranges,
    share_keeping,
    subscription_bytes,
)
from minibroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minibroker.protocol.messages.heartbeat import HeartbeatRequest
from minibroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from minibroker.protocol.messages.leave_group import LeaveGroupRequest
from minibroker.protocol.messages.offset_commit import OffsetCommitRequest
from minibroker.protocol.messages.sync_group import SyncGroupRequest

EAGER, COOPERATIVE, CONSUMER = "eager", "cooperative", "consumer"
ASSIGNORS = {EAGER: "range", COOPERATIVE: "cooperative-sticky"}
PROTOCOL_TYPE = "consumer"
SESSION_MS, REBALANCE_MS = 45_000, 300_000  # session.timeout.ms and max.poll.interval.ms, as consumers have them
NO_GENERATION = -1
COMMIT_VERSION = 9  # the last one that names topics
JOIN, SYNC = "join", "sync"  # what a member may wait for


class Member:
    """One member, or somebody who was or will be one."""

    def __init__(
        self,
        name: str,
        group: str,
        topics: list[str],
        *,
        by: str = EAGER,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        asking: Asking,
    ):
        self.name = name
        self.group = group
        self.topics = topics
        self.by = by
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.asking = asking
        self.id = ""
        self.generation = NO_GENERATION  # by the consumer protocol: its epoch
        self.has: list[Place] = []
        self.leads: JoinGroupResponse | None = None  # the answer that made it leader of the generation
        self.waits_for = ""
        self.answer: asyncio.Task[None] | None = None  # under way, while it waits for something
        self._lines: list[str] = []  # that nobody has been told yet

    def take_lines(self) -> list[str]:
        """Return what it has to tell."""
        taken, self._lines = self._lines, []
        return taken

    def _say(self, what: str) -> None:
        self._lines.append(f"{self.name} {what}")

    def begin(self, what: str, work: Awaitable[None]) -> asyncio.Task[None]:
        """Ask something whose answer may be a while in coming."""

        async def wait() -> None:
            try:
                await work
            except KafkaError as error:
                self._say(f"is told {error.code.name}: {error.message}")
            finally:
                self.waits_for = ""

        self.waits_for = what
        self.answer = asyncio.get_running_loop().create_task(wait())
        return self.answer

    # The classic protocol

    async def join(self, broker: int) -> None:
        """Ask to be in, for the first time or again; the answer comes when all have asked."""
        if self.by == EAGER and self.has:
            self._give_up(self.has)
        answer = await self._join(broker)
        if answer.error_code == Error.MEMBER_ID_REQUIRED:  # who asks for the first time is given an id, and asks again
            self.id = answer.member_id
            answer = await self._join(broker)
        if answer.error_code:
            self._heard(Error(answer.error_code))
            return
        self.id, self.generation = answer.member_id, answer.generation_id
        self.leads = answer if answer.leader == self.id else None
        if self.leads is None:
            self._say(f"is in generation {self.generation}, which {name_of(answer.leader)} leads")
        else:
            names = ", ".join(sorted(name_of(each.member_id) for each in answer.members))
            self._say(f"is in generation {self.generation}, and leads {names}")

    async def _join(self, broker: int) -> JoinGroupResponse:
        Protocol = JoinGroupRequest.JoinGroupRequestProtocol
        owned = self.has if self.by == COOPERATIVE else []
        subscription = subscription_bytes(self.topics, owned, self.generation if owned else NO_GENERATION)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[Protocol(name=ASSIGNORS[self.by], metadata=subscription)],
        )
        answer: JoinGroupResponse = await self.asking.ask(broker, request, LONG_PATIENCE_MS)
        return answer

    async def sync(self, broker: int) -> None:
        """Ask for one's part; who leads says in the same request who gets what."""
        parts = await self._parts(broker) if self.leads is not None else {}
        Assignment = SyncGroupRequest.SyncGroupRequestAssignment
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=ASSIGNORS[self.by],
            assignments=[
                Assignment(member_id=member_id, assignment=assignment_bytes(places))
                for member_id, places in parts.items()
            ],
        )
        answer = await self.asking.ask(broker, request, LONG_PATIENCE_MS)
        if answer.error_code:
            self._heard(Error(answer.error_code))
            return
        before, now = self.has, read_assignment(answer.assignment)
        gone = [place for place in before if place not in now]
        if gone:
            self._give_up(gone)
        self.has = now
        self._say(f"has {text_of(now)}")
        if gone:
            self._say("has to join again, so that others can get it")

    async def _parts(self, broker: int) -> dict[str, list[Place]]:
        """Work out who gets what."""
        assert self.leads is not None
        wishes = {each.member_id: read_subscription(each.metadata) for each in self.leads.members}
        counts = {}
        for topic in sorted({topic for wish in wishes.values() for topic in wish.topics}):
            counts[topic] = len((await self.asking.topic(broker, topic)).partitions)
        parts = share_in_ranges(wishes, counts) if self.by == EAGER else share_keeping(wishes, counts)
        gives = "; ".join(f"{name_of(each)} {text_of(parts[each])}" for each in sorted(parts))
        self._say(f"says who gets what: {gives}")
        return parts

    # Both

    async def heartbeat(self, broker: int) -> None:
        """Say that it lives, and hear what is new."""
        if self.by == CONSUMER:
            await self._consumer_heartbeat(broker, self.generation)
            return
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.id)
        answer = await self.asking.ask(broker, request)
        self._heard(Error(answer.error_code))

    async def leave(self, broker: int) -> None:
        """Go, and say so."""
        if self.by == CONSUMER:
            await self._consumer_heartbeat(broker, -1)
        else:
            Identity = LeaveGroupRequest.MemberIdentity
            request = LeaveGroupRequest(group_id=self.group, members=[Identity(member_id=self.id)])
            answer = await self.asking.ask(broker, request)
            check(answer.error_code or answer.members[0].error_code, f"{self.name} is told this")
        self.has, self.id, self.generation = [], "", NO_GENERATION
        self._say("has left")

    async def commit(self, broker: int, place: Place, offset: int) -> None:
        """Commit an offset as a member of its generation; KafkaError if that is refused."""
        await commit(self.asking, broker, self.group, place, offset, member_id=self.id, generation=self.generation)
        self._say(f"has committed {offset} of {text_of([place])}")

    # The consumer protocol

    async def enter(self, broker: int) -> None:
        """Ask to be in: there is nothing to wait for, but what one gets may come later."""
        self.id, self.has = f"{self.name}-1", []  # a UUID in earnest
        await self._consumer_heartbeat(broker, 0)

    async def _consumer_heartbeat(self, broker: int, epoch: int) -> None:
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.id, member_epoch=epoch)
        if epoch >= 0:
            request.topic_partitions = await self._owned(broker)
        if epoch == 0:
            request.subscribed_topic_names = self.topics
            request.rebalance_timeout_ms = self.rebalance_ms
        answer = await self.asking.ask(broker, request)
        if answer.error_code:
            self._heard(Error(answer.error_code))
            return
        if epoch < 0:
            return
        self.generation = answer.member_epoch
        if answer.assignment is None:
            self._say(f"is in epoch {self.generation}, and hears nothing new")
            return
        ids = {(await self.asking.topic(broker, name)).topic_id: name for name in self.topics}
        given = answer.assignment.topic_partitions
        now = sorted((ids[each.topic_id], number) for each in given for number in each.partitions)
        gone, self.has = [place for place in self.has if place not in now], now
        self._say(f"is in epoch {self.generation}, and is to have {text_of(now)}")
        if gone:
            self._say(f"gives up {text_of(gone)}, and will say so in its next heartbeat")

    async def _owned(self, broker: int) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
        Topic = ConsumerGroupHeartbeatRequest.TopicPartitions
        rows = []
        for name in dict.fromkeys(topic for topic, _ in self.has):
            topic_id = (await self.asking.topic(broker, name)).topic_id
            rows.append(Topic(topic_id=topic_id, partitions=[number for topic, number in self.has if topic == name]))
        return rows

    # What it hears

    def _heard(self, error: Error) -> None:
        """Take note of an answer that says no more than a code."""
        if error == Error.NONE:
            self._say("hears nothing new")
            return
        self._say(f"hears {error.name}")
        if error in (Error.UNKNOWN_MEMBER_ID, Error.ILLEGAL_GENERATION, Error.FENCED_MEMBER_EPOCH):
            if self.has:
                self._give_up(self.has)
            if error != Error.ILLEGAL_GENERATION:
                self.id, self.generation = "", NO_GENERATION

    def _give_up(self, places: list[Place]) -> None:
        self._say(f"gives up {text_of(places)}")
        self.has = [place for place in self.has if place not in places]


class Members:
    """All members of a lesson, by their names."""

    def __init__(self, state_of: Callable[[str], str]):
        """state_of: a group's state, as its coordinator has it, to know whose answer is still to come."""
        self._state_of = state_of
        self._members: dict[str, Member] = {}

    def add(self, member: Member) -> None:
        self._members[member.name] = member

    def get(self, name: str) -> Member | None:
        return self._members.get(name)

    def due(self) -> list[asyncio.Task[None]]:
        """Return the answers that have been given and have not arrived, as far as the groups' states tell."""
        return [
            each.answer
            for each in self._members.values()
            if each.answer is not None and not each.answer.done() and not self._must_wait(each)
        ]

    def _must_wait(self, member: Member) -> bool:
        waits = {JOIN: "PreparingRebalance", SYNC: "CompletingRebalance"}
        return self._state_of(member.group) == waits.get(member.waits_for)

    def take_lines(self) -> list[str]:
        """Return what they have to tell, one member after the other."""
        return [line for each in self._members.values() for line in each.take_lines()]

    async def close(self) -> None:
        answers = [each.answer for each in self._members.values() if each.answer is not None]
        for answer in answers:
            answer.cancel()
        await asyncio.gather(*answers, return_exceptions=True)
        for each in self._members.values():
            await each.asking.close()


async def commit(
    asking: Asking,
    broker: int,
    group: str,
    place: Place,
    offset: int,
    *,
    member_id: str = "",
    generation: int = NO_GENERATION,
) -> None:
    """Commit an offset, as a member, or from outside if nobody is in; KafkaError if that is refused."""
    Topic = OffsetCommitRequest.OffsetCommitRequestTopic
    row = Topic.OffsetCommitRequestPartition(
        partition_index=place[1], committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[Topic(name=place[0], partitions=[row])],
    )
    answer = await asking.ask(broker, request, version=COMMIT_VERSION)
    words = f"broker {broker} answers this to offset {offset} of {text_of([place])}"
    check(answer.topics[0].partitions[0].error_code, words)


def text_of(places: Iterable[Place]) -> str:
    return ", ".join(f"{topic}-{number}" for topic, number in sorted(places)) or "nothing"


def name_of(member_id: str) -> str:
    """Return whose id it is: brokers make them of the client's id, and more."""
    return member_id.partition("-")[0]
