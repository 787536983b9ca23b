"""Master and brokers of an instance in virtual time: reports and answers come late, twice or never.

A seed is the whole input of a run. After each step the shares in force must come to no more than the rule's total, and
when nothing goes wrong any more they must settle, with something for everybody.
"""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from minibroker.instances.flow_control import CKAFKA, RULES, SCALED, shares_total_max
from minibroker.instances.master import FlowMaster
from minibroker.instances.reports import NO_FLOW, Flow, Report, Share, ShareHolder

LEASE_MS, INTERVAL_MS = 10_000, 1000
PROMISED = Flow(1000.0, inf)
PARTITIONS = {1: 4, 2: 1, 3: 1}


class World:
    """Three brokers, masters that follow each other, and messages under way."""

    def __init__(self, seed: int, rule: str):
        self.random = Random(seed)
        self.rule = rule
        self.now_ms = 1_000_000
        self.epoch = 0
        self.brokers: dict[int, ShareHolder] = {}
        self.demand = dict.fromkeys(PARTITIONS, 9999.0)
        self.cut: set[int] = set()  # brokers that the master does not reach
        self.loss, self.delay_ms_max = 0.0, 20
        self.messages: list[tuple[int, int, int, Report | Share]] = []
        self.due_ms: dict[int, int] = {}
        self.new_master()
        for broker in PARTITIONS:
            self.start(broker)

    def new_master(self) -> None:
        self.epoch += 1
        self.master = FlowMaster(self.epoch, PROMISED, PARTITIONS, LEASE_MS, self.now_ms, rule=self.rule)

    def start(self, broker: int) -> None:
        self.brokers[broker] = ShareHolder(broker, self.now_ms, NO_FLOW, LEASE_MS, self.now_ms)
        self.due_ms[broker] = self.now_ms

    def send(self, broker: int, message: Report | Share) -> None:
        for _ in range(self.random.choice((1, 1, 2)) if self.loss else 1):
            if broker not in self.cut and self.random.random() >= self.loss:
                at_ms = self.now_ms + self.random.randrange(1, self.delay_ms_max)
                self.messages.append((at_ms, self.random.randrange(1 << 30), broker, message))

    def produced(self) -> dict[int, float]:
        return {broker: each.flow(self.now_ms).produced for broker, each in self.brokers.items()}

    def step(self) -> None:
        self.now_ms += 10
        for message in sorted(each for each in self.messages if each[0] <= self.now_ms):
            self.messages.remove(message)
            _, _, broker, body = message
            if isinstance(body, Share):
                self.brokers[broker].take(body, self.now_ms)
            elif share := self.master.take(body, self.now_ms):
                self.send(broker, share)
        for broker, holder in self.brokers.items():
            if self.due_ms[broker] <= self.now_ms:
                used = Flow(min(self.demand[broker], holder.flow(self.now_ms).produced), 5.0)
                self.send(broker, holder.report(used, 0, self.now_ms))
                self.due_ms[broker] += INTERVAL_MS

    def check(self) -> None:
        total = sum(self.produced().values())
        assert total <= shares_total_max(1000, PARTITIONS, self.rule) * (1 + 1e-6), (self.now_ms, self.produced())

    def run(self, duration_ms: int) -> None:
        for _ in range(duration_ms // 10):
            self.step()
            self.check()

    def misfortune(self) -> None:
        kind = self.random.randrange(7)
        if kind == 0:
            self.new_master()
            self.messages = [each for each in self.messages if isinstance(each[3], Share)]
        elif kind == 1:
            self.start(self.random.choice(list(PARTITIONS)))
        elif kind == 2:
            self.cut ^= {self.random.choice(list(PARTITIONS))}
        elif kind == 3:
            self.cut = set()
        elif kind == 4:
            self.loss = self.random.choice((0.0, 0.3, 0.7))
        elif kind == 5:
            self.delay_ms_max = self.random.choice((20, 1500, 15_000))
        else:
            self.demand[self.random.choice(list(PARTITIONS))] = self.random.choice((0.0, 50.0, 300.0, 9999.0))

    def heal(self) -> None:
        self.cut, self.loss, self.delay_ms_max = set(), 0.0, 20


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(8))
def test_shares_in_force_come_to_the_rules_total_whatever_is_late_lost_or_doubled(seed: int, rule: str) -> None:
    world = World(seed, rule)
    for _ in range(30):
        world.misfortune()
        world.run(world.random.choice((500, 3000, 12_000)))
    world.heal()
    world.run(120_000)
    before = world.produced()
    world.run(10_000)
    assert world.produced() == pytest.approx(before, abs=10)
    assert min(world.produced().values()) > 0


def settled(rule: str = SCALED) -> World:
    world = World(0, rule)
    world.demand = {1: 0.0, 2: 9999.0, 3: 0.0}
    world.run(90_000)
    return world


def test_a_busy_broker_is_given_what_others_do_not_use() -> None:
    assert settled().produced() == pytest.approx({1: 83.333, 2: 833.333, 3: 83.333}, abs=0.1)
    assert settled(CKAFKA).produced() == pytest.approx({1: 100.0, 2: 1000.0, 3: 100.0}, abs=0.1)


