"""What must always hold of groups, checked while a cluster runs: at events, and at each answer that a member gets.

The names are those of the project's invariants. G1: epochs rise, and who is not in a group, or at an old epoch, cannot
commit. G2: no partition has two owners, and in the end each has one. G3: a committed offset is a register
(registers.py). G4: who is silent is dropped when its session ends, not earlier and not later; a static member's former
self is fenced.

What a coordinator says counts as long as the controller takes it for the leader in its epoch. One that does not know
yet that it is no more may show old offsets and let dead members live; it can never confirm a commit.
"""

from __future__ import annotations

from typing import NamedTuple

from minibroker.cluster.cluster import Cluster
from minibroker.cluster.nodes import PAUSED, RUNNING
from minibroker.coordinator.hashing import partition_of
from minibroker.coordinator.partitions import RETRY_MS
from minibroker.errors import KafkaError
from minibroker.events import Event
from minibroker.groups import OFFSETS_TOPIC
from minibroker.groups.classic import ClassicGroup
from minibroker.groups.classic_states import COMPLETING, DEAD
from minibroker.groups.consumer import ConsumerGroup
from minibroker.groups.consumer_state import UNREVOKED
from minibroker.groups.offsets_partition import OffsetsPartition
from minibroker.simulation.run import World

from .group_assignors import TopicPartition
from .group_members import Member
from .invariants import Violation
from .registers import Register

SLACK_S = 0.002  # clocks of brokers show whole milliseconds, and an answer takes a while
WRITE_LOOK_MS = 50
ACCEPTED_MS_MAX = 100  # so long a request may be on its way to a broker that runs


class View(NamedTuple):
    """A group as its coordinator had it at one moment."""

    led: OffsetsPartition | None  # None: nobody coordinates it who is known to
    epoch: int = -1  # generation or group epoch
    members: frozenset[str] = frozenset()
    held: frozenset[TopicPartition] = frozenset()  # by the member that is asked for, of a consumer group
    since: int = -1  # the epoch at which that member is


