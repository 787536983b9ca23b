"""Random lives of a cluster as its controller decides them, and what must hold after every record.

R3  the leader is in the ISR, one leader for a leader epoch, epochs only rise, ISR changes only by compare-and-set
R5  a leader that was elected cleanly has everything that was committed
R6  nobody joins the ISR that is fenced, stops, or is in another life than the one that caught up

The data is a number: of each replica how many records it has, of each partition how many were committed, that is, were
on every replica in sync while these were at least min.insync.replicas. A crash may take records from a replica.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from minibroker.controller.elections import balance_leaders
from minibroker.controller.partition_change import RECOVERING
from minibroker.controller.registrations import SESSION_TIMEOUT_MS
from minibroker.errors import Error
from minibroker.metadata.image import NO_LEADER, Partition, Topic
from minibroker.protocol.messages.alter_partition import AlterPartitionRequest
from tests.controller.bugs import BUGS
from tests.controller.small_cluster import SmallCluster, elect_request, reassign_request

BROKERS = (1, 2, 3, 4)
STEPS = 150
SEEDS = 60
Key = tuple[str, int]


class ViolationError(Exception):
    pass


def must(holds: bool, rule: str, what: object) -> None:
    if not holds:
        raise ViolationError(f"{rule}: {what}")


class World(SmallCluster):
    """A cluster, what its brokers hold, and what they believe."""

    def __init__(self, seed: int, release: str):
        self.chance = Random(seed)
        self.up: set[int] = set()
        self.unclean: set[int] = set()  # did not stop in order, and will say so
        self.has: dict[tuple[Key, int], int] = {}  # records that a replica has
        self.committed: dict[Key, int] = {}
        self.leaders: dict[tuple[Key, int], int] = {}  # by leader epoch
        self.seen: dict[Key, tuple[int, int, list[int]]] = {}  # leader and partition epoch, ISR
        self.caught_up: dict[tuple[Key, int], int] = {}  # broker epoch in which a follower was last seen to have all
        self.proposals: list[AlterPartitionRequest] = []  # under way, or late
        self.joins: set[tuple[Key, int]] = set()  # whom a proposal that is being decided may bring into an ISR
        self.can_lose = release == "4.4"  # without ELR the last one in the ISR stays eligible, whatever it lost
        super().__init__(BROKERS, release=release)
        self.up = set(BROKERS)
        self.create([1, 2, 3], [2, 3, 4], configs={"min.insync.replicas": "2"})
        self.create([3, 1, 4], name="b", configs={"min.insync.replicas": "1"})

    # What the records say

    def append(self, records: object) -> None:
        super().append(records)  # type: ignore[arg-type]
        for key, topic, partition in self.partitions():
            self.check(key, topic, partition)

    def partitions(self) -> Iterator[tuple[Key, Topic, Partition]]:
        for topic in self.image.topics.values():
            for partition in topic.partitions:
                yield (topic.name, partition.id), topic, partition

    def check(self, key: Key, topic: Topic, partition: Partition) -> None:
        before = self.seen.get(key)
        now = (partition.leader_epoch, partition.partition_epoch, partition.isr)
        if now == before:
            return
        self.seen[key] = now
        shown = (key, before, {name: getattr(partition, name) for name in partition.__slots__})
        leader, isr = partition.leader, partition.isr
        must(set(isr) <= set(partition.replicas) and len(set(isr)) == len(isr), "R3", shown)
        must(not set(isr) & set(partition.elr), "R3", shown)
        must(len(partition.directories) == len(partition.replicas) == len(set(partition.replicas)), "R3", shown)
        must({*partition.adding, *partition.removing} <= set(partition.replicas), "R3", shown)
        if before is not None:
            must(partition.leader_epoch >= before[0] and partition.partition_epoch > before[1], "R3", shown)
            may_join = {broker for joined, broker in self.joins if joined == key} | {leader}
            must(set(isr) <= set(before[2]) | may_join, "R6", shown)
        if leader == NO_LEADER:
            return
        must(leader in isr, "R3", shown)
        must(self.leaders.setdefault((key, partition.leader_epoch), leader) == leader, "R3", shown)
        must(not self.image.brokers[leader].fenced, "R3", shown)
        if self.controller.has_elr and len(isr) >= self.controller.min_in_sync(topic):
            must(not partition.elr, "R3", shown)
        for broker in isr:
            registered = self.image.brokers.get(broker)
            must(registered is not None and not registered.fenced, "R6", shown)
        has = self.has.get((key, leader), 0)
        if partition.leader_recovery_state == RECOVERING:
            self.committed[key] = min(self.committed.get(key, 0), has)
        if leader in self.up:  # or it has crashed, and the controller does not know yet
            must(has >= self.committed.get(key, 0), "R5", (shown, has, self.committed.get(key)))

    # What happens

    def produce(self) -> None:
        """A leader gets records and, if all of the ISR are there, they are committed."""
        for key, topic, partition in self.partitions():
            if partition.leader not in self.up:
                continue
            self.has[key, partition.leader] = self.has.get((key, partition.leader), 0) + 1
            enough = len(partition.isr) >= self.controller.min_in_sync(topic)
            awaited = {*partition.isr, *self.proposed(topic, partition)}
            if enough and awaited <= self.up and self.chance.random() < 0.7:
                for broker in awaited:
                    self.has[key, broker] = self.has[key, partition.leader]
                self.committed[key] = self.has[key, partition.leader]

    def proposed(self, topic: Topic, partition: Partition) -> set[int]:
        """Return who may come into the ISR any moment: a leader waits for them too (the maximal ISR)."""
        return {
            each.broker_id
            for request in self.proposals
            for asked in request.topics
            for part in asked.partitions
            for each in part.new_isr_with_epochs
            if asked.topic_id == topic.id
            and (part.partition_index, part.partition_epoch) == (partition.id, partition.partition_epoch)
        }

    def follow(self) -> None:
        """Some followers catch up; their leaders note in which life."""
        for key, _, partition in self.partitions():
            for broker in partition.replicas:
                if {partition.leader, broker} <= self.up and self.chance.random() < 0.5:
                    self.has[key, broker] = self.has.get((key, partition.leader), 0)
                    self.caught_up[key, broker] = self.image.brokers[broker].broker_epoch

    def propose(self) -> None:
        """A leader proposes an ISR of those it has seen caught up; the message may come late or twice."""
        for key, _, partition in self.partitions():
            if partition.leader in self.up and self.chance.random() < 0.5:
                leader_has = self.has.get((key, partition.leader), 0)
                fit = [
                    broker
                    for broker in partition.replicas
                    if broker == partition.leader
                    # A leader sees what a follower fetched, in the life in which it fetched; not what a crash took.
                    or ((key, broker) in self.caught_up and self.noted(key, broker) >= leader_has)
                ]
                isr = [broker for broker in fit if broker == partition.leader or self.chance.random() < 0.8]
                epochs = {broker: self.caught_up[key, broker] for broker in isr if (key, broker) in self.caught_up}
                epochs.pop(partition.leader, None)
                self.proposals.append(self.alter_request(isr, partition.id, key[0], epochs=epochs))

    def noted(self, key: Key, broker: int) -> int:
        """Return what a leader believes of a follower: what is there now, or was in an earlier life."""
        registered = self.image.brokers.get(broker)
        if registered is not None and registered.broker_epoch == self.caught_up[key, broker]:
            return self.has.get((key, broker), 0)
        return 1 << 30

    def arrive(self) -> None:
        if not self.proposals:
            return
        request = self.proposals[self.chance.randrange(len(self.proposals))]
        if self.chance.random() < 0.7:
            self.proposals.remove(request)
        (asked,) = request.topics
        (part,) = asked.partitions
        topic = self.image.topics_by_id[bytes(asked.topic_id)]
        partition = topic.partitions[part.partition_index]
        key = (topic.name, partition.id)
        epochs = (partition.leader_epoch, partition.partition_epoch)
        self.joins = {(key, each.broker_id) for each in part.new_isr_with_epochs}
        isr = [each.broker_id for each in part.new_isr_with_epochs]
        is_same = isr == partition.isr
        response = self.alter_as(request)
        if not response.error_code and not is_same:
            (answer,) = response.topics[0].partitions
            if answer.error_code in (Error.NONE, Error.NEW_LEADER_ELECTED):
                must(epochs == (part.leader_epoch, part.partition_epoch), "R3", (key, "not compared", epochs))
                for each in part.new_isr_with_epochs:
                    must(self.image.brokers[each.broker_id].broker_epoch == each.broker_epoch, "R6", (key, each))
        self.joins = set()

    def crash(self) -> None:
        """A broker is gone; what was not on disk may be too."""
        if len(self.up) > 1:
            broker = self.chance.choice(sorted(self.up))
            self.up.discard(broker)
            if self.can_lose and self.chance.random() < 0.5:
                for (key, holder), count in self.has.items():
                    if holder == broker:
                        self.has[key, holder] = self.chance.randrange(count + 1)
                self.unclean.add(broker)
            elif self.can_lose:
                self.unclean.add(broker)  # nothing lost, but nobody knows

    def come_back(self) -> None:
        for broker in BROKERS:
            if broker not in self.up and self.chance.random() < 0.5:
                self.lives[broker] = self.lives.get(broker, 0) + 1
                more = {"previous_broker_epoch": -1} if broker in self.unclean else {}
                code = self.register(broker, **more).error_code
                if code:
                    assert code == Error.DUPLICATE_BROKER_REGISTRATION
                    return
                self.unclean.discard(broker)
                self.up.add(broker)
                self.heartbeat(broker)

    def stop_one(self) -> None:
        """A broker asks to stop, and does if it may; otherwise it asks again, or has changed its mind by a crash."""
        broker = self.chance.choice(BROKERS)
        if broker in self.up and len(self.up) > 1:
            for _ in range(self.chance.choice([1, 2, 3])):
                if self.heartbeat(broker, want_shut_down=True).should_shut_down:
                    self.up.discard(broker)
                    return
                for other in sorted(self.up - {broker}):
                    self.heartbeat(other)
            self.up.discard(broker)
            if self.can_lose:
                self.unclean.add(broker)

    def pass_time(self) -> None:
        self.now_ms += self.chance.choice([100, 5000, SESSION_TIMEOUT_MS + 1])
        for broker in sorted(self.up):
            if self.chance.random() < 0.8:
                self.heartbeat(broker)
        while records := self.registrations.expire(self.now_ms):
            self.append(records)

    def elect_some(self) -> None:
        kind = self.chance.choice([0, 0, 0, 1])
        self.elect_as(elect_request(kind, self.chance.choice([None, {"a": [0, 1]}, {"b": [0]}])))

    def move(self) -> None:
        target = self.chance.sample(BROKERS, self.chance.choice([2, 3]))
        topic = self.chance.choice(["a", "b"])
        self.reassign_as(reassign_request(self.chance.choice([target, target, None]), 0, topic))

    def run(self) -> None:
        steps = {self.produce: 6, self.follow: 6, self.propose: 6, self.arrive: 8, self.crash: 1, self.come_back: 2}
        steps |= {self.stop_one: 1, self.pass_time: 3, self.elect_some: 1, self.move: 1}
        for _ in range(STEPS):
            self.chance.choices(list(steps), list(steps.values()))[0]()

    def heal(self) -> None:
        """Everybody comes back, and catches up; then every partition is as it is meant to be (R12)."""
        self.kill(*BROKERS)
        self.up.clear()
        self.proposals.clear()
        for broker in BROKERS:
            self.lives[broker] = self.lives.get(broker, 0) + 1
            more = {"previous_broker_epoch": -1} if broker in self.unclean else {}
            assert not self.register(broker, **more).error_code
            self.up.add(broker)
            self.heartbeat(broker)
        self.elect_as(elect_request(1, None))
        for key, _, partition in list(self.partitions()):
            self.reassign_as(reassign_request(None, partition.id, key[0]))
            for broker in partition.replicas:
                self.has[key, broker] = self.has.get((key, partition.leader), 0)
            self.joins = {(key, broker) for broker in partition.replicas}
            self.alter(list(partition.replicas), partition.id, topic=key[0])
        self.joins = set()
        self.append(balance_leaders(self.controller))
        for key, _, partition in self.partitions():
            must(partition.leader == partition.replicas[0], "R12", key)
            must(set(partition.isr) == set(partition.replicas) and not partition.elr, "R12", key)


@pytest.mark.parametrize("release", ["4.4", "4.0"])
def test_whatever_brokers_and_administrators_do_the_image_keeps_its_rules(release: str) -> None:
    for seed in range(SEEDS):
        world = World(seed, release)
        world.run()
        world.heal()


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.usefixtures("plant")
def test_a_planted_bug_is_found(bug: str) -> None:
    for seed in range(SEEDS):
        try:
            World(seed, "4.4").run()
        except ViolationError:
            return
    pytest.fail(f"nothing was noticed in {SEEDS} seeds")
