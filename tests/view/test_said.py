"""Events in words: which of many are told, and that the others are counted."""

from __future__ import annotations

import json

from minibroker.event_kinds import Append, Broker, Isr
from minibroker.events import EventStream
from minibroker.view.said import NOTED_MAX, TOLD_MAX, Said


def test_of_many_events_that_of_the_broker_is_told_which_they_come_of() -> None:
    said, events = Said(), EventStream()
    with events.subscribe(said.hear):
        events.emit(Broker(broker=2, state="killed", why="somebody asked for it"))
        for number in range(NOTED_MAX + 100):
            events.emit(Isr(2, "orders", number, (1, 2), (1,), 0, 1, "broker 2 is gone"))
        events.emit(Append(1, "orders", 0, 0, 0, 0, 70))
    said.end_frame(1)
    told, left_out = said.since(0, ())
    kinds = [json.loads(each)["kind"] for each in told]
    assert kinds == ["broker"] + ["isr"] * (TOLD_MAX - 1)
    numbers = [json.loads(each)["number"] for each in told]
    assert numbers == sorted(numbers)
    assert numbers[1:] == list(range(NOTED_MAX - TOLD_MAX + 2, NOTED_MAX + 1))  # the newest of those that are kept
    assert len(told) + sum(left_out.values()) == NOTED_MAX + 102
    assert left_out["append"] == 1
    assert said.since(1, ()) == ([], {})
