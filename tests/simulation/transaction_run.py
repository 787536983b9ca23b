"""Transactions in virtual time, from one seed: coordinators, leaders and clients fail, and everything is once or never.

    python -m tests.simulation.transaction_run 7              one seed; with --lines all that happened
    python -m tests.simulation.transaction_run --seeds 100    many, and how fast they went
    python -m tests.simulation.transaction_run --bug one-marker-is-enough     how many it takes to find a planted bug

A seed draws the cluster, a few transactional ids of both protocols, what they write and read, and how patient their
coordinator is. Clients are killed, stand still and go on as zombies, come twice under one id, lose answers; those of
transactions v2 have their requests repeated late. What befalls brokers is drawn as in cluster_run.py; elections and
moves strike data, `__transaction_state` and `__consumer_offsets`, and some faults wait until something has just been
decided, or a marker written. In the end all heals, what was left open is ended, and what clients did and saw is judged
as a whole (history_checks.py).
"""

from __future__ import annotations

import sys
from asyncio import Task
from collections.abc import Coroutine
from contextlib import ExitStack
from contextvars import copy_context
from random import Random
from typing import Any
from unittest.mock import patch

from minibroker.client import Cluster as Client
from minibroker.cluster.cluster import Cluster
from minibroker.cluster.nodes import RUNNING
from minibroker.errors import KafkaError
from minibroker.groups import OFFSETS_TOPIC
from minibroker.protocol.headers import Request
from minibroker.simulation.run import World
from minibroker.transactions import TRANSACTION_STATE_TOPIC
from minibroker.transactions.metadata import EPOCH_MAX_GIVEN, NO_EPOCH, TransactionMetadata

from .cluster_faults import ClusterFaults, Fault
from .history import FAIL, INFO, SEND, Entry, History
from .history_checks import check
from .invariants import Violation
from .seeded_runs import HEAL_MS_MAX, Runs, drawn_settings, simulated_cluster
from .transaction_invariants import TransactionInvariants
from .transactional_clients import (
    Caller,
    Instance,
    OffsetReader,
    Place,
    Processor,
    Reader,
    Successor,
    Writer,
    send_late,
)

FAULTS = 4
INPUT, OUTPUT = "orders", "bills"
CLASSIC, V2, BOTH = "classic", "v2", "both"
PROTOCOLS = [V2, V2, CLASSIC, BOTH]
SETTLE_MS_MAX, TIMED_OUT_MS, LOOK_MS = 90_000, 12_000, 100
LATE_MS_MAX = 8000
TRANSACTIONS, TIRED_MS = 30, 20_000
SENT_MAX = 40
CHANGES_SHARE = 0.3  # of the seeds have topics whose replicas and min.insync.replicas are changed
FEW_EPOCHS_SHARE, EPOCHS_LEFT = 0.15, 3  # of the seeds have producer ids whose epochs are soon used up

with_raised_epoch = TransactionMetadata.with_raised_epoch


def raise_to_the_last_epochs(metadata: TransactionMetadata, *given: Any, **named: Any) -> TransactionMetadata:
    """Let the first epoch of a producer id be one of the last."""
    to = with_raised_epoch(metadata, *given, **named)
    return to._replace(producer_epoch=EPOCH_MAX_GIVEN - EPOCHS_LEFT) if metadata.producer_epoch == NO_EPOCH else to


