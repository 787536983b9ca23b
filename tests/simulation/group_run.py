"""Groups of consumers in virtual time, from one seed: coordinators move, members come and go, and nothing is forgotten.

    python -m tests.simulation.group_run 7              one seed; with --lines all that happened
    python -m tests.simulation.group_run --seeds 100    many, and how fast they went
    python -m tests.simulation.group_run --bug session-never-ends --seeds 50     how many it takes to find a planted bug

A seed draws the cluster, a few groups of both protocols (classic: eager or cooperative; static members and others), and
how patient they are. Members join, leave, die without a word, stand still and go on with what they knew; what befalls
brokers is drawn as in cluster_run.py, elections and moves strike the partitions of groups. In the end all heals, the
groups have to settle, and what was told of committed offsets must be what registers would have shown.
"""

from __future__ import annotations

import sys
from asyncio import Task
from collections.abc import Awaitable, Callable
from random import Random

from minibroker.errors import KafkaError
from minibroker.groups import OFFSETS_TOPIC
from minibroker.groups.classic import ClassicGroup
from minibroker.groups.classic_states import STABLE
from minibroker.groups.consumer import ConsumerGroup
from minibroker.log.batches import batches
from minibroker.log.formats import HEADER_BYTES
from minibroker.simulation.disk import SimulatedStorage
from minibroker.simulation.run import World

from .cluster_faults import ClusterFaults
from .damage import Damage
from .fleeting_offsets import CHECK_MS, LASTING, TOPIC, FleetingOffsets
from .foreign_group import ForeignGroup
from .group_invariants import GroupInvariants
from .group_members import ClassicMember, ConsumerMember, Member, Stranger
from .invariants import Invariants, Violation
from .seeded_runs import HEAL_MS_MAX, Runs, drawn_settings, simulated_cluster

FAULTS = 8
DAMAGE_SHARE = 0.25  # of the seeds have disks that are damaged, before anything else befalls the brokers
SETTLE_MS_MAX, CALM_MS, LOOK_MS = 90_000, 3000, 250
MEMBERS_MAX = 4  # of one group, that live
CONSUMER = "consumer"  # a kind of group, beside the assignors of classic ones


class GroupPlan:
    """How the members of one group are."""

    def __init__(self, run: Run, name: str):
        chance = run.chance
        self.run = run
        self.name = name
        self.kind = chance.choice(["eager", "cooperative", CONSUMER, CONSUMER])
        self.session_ms = run.consumer_session_ms if self.kind == CONSUMER else chance.choice([1000, 3000, 6000])
        self.rebalance_ms = chance.choice([1500, 5000])
        # Who hears of a rebalance when it is over is never in.
        self.beat_ms = min(self.session_ms / chance.choice([4, 8]), self.rebalance_ms / 2)
        self.static_share = chance.choice([0, 0, 0.5, 1])
        self.assignors: list[str | None] = chance.choice([[None], ["uniform"], ["range"], ["uniform", "range", None]])
        self.same_topics = chance.random() < 0.6
        self.wishes: dict[str, tuple[str, ...]] = {}  # the topics of each instance id: they do not change
        self.count = 0
        self.members: list[Member] = []

    @property
    def alive(self) -> list[Member]:
        """Those who shall be in the group."""
        return [member for member in self.members if not member.is_dead and not member.is_leaving]

    def start(self, instance_id: str | None = None) -> Member:
        """Let somebody join; instance_id: of one that was there before."""
        run, chance = self.run, self.run.chance
        self.count += 1
        if instance_id is None and chance.random() < self.static_share:
            instance_id = f"{self.name}-instance-{self.count}"
        for other in self.members:
            other.is_replaced = other.is_replaced or (instance_id is not None and other.instance_id == instance_id)
        topics = tuple(run.counts)
        if not self.same_topics and chance.random() < 0.5:
            topics = (chance.choice(topics),)
        if instance_id is not None:
            topics = self.wishes.setdefault(instance_id, topics)
        settings = {
            "topics": topics,
            "counts": run.counts,
            "instance_id": instance_id,
            "session_ms": self.session_ms,
            "rebalance_ms": self.rebalance_ms,
            "beat_ms": self.beat_ms,
        }
        place = (run.world, run.invariants, run.cluster.bootstrap_servers, self.name, f"{self.name}-{self.count}")
        member: Member
        if self.kind == CONSUMER:
            member = ConsumerMember(*place, assignor=chance.choice(self.assignors), **settings)
        else:
            member = ClassicMember(*place, assignor=self.kind, **settings)
        self.members.append(member)
        run.tasks.append(run.world.loop.create_task(member.run()))
        return member


