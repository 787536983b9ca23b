"""What members cost as a group grows, counted in steps of the interpreter: no clock is asked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from types import FrameType
from typing import Any

import pytest

from minibroker.broker.broker import Node
from minibroker.clock.steered import SteeredClock
from minibroker.config import BrokerConfig
from minibroker.groups import OFFSETS_TOPIC
from minibroker.groups.consumer import ConsumerGroup
from minibroker.log.memory_storage import MemoryStorage
from minibroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.groups.classic_lab import Lab
from tests.groups.played import MadeTopic, MadeTopics, Settings

SIZES = (10, 100, 1000)
LEVEL = 1.5  # how much more it may take with a hundred times as many, where it should take the same


def steps_of(act: Callable[[], object]) -> int:
    """Return how many instructions of Python an act takes."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


class Consumers:
    """A group of the consumer protocol in which everybody has what it shall have."""

    def __init__(self, count: int, *, pattern: str | None = None):
        self.topics = MadeTopics([MadeTopic("t", b"t" * 16, [[] for _ in range(count)])])
        self.settings = Settings()  # a target is computed when the first comes, and not for each that follows
        self.group = ConsumerGroup("g")
        self.pattern = pattern
        self.epochs: dict[str, int] = {}
        for number in range(count):
            self.beat(f"m{number}")
        self.settings.values["consumer.assignment.interval.ms"] = 0
        for _ in range(2 * count):
            if self.group.state.name == "Stable":
                break
            for member_id in self.epochs:
                self.beat(member_id)
        assert self.group.state.name == "Stable"

    def beat(self, member_id: str) -> ConsumerGroupHeartbeatResponse:
        epoch = self.epochs.get(member_id, 0)
        member = self.group.state.members.get(member_id)
        owned = {} if member is None else member.held
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            instance_id=None,
            rack_id=None,
            rebalance_timeout_ms=30_000 if not epoch else -1,
            subscribed_topic_names=["t"] if not epoch else None,
            subscribed_topic_regex=self.pattern,
            server_assignor=None,
            topic_partitions=[
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=list(partitions))
                for topic_id, partitions in owned.items()
            ],
        )
        rows, answer = self.group.heartbeat(
            request,
            version=1,
            client_id="c",
            client_host="/127.0.0.1",
            now_ms=1000,
            topics=self.topics,
            config=self.settings,
            new_member_id=lambda: "",
        )
        for row in rows:
            self.group.apply(*row)
        self.epochs[member_id] = answer.member_epoch
        return answer


@pytest.mark.outside
def test_a_heartbeat_of_a_consumer_takes_the_same_in_a_group_of_any_size() -> None:
    counts = {}
    for size in SIZES:
        consumers = Consumers(size)
        consumers.group.deadline_ms()
        counts[size] = steps_of(lambda: (consumers.beat("m5"), consumers.group.deadline_ms()))  # noqa: B023
    assert counts[1000] < LEVEL * counts[10], counts


@pytest.mark.outside
def test_one_more_consumer_takes_the_same_in_a_group_of_any_size_until_a_new_target_is_due() -> None:
    counts = {}
    for size in SIZES:
        consumers = Consumers(size)
        consumers.settings.values["consumer.assignment.interval.ms"] = 1000  # and the clock stands
        counts[size] = steps_of(lambda: (consumers.beat("new"), consumers.group.topics_changed(["other"])))  # noqa: B023
        assert consumers.group.state.name == "Assigning"
    assert counts[1000] < LEVEL * counts[10], counts


@pytest.mark.outside
def test_a_consumer_that_leaves_takes_the_same_in_a_group_of_any_size() -> None:
    counts = {}
    for size in SIZES:
        consumers = Consumers(size)
        consumers.epochs["m5"] = -1
        counts[size] = steps_of(lambda: consumers.beat("m5"))  # noqa: B023
        assert len(consumers.group.state.members) == size - 1
    assert counts[1000] < LEVEL * counts[10], counts


@pytest.mark.outside
def test_one_more_consumer_takes_in_proportion_to_the_group() -> None:
    counts = {}
    for size in SIZES:
        consumers = Consumers(size)
        counts[size] = steps_of(lambda: consumers.beat("new")) / size  # noqa: B023
    assert counts[1000] < LEVEL * counts[100], counts


def test_a_heartbeat_in_a_classic_group_takes_the_same_in_a_group_of_any_size() -> None:
    counts = {}
    for size in SIZES:
        lab = Lab(size_max=10_000)
        generation = joined(lab, size)
        counts[size] = steps_of(lambda: lab.group.heartbeat("m5", None, generation, 1))  # noqa: B023
    assert counts[1000] < LEVEL * counts[10], counts


def test_each_member_of_a_classic_group_takes_the_same_to_join_again() -> None:
    counts = {}
    for size in SIZES:
        lab = Lab(size_max=10_000)
        joined(lab, size)
        counts[size] = steps_of(lambda: [lab.join(f"m{number}") for number in range(size)]) / size  # noqa: B023
    assert counts[1000] < LEVEL * counts[10], counts


def joined(lab: Lab, size: int) -> int:
    """Let so many members be in a group; return its generation."""
    for number in range(size):
        lab.join(f"m{number}", is_new=True)
    answers = [lab.join(f"m{number}") for number in range(size)]
    return next(answer[-1].generation_id for answer in answers if answer)


@pytest.mark.outside
async def test_a_topic_more_takes_the_same_with_any_number_of_topics_and_groups() -> None:
    counts = {}
    for size in (10, 300):
        given = {"listeners": "PLAINTEXT://127.0.0.1:0", "offsets_topic_num_partitions": 1}
        clock = SteeredClock()
        node = Node(BrokerConfig.from_sources(given), MemoryStorage(int), clock=clock, chance=Random(1))
        await node.start()
        try:
            node.create_topic(OFFSETS_TOPIC, 1)
            coordinator = node.groups.coordinator
            with node.together():
                for number in range(size):
                    node.create_topic(f"t{number}", 1)
            counts[size] = steps_of(coordinator._metadata_changed)
        finally:
            await node.stop()
    assert counts[300] < LEVEL * counts[10], counts