class TransactionFaults(ClusterFaults):
    """What can befall brokers that have transactions."""

    def __init__(self, run: Run):
        super().__init__(run.world, run.cluster, run.invariants, struck=INPUT, min_isr=run.min_isr)
        self.may_repeat = run.protocol == V2  # links between brokers may repeat messages, and hold them back for long
        self.all += [(self.strike_transaction, "strike a transaction")] * 3
        self.changes: list[Fault] = [(self.shrink, "shrink"), (self.shrink, "shrink"), (self.ask_more, "ask more")]
        self.demanding: set[str] = set()  # topics of which every replica has to be in sync

    def _struck_partition(self) -> int:
        topics = self.cluster.controller.image.topics
        self.struck = self.chance.choice([INPUT, OUTPUT, TRANSACTION_STATE_TOPIC, OFFSETS_TOPIC])
        if self.struck not in topics:
            self.struck = INPUT
        return super()._struck_partition()

    async def delay(self) -> None:
        # A marker of the classic protocol that comes late, or twice, may end the next transaction (KIP-890).
        task = self.world.loop.create_task(super().delay())
        await self.world.clock.sleep(0)
        if not self.may_repeat:
            for link in self.cluster.network.links.values():
                link.twice_share = link.late_share = 0
        await task

    async def strike_transaction(self) -> None:
        """Strike a coordinator that has just decided, a leader that has just written a marker, a group's coordinator.

        That one while it keeps offsets of an open transaction.
        """
        kinds = self.chance.choice([["transaction"], ["marker"], ["transaction", "marker"]])
        try:
            event = await self.world.events.wait_for(_is_struck, kinds, timeout_ms=self.chance.uniform(0, 5000))
        except TimeoutError:
            return
        broker: int = event.broker  # type: ignore[attr-defined]
        if getattr(event, "after", "") == "Ongoing":
            await self.world.clock.sleep(self.chance.choice([20, 200]) * self.chance.random())
            broker = self.cluster.partition(OFFSETS_TOPIC, 0).leader
        if self.cluster.states.get(broker) != RUNNING:
            return
        act = self.chance.choice(["kill", "kill", "pause", "move", "cut"])
        self.world.trace.add(f"-- {act} {broker}")
        if act == "kill":
            if not self.owes():
                await self.cluster.kill(broker, notice=self.chance.random() < 0.8)
            await self._pause_then_start()
        elif act == "pause":
            self.cluster.pause(broker)
            await self.world.clock.sleep(self.chance.choice([100, 8000]) * self.chance.random())
            self.cluster.resume(broker)
        elif act == "move":
            self._move(getattr(event, "topic", OFFSETS_TOPIC), getattr(event, "partition", 0))
        else:
            self.cluster.links.isolate(broker)
            await self.world.clock.sleep(self.chance.choice([100, 8000]) * self.chance.random())
            self.cluster.links.heal()

    async def shrink(self) -> None:
        """Take followers away from partitions, and give them back: leaders stay, and lead in other epochs."""
        for _ in range(self.chance.randint(1, 8)):
            number = self._struck_partition()
            before = self.cluster.partition(self.struck, number)
            followers = [broker for broker in self.cluster.broker_ids if broker != before.leader]
            if len(before.replicas) > 2:
                followers = [self.chance.choice(followers)]
            self._reassign(number, [before.leader, *followers])
            await self.world.clock.sleep(self.chance.choice([20, 300, 3000]) * self.chance.random())

    async def ask_more(self) -> None:
        """Let topics ask for every replica to be in sync, for a while."""
        for _ in range(self.chance.randint(1, 4)):
            self._struck_partition()
            self.demanding.add(self.struck)
            self._set_min_isr(self.struck, len(self.cluster.broker_ids))
            await self.world.clock.sleep(self.chance.choice([20, 300, 5000]) * self.chance.random())
        self._ask_as_before()

    def _ask_as_before(self) -> None:
        for topic in sorted(self.demanding):
            self._set_min_isr(topic, self.min_isr)
            self.demanding.discard(topic)

    def _set_min_isr(self, topic: str, count: int) -> None:
        self.cluster.alter_topic(topic, **{"min.insync.replicas": str(count)})

    async def heal(self) -> None:
        await super().heal()
        self._ask_as_before()

    def _move(self, topic: str, number: int) -> None:
        try:
            self.cluster.move_leader(topic, number, self.chance.choice(self.cluster.broker_ids))
        except (KafkaError, KeyError) as error:
            self.world.trace.add(f"no election: {error}")


def _is_struck(event: Any) -> bool:
    if event.kind == "marker" or event.after.startswith("Prepare"):
        return True
    return event.after == "Ongoing" and any(place.startswith(OFFSETS_TOPIC) for place in event.partitions)