def test_a_broker_that_loses_the_master_keeps_its_share_for_a_lease_and_then_has_f() -> None:
    world = settled()
    world.cut = {1, 2, 3}
    world.run(LEASE_MS - 1500)
    assert world.produced()[2] == pytest.approx(833.3, abs=0.1)
    world.run(2000)
    assert world.produced()[2] == pytest.approx(1000 / 6)
    assert world.produced()[1] == pytest.approx(83.3, abs=0.1)  # others may not have fallen back yet
    world.run(LEASE_MS)
    assert world.produced() == pytest.approx({1: 4000 / 6, 2: 1000 / 6, 3: 1000 / 6})


def test_when_one_broker_is_silent_nobody_keeps_more_than_f() -> None:
    world = settled()
    world.cut = {1}
    world.run(2 * LEASE_MS + 1000)
    assert world.produced()[2] == pytest.approx(1000 / 6)


def test_a_new_master_begins_from_f() -> None:
    world = settled()
    world.new_master()
    world.run(1500)
    assert world.produced() == pytest.approx({1: 83.3, 2: 1000 / 6, 3: 83.3}, abs=0.1)  # it only lowers
    world.run(LEASE_MS + 1000)
    assert world.produced() == pytest.approx({1: 4000 / 6, 2: 1000 / 6, 3: 1000 / 6})


@pytest.mark.parametrize("partitions", [{1: 3, 2: 3}, {1: 3, 2: 3, 3: 0}], ids=["unregistered", "fenced"])
def test_what_a_dead_broker_had_is_given_to_the_others_when_they_lead_its_partitions(
    partitions: dict[int, int],
) -> None:
    master = FlowMaster(1, Flow(100.0, inf), {1: 2, 2: 2, 3: 2}, LEASE_MS, -LEASE_MS)
    holders = {broker: ShareHolder(broker, 1, Flow(100 / 3, inf), LEASE_MS, 0) for broker in (1, 2, 3)}
    now_ms = 0

    def run(seconds: int, *brokers: int) -> list[float]:
        nonlocal now_ms
        for _ in range(seconds):
            now_ms += INTERVAL_MS
            for broker in brokers:
                used = Flow(holders[broker].flow(now_ms).produced, 0.0)
                if share := master.take(holders[broker].report(used, 0, now_ms), now_ms):
                    holders[broker].take(share, now_ms)
        return [holders[broker].flow(now_ms).produced for broker in brokers]

    assert run(60, 1, 2, 3) == pytest.approx([33.3, 33.3, 33.3], abs=0.1)
    master.set_partitions(partitions)
    assert sum(run(2 * LEASE_MS // INTERVAL_MS - 1, 1, 2)) < 67  # the third one may still be there, and use it
    assert run(60, 1, 2) == pytest.approx([50, 50], abs=0.1)
    if 3 in partitions:  # it comes back, and some of what it had led
        master.set_partitions({1: 2, 2: 2, 3: 2})
        holders[3] = ShareHolder(3, 2, NO_FLOW, LEASE_MS, now_ms)
        assert run(120, 1, 2, 3) == pytest.approx([33.3, 33.3, 33.3], abs=0.1)


def test_a_flow_without_a_promise_has_no_end_whatever_becomes_of_the_master() -> None:
    world = settled()
    world.cut = {1, 2, 3}
    world.run(3 * LEASE_MS)
    assert {each.flow(world.now_ms).fetched for each in world.brokers.values()} == {inf}


def report(broker: int, sequence: int, stored_bytes: int, broker_epoch: int = 1) -> Report:
    return Report(broker, broker_epoch, sequence, 0, 0, NO_FLOW, stored_bytes)


def test_producing_is_held_back_at_full_capacity_until_there_is_room_again() -> None:
    master = FlowMaster(1, PROMISED, {1: 1, 2: 1}, LEASE_MS, 0, capacity_bytes=1000)
    told = []
    stored = [(1, 400), (2, 599), (2, 600), (1, 350), (1, 349)]  # 950 is not below 95 %
    for sequence, (broker, stored_bytes) in enumerate(stored, 1):
        share = master.take(report(broker, sequence, stored_bytes), 0)
        assert share is not None
        told.append(share.is_full)
    assert told == [None, False, True, True, False]


def test_without_a_capacity_nothing_is_ever_full() -> None:
    share = FlowMaster(1, PROMISED, {1: 1}, LEASE_MS, 0).take(report(1, 1, 1 << 60), 0)
    assert share is not None
    assert share.is_full is False


def test_late_and_repeated_reports_and_those_of_an_older_start_are_passed_over() -> None:
    master = FlowMaster(1, PROMISED, {1: 1}, LEASE_MS, 0)
    assert master.take(report(1, 2, 0), 0)
    assert master.take(report(1, 2, 0), 0) is None
    assert master.take(report(1, 1, 0), 0) is None
    assert master.take(report(1, 1, 0, broker_epoch=2), 0)
    assert master.take(report(1, 3, 0, broker_epoch=1), 0) is None
    assert master.take(report(7, 1, 0), 0) is None  # nobody knows it
