"""A step is told in few lines, and what it is about is among them."""

from __future__ import annotations

import pytest

from minibroker.event_kinds import Ack, Append, HighWatermark, Truncate
from minibroker.events import Event
from minibroker.lessons import LESSONS, load
from minibroker.lessons.folding import LINES_MAX, Rank, Told, folded, shortened
from minibroker.lessons.running import rehearse
from minibroker.lessons.scenario import parse_scenario
from minibroker.lessons.telling import tell_happened


def _replicated(offset: int) -> list[Event]:
    return [
        Append(1, "orders", 0, offset, offset, 0, 70),
        *(Append(broker, "orders", 0, offset, offset, 0, 70, "leader") for broker in (2, 3)),
        HighWatermark(1, "orders", 0, offset, offset + 1, "every replica in sync has everything below it"),
        Ack(1, "orders", 0, "lesson", -1, offset),
    ]


@pytest.mark.outside
@pytest.mark.parametrize("name", LESSONS)
def test_a_step_of_a_lesson_tells_eight_lines_or_answers_that_it_is_about(name: str) -> None:
    for outcome in rehearse(load(name)):
        lines = tell_happened(outcome)
        told = " ".join(" ".join(lines).split())
        missing = [each.line for each in outcome.said if " ".join(each.line.split()) not in told]
        assert not missing, f"{name}.txt:{outcome.step.line_number}"
        others = [line for line in lines if line.startswith("    - ")]
        assert len(lines) <= LINES_MAX or not others, f"{name}.txt:{outcome.step.line_number}"


def test_what_is_routine_becomes_one_line() -> None:
    events = [*_replicated(0), *_replicated(1)]
    assert [each.sentence for each in folded(events, (), ())] == [
        "orders-0: broker 1 appended 0..1; brokers 2 and 3 copied 0..1; high watermark 0 -> 2 on broker 1; "
        "0..1 confirmed."
    ]


def test_the_order_of_what_is_not_routine_is_kept_and_brokers_that_did_the_same_are_named_together() -> None:
    cuts = [Truncate(broker, "orders", 0, 2, 1, "its leader's log ends at 1 for epoch 0") for broker in (2, 3)]
    events = [*_replicated(0), *cuts, *_replicated(1)]
    assert [each.sentence.partition(";")[0] for each in folded(events, cuts, cuts)] == [
        "orders-0: broker 1 appended 0",
        "Brokers 2 and 3 cut orders-0 from 2 back to 1, because its leader's log ends at 1 for epoch 0.",
        "orders-0: broker 1 appended 1",
    ]


def test_what_matters_least_goes_first_and_is_counted() -> None:
    told = [Told("a", rank=Rank.ROUTINE), Told("b", rank=Rank.WANTED), Told("c", rank=Rank.EVENT)]
    assert shortened(told, lambda _: 1, 1) == ([told[1]], 2)


@pytest.mark.outside
def test_an_event_that_is_expected_of_any_broker_is_told_of_all() -> None:
    text = """# Two followers

    start 3 brokers
    topic orders replicas=1,2,3
    produce orders-0 "a" acks=all
    roll orders-0
    ----
    roll b* orders-0 *
    state: orders-0 b1 leo=1

Done.
"""
    (outcome,) = rehearse(parse_scenario(text))
    assert not outcome.failures
    assert "Brokers 1, 2 and 3 began a new segment of orders-0 at offset 1" in " ".join(
        line.strip() for line in tell_happened(outcome)
    )
