"""Being a member of a group of the classic protocol: in, told what to read, alive, and out again.

    async with Membership(cluster, "billing", ["orders"]) as member:
        partitions = await member.join()
        ...                                    # read them; `must_join` says when others want some of them
        await member.commit({("orders", 0): 17})

Any broker since 0.9 serves it, and members of any language may be in the same group: it offers the assignors that all
of them have, range and roundrobin, and works out who has what if the coordinator makes it the leader.
What must hold: between `join` and `close` heartbeats go out; JoinGroup, which waits for others, has a connection of its
own, so that nothing waits for it. `close` leaves the group, or the session timeout does it.
Not here: reading (consumer.py); groups from outside (groups.py); the newer protocol of KIP-848.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from minibroker.client.cluster import Cluster, TopicPartition
from minibroker.client.connection import AsyncCloseable, error_of
from minibroker.client.coordinators import Coordinators
from minibroker.client.groups import (
    ASSIGNMENT_VERSION_MAX,
    CONSUMER_PROTOCOL,
    CommittedOffset,
    Groups,
    assigned_partitions,
    by_topic,
)
from minibroker.clock import Pause
from minibroker.errors import Error, KafkaError
from minibroker.protocol import message

SESSION_TIMEOUT_MS = 30_000  # what brokers of every age allow
REBALANCE_TIMEOUT_MS = 60_000  # how long the others wait for us to come back
HEARTBEAT_MS = 3_000
NO_GENERATION = -1
MANY_MEMBERS = 3  # LeaveGroup
# The group has gone on without us, or is about to: join again.
OUTDATED = {Error.REBALANCE_IN_PROGRESS, Error.ILLEGAL_GENERATION, Error.UNKNOWN_MEMBER_ID}
VERSION = 0  # of what members tell each other: it has all that these assignors need

Assignment = dict[str, list[TopicPartition]]  # by member


class Membership(AsyncCloseable):
    """One member; an async context manager that leaves."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topics: list[str],
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS,
        heartbeat_ms: int = HEARTBEAT_MS,
    ):
        self.group = group
        self.topics = topics
        self.id = ""  # given by the coordinator
        self.generation = NO_GENERATION
        self.must_join = True  # what was assigned is not ours any more, or will not be for long
        self._cluster = cluster
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._heartbeat_ms = heartbeat_ms
        self._coordinators = Coordinators(cluster)
        self._heartbeats: asyncio.Task[None] | None = None
        self._failure: KafkaError | None = None  # of a heartbeat, for good
        self._changed = Pause(cluster.clock)

    async def join(self) -> list[TopicPartition]:
        """Enter the group, or come back to it; return what to read from now on, when all others have come as well."""
        await self._end_heartbeats()
        while True:
            try:
                assigned = await self._join_once()
            except KafkaError as error:
                if error.code not in OUTDATED:
                    raise
                self._forget_if_unknown(error)
                await self._cluster.clock.sleep(self._cluster.retry_pause_ms)
            else:
                self.must_join = False
                self._heartbeats = asyncio.get_running_loop().create_task(self._beat())
                return assigned

    async def commit(self, offsets: Mapping[TopicPartition, int | CommittedOffset]) -> None:
        """Store where the group goes on. An error of OUTDATED: the group has gone on without us."""
        try:
            await Groups(self._cluster).alter_offsets(self.group, offsets, self.id, self.generation)
        except KafkaError as error:
            self._forget_if_unknown(error)
            raise

    async def wait(self, limit_ms: int) -> None:
        """Return when it must join, or after that time; raise what ended the heartbeats."""
        if not self.must_join:
            await self._changed.sleep(limit_ms)
        self.check()

    def check(self) -> None:
        """Raise what ended the heartbeats, if it will not pass."""
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Leave the group, so that the others need not wait for the session timeout. The cluster stays open."""
        await self._end_heartbeats()
        await self._cluster.close_lane(self)  # an answer to JoinGroup may be under way
        if self.id:
            with suppress(KafkaError):  # the session timeout does it
                await self._leave()
        self.id, self.generation, self.must_join = "", NO_GENERATION, True

    # Joining

    async def _join_once(self) -> list[TopicPartition]:
        from minibroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

        Protocol = JoinGroupRequest.JoinGroupRequestProtocol
        Subscription: Any = message("ConsumerProtocolSubscription")
        wish = _versioned(Subscription(topics=sorted(self.topics)))
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self.id,
            protocol_type=CONSUMER_PROTOCOL,
            protocols=[Protocol(name=name, metadata=wish) for name in ASSIGNORS],
        )
        patience_ms = max(self._rebalance_timeout_ms, self._session_timeout_ms)
        # Who asks for the first time is given an id, and asks again with it.
        answer: JoinGroupResponse = await self._ask(
            request, patience_ms, takes=() if self.id else (Error.MEMBER_ID_REQUIRED,)
        )
        self.id = answer.member_id
        if answer.error_code:
            return await self._join_once()
        self.generation = answer.generation_id
        return await self._sync(await self._shares(answer) if answer.leader == self.id else {}, answer)

    async def _sync(self, shares: Assignment, joined: Any) -> list[TopicPartition]:
        from minibroker.protocol.messages.sync_group import SyncGroupRequest

        Share = SyncGroupRequest.SyncGroupRequestAssignment
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=[Share(member_id=member, assignment=_assignment(places)) for member, places in shares.items()],
        )
        return assigned_partitions((await self._ask(request, self._rebalance_timeout_ms)).assignment)

    async def _shares(self, joined: Any) -> Assignment:
        """Work out who has what, as the leader of the group."""
        wishes = {row.member_id: _subscribed(row.metadata) for row in joined.members}
        found = await self._cluster.metadata(sorted({topic for topics in wishes.values() for topic in topics}))
        partitions = {name: list(topic.partitions) for name, topic in found.items() if not topic.error}
        return ASSIGNORS[joined.protocol_name](wishes, partitions)

    def _forget_if_unknown(self, error: KafkaError) -> None:
        self.must_join = self.must_join or error.code in OUTDATED
        if error.code == Error.UNKNOWN_MEMBER_ID:  # the session has timed out
            self.id, self.generation = "", NO_GENERATION

    # Being alive

    async def _beat(self) -> None:
        from minibroker.protocol.messages.heartbeat import HeartbeatRequest

        try:
            while True:
                await self._cluster.clock.sleep(self._heartbeat_ms)
                request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.id)
                await self._ask(request)
        except KafkaError as error:
            if error.code in OUTDATED:
                self._forget_if_unknown(error)
            else:
                self._failure = error
        self._changed.wake()

    async def _end_heartbeats(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.gather(self._heartbeats, return_exceptions=True)
            self._heartbeats = None

    async def _leave(self) -> None:
        from minibroker.protocol.messages.leave_group import LeaveGroupRequest

        async def ask(node_id: int, ids: list[str]) -> dict[str, bool | KafkaError]:
            version = (await self._cluster.connection(node_id)).version_of(LeaveGroupRequest)
            request = LeaveGroupRequest(group_id=self.group, member_id=self.id)
            if version >= MANY_MEMBERS:
                request = LeaveGroupRequest(
                    group_id=self.group, members=[LeaveGroupRequest.MemberIdentity(member_id=self.id)]
                )
            await self._cluster.call(request, node_id, version=version)
            return {self.group: True}

        await self._coordinators.ask([self.group], ask)

    async def _ask(self, request: Any, patience_ms: int = 0, takes: tuple[Error, ...] = ()) -> Any:
        """Ask the coordinator, which may take so long besides the time of every call; raise its error."""

        async def ask(node_id: int, ids: list[str]) -> dict[str, Any]:
            timeout_ms = self._cluster.timeout_ms + patience_ms
            answer = await self._cluster.call(request, node_id, lane=self, timeout_ms=timeout_ms)
            is_error = answer.error_code and answer.error_code not in takes
            return {self.group: error_of(answer.error_code, f"group {self.group}") if is_error else answer}

        results, errors = await self._coordinators.ask([self.group], ask)
        if errors:
            raise errors[self.group]
        return results[self.group]


# Who has what. wishes: topics by member; partitions: by topic


def range_shares(wishes: Mapping[str, list[str]], partitions: Mapping[str, list[int]]) -> Assignment:
    """Cut each topic into as many pieces as it has readers, the first ones longer by one."""
    shares: Assignment = {member: [] for member in sorted(wishes)}
    for topic in sorted(partitions):
        readers = [member for member in shares if topic in wishes[member]]
        numbers = sorted(partitions[topic])
        start = 0
        for index, member in enumerate(readers):
            end = start + len(numbers) // len(readers) + (index < len(numbers) % len(readers))
            shares[member] += [(topic, number) for number in numbers[start:end]]
            start = end
    return shares


def roundrobin_shares(wishes: Mapping[str, list[str]], partitions: Mapping[str, list[int]]) -> Assignment:
    """Deal partitions out one by one; who does not want a topic is passed over."""
    shares: Assignment = {member: [] for member in sorted(wishes)}
    members = list(shares)
    turn = 0
    for topic in sorted(partitions):
        if not any(topic in topics for topics in wishes.values()):
            continue
        for number in sorted(partitions[topic]):
            while topic not in wishes[members[turn % len(members)]]:
                turn += 1
            shares[members[turn % len(members)]].append((topic, number))
            turn += 1
    return shares


ASSIGNORS = {"range": range_shares, "roundrobin": roundrobin_shares}


def _versioned(value: Any) -> bytes:
    encoded: bytes = value.encode(VERSION)
    return VERSION.to_bytes(2, "big") + encoded


def _assignment(places: list[TopicPartition]) -> bytes:
    Assigned: Any = message("ConsumerProtocolAssignment")
    Row = Assigned.TopicPartition
    rows = [Row(topic=topic, partitions=numbers) for topic, numbers in by_topic(places).items()]
    return _versioned(Assigned(assigned_partitions=rows))


def _subscribed(metadata: bytes) -> list[str]:
    """Return the topics that a member wants; newer versions have more behind what we know."""
    version = min(int.from_bytes(metadata[:2], "big"), ASSIGNMENT_VERSION_MAX)
    wish: Any = message("ConsumerProtocolSubscription").decode_from(metadata, 2, version)[0]
    return list(wish.topics)