class TransactionalId:
    """One, and the lives of its producers."""

    def __init__(self, run: Run, name: str, place: Place | None = None):
        """place: what is processed; None: its producers only write."""
        self.run = run
        self.name = name
        self.place = place
        self.lives: list[Instance] = []
        self.timeout_ms = run.chance.choice([1500, 3000, 6000])
        self.is_v2 = run.protocol == V2 or (run.protocol == BOTH and run.chance.random() < 0.5)

    def begin(self) -> Task[None]:
        """Let another one come; whoever is there is to be fenced."""
        run, life = self.run, len(self.lives) + 1
        instance: Instance
        if self.place is None:
            instance = Writer(run, self.name, life, is_v2=self.is_v2, timeout_ms=self.timeout_ms)
        else:
            instance = Processor(run, self.name, life, self.place, is_v2=self.is_v2, timeout_ms=self.timeout_ms)
        self.lives.append(instance)
        return run.begin(instance.live())

    async def supervise(self) -> None:
        """Let one come after the other, as a service does that is started again."""
        while not self.run.is_over:
            await self.begin()
            await self.run.world.clock.sleep(self.run.chance.choice([0, 100, 2000]) * self.run.chance.random())


class Run:
    """One seed."""

    # The classic protocol cannot tell a late request to end a transaction from one to end the next; nor can Kafka's.
    repeats_classic = False

    def __init__(self, world: World):
        self.world = world
        self.chance = chance = world.chance
        self.min_isr = chance.choice([1, 2, 2, 2])
        self.counts = {INPUT: chance.choice([1, 2, 3]), OUTPUT: chance.choice([1, 2])}
        self.written: list[Place] = [(INPUT, number) for number in range(self.counts[INPUT])]
        self.made: list[Place] = [(OUTPUT, number) for number in range(self.counts[OUTPUT])]
        self.read = self.written + self.made
        self.protocol = chance.choice(PROTOCOLS)
        self.lost_share = chance.choice([0, 0.02, 0.1])  # of answers do not reach clients
        self.repeated_share = chance.choice([0, 0.05, 0.3])  # of requests come once more, late
        # Of a draw of its own, so that other seeds stay as they are.
        self.has_changes = Random(f"changes {world.seed}").random() < CHANGES_SHARE
        self.has_few_epochs = chance.random() < FEW_EPOCHS_SHARE
        if self.protocol != V2 and not self.repeats_classic:
            self.repeated_share = 0
        self.pauses_ms = chance.choice([(0, 500, 6000), (2000, 4000)])  # of producers between transactions
        self.fetch_bytes = chance.choice([150, 150, 1 << 20])  # of a partition in one fetch
        self.slow_share = chance.choice([0, 0, 0.05])  # of transactions are open for about as long as they may
        settings = {
            **drawn_settings(chance, self.min_isr),
            "broker.heartbeat.interval.ms": "1000",
            "replica.fetch.max.bytes": str(chance.choice([300, 1 << 20])),
            "log.flush.interval.messages": str(chance.choice([1, 10, 1 << 40])),
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": str(chance.choice([1, 2])),
            "transaction.state.log.min.isr": str(self.min_isr),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            "request.timeout.ms": "3000",
            "transaction.partition.verification.enable": chance.choice(["true", "true", "false"]),
            "log.index.size.max.bytes": "4096",
            "replica.fetch.wait.max.ms": "1000",
        }
        self.cluster: Cluster = simulated_cluster(world, settings)
        self.cluster.network.encodes = chance.random() < 0.1
        self.history = History()
        self.transactions: list[tuple[Instance, Entry, Any]] = []
        self.transaction_of: dict[int, int] = {}  # value -> where its transaction was asked for
        self.invariants = TransactionInvariants(self.cluster, self.transaction_of_value)
        self.faults = TransactionFaults(self)
        self.tasks: list[Task[None]] = []
        self.is_over = False
        self.was_skewed = False  # the clock of a broker may be wrong
        self.ids = [TransactionalId(self, f"writer-{number}") for number in range(chance.choice([1, 1, 2]))]
        processed = chance.sample(self.written, chance.randint(0, min(2, len(self.written))))
        self.ids += [TransactionalId(self, f"processor-{place[1]}", place) for place in processed]
        self.late: Client  # what it asks comes late
        self.sent: dict[str, list[tuple[Request, int, int]]] = {}  # by transactional id what can come late
        self._processes = self._values = 0
        self._context = copy_context()

    def begin(self, work: Coroutine[Any, Any, None]) -> Task[None]:
        """Begin something that belongs to no process, whoever says so."""
        task = self.world.loop.create_task(work, context=self._context.copy())
        self.tasks.append(task)
        return task

    # What clients ask the run

    def next_process(self) -> int:
        self._processes += 1
        return self._processes

    def next_value(self) -> int:
        self._values += 1
        return self._values

    def pause_ms(self) -> float:
        """Return how long a producer waits before its next transaction; a run that has had many goes on slowly."""
        pauses_ms = self.pauses_ms if len(self.transactions) < TRANSACTIONS else (TIRED_MS,)
        return self.chance.choice(pauses_ms) * self.chance.random()

    def transaction_of_value(self, value: int) -> int:
        if value not in self.transaction_of:
            for _, entry, _ in self.transactions:
                for op in entry["value"]:
                    if op[0] == SEND:
                        self.transaction_of[op[2]] = entry["index"]
        return self.transaction_of[value]

    def leading_groups(self) -> tuple[int, int] | None:
        """Return who coordinates groups, and in which epoch."""
        topic = self.cluster.controller.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return None
        leader = self.cluster.leader(OFFSETS_TOPIC, 0)
        return None if leader is None else (leader.node_id, leader.leader_epoch)

    def end_of(self, place: Place) -> int:
        leader = self.cluster.leader(*place)
        assert leader is not None
        return leader.log.last_stable_offset(leader.high_watermark)

    def repeat(self, instance: Instance, request: Request, version: int, node: int) -> None:
        """Have a request arrive once more, sooner or later: in transactions v2 nothing may come of it."""
        if not self.repeated_share:
            return
        self.sent.setdefault(instance.transactional_id, []).append((request, version, node))
        if self.chance.random() < self.repeated_share:
            late_ms = self.chance.choice([10, 500, LATE_MS_MAX]) * self.chance.random()
            self.begin(self._repeat(request, version, node, late_ms))

    async def repeat_old(self, instance: Instance) -> None:
        """While a transaction is open, have something arrive that an earlier one of its id has sent."""
        if self.repeated_share and self.chance.random() < 2 * self.repeated_share:
            request, version, node = self.chance.choice(self.sent[instance.transactional_id][-SENT_MAX:])
            self.begin(self._repeat(request, version, node, 0))
            await self.world.clock.sleep(self.chance.uniform(0, 100))

    async def _repeat(self, request: Request, version: int, node: int, late_ms: float) -> None:
        await self.world.clock.sleep(late_ms)
        await send_late(self.late, request, version, node)

    # From the beginning to the end

    async def go(self) -> int:
        with ExitStack() as stack:
            if self.has_few_epochs:
                patched = patch.object(TransactionMetadata, "with_raised_epoch", raise_to_the_last_epochs)
                stack.enter_context(patched)
            return await self._go()

    async def _go(self) -> int:
        world, chance, cluster, faults = self.world, self.chance, self.cluster, self.faults
        world.loop.sockets.delay_ms = chance.choice([(0.05, 0.15), (0.05, 0.15), (1, 30)])
        await cluster.start_all()
        self.late = Client(cluster.bootstrap_servers, clock=world.clock, retry_count=0)
        for a, b in ((1, 2), (1, 3), (2, 3)):
            if chance.random() < 0.5:
                cluster.links.delay(a, b, chance.uniform(0, 5), jitter_ms=chance.uniform(0, 20))
        for topic, count in self.counts.items():
            cluster.create_topic(topic, count)
        supervised = [world.loop.create_task(each.supervise()) for each in self.ids]
        lookers: list[Caller] = [Reader(self, "reader", committed=True)]
        if chance.random() < 0.3:
            lookers.append(Reader(self, "all-reader", committed=False))
        if any(each.place is not None for each in self.ids):
            lookers.append(OffsetReader(self, "offset-reader"))
        for looker in lookers:
            self.begin(looker.live())
        drawn = chance.sample(faults.all, chance.randrange(2, len(faults.all)))
        self.was_skewed = any(name == "skew" for _, name in drawn)
        nemeses = chance.choice([1, 1, 2])
        troubles = [world.loop.create_task(faults.rotate(drawn, FAULTS // nemeses)) for _ in range(nemeses)]
        if self.has_changes:
            troubles.append(world.loop.create_task(faults.rotate(faults.changes, FAULTS)))
        people = world.loop.create_task(self.trouble_clients())
        for each in troubles:
            await each
        self.is_over = True
        await people
        await faults.heal()
        await cluster.waits.in_sync(timeout=HEAL_MS_MAX / 1000)
        for task in (*supervised, *self.tasks):
            await task
        faults.look()
        await self.settle()
        await cluster.waits.in_sync(timeout=HEAL_MS_MAX / 1000)
        await self.read_all()
        self.invariants.check_equal()
        self.invariants.check_over()
        faults.look()
        await self.late.close()
        await cluster.stop_all()
        self.invariants.close()
        faults.check_disks()
        self.judge()
        return self.invariants.committed

    async def trouble_clients(self) -> None:
        """Let producers die, stand still and go on, and come twice."""
        chance, pace_ms = self.chance, self.chance.choice([1000, 4000, 1_000_000])
        while not self.is_over:
            waited_ms = min(pace_ms * chance.random(), 1000)
            await self.world.clock.sleep(waited_ms)
            if chance.random() * pace_ms > 1000:
                continue
            found = chance.choice(self.ids)
            alive = [each for each in found.lives if not each.process.is_dead and not each.process.is_paused]
            act = chance.choice(["kill", "pause", "pause", "twice"])
            if not alive or len(found.lives) > 30:
                continue
            self.world.trace.add(f"-- {found.name}: {act}")
            if act == "kill":
                alive[-1].process.kill(silent=chance.random() < 0.5)
            elif act == "twice":
                found.begin()
            else:
                alive[-1].process.pause()
                if chance.random() < 0.7:
                    found.begin()
                pause_ms = chance.choice([500, 5000]) * chance.random()
                self.begin(self._resume(alive[-1], pause_ms))
        for found in self.ids:
            for each in found.lives:
                if each.process.is_paused:
                    each.process.resume()

    async def _resume(self, instance: Instance, pause_ms: float) -> None:
        await self.world.clock.sleep(pause_ms)
        if instance.process.is_paused:
            instance.process.resume()

    async def settle(self) -> None:
        """Wait until every transaction has ended, by itself or because its time is over."""
        waited_ms = 0
        while problem := self._unsettled():
            if waited_ms == TIMED_OUT_MS and self.was_skewed:
                # A coordinator whose clock was wrong, here as with Kafka, does not see for how long something was open.
                for each in self.ids:
                    await Successor(self, each.name, 0, is_v2=each.is_v2, timeout_ms=each.timeout_ms).live()
            if waited_ms >= SETTLE_MS_MAX:
                raise Violation("R12", f"still not settled after {waited_ms} ms: {problem}")
            await self.world.clock.sleep(LOOK_MS)
            waited_ms += LOOK_MS
            self.faults.look()

    def _unsettled(self) -> str:
        for name, metadata in self.invariants.ids.items():
            if metadata.state.name not in ("Empty", "CompleteCommit", "CompleteAbort"):
                return f"{name} is {metadata.state}"
        for key, _ in self.faults.partitions():
            leader = self.cluster.leader(*key)
            if leader is None or leader.log.last_stable_offset(leader.high_watermark) != leader.log.log_end_offset:
                return f"{key} is not at its end"
        return ""

    async def read_all(self) -> None:
        """Read everything once more, now that all is well."""
        for instance, entry, _ in self.transactions:
            if instance.entry is entry:  # its process is dead
                instance.conclude(INFO if instance.asked else FAIL)
        await Reader(self, "last", committed=True).read_to_end()
        if OFFSETS_TOPIC in self.cluster.controller.image.topics:
            await OffsetReader(self, "last-offsets").look_at_all()

    def judge(self) -> None:
        """Judge what clients did and saw."""
        report = check(self.history.entries)
        for name, found in report.violations.items():
            raise Violation(name, f"{len(found)} of them: {found[0]}")


RUNS = Runs(Run, "transactions committed", "transactions")

if __name__ == "__main__":
    sys.exit(RUNS.command(sys.argv[1:]))
