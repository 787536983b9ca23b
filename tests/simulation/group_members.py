"""Members of groups in the simulation: they speak the raw protocols through our own connections, each as a process.

    ClassicMember     JoinGroup, SyncGroup, Heartbeat, LeaveGroup; the group's leader uses an assignor of ours
    ConsumerMember    ConsumerGroupHeartbeat (KIP-848)

What a member believes to have is `owned`. It gives up what it is told to give up before it says so. While it is in, it
commits offsets and reads them, also with what it knew before it was stopped: the coordinator must tell it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from minibroker.client import Cluster as Client
from minibroker.errors import Error, KafkaError
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from minibroker.protocol.messages.heartbeat import HeartbeatRequest
from minibroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from minibroker.protocol.messages.leave_group import LeaveGroupRequest
from minibroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from minibroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from minibroker.simulation.processes import Process, ProcessKilled
from minibroker.simulation.run import World

from .group_assignors import (
    ASSIGNORS,
    TopicPartition,
    Wish,
    by_topic,
    decode_share,
    decode_wish,
    encode_share,
    encode_wish,
)
from .invariants import Violation

if TYPE_CHECKING:
    from minibroker.groups.offsets_partition import OffsetsPartition

    from .group_invariants import GroupInvariants

GROUP = 0  # a kind of coordinator
LAST_WITH_NAMES = 9  # of OffsetCommit and OffsetFetch: later versions have ids of topics instead
CALL_MS = 2500  # so long an answer is waited for
NOT_COORDINATING = (Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE)
# Answers to a commit that say that it never counts. After others, or none, it may.
REFUSALS = (
    Error.UNKNOWN_MEMBER_ID,
    Error.ILLEGAL_GENERATION,
    Error.FENCED_INSTANCE_ID,
    Error.STALE_MEMBER_EPOCH,
    Error.REBALANCE_IN_PROGRESS,
    Error.GROUP_ID_NOT_FOUND,
    Error.COORDINATOR_LOAD_IN_PROGRESS,
)
# Who hears these has lost what it had. A coordinator that has just taken over may fence an id that the one before gave
# out, and nobody had yet been told an assignment with: then the member begins anew.
EXPULSIONS = (
    Error.UNKNOWN_MEMBER_ID,
    Error.ILLEGAL_GENERATION,
    Error.FENCED_MEMBER_EPOCH,
    Error.FENCED_INSTANCE_ID,
    Error.GROUP_ID_NOT_FOUND,
)
NO_EPOCH = -1
JOINING, LEAVING, AWAY = 0, -1, -2  # epochs of a consumer group's member


class Caller:
    """Somebody who asks the coordinator of one group."""

    is_classic = True
    member_id = ""
    instance_id: str | None = None
    epoch = NO_EPOCH  # generation of the group or epoch of the member

    def __init__(self, world: World, invariants: GroupInvariants, bootstrap: str, group: str, name: str):
        self.world = world
        self.chance = world.chance
        self.invariants = invariants
        self.group = group
        self.name = name
        self.process: Process = world.loop.process(name)
        self.client = Client(
            bootstrap, client_id=name, clock=world.clock, timeout_ms=CALL_MS, retry_count=2, retry_pause_ms=100
        )
        self.owned: frozenset[TopicPartition] = frozenset()
        self.asked = -1  # the broker that was asked last
        self._coordinator: int | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.member_id or 'no id'}, epoch {self.epoch})"

    @property
    def now(self) -> float:
        return self.world.loop.time()

    async def ask(self, request: Request, *, version: int | None = None, timeout_ms: int = CALL_MS) -> Any:
        """Ask the coordinator, once; who it is is asked first if that is not known."""
        if self._coordinator is None:
            self._coordinator = await self._find()
        self.asked = self._coordinator
        try:
            return await self.client.call(request, self._coordinator, version=version, timeout_ms=timeout_ms)
        except KafkaError:
            self._coordinator = None
            raise

    async def _find(self) -> int:
        request = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=[self.group])
        answer: FindCoordinatorResponse = await self.client.call(request)
        found = answer.coordinators[0]
        _check(found.error_code)
        await self.client.metadata([])
        return found.node_id

    def note(self, code: int) -> None:
        """Look for another coordinator if this one says that it is none."""
        if code in NOT_COORDINATING:
            self._coordinator = None

    # Offsets

    async def commit(self, places: frozenset[TopicPartition], *, epoch: int | None = None) -> None:
        """Commit offsets that nobody has committed before; epoch: another than the present one."""
        registers = {place: self.invariants.register(self.group, place) for place in sorted(places)}
        values = {place: register.attempt(str(self), self.now) for place, register in registers.items()}
        epoch = self.epoch if epoch is None else epoch
        Topic = OffsetCommitRequest.OffsetCommitRequestTopic
        Row = Topic.OffsetCommitRequestPartition
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=epoch,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[
                Topic(
                    name=topic,
                    partitions=[
                        Row(partition_index=part, committed_offset=values[topic, part], committed_metadata=self.name)
                        for part in parts
                    ],
                )
                for topic, parts in by_topic(places)
            ],
        )
        before, began = self.before(), self.now
        answer: OffsetCommitResponse = await self.ask(request, version=LAST_WITH_NAMES)
        errors = {
            (topic.name, row.partition_index): row.error_code for topic in answer.topics for row in topic.partitions
        }
        assert errors.keys() == places
        good = frozenset(place for place, code in errors.items() if code == Error.NONE)
        for place, code in errors.items():
            write = registers[place].writes[values[place]]
            if code == Error.NONE:
                write.end = self.now
                self.invariants.commits += 1
            write.is_refused = code in REFUSALS
        if good:
            self.confirmed(before, began, epoch, "a commit", good)
        for code in errors.values():
            self.note(code)
            _check(code)

    async def fetch(self, places: frozenset[TopicPartition] | None = None) -> None:
        """Look what is committed; None: all that there is."""
        Group = OffsetFetchRequest.OffsetFetchRequestGroup
        rows = None
        if places is not None:
            rows = [
                Group.OffsetFetchRequestTopics(name=name, partition_indexes=parts) for name, parts in by_topic(places)
            ]
        request = OffsetFetchRequest(groups=[Group(group_id=self.group, topics=rows)], require_stable=True)
        led, began = self.invariants.coordinator(self.group), self.now
        answer: OffsetFetchResponse = await self.ask(request, version=LAST_WITH_NAMES)
        found = answer.groups[0]
        self.note(found.error_code)
        _check(found.error_code)
        is_strict = led is not None and self.invariants.coordinator(self.group) is led
        is_strict = is_strict and led is not None and led.parts.node_id == self.asked
        for topic in found.topics:
            for row in topic.partitions:
                _check(row.error_code)
                register = self.invariants.register(self.group, (topic.name, row.partition_index))
                register.see(row.committed_offset, self.name, began, self.now, is_strict=is_strict)

    # What its answers mean

    def before(self) -> Any:
        return None

    def confirmed(self, before: Any, began: float, epoch: int, what: str, places: frozenset[TopicPartition]) -> None:
        """Something was done that was asked for."""


class Member(Caller):
    """One member, from its start to its end."""

    def __init__(
        self,
        world: World,
        invariants: GroupInvariants,
        bootstrap: str,
        group: str,
        name: str,
        *,
        topics: tuple[str, ...],
        counts: Mapping[str, int],
        instance_id: str | None,
        session_ms: int,
        rebalance_ms: int,
        beat_ms: float,
    ):
        super().__init__(world, invariants, bootstrap, group, name)
        self.topics = topics
        self.counts = counts
        self.instance_id = instance_id
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.beat_ms = beat_ms
        self.is_in = False
        self.is_joining = False  # it waits for the others
        self.is_asking = False
        self.is_leaving = False
        self.is_replaced = False  # there is another one of its instance id
        self.has_failed = False  # it was told that it has been replaced
        self.silence = 0  # rises when it falls silent, and when it goes on
        self.accepted = 0.0  # when the last request was sent that was accepted, so that a session begins
        self.accepted_at = -1  # by which broker
        self.heard = 0.0  # when the last answer came
        self.heard_by: OffsetsPartition | None = None  # from whom
        invariants.members.append(self)

    # The process

    @property
    def is_dead(self) -> bool:
        return self.process.is_dead or self.has_failed

    @property
    def is_running(self) -> bool:
        return not self.is_dead and not self.process.is_paused

    async def run(self) -> None:
        """Live, in a process of its own, until the end."""
        with suppress(ProcessKilled):
            await self.process.run(self._live())

    async def _live(self) -> None:
        try:
            while not self.is_leaving:
                try:
                    await self._take_part()
                except KafkaError as error:
                    self.world.trace.add(f"{self}: {error}")
                    self._hear(error)
                    if self.has_failed:
                        break
                    await self.world.clock.sleep(self.chance.uniform(20, 200))
            if not self.has_failed:
                with suppress(KafkaError):
                    await self._leave()
        finally:
            self.owned = frozenset()
            self.is_leaving = True
            await self.client.close()

    def _hear(self, error: KafkaError) -> None:
        """Do what an error asks for."""
        if error.code == Error.FENCED_INSTANCE_ID and self.is_replaced:
            self.has_failed = True
        elif error.code in EXPULSIONS:
            self.lose()
            if error.code != Error.ILLEGAL_GENERATION and self.is_classic:
                self.member_id = ""
        self.note(error.code)

    def lose(self) -> None:
        """Forget what it had: others may have it by now."""
        self.owned = frozenset()
        self.epoch = NO_EPOCH
        self.is_in = False

    async def _take_part(self) -> None:
        raise NotImplementedError

    async def _leave(self) -> None:
        raise NotImplementedError

    async def ask(self, request: Request, *, version: int | None = None, timeout_ms: int = CALL_MS) -> Any:
        self.is_asking = True
        answer = await super().ask(request, version=version, timeout_ms=timeout_ms)
        self.is_asking, self.heard = False, self.now
        return answer

    async def act(self) -> None:
        """Commit and look now and then, as one does who reads."""
        if not self.owned:
            return
        draw = self.chance.random()
        if draw < 0.4:
            await self.commit(
                frozenset(self.chance.sample(sorted(self.owned), self.chance.randint(1, len(self.owned))))
            )
        elif draw < 0.6:
            await self.fetch(self.owned)

    def before(self) -> Any:
        return self.invariants.look(self)

    def confirmed(self, before: Any, began: float, epoch: int, what: str, places: frozenset[TopicPartition]) -> None:
        if self.is_classic or what == "a heartbeat":
            self.accepted, self.accepted_at = began, self.asked
        self.invariants.accepted(self, before, epoch, what, places)


class ClassicMember(Member):
    """One that joins and syncs."""

    def __init__(self, *args: Any, assignor: str, **settings: Any):
        super().__init__(*args, **settings)
        self.assignor = assignor
        self.owned_since = NO_EPOCH

    async def _take_part(self) -> None:
        while not self.is_in and not self.is_leaving:
            await self._join()
        while not self.is_leaving:
            await self.world.clock.sleep(self.beat_ms)
            if self.chance.random() < 0.3 and not await self._act():
                return
            request = HeartbeatRequest(
                group_id=self.group,
                generation_id=self.epoch,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
            )
            before, began = self.before(), self.now
            code = (await self.ask(request)).error_code
            if code in (Error.NONE, Error.REBALANCE_IN_PROGRESS):
                self.confirmed(before, began, self.epoch, "a heartbeat", frozenset())
            if code == Error.REBALANCE_IN_PROGRESS:
                self.is_in = False
                return
            _check(code)
            if not self.is_in or not await self._act():
                return

    async def _act(self) -> bool:
        """Do something; return whether to go on as a member of this generation."""
        try:
            await self.act()
        except KafkaError as error:
            if error.code != Error.REBALANCE_IN_PROGRESS:
                raise
            self.is_in = False
        return self.is_in

    async def _join(self) -> None:
        """Be in the next generation, and take what it gives."""
        if self.assignor == "eager":
            self.owned = frozenset()
        wish = encode_wish(Wish(self.topics, self.owned, self.owned_since))
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=self.assignor, metadata=wish)],
        )
        patience_ms = 2 * self.rebalance_ms + CALL_MS
        self.is_joining = True
        try:
            joined: JoinGroupResponse = await self.ask(request, timeout_ms=patience_ms)
            if joined.error_code == Error.MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
                return
            _check(joined.error_code)
            self.member_id, self.epoch = joined.member_id, joined.generation_id
            shares = []
            if joined.leader == joined.member_id and not joined.skip_assignment:
                shares = self._assign(joined)
            began = self.now
            synced: SyncGroupResponse = await self.ask(
                SyncGroupRequest(
                    group_id=self.group,
                    generation_id=self.epoch,
                    member_id=self.member_id,
                    group_instance_id=self.instance_id,
                    protocol_type="consumer",
                    protocol_name=self.assignor,
                    assignments=shares,
                ),
                timeout_ms=patience_ms,
            )
        finally:
            self.is_joining = False
        if synced.error_code == Error.REBALANCE_IN_PROGRESS:
            return
        _check(synced.error_code)
        self.is_in = True
        self._take(frozenset(decode_share(synced.assignment)), began)

    def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequest.SyncGroupRequestAssignment]:
        wishes = {each.member_id: decode_wish(each.metadata) for each in joined.members}
        shares = ASSIGNORS[self.assignor](wishes, self.counts, joined.generation_id)
        Row = SyncGroupRequest.SyncGroupRequestAssignment
        return [Row(member_id=member_id, assignment=encode_share(share)) for member_id, share in shares.items()]

    def _take(self, places: frozenset[TopicPartition], began: float) -> None:
        lost = self.owned - places
        self.owned, self.owned_since = places, self.epoch
        self.invariants.given(self, self.epoch, places, began)
        if lost:  # somebody else is to have it, in the next generation
            self.is_in = False

    async def _leave(self) -> None:
        if self.member_id and self.instance_id is None:  # a static one just goes
            self.owned = frozenset()
            Identity = LeaveGroupRequest.MemberIdentity
            await self.ask(LeaveGroupRequest(group_id=self.group, members=[Identity(member_id=self.member_id)]))


class ConsumerMember(Member):
    """One that lets the coordinator assign."""

    is_classic = False

    def __init__(self, *args: Any, assignor: str | None, **settings: Any):
        super().__init__(*args, **settings)
        self.assignor = assignor
        self.member_id = f"{self.name}-id"
        self.epoch = JOINING

    def lose(self) -> None:
        super().lose()
        self.epoch = JOINING

    async def _take_part(self) -> None:
        while not self.is_leaving:
            await self._beat()
            await self.world.clock.sleep(self.beat_ms)
            await self.act()

    async def _beat(self) -> None:
        """Tell what it has, and take what it is given."""
        is_new = self.epoch == JOINING
        is_full = is_new or self.chance.random() < 0.3
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=self.rebalance_ms if is_full else -1,
            subscribed_topic_names=list(self.topics) if is_full else None,
            server_assignor=self.assignor if is_full else None,
            topic_partitions=await self._owned(),
        )
        before, began, epoch = self.before(), self.now, self.epoch
        answer: ConsumerGroupHeartbeatResponse = await self.ask(request)
        _check(answer.error_code)
        if is_new:
            self.accepted, self.accepted_at = began, self.asked
        else:
            self.confirmed(before, began, epoch, "a heartbeat", frozenset())
            if answer.member_epoch < epoch:
                raise Violation("G1", f"{self}: its epoch falls to {answer.member_epoch}")
        self.epoch = answer.member_epoch
        self.invariants.reached(self.group, self.epoch, began)
        if answer.assignment is not None:
            names = {topic.id: topic.name for topic in self.client.topics.values()}
            places = frozenset(
                (names[topic.topic_id], part)
                for topic in answer.assignment.topic_partitions
                for part in topic.partitions
            )
            self.owned &= places  # given up before anything else
            self.invariants.given(self, self.epoch, places, began)
            self.owned = places

    async def _owned(self) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
        if any(topic not in self.client.topics for topic in self.counts):
            await self.client.metadata()
        Row = ConsumerGroupHeartbeatRequest.TopicPartitions
        return [Row(topic_id=self.client.topics[topic].id, partitions=parts) for topic, parts in by_topic(self.owned)]

    async def _leave(self) -> None:
        if self.epoch > JOINING:
            self.owned = frozenset()
            epoch = AWAY if self.instance_id is not None else LEAVING
            await self.ask(
                ConsumerGroupHeartbeatRequest(
                    group_id=self.group, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
                )
            )


class Stranger(Caller):
    """Somebody who is no member: commits for a group that has none, looks at the offsets of others."""

    def turn_to(self, group: str) -> None:
        if group != self.group:
            self.group, self._coordinator = group, None


def _check(code: int) -> None:
    if code:
        raise KafkaError(Error(code))