class Run:
    """One seed."""

    def __init__(self, world: World, *, foreign: bool = False):
        """foreign: there is also a group of unmodified aiokafka's consumers."""
        self.world = world
        self.chance = chance = world.chance
        self.min_isr = chance.choice([1, 2, 2, 2])
        self.counts = {"orders": chance.choice([1, 2, 3, 5]), "bills": chance.choice([1, 2])}
        self.consumer_session_ms = chance.choice([1000, 3000, 6000])
        self.assignment_pause_ms = chance.choice([0, 0, 500])
        settings = {
            **drawn_settings(chance, self.min_isr),
            "replica.fetch.wait.max.ms": str(chance.choice([300, 500])),
            "replica.fetch.max.bytes": str(chance.choice([1000, 1 << 20])),
            "log.flush.interval.messages": str(chance.choice([1, 10, 1 << 40])),
            "log.index.size.max.bytes": "4096",
            "offsets.topic.num.partitions": str(chance.choice([1, 1, 2, 3])),
            "offsets.commit.timeout.ms": str(chance.choice([1000, 5000])),
            "group.min.session.timeout.ms": "500",
            "offsets.retention.check.interval.ms": str(CHECK_MS),
            "group.initial.rebalance.delay.ms": str(chance.choice([0, 300, 3000])),
            "group.consumer.session.timeout.ms": str(self.consumer_session_ms),
            "group.consumer.min.heartbeat.interval.ms": "250",
            "group.consumer.heartbeat.interval.ms": "250",
            "group.consumer.min.session.timeout.ms": "500",
            "group.consumer.assignment.interval.ms": str(self.assignment_pause_ms),
        }
        self.cluster = simulated_cluster(world, settings)
        self.log_invariants = Invariants(self.cluster)
        self.log_invariants.fleeting.add(TOPIC)
        self.invariants = GroupInvariants(world, self.cluster)
        self.faults = ClusterFaults(
            world, self.cluster, self.log_invariants, struck=OFFSETS_TOPIC, min_isr=self.min_isr
        )
        harm = Random(f"damage {world.seed}")  # of its own, so that other seeds stay as they are
        is_damaged = harm.random() < DAMAGE_SHARE
        self.damages = Damage(self.faults, harm, [OFFSETS_TOPIC]) if is_damaged else None
        self.tasks: list[Task[None]] = []
        self.is_quiet = False  # nothing befalls members any more
        self.is_over = False
        self.plans: list[GroupPlan] = []
        self.was_skewed = False  # the clock of a broker has been wrong
        self.foreigners = ForeignGroup(self) if foreign else None

    async def go(self) -> int:
        world, chance, cluster, faults = self.world, self.chance, self.cluster, self.faults
        world.loop.sockets.delay_ms = chance.choice([(0.05, 0.15), (0.05, 0.15), (1, 30)])
        await cluster.start_all()
        for node in cluster.nodes.values():
            node.clock.skew_ms = chance.choice([0, 0, chance.randint(-3_600_000, 3_600_000)])
            self.was_skewed = self.was_skewed or node.clock.skew_ms != 0
        for a, b in ((1, 2), (1, 3), (2, 3)):
            if chance.random() < 0.5:
                cluster.links.delay(a, b, chance.uniform(0, 5), jitter_ms=chance.uniform(0, 20))
        for topic, count in self.counts.items():
            cluster.create_topic(topic, count)
        for topic in (TOPIC, LASTING):
            cluster.create_topic(topic, 1)
        self.plans = [GroupPlan(self, f"group-{number}") for number in range(chance.choice([1, 2, 2, 3]))]
        for plan in self.plans:
            for _ in range(chance.randint(1, 3)):
                plan.start()
        if self.foreigners is not None:
            self.foreigners.begin()
        strangers = [self._stranger(name) for name in ("alone", "looker")]
        self.tasks += [world.loop.create_task(self.commit_alone(strangers[0]))]
        self.tasks += [world.loop.create_task(self.look_around(strangers[1]))]
        fleeting = [FleetingOffsets(self, TOPIC), FleetingOffsets(self, LASTING)]
        self.tasks += [world.loop.create_task(each.go()) for each in fleeting]
        while OFFSETS_TOPIC not in cluster.controller.image.topics:
            await world.clock.sleep(100)
        self.tasks += [world.loop.create_task(fleeting[0].make_anew())]
        drawn = chance.sample(faults.all, chance.randrange(2, len(faults.all)))
        self.was_skewed = self.was_skewed or any(name == "skew" for _, name in drawn)
        nemeses = chance.choice([1, 1, 2])
        if nemeses == 1 and chance.random() < 0.3:  # another one would kill whose disk is damaged
            drawn += [(self.damage, "damage")] * 2
        if self.damages is not None:
            await self.damages.go()
        troubles = [world.loop.create_task(faults.rotate(drawn, FAULTS // nemeses)) for _ in range(nemeses)]
        people = world.loop.create_task(self.trouble_members())
        for each in troubles:
            await each
            self.invariants.look_for_failure()
        self.is_quiet = True
        await people
        await faults.heal()
        if self.damages is not None:
            await self.damages.mend_all()
        await cluster.waits.in_sync(timeout=HEAL_MS_MAX / 1000)
        await self.settle()
        if self.foreigners is not None:
            await self.foreigners.end()
        for plan in self.plans:
            for member in plan.alive:
                member.is_leaving = True
        self.is_over = True
        for task in self.tasks:
            await task
        await cluster.waits.in_sync(timeout=HEAL_MS_MAX / 1000)
        await self.look_at_all()
        for each_offsets in fleeting:
            await each_offsets.end()
        for register in self.invariants.registers.values():
            register.check()
        self.log_invariants.check_equal()
        self.invariants.look_for_failure()
        faults.look()
        await cluster.stop_all()
        self.invariants.close()
        self.log_invariants.close()
        faults.check_disks()
        return self.invariants.commits

    # Who is no member

    def _stranger(self, group: str) -> Stranger:
        return Stranger(self.world, self.invariants, self.cluster.bootstrap_servers, group, group)

    async def commit_alone(self, stranger: Stranger) -> None:
        """Commit and look for a group without members."""
        places = [(topic, part) for topic, count in self.counts.items() for part in range(count)]
        while not self.is_over:
            chosen = frozenset(self.chance.sample(places, self.chance.randint(1, len(places))))
            try:
                await (stranger.commit(chosen) if self.chance.random() < 0.5 else stranger.fetch(chosen))
            except KafkaError as error:
                self.world.trace.add(f"{stranger}: {error}")
            await self.world.clock.sleep(self.chance.uniform(0, 1000))
        await stranger.client.close()

    async def look_around(self, stranger: Stranger) -> None:
        """Look at offsets of groups that have members."""
        while not self.is_over:
            try:
                await self._look_at(stranger, self.chance.choice(self.plans).name)
            except KafkaError as error:
                self.world.trace.add(f"{stranger}: {error}")
            await self.world.clock.sleep(self.chance.uniform(0, 1000))
        await stranger.client.close()

    async def _look_at(self, stranger: Stranger, group: str) -> None:
        stranger.turn_to(group)
        await stranger.fetch(frozenset((topic, part) for topic, count in self.counts.items() for part in range(count)))

    async def look_at_all(self) -> None:
        """Look at everything once more, now that all is well."""
        stranger = self._stranger("last")
        for group in dict.fromkeys(group for group, _, _ in self.invariants.registers):
            for left in range(20, -1, -1):
                try:
                    await self._look_at(stranger, group)
                    break
                except KafkaError:
                    if not left:
                        raise
                    await self.world.clock.sleep(500)
        await stranger.client.close()

    # A damaged disk

    async def damage(self) -> None:
        """Damage what one broker has of some groups, and let it coordinate them; then mend it.

        The others have everything, and nothing else befalls them meanwhile.
        """
        cluster, chance = self.cluster, self.chance
        try:
            await cluster.waits.in_sync(timeout=5)
        except TimeoutError:
            return
        broker = chance.choice(cluster.broker_ids)
        number = chance.randrange(len(cluster.controller.image.topics[OFFSETS_TOPIC].partitions))
        replica = cluster.replica(OFFSETS_TOPIC, number, broker)
        storage = cluster.storages[broker]
        if replica is None or not replica.high_watermark or not isinstance(storage, SimulatedStorage):
            return
        path = replica.log.segments[0].path
        view = memoryview(storage.open(path).read_at(0, replica.log.segments[0].size_bytes))
        places = [batch.position for batch in batches(view) if batch.last_offset < replica.high_watermark]
        byte, bit = chance.choice(places) + HEADER_BYTES + chance.randrange(8), chance.randrange(8)
        for is_damaged in (True, False):
            await cluster.stop(broker)
            damaged = self.log_invariants.damaged
            (damaged.add if is_damaged else damaged.discard)(((OFFSETS_TOPIC, number), broker))
            storage.flip(path, byte, bit)
            await cluster.start(broker)
            await cluster.waits.in_sync(timeout=HEAL_MS_MAX / 1000)
            if is_damaged:
                try:
                    cluster.move_leader(OFFSETS_TOPIC, number, broker)
                except KafkaError as error:
                    self.world.trace.add(f"no election: {error}")
                await self.world.clock.sleep(chance.uniform(500, 8000))

    # What befalls members

    async def trouble_members(self) -> None:
        """Let members come and go while brokers are troubled too."""
        acts: list[Callable[[GroupPlan], Awaitable[object]]] = [self.join, self.join, self.leave, self.kill]
        acts += [self.pause, self.pause, self.come_back, self.come_back]
        pace_ms = self.chance.choice([1000, 4000, 10_000])
        while not self.is_quiet:
            await self.world.clock.sleep(pace_ms * self.chance.random())
            act, plan = self.chance.choice(acts), self.chance.choice(self.plans)
            self.world.trace.add(f"-- {plan.name}: {act.__name__}")
            await act(plan)
            self.invariants.look_for_failure()
        for plan in self.plans:
            for member in plan.members:
                if member.process.is_paused:
                    self._resume(member)
                if member.is_replaced and not member.is_dead:  # two of one name would wait for each other's end
                    member.process.kill()
            if not plan.alive:
                plan.start()

    async def join(self, plan: GroupPlan) -> None:
        if len(plan.alive) < MEMBERS_MAX:
            plan.start()

    def _draw(self, plan: GroupPlan) -> Member | None:
        running = [member for member in plan.alive if member.is_running]
        return self.chance.choice(running) if running else None

    async def leave(self, plan: GroupPlan) -> None:
        member = self._draw(plan)
        if member is not None:
            member.is_leaving = True

    async def kill(self, plan: GroupPlan) -> None:
        """Let one die without a word."""
        member = self._draw(plan)
        if member is not None:
            self._silenced(member)
            member.process.kill(silent=self.chance.random() < 0.5)

    async def pause(self, plan: GroupPlan) -> None:
        """Let one stand still, for so long that it may be dropped, and go on with what it knew."""
        member = self._draw(plan)
        if member is None:
            return
        self._silenced(member)
        member.process.pause()
        share = self.chance.choice([0.5, 1.5, 3])
        self.tasks.append(self.world.loop.create_task(self._resume_later(member, share * member.session_ms)))

    async def _resume_later(self, member: Member, delay_ms: float) -> None:
        await self.world.clock.sleep(delay_ms)
        if member.process.is_paused:
            self._resume(member)

    def _resume(self, member: Member) -> None:
        member.silence += 1
        member.process.resume()

    def _silenced(self, member: Member) -> None:
        member.silence += 1
        self.tasks.append(self.world.loop.create_task(self.invariants.watch_silence(member, member.silence)))

    async def come_back(self, plan: GroupPlan) -> None:
        """Let a static member start again: while its former self lives, has just died or left, or long after."""
        members = [member for member in plan.members if member.instance_id is not None and not member.is_replaced]
        if not members:
            return
        member = self.chance.choice(members)
        draw = self.chance.random()
        if member.is_running and not member.is_leaving:
            if draw < 0.3:
                self._silenced(member)
                member.process.kill()
            elif draw < 0.5:
                member.is_leaving = True
            elif plan.kind == CONSUMER:
                return  # it would be refused for as long as that one lives
        await self.world.clock.sleep(self.chance.choice([0, 0.3, 2]) * plan.session_ms * self.chance.random())
        plan.start(member.instance_id)

    # The end

    async def settle(self) -> None:
        """Wait until every group has shared out everything among those who live, and nothing moves for a while."""
        waited_ms = calm_ms = 0
        while calm_ms < CALM_MS:
            problem = self._unsettled()
            calm_ms = 0 if problem else calm_ms + LOOK_MS
            if waited_ms >= SETTLE_MS_MAX:
                raise Violation("G2", f"still not settled after {waited_ms} ms: {problem}")
            await self.world.clock.sleep(LOOK_MS)
            waited_ms += LOOK_MS
            self.invariants.look_for_failure()

    def _unsettled(self) -> str:
        for plan in self.plans:
            alive = plan.alive
            led = self.invariants.coordinator(plan.name)
            group = None if led is None else led.shard.find(plan.name)
            if isinstance(group, ClassicGroup):
                ids, is_stable = {each.id for each in group.members}, group.state is STABLE
            elif isinstance(group, ConsumerGroup):
                ids, is_stable = set(group.state.members), group.state.name == "Stable"
            else:
                return f"{plan.name} is not there"
            if ids != {member.member_id for member in alive}:
                return f"{plan.name} has {sorted(ids)}, alive are {', '.join(map(str, alive))}"
            if not is_stable:
                return f"{plan.name} is not stable"
            wanted = {
                (topic, part)
                for topic, count in self.counts.items()
                if any(topic in member.topics for member in alive)
                for part in range(count)
            }
            owned = [place for member in alive for place in sorted(member.owned)]
            if len(set(owned)) != len(owned) or set(owned) != wanted:
                return f"{plan.name}: {', '.join(f'{member} has {sorted(member.owned)}' for member in alive)}"
        return ""


RUNS = Runs(Run, "commits", "groups")

if __name__ == "__main__":
    sys.exit(RUNS.command(sys.argv[1:]))
