"""What is told of a Produce to those who watch: what came, and what was answered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minibroker.broker.handlers.produce import AT_ONCE_MAX
from minibroker.errors import Error
from minibroker.events import Event
from tests.broker.handlers.test_produce import OTHER_ID, PLAIN, change, request, rows_of
from tests.broker.virtual_broker import VirtualBroker, virtual_broker

KINDS = frozenset(("produce", "ack"))
IN_THE_LOG, EVERYWHERE, NOBODY = "it is in the leader's log", "every replica in sync has it", "nobody asked for more"


class Watched:
    """A broker, and what has been told of it."""

    def __init__(self, broker: VirtualBroker):
        self.broker = broker
        self.heard: list[Event] = []
        broker.node.events.subscribe(self.heard.append, KINDS)

    def came(self) -> list[tuple[object, ...]]:
        """Return topic, partition, client, acks and size of what came."""
        return [
            (each.topic, each.partition, each.client, each.acks, each.size_bytes)  # type: ignore[attr-defined]
            for each in self.heard
            if each.kind == "produce"
        ]

    def answered(self) -> list[tuple[object, ...]]:
        """Return topic, partition, acks, offset, error and reason of what was answered."""
        return [
            (each.topic, each.partition, each.acks, each.offset, each.error, each.why)  # type: ignore[attr-defined]
            for each in self.heard
            if each.kind == "ack"
        ]


@pytest.fixture
def watched() -> Iterator[Watched]:
    with virtual_broker() as broker:
        broker.node.create_topic("t", 2)
        yield Watched(broker)


def test_what_came_and_what_was_answered_is_told_in_this_order(watched: Watched) -> None:
    topic_id = watched.broker.node.image.topics["t"].id
    size_bytes = len(PLAIN)
    watched.broker.ask(request(("t", {0: PLAIN, 1: None})), 9)
    assert [each.kind for each in watched.heard] == ["produce"] * 2 + ["ack"] * 2
    watched.broker.ask(request((topic_id, {0: PLAIN}), (OTHER_ID, {0: PLAIN}), acks=-1), 13, client_id=None)
    assert watched.came() == [
        ("t", 0, "test", 1, size_bytes),
        ("t", 1, "test", 1, 0),
        ("t", 0, "?", -1, size_bytes),
        ("?", 0, "?", -1, size_bytes),
    ]
    assert watched.answered() == [
        ("t", 0, 1, 0, "", IN_THE_LOG),
        ("t", 1, 1, -1, Error.INVALID_RECORD.name, ""),
        ("t", 0, -1, 1, "", EVERYWHERE),
        ("?", 0, -1, -1, Error.UNKNOWN_TOPIC_ID.name, ""),
    ]


def test_who_wants_no_answer_is_told_of_when_it_came(watched: Watched) -> None:
    watched.broker.ask(request(("t", {0: PLAIN}), acks=0), 9)
    assert (len(watched.came()), watched.answered()) == (1, [])


def test_an_answer_that_waits_is_told_when_it_leaves(watched: Watched) -> None:
    change(watched.broker, replicas=[1, 2], isr=[1, 2])
    task = watched.broker.begin(request(("t", {0: PLAIN}), acks=-1, timeout_ms=300), 9)
    watched.broker.pass_ms(10)
    assert (len(watched.came()), watched.answered()) == (1, [])
    watched.broker.wait(task)
    timed_out = (Error.REQUEST_TIMED_OUT.name, "not all replicas in sync had it in time")
    assert watched.answered() == [("t", 0, -1, -1, *timed_out)]


def test_many_partitions_are_told_of_once_each(watched: Watched) -> None:
    count = AT_ONCE_MAX + 20
    watched.broker.run(watched.broker.node.create_topic, "many", count)
    rows = rows_of(watched.broker.ask(request(("many", dict.fromkeys(range(count), PLAIN))), 9))
    assert len(rows) == len(watched.came()) == len(watched.answered()) == count
    assert sorted(row[1] for row in watched.answered()) == list(range(count))
