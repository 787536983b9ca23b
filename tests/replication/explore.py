"""Explores what leaders, followers and the controller may come to do: random short schedules, each from one seed.

    python -m tests.replication.explore --schedules 5000
    python -m tests.replication.explore --seed 17 --steps      what happens in one of them, step by step
    python -m tests.replication.explore --bug joins-below-hw   how many schedules it takes to find a planted bug

Three brokers with real logs in memory, the real replicas, a controller that is little more than compare-and-set, and
messages that are late, lost and doubled. Brokers crash, with or without what was not flushed; the controller hears of
it sometime; brokers hear of its decisions sometime. After each step what must always hold is checked, with the names of
the project's invariants (R1, R2, ...); at the end all heals, and everybody must come to agree.

`truth` is what was ever below the high watermark of a leader: that must never be lost. A crash that loses records
spares the last broker that has all of it, for no protocol would survive that. After an unclean election, in one of
eight schedules, the truth is what the one elected has.
Every batch has one record and the same length, so an offset is a position and comparing logs is comparing bytes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from minibroker.errors import Error, KafkaError
from minibroker.log.build import build_batch
from minibroker.log.memory_storage import Content, MemoryStorage
from minibroker.log.records import Record
from minibroker.log.recovery import open_log
from minibroker.log.settings import LogSettings
from minibroker.replication.follower import OUT_OF_RANGE, FetchPosition, FollowerState
from minibroker.replication.leader import FollowerRead, LeaderState, Proposal
from minibroker.replication.replica import Replica
from tests.planting import planted
from tests.replication.made import read_for_follower

BROKERS = (1, 2, 3)
NOBODY = -1
LAG_MS_MAX = 1000
STEPS = 40
ROUNDS_MAX = 40  # in which all have to agree once nothing goes wrong any more
IN_FLIGHT_MAX = 8
SETTINGS = LogSettings(segment_index_bytes=96)
LOG_FILE = "t-0/00000000000000000000.log"
BATCHES = [build_batch(2, [Record(None, b"%04d" % number, (), 1000)]) for number in range(100)]
SIZE = len(BATCHES[0])
LOST_ANSWER = int(Error.NETWORK_EXCEPTION)


class Violation(Exception):
    """Something does not hold."""

    def __init__(self, rule: str, what: str):
        super().__init__(f"{rule}: {what}")
        self.rule = rule


class Registered(NamedTuple):
    """A broker as the metadata have it."""

    broker_epoch: int
    fenced: bool = False
    in_controlled_shutdown: bool = False
    rack: str | None = None


class State(NamedTuple):
    """What the controller has decided."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    brokers: dict[int, Registered]


class NoDivergence:
    epoch = -1
    end_offset = -1


class Answer:
    """What a follower gets."""

    def __init__(self, error: int, read: FollowerRead | None):
        self.error_code = error
        self.high_watermark = self.log_start_offset = -1
        self.diverging_epoch: object = NoDivergence
        self.records: bytes | None = None
        if read is not None:
            self.high_watermark, self.log_start_offset = read.high_watermark, read.log_start_offset
            if read.diverging is not None:
                self.diverging_epoch = read.diverging
            if read.found is not None:
                self.records = bytes(read.found.view())


class Broker:
    """A machine that may be up or down."""

    def __init__(self, broker_id: int, known: State):
        self.id = broker_id
        self.known = known
        self.storage = MemoryStorage(int)
        self.replica: Replica | None = None
        self.broker_epoch = 0
        self.recovery_point = 0
        self.checkpoint = 0  # high watermark
        self.is_lossy = False  # has lost records in its last crash, and is not back
        self.waits: list[tuple[int, int]] = []  # end offset and leader epoch of appends that wait to be replicated
        self.seen: tuple[object, int] = (None, 0)  # role and high watermark at the last check
        self.checked: tuple[object, ...] = ()  # what all the rest depends on, as of the last check

    def find_broker(self, broker_id: int) -> Registered | None:
        return self.known.brokers.get(broker_id)

    def start(self) -> None:
        log = open_log(self.storage, "t-0", SETTINGS, recovery_point=self.recovery_point)
        self.replica = Replica("t", bytes(16), 0, self.id, log, high_watermark=self.checkpoint)
        self.content = self.storage._find(LOG_FILE)
        assert isinstance(self.content, Content)
        self.seen = (None, 0)

    def bytes_below(self, offset: int) -> bytes:
        assert isinstance(self.content, Content)
        return self.content.read(0, offset * SIZE)