class GroupInvariants:
    """The checks of one cluster; `failure` is the first violation."""

    def __init__(self, world: World, cluster: Cluster):
        self.world = world
        self.cluster = cluster
        self.members: list[Member] = []  # all that there ever were
        self.registers: dict[tuple[str, str, int], Register] = {}
        self.told: dict[tuple[str, int], dict[TopicPartition, Member]] = {}  # by group and generation, who got what
        self.stable: dict[str, int] = {}  # the last epoch of a group that members were given partitions in
        self.expired = 0  # members that were dropped for their silence
        self.commits = 0  # offsets that were acknowledged
        self.checks = 0
        self.failure: Violation | None = None
        self._generations: dict[tuple[OffsetsPartition, str], int] = {}
        self._present: dict[
            tuple[OffsetsPartition, str], dict[str, int]
        ] = {}  # members of consumer groups, their states
        self._forgotten: dict[str, float] = {}  # when a group was deleted
        self._begun: dict[str, float] = {}  # when the last generation of a classic group began
        self._stirred: dict[int, float] = {}  # when a broker was paused or went on last
        self._subscription = cluster.events.subscribe(self.hear)

    def close(self) -> None:
        self._subscription.cancel()
        self.look_for_failure()

    def look_for_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    def register(self, group: str, place: TopicPartition) -> Register:
        key = (group, *place)
        if key not in self.registers:
            self.registers[key] = Register(f"offset of {group} in {place[0]}-{place[1]}")
        return self.registers[key]

    # Looking

    def coordinator(self, group_id: str) -> OffsetsPartition | None:
        """Return who coordinates a group, and knows it."""
        image = self.cluster.controller.image
        topic = image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return None
        number = partition_of(group_id, len(topic.partitions))
        partition = topic.partitions[number]
        node = self.cluster.nodes.get(partition.leader)
        if node is None or self.cluster.states[partition.leader] not in (RUNNING, PAUSED) or not node.is_ready:
            return None
        led = next((each for each in node.groups.led() if each.replica.partition == number), None)
        if led is None or led.epoch != partition.leader_epoch:
            return None
        try:
            led.check(group_id)
        except KafkaError:
            return None
        return led

    def look(self, member: Member) -> View:
        """Return the group of a member as it is now."""
        led = self.coordinator(member.group)
        group = None if led is None else led.shard.find(member.group)
        if isinstance(group, ClassicGroup):
            return View(led, group.generation, frozenset(each.id for each in group.members))
        if isinstance(group, ConsumerGroup):
            state = group.state
            own = state.members.get(member.member_id)
            held = frozenset() if own is None else frozenset(self._places(own.held) + self._places(own.to_revoke))
            return View(led, state.epoch, frozenset(state.members), held, -1 if own is None else own.epoch)
        return View(led)

    def _places(self, held) -> list[TopicPartition]:  # type: ignore[no-untyped-def]
        topics = self.cluster.controller.image.topics_by_id
        return [(topics[topic_id].name, part) for topic_id, parts in held.items() for part in parts]

    def has_run_since(self, led: OffsetsPartition, moment: float) -> bool:
        """Whether a coordinator has neither moved nor stood still since then."""
        return self._stirred.get(led.parts.node_id, -1.0) < moment

    # Events

    def hear(self, event: Event) -> None:
        if self.failure is None:
            try:
                self._hear(event)
            except Violation as violation:
                violation.add_note(f"at {event!r}")
                self.failure = violation

    def _hear(self, event: Event) -> None:
        if event.kind == "broker":
            self._stirred[event.broker] = self.world.loop.time()  # type: ignore[attr-defined]
        elif event.kind == "group":
            self._check_state(event)
        elif event.kind == "append" and event.topic == OFFSETS_TOPIC and event.origin == "coordinator":  # type: ignore[attr-defined]
            node = self.cluster.nodes[event.broker]  # type: ignore[attr-defined]
            for led in node.groups.led():
                for group in led.shard.groups.values() if led.replica.partition == event.partition else ():  # type: ignore[attr-defined]
                    if isinstance(group, ConsumerGroup):
                        self._check_consumer_group(led, group)

    def _check_state(self, event: Event) -> None:
        """A classic group has changed its state."""
        group_id: str = event.group  # type: ignore[attr-defined]
        led = self.coordinator(group_id)
        if event.after == DEAD.name and led is not None and event.broker == led.parts.node_id:  # type: ignore[attr-defined]
            self._forget(group_id)
            return
        group = None if led is None else led.shard.find(group_id)
        if led is None or not isinstance(group, ClassicGroup) or event.broker != led.parts.node_id:  # type: ignore[attr-defined]
            return
        self.checks += 1
        if group_id in led.shard.ending:
            self._forget(group_id)  # it has been deleted, and the row that says so is not committed yet
        if group.state is COMPLETING:
            self._begun[group_id] = self.world.loop.time()
            before = max(self._generations.get((led, group_id), -1), self.stable.get(group_id, -1))
            if group.generation <= before:
                raise Violation("G1", f"{group_id}: generation {group.generation} after {before}")
            self._generations[led, group_id] = group.generation
            for member in group.members:
                if member.joining is None and member.instance_id is None:
                    raise Violation("G2", f"{group_id}: {member.id} is in generation {group.generation}, unasked")
        why: str = event.why  # type: ignore[attr-defined]
        if "silent" in why:
            name = why.split()[0]
            known = [
                each for each in self.members if each.group == group_id and (each.instance_id or each.name) == name
            ]
            self._check_not_early(led, max(known, key=lambda each: each.accepted, default=None))

    def _forget(self, group_id: str) -> None:
        """A group without members and offsets has been deleted; another one of its name begins from the first epoch."""
        self.stable.pop(group_id, None)
        self._forgotten[group_id] = self.world.loop.time()
        self._generations = {key: epoch for key, epoch in self._generations.items() if key[1] != group_id}
        self.told = {key: given for key, given in self.told.items() if key[0] != group_id}

    def _check_consumer_group(self, led: OffsetsPartition, group: ConsumerGroup) -> None:
        self.checks += 1
        state = group.state
        owners: dict[tuple[bytes, int], str] = {}
        for member in state.members.values():
            for held in (member.held, member.to_revoke):
                for topic_id, parts in held.items():
                    for part in parts:
                        other = owners.setdefault((topic_id, part), member.member_id)
                        if other != member.member_id:
                            raise Violation("G2", f"{group.group_id}: {other} and {member.member_id} both have {part}")
            if not member.epoch <= max(state.target_epoch, 0) <= state.epoch:
                epochs = f"{member.epoch}, {state.target_epoch}, {state.epoch}"
                raise Violation("G1", f"{group.group_id}: epochs of {member.member_id}, target, group: {epochs}")
        key = (led, group.group_id)
        if state.epoch < self._generations.get(key, -1):
            raise Violation("G1", f"{group.group_id}: group epoch fell to {state.epoch}")
        if self.coordinator(group.group_id) is led and state.epoch < self.stable.get(group.group_id, -1):
            raise Violation("G1", f"{group.group_id}: group epoch {state.epoch}, members were told of {self.stable}")
        self._generations[key] = state.epoch
        present = self._present.get(key, {})
        for member_id in present.keys() - state.members.keys():
            if present[member_id] != UNREVOKED:
                self._check_not_early(led, next((each for each in self.members if each.member_id == member_id), None))
        self._present[key] = {member_id: member.state for member_id, member in state.members.items()}

    def _check_not_early(self, led: OffsetsPartition, member: Member | None) -> None:
        """Somebody was dropped without a word: it must have been silent for as long as its session."""
        if member is None or member.is_leaving or member.is_replaced or member.accepted_at != led.parts.node_id:
            return
        self.expired += 1
        due = member.accepted + member.session_ms / 1000
        if self.world.loop.time() < due - SLACK_S:
            raise Violation("G4", f"{member} was dropped at {self.world.loop.time():.6f}, not before {due:.6f}")

    async def watch_silence(self, member: Member, silence: int) -> None:
        """Look whether a member that has just fallen silent is dropped when its session is over, and not later."""
        led, began = self.coordinator(member.group), self.world.loop.time()
        if (
            led is None
            or member.silence != silence
            or member.is_joining
            or member.member_id not in self.look(member).members
        ):
            return
        if self.cluster.states[led.parts.node_id] != RUNNING:
            return
        member_id = member.member_id
        until = member.heard if member.heard_by is led else began  # one that has just taken over begins all sessions
        if member.is_asking:
            until = max(until, began + ACCEPTED_MS_MAX / 1000)
        while self.world.loop.time() < (due := self._due(member, until)):
            await self.world.clock.sleep(1000 * (due - self.world.loop.time()))
        if not member.is_classic and member_id in self.look(member).members:
            # It is a row that drops this member: as long as none can be written it stays, and that is tried again.
            while self.coordinator(member.group) is led and not self._can_write(led):
                await self.world.clock.sleep(WRITE_LOOK_MS)
            await self.world.clock.sleep(RETRY_MS + WRITE_LOOK_MS)
            if not self._can_write(led):
                return
        still = self.coordinator(member.group) is led and self.has_run_since(led, began) and member.silence == silence
        if still and member_id in self.look(member).members and self.failure is None:
            self.failure = Violation("G4", f"{member} is silent since {until:.6f}, and still there after its session")

    def _can_write(self, led: OffsetsPartition) -> bool:
        try:
            led.replica.check_append()
        except KafkaError:
            return False
        return True

    def _due(self, member: Member, heard: float) -> float:
        """Return when a session must have ended; in a classic group each generation begins the sessions of all."""
        begun = max(heard, self._begun.get(member.group, 0.0))
        return begun + member.session_ms / 1000 + SLACK_S

    # Answers

    def accepted(self, member: Member, before: View, epoch: int, what: str, places: frozenset[TopicPartition]) -> None:
        """A member was told that what it asked for with an epoch is done: it must have been in then (G1, G4).

        places: that it has committed.
        """
        self.checks += 1
        after = self.look(member)
        if before.led is None or before.led is not after.led:
            return
        if what == "a heartbeat" and before.led.parts.node_id != member.asked:
            return  # of one that does not know yet that it is no coordinator any more
        member.heard_by = after.led
        if member.member_id not in before.members:
            raise Violation("G1", f"{member}: {what} of a member that is not there was accepted")
        if not member.is_classic:
            if epoch < before.since and not places <= before.held:
                raise Violation("G1", f"{member}: {what} with epoch {epoch} for {places}, it is at {before.since}")
        elif epoch != before.epoch:
            raise Violation("G1", f"{member}: {what} with generation {epoch} was accepted, it is {before.epoch}")

    def reached(self, group: str, epoch: int, asked_at: float) -> None:
        """A member was told that it is in this epoch; asked_at: who stood still may hear it of a group that is gone."""
        if asked_at >= self._forgotten.get(group, 0):
            self.stable[group] = max(self.stable.get(group, -1), epoch)

    def given(self, member: Member, epoch: int, places: frozenset[TopicPartition], asked_at: float) -> None:
        """A member was told what it has from now on: nobody else may have it (G2)."""
        self.checks += 1
        if asked_at < self._forgotten.get(member.group, 0):
            return  # of a group that has been deleted since
        view = self.look(member)
        if member.is_classic:
            told = self.told.setdefault((member.group, epoch), {})
            for place in places:
                other = told.setdefault(place, member)
                if other is not member and (member.instance_id is None or other.instance_id != member.instance_id):
                    raise Violation("G2", f"generation {epoch}: {place} was given to {other} and to {member}")
        self.reached(member.group, epoch, asked_at)
        if not member.is_classic and (member.member_id not in view.members or not places <= view.held):
            return  # the answer was under way for long, and is not true any more
        for rival in self.members:
            if rival is member or rival.group != member.group or not rival.owned & places or not rival.is_running:
                continue
            if rival.instance_id is not None and rival.instance_id == member.instance_id:
                continue  # the one was in the other's place, and is to hear of it with its next request
            # A coordinator that is deposed may count a generation of this number too, and assigns nothing in it.
            if rival.member_id in view.members and (rival.epoch == epoch or not rival.is_classic):
                raise Violation("G2", f"{sorted(rival.owned & places)} was given to {member}, and {rival} has it still")
