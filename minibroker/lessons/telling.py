"""A lesson as text: words and commands of a step, then what happened, and how the replicas are now.

What must hold: everything that a step expects is told; of the rest only what a student can learn from.
"""

from __future__ import annotations

from minibroker.event_kinds import Append, HighWatermark, is_internal, is_of_interest
from minibroker.events import Event
from minibroker.lessons.running import Outcome
from minibroker.lessons.scenario import STATE, Scenario, Step
from minibroker.watch.lanes import group_line, partition_lines
from minibroker.watch.painting import paint, wrap

WIDTH = 78


def tell_title(scenario: Scenario) -> list[str]:
    return [scenario.title, "=" * len(scenario.title), ""]


def tell_step(step: Step) -> list[str]:
    """Return the words before a step, and its commands."""
    lines = tell_words(step.prose)
    return [*lines, *(f"    {command.line}" for command in step.commands), ""]


def tell_words(paragraphs: list[str]) -> list[str]:
    return [line for paragraph in paragraphs for line in [*wrap(paragraph, WIDTH), ""]]


def tell_outcome(outcome: Outcome, *, colour: bool = False, everything: bool = False) -> list[str]:
    """Return what came of a step."""
    lines = []
    for event in outcome.events:
        if everything or event in outcome.expected or (is_of_interest(event) and not _is_obvious(event, outcome)):
            lines += wrap(event.sentence, WIDTH, "      ", first="    - ")
    for line in [answer.line for answer in outcome.answers]:
        lines += wrap(line, WIDTH, "      ", first="    < ")
    if outcome.failures:
        lines += ["", *(line for failure in outcome.failures for line in f"  ! {failure}".splitlines())]
    lines += ["", *_replicas(outcome, colour=colour)]
    return lines


def _is_obvious(event: Event, outcome: Outcome) -> bool:
    """Whether an event tells no more than others: that a marker was appended, that the only replica has what it has."""
    if isinstance(event, HighWatermark) and outcome.state is not None:
        partitions = {(each["topic"], each["partition"]): each for each in outcome.state["partitions"]}
        return len(partitions[event.topic, event.partition]["replicas"]) == 1
    return isinstance(event, Append) and event.origin == "coordinator"


def _replicas(outcome: Outcome, *, colour: bool) -> list[str]:
    """Return the lanes of the partitions that have anything in them and changed, or are spoken of."""
    state = outcome.state
    if state is None:
        return []
    brokers = {str(each["id"]): each for each in state["brokers"]}
    concerned = {f"{each.topic}-{each.partition}" for each in outcome.events if hasattr(each, "partition")}  # type: ignore[attr-defined]
    concerned |= {each.text.split()[0] for each in outcome.step.of_kind(STATE)}
    lines = []
    for partition in state["partitions"]:
        if is_internal(partition["topic"]):
            continue
        if f"{partition['topic']}-{partition['partition']}" in concerned:
            pieces = partition_lines(partition, brokers, WIDTH - 4)
            lines += [f"    {paint(each, WIDTH - 4, colour=colour)}".rstrip() for each in pieces]
            lines.append("")
    groups = [each for each in state["groups"] if _concerns(outcome, each["id"])]
    lines += [f"    {line}" for each in groups for line in wrap(paint(group_line(each), 1000, colour=False), WIDTH - 4)]
    return [*lines, ""] if groups else lines


def _concerns(outcome: Outcome, group: str) -> bool:
    """Whether a step is about a group."""
    spoken = [each.text.split()[:2] for each in outcome.step.of_kind(STATE)]
    return ["group", group] in spoken or any(getattr(each, "group", "") == group for each in outcome.events)