Message = tuple[Callable[..., None], tuple[object, ...]]  # what happens when it arrives


class World:
    """One schedule."""

    def __init__(self, seed: int, tell: Callable[[str], object] | None = None):
        self.chance = Random(seed)
        self.tell = tell
        self.min_isr = self.chance.choice((1, 2, 2))
        self.is_unclean = self.chance.random() < 0.125
        self.now_ms = 0
        self.produced = 0
        self.truth = bytearray()
        self.acked = 0
        self.clean_since = 0  # leader epoch: what leaders of before commit does not count, they have been overruled
        self.exempt: set[int] = set()  # whose logs need not have the truth: not in sync since the unclean election
        self.leaders: dict[int, int] = {}  # by epoch
        self.network: list[Message] = []
        self.last_broker_epoch = len(BROKERS)
        self.state = State(1, 0, 0, BROKERS, {number: Registered(number) for number in BROKERS})
        self.history = [self.state]
        self.brokers = {number: Broker(number, self.state) for number in BROKERS}
        for broker in self.brokers.values():
            broker.broker_epoch = broker.id
            broker.start()
            self.apply(broker, self.state)

    def note(self, text: str) -> None:
        if self.tell is not None:
            self.tell(text)

    def run(self, steps: int = STEPS) -> None:
        choices, weights = self._steps()
        for step in self.chance.choices(choices, weights, k=steps):
            step()
            self.check()
        self.heal()

    def _steps(self) -> tuple[list[Callable[[], None]], list[float]]:
        steps: dict[Callable[[], None], float] = {
            self.produce: 7,
            self.fetch: 16,
            self.deliver: 10,
            self.lose: 1,
            self.learn: 6,
            self.tick: 3,
            self.crash: 1.5,
            self.restart: 2,
            self.fence: 1.5,
            self.unfence: 1.5,
            self.move_leader: 2,
            self.flush: 1,
        }
        if self.is_unclean:
            steps[self.elect_unclean] = 1
        return list(steps), list(steps.values())

    def up(self) -> list[Broker]:
        return [broker for broker in self.brokers.values() if broker.replica is not None]

    # The controller

    def change(self, **changes: object) -> None:
        before = self.state
        self.state = state = before._replace(partition_epoch=before.partition_epoch + 1, **changes)  # type: ignore[arg-type]
        if state.leader != before.leader:
            self.state = state = state._replace(leader_epoch=before.leader_epoch + 1)
        if not state.isr or (state.leader != NOBODY and state.leader not in state.isr):
            raise Violation("R3", f"leader {state.leader} is not in the ISR {state.isr}")
        self.history.append(state)
        self.note(
            f"  controller: leader {state.leader} epoch {state.leader_epoch} isr {state.isr} "
            f"partition epoch {state.partition_epoch}"
        )

    def register(self, number: int, registered: Registered) -> None:
        self.state = self.state._replace(brokers={**self.state.brokers, number: registered})
        self.history.append(self.state)

    def remove(self, number: int) -> None:
        """Take a broker that is gone out of the ISR, unless it is the last, and let another one lead."""
        self.register(number, self.state.brokers[number]._replace(fenced=True))
        state = self.state
        isr = tuple(other for other in state.isr if other != number) or state.isr
        leader = state.leader
        if leader == number:
            leader = next((other for other in BROKERS if other in isr and not state.brokers[other].fenced), NOBODY)
        if (leader, isr) != (state.leader, state.isr):
            self.change(leader=leader, isr=isr)

    def alter(self, broker_id: int, broker_epoch: int, proposal: Proposal) -> int:
        state = self.state
        if state.brokers[broker_id].broker_epoch != broker_epoch:
            return Error.STALE_BROKER_EPOCH
        if proposal.leader_epoch < state.leader_epoch:
            return Error.FENCED_LEADER_EPOCH
        if state.leader != broker_id:
            return Error.INVALID_REQUEST
        if proposal.partition_epoch < state.partition_epoch:
            return Error.INVALID_UPDATE_VERSION
        for member, epoch in zip(proposal.in_sync, proposal.broker_epochs):
            if state.brokers[member].fenced or epoch not in (-1, state.brokers[member].broker_epoch):
                return Error.INELIGIBLE_REPLICA
        self.change(isr=proposal.in_sync)
        for member in set(proposal.in_sync) - set(state.isr):
            self.check_joining(broker_id, member)
        return Error.NONE

    def check_joining(self, leader_id: int, member_id: int) -> None:
        leader, member = self.brokers[leader_id].replica, self.brokers[member_id].replica
        if leader is None or member is None or leader.leader_epoch != self.state.leader_epoch:
            return
        role = leader.as_leader()
        if member.log.log_end_offset < max(leader.high_watermark, role.epoch_start_offset):
            raise Violation(
                "R6",
                f"{member_id} joins at {member.log.log_end_offset}: hw {leader.high_watermark}, epoch start "
                f"{role.epoch_start_offset}",
            )

    # What brokers do

    def apply(self, broker: Broker, state: State) -> None:
        """Let a broker know what the controller has decided."""
        broker.known = state
        replica = broker.replica
        assert replica is not None
        if state.leader == broker.id:
            is_new = not replica.is_leader or replica.leader_epoch != state.leader_epoch
            replica.min_in_sync = self.min_isr
            replica.lead(
                state.leader_epoch,
                partition_epoch=state.partition_epoch,
                replicas=BROKERS,
                in_sync=state.isr,
                steady_ms=self.now_ms,
                lag_ms_max=LAG_MS_MAX,
                find_broker=broker.find_broker,
            )
            if is_new:
                self.check_new_leader(broker, replica)
        else:
            replica.follow(
                state.leader, state.leader_epoch, replicas=BROKERS, truncate=lambda *cut: self.truncate(broker, *cut)
            )

    def check_new_leader(self, broker: Broker, replica: Replica) -> None:
        if self.leaders.setdefault(replica.leader_epoch, broker.id) != broker.id:
            raise Violation("R3", f"two lead in epoch {replica.leader_epoch}")
        self.note(
            f"  {broker.id} leads in epoch {replica.leader_epoch} from {replica.log.log_end_offset} on, "
            f"hw {replica.high_watermark}"
        )
        if replica.leader_epoch < max(self.clean_since, self.state.leader_epoch):
            return  # it learns late that it did lead for a while
        own = broker.bytes_below(replica.log.log_end_offset)
        if broker.id in self.exempt:
            kept = 0
            while kept < len(self.truth) and self.truth[kept : kept + SIZE] == own[kept : kept + SIZE]:
                kept += SIZE
            del self.truth[kept:]
            self.acked = min(self.acked, kept // SIZE)
            self.exempt.discard(broker.id)
        elif not own.startswith(self.truth):
            raise Violation("R5", f"{broker.id} leads without what was committed")

    def truncate(self, broker: Broker, offset: int, why: str) -> None:
        replica = broker.replica
        assert replica is not None
        self.note(f"  {broker.id} cuts its log from {replica.log.log_end_offset} to {offset}: {why}")
        if offset < replica.high_watermark and broker.id not in self.exempt:
            raise Violation("R7", f"{broker.id} cuts to {offset}, its hw is {replica.high_watermark}")
        replica.log.recovery_point = min(replica.log.recovery_point, offset)
        replica.log.truncate_to(offset)

    def produce(self) -> None:
        leaders = [broker for broker in self.up() if broker.replica is not None and broker.replica.is_leader]
        if not leaders or self.produced == len(BATCHES):
            return
        broker = self.chance.choice(leaders)
        replica = broker.replica
        assert replica is not None
        end_offset = replica.log.log_end_offset
        try:
            appended = replica.append(
                bytearray(BATCHES[self.produced]), now_ms=self.now_ms, steady_ms=self.now_ms, acks=-1
            )
        except KafkaError as error:
            if error.code != Error.NOT_ENOUGH_REPLICAS or replica.log.log_end_offset != end_offset:
                raise Violation("R8", str(error)) from error
            return
        if len(replica.in_sync) < self.min_isr:
            raise Violation("R8", f"{broker.id} takes records with ISR {replica.in_sync}")
        self.produced += 1
        broker.waits.append((appended.last_offset + 1, replica.leader_epoch))
        self.note(f"{broker.id} appends at {appended.last_offset} in epoch {replica.leader_epoch}")

    def fetch(self) -> None:
        """Let a follower send its next fetch; mostly it arrives at once, and so does the answer."""
        followers = [broker for broker in self.up() if isinstance(self.role(broker), FollowerState)]
        if followers:
            self.send_fetch(self.chance.choice(followers), is_late=self.chance.random() < 0.3)

    @staticmethod
    def role(broker: Broker) -> LeaderState | FollowerState | None:
        return broker.replica.role if broker.replica is not None else None

    def send_fetch(self, broker: Broker, *, is_late: bool = False) -> None:
        role = self.role(broker)
        assert isinstance(role, FollowerState)
        if role.needs_ends:
            leader = self.brokers[role.leader_id].replica
            if leader is not None and leader.is_leader and leader.leader_epoch == role.leader_epoch:
                role.on_leader_ends(leader.log.log_start_offset, leader.log.log_end_offset, self.now_ms)
            return
        wanted = role.next_fetch()
        if wanted is not None:
            self.send(self.at_leader, broker, broker.broker_epoch, role.leader_id, wanted, is_late=is_late)

    def send(self, arrives: Callable[..., None], *message: object, is_late: bool) -> None:
        if is_late and len(self.network) < IN_FLIGHT_MAX:
            self.network.append((arrives, message))
        else:
            arrives(*message)

    def at_leader(self, follower: Broker, broker_epoch: int, leader_id: int, wanted: FetchPosition) -> None:
        leader = self.brokers[leader_id]
        replica = leader.replica
        if replica is None:
            return
        proposal = None
        try:
            read = read_for_follower(
                replica,
                follower.id,
                wanted,
                size_bytes_max=SIZE * self.chance.choice((1, 1, 2, 4)),
                steady_ms=self.now_ms,
                broker_epoch=broker_epoch,
            )
            answer = Answer(Error.NONE, read)
            proposal = read.proposal
        except KafkaError as error:
            answer = Answer(error.code, None)
        self.note(
            f"{follower.id} asks {leader_id} for {tuple(wanted)}: error {answer.error_code}, hw "
            f"{answer.high_watermark}, {len(answer.records or b'') // SIZE} records"
        )
        self.send(self.at_follower, follower, broker_epoch, wanted, answer, is_late=self.chance.random() < 0.1)
        if proposal is not None:
            self.send_proposal(leader, proposal)

    def at_follower(self, follower: Broker, broker_epoch: int, wanted: FetchPosition, answer: Answer) -> None:
        role = self.role(follower)
        if isinstance(role, FollowerState) and follower.broker_epoch == broker_epoch:
            before = follower.replica.log.log_end_offset if follower.replica else 0
            outcome = role.on_fetched(wanted, answer, self.now_ms)  # type: ignore[arg-type]
            self.note(f"  {follower.id}: {outcome} at {before}")
            if outcome == OUT_OF_RANGE:
                self.send_fetch(follower)

    def send_proposal(self, leader: Broker, proposal: Proposal) -> None:
        self.note(f"{leader.id} proposes ISR {proposal.in_sync} from {proposal.partition_epoch}: {proposal.why}")
        is_late = self.chance.random() < 0.5
        self.send(self.at_controller, leader, leader.broker_epoch, proposal, is_late=is_late)

    def at_controller(self, leader: Broker, broker_epoch: int, proposal: Proposal) -> None:
        if all(self.brokers[member].is_lossy for member in proposal.in_sync):
            # It would leave alone in the ISR somebody who has lost records meanwhile. Without eligible leaders
            # (KIP-966) Kafka loses what was committed then; here the message is lost with its sender.
            return
        error = self.alter(leader.id, broker_epoch, proposal)
        is_late = self.chance.random() < 0.3
        self.send(self.at_proposer, leader, broker_epoch, proposal, error, self.state, is_late=is_late)

    def at_proposer(self, leader: Broker, broker_epoch: int, proposal: Proposal, error: int, state: State) -> None:
        role = self.role(leader)
        if not isinstance(role, LeaderState) or leader.broker_epoch != broker_epoch:
            return
        self.note(f"{leader.id} hears {error} of its proposal {proposal.in_sync}")
        again = role.alter_answered(
            proposal,
            error,
            steady_ms=self.now_ms,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            in_sync=state.isr,
        )
        if again is not None and error != Error.STALE_BROKER_EPOCH:
            self.send_proposal(leader, again)

    # What happens to them

    def deliver(self) -> None:
        if self.network:
            index = self.chance.randrange(len(self.network))
            arrives, message = self.network[index]
            if arrives == self.at_controller or self.chance.random() < 0.9:
                # Else it comes twice. Proposals do not: leaders rely on a refusal being the last word.
                del self.network[index]
            arrives(*message)

    def lose(self) -> None:
        """Lose a message; of a proposal the leader notices, and sends it again."""
        if not self.network:
            return
        arrives, message = self.network.pop(self.chance.randrange(len(self.network)))
        self.note(f"lost: {arrives.__name__}")
        if arrives in (self.at_controller, self.at_proposer):
            leader, broker_epoch, proposal = message[:3]
            self.at_proposer(leader, broker_epoch, proposal, LOST_ANSWER, self.state)  # type: ignore[arg-type]

    def learn(self) -> None:
        behind = [broker for broker in self.up() if broker.known is not self.state]
        if behind:
            broker = self.chance.choice(behind)
            following = self.history[self._place(broker.known) + 1 :]
            self.apply(broker, following[0] if self.chance.random() < 0.5 else following[-1])

    def _place(self, state: State) -> int:
        return next(index for index, each in enumerate(self.history) if each is state)

    def tick(self) -> None:
        self.now_ms += self.chance.choice((1, LAG_MS_MAX // 2, LAG_MS_MAX + 1))
        self.check_lag()

    def check_lag(self) -> None:
        for broker in self.up():
            role = self.role(broker)
            if isinstance(role, LeaderState):
                proposal = role.check_lag(self.now_ms)
                if proposal is not None:
                    self.send_proposal(broker, proposal)

    def crash(self) -> None:
        up = self.up()
        if len(up) < 2:
            return
        broker = self.chance.choice(up)
        replica = broker.replica
        assert replica is not None
        log = replica.log
        broker.recovery_point = log.recovery_point
        if self.chance.random() < 0.5:
            broker.checkpoint = replica.high_watermark
        log.release()
        # Somebody has to keep what all had.
        intact = [number for number in self.state.isr if number != broker.id and not self.brokers[number].is_lossy]
        if self.chance.random() < 0.5 and intact:
            broker.is_lossy = True
            kept = self.chance.randint(log.recovery_point, log.log_end_offset)
            assert isinstance(broker.content, Content)
            broker.content.truncate(kept * SIZE)
        self.note(f"{broker.id} crashes{' with loss' if broker.is_lossy else ''}, log end was {log.log_end_offset}")
        broker.replica = None
        broker.waits.clear()

    def restart(self) -> None:
        down = [broker for broker in self.brokers.values() if broker.replica is None]
        if down:
            self.start(self.chance.choice(down))

    def start(self, broker: Broker) -> None:
        """Start a broker: what it may have lost the controller knows before it comes back."""
        self.miss_lossy(broker.id)
        if not self.state.brokers[broker.id].fenced or (broker.is_lossy and broker.id in self.state.isr):
            self.remove(broker.id)
        self.last_broker_epoch += 1
        broker.broker_epoch = self.last_broker_epoch
        broker.is_lossy = False
        broker.start()
        self.note(f"{broker.id} starts with {broker.replica.log.log_end_offset if broker.replica else 0} records")
        self.register(broker.id, Registered(broker.broker_epoch))
        self.lead_if_nobody_does(broker.id)
        self.apply(broker, self.state)

    def lead_if_nobody_does(self, number: int) -> None:
        if self.state.leader == NOBODY and number in self.state.isr:
            self.change(leader=number)

    def fence(self) -> None:
        """Let the controller miss a broker that is down; or one that is up and was not heard of for long."""
        candidates = [number for number in BROKERS if not self.state.brokers[number].fenced]
        if len(candidates) < 2:
            return
        number = self.chance.choice(candidates)
        self.miss_lossy(number)
        self.note(f"the controller fences {number}")
        self.remove(number)

    def miss_lossy(self, besides: int) -> None:
        """Fence those who lost records before somebody else goes: they are not to be the last in sync."""
        for broker in self.brokers.values():
            if broker.is_lossy and broker.id != besides and not self.state.brokers[broker.id].fenced:
                self.remove(broker.id)

    def unfence(self) -> None:
        for broker in self.up():
            registered = self.state.brokers[broker.id]
            if registered.fenced:
                self.register(broker.id, registered._replace(fenced=False))
                self.lead_if_nobody_does(broker.id)
                return

    def move_leader(self) -> None:
        state = self.state
        others = [
            number
            for number in state.isr
            if number != state.leader and not state.brokers[number].fenced and not self.brokers[number].is_lossy
        ]
        if others:
            self.change(leader=self.chance.choice(others))

    def elect_unclean(self) -> None:
        others = [
            broker.id
            for broker in self.up()
            if broker.id not in self.state.isr and not self.state.brokers[broker.id].fenced
        ]
        if others:
            elected = self.chance.choice(others)
            self.note(f"unclean election of {elected}")
            self.change(leader=elected, isr=(elected,))
            self.clean_since = self.state.leader_epoch
            self.exempt = set(BROKERS)

    def flush(self) -> None:
        for broker in self.up():
            if broker.replica is not None and self.chance.random() < 0.5:
                broker.replica.log.flush()
                broker.checkpoint = broker.replica.high_watermark

    # What must hold

    def check(self) -> None:
        for broker in self.brokers.values():
            if broker.replica is not None and isinstance(broker.replica.role, LeaderState):
                self.check_leader(broker, broker.replica, broker.replica.role)
        truth = self.truth
        if self.exempt:
            for number in self.state.isr:
                if self.leaders.get(self.state.leader_epoch) is not None and self.state.leader not in self.exempt:
                    self.exempt.discard(number)
        for broker in self.brokers.values():
            replica = broker.replica
            if replica is None:
                continue
            log, high_watermark = replica.log, replica.high_watermark
            found = (replica, log.log_end_offset, high_watermark, len(truth), self.state, len(self.exempt))
            if found == broker.checked:
                continue
            broker.checked = found
            stable = log.last_stable_offset(high_watermark)
            if not log.log_start_offset <= stable <= high_watermark <= log.log_end_offset:
                raise Violation(
                    "L2", f"{broker.id}: {log.log_start_offset}, {stable}, {high_watermark}, {log.log_end_offset}"
                )
            if broker.id in self.exempt or (replica.is_leader and replica.leader_epoch < self.clean_since):
                continue
            if broker.id in self.state.isr and broker.bytes_below(len(truth) // SIZE) != truth:
                raise Violation("R2", f"{broker.id} is in the ISR {self.state.isr} without all that is committed")
            end = high_watermark * SIZE
            if self.clean_since:
                end = min(end, len(truth))  # what the overruled leader went on to commit nobody has noted
            if end > len(truth) or broker.bytes_below(end // SIZE) != truth[:end]:
                raise Violation("R4", f"{broker.id} has something else below its hw {high_watermark}")

    def check_leader(self, broker: Broker, replica: Replica, role: LeaderState) -> None:
        high_watermark = replica.high_watermark
        seen_role, seen = broker.seen
        broker.seen = (role, high_watermark)
        if broker.id not in role.in_sync:
            raise Violation("R3", f"{broker.id} leads and is not in its ISR {role.in_sync}")
        if seen_role is role:
            if high_watermark < seen:
                raise Violation("R1", f"the hw of {broker.id} falls from {seen} to {high_watermark}")
            if high_watermark > seen:
                self.check_rise(broker, role, high_watermark)
        if replica.leader_epoch < self.clean_since or broker.id in self.exempt:
            return
        if high_watermark * SIZE > len(self.truth):
            committed = broker.bytes_below(high_watermark)
            if not committed.startswith(self.truth):
                raise Violation("R2", f"{broker.id} commits other records than were committed before")
            self.truth[:] = committed
        if broker.waits:
            self.check_acks(broker, replica, role)

    def check_rise(self, broker: Broker, role: LeaderState, high_watermark: int) -> None:
        if len(role.in_sync) < self.min_isr:
            raise Violation("R8", f"the hw of {broker.id} rises with ISR {role.in_sync}")
        maximal = {*role.in_sync, *(role.proposal.in_sync if role.proposal is not None else ())}
        for follower in role.followers.values():
            if follower.broker_id in maximal and follower.end_offset < high_watermark:
                raise Violation("R1", f"hw {high_watermark}, but {follower.broker_id} is at {follower.end_offset}")

    def check_acks(self, broker: Broker, replica: Replica, role: LeaderState) -> None:
        waits = []
        for end_offset, epoch in broker.waits:
            outcome = replica.replicated(end_offset, epoch)
            if outcome is None:
                waits.append((end_offset, epoch))
            elif outcome == Error.NONE:
                members = {*role.in_sync, *(role.proposal.in_sync if role.proposal is not None else ())}
                if end_offset > replica.high_watermark or len(members) < self.min_isr:
                    raise Violation("R8", f"{broker.id} acknowledges {end_offset}, hw {replica.high_watermark}")
                self.acked = max(self.acked, end_offset)
        broker.waits = waits

    def heal(self) -> None:
        """Let nothing go wrong any more; all must agree soon, and have all that was committed."""
        self.note("healing")
        while self.network:
            self.deliver()
            self.check()
        for broker in self.brokers.values():
            if broker.replica is None:
                self.start(broker)
                self.check()
        while any(registered.fenced for registered in self.state.brokers.values()):
            self.unfence()
        for _ in range(ROUNDS_MAX):
            for broker in self.up():
                if broker.known is not self.state:
                    self.apply(broker, self.state)
                    self.check()
            for broker in self.up():
                if isinstance(self.role(broker), FollowerState):
                    self.send_fetch(broker)
                    self.check()
            self.now_ms += 1
            while self.network:
                self.deliver()
                self.check()
            self.check_lag()
            self.check()
            if self.agree():
                return
        raise Violation(
            "R12", f"no agreement: {self.state}, ends {[b.replica.log.log_end_offset for b in self.up() if b.replica]}"
        )

    def agree(self) -> bool:
        if len(self.state.isr) < len(BROKERS):
            return False
        found = set()
        for broker in self.brokers.values():
            replica = broker.replica
            assert replica is not None
            end_offset = replica.log.log_end_offset
            found.add((end_offset, replica.high_watermark, broker.bytes_below(end_offset)))
        if len(found) > 1:
            return False
        end_offset, high_watermark, data = found.pop()
        if end_offset != high_watermark:
            return False
        if self.acked > end_offset or not data.startswith(self.truth):
            raise Violation("R9", f"{self.acked} were acknowledged, {end_offset} are there")
        return True


def explore(seeds: Iterable[int], steps: int = STEPS) -> tuple[int, Violation] | None:
    """Return the first seed in which something does not hold, and what."""
    for seed in seeds:
        try:
            World(seed).run(steps)
        except Violation as violation:
            return seed, violation
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--length", type=int, default=STEPS)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--steps", action="store_true", help="print each step")
    parser.add_argument("--bug", default="")
    given = parser.parse_args()
    with planted(*filter(None, given.bug.split(","))):
        search(given)


def search(given: argparse.Namespace) -> None:
    if given.seed is not None:
        World(given.seed, print if given.steps else None).run(given.length)
        return
    began = time.perf_counter()
    found = explore(range(given.first, given.first + given.schedules), given.length)
    took = time.perf_counter() - began
    count = given.schedules if found is None else found[0] - given.first + 1
    print(f"{count} schedules in {took:.1f} s, {count / took:.0f} a second")
    if found is not None:
        raise SystemExit(f"seed {found[0]}: {found[1]}")


if __name__ == "__main__":
    main()
