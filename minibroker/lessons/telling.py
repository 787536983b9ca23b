"""A lesson as text: words and commands of a step, then what happened, and how the replicas are now.

What must hold: everything that a step expects is told; of the rest only what a student can learn from.
"""

from __future__ import annotations

from collections.abc import Iterable

from minibroker.event_kinds import Ack, Append, HighWatermark, is_internal, is_of_interest
from minibroker.events import Event
from minibroker.lessons.folding import LINES_MAX, Rank, Told, folded, shortened
from minibroker.lessons.running import Outcome
from minibroker.lessons.scenario import STATE, Scenario, Step
from minibroker.watch.lanes import group_lines, partition_lines
from minibroker.watch.painting import paint, wrap

WIDTH = 78
SHORT_MAX = 16  # of an answer that shares its line with the next one: `3 a`, `position 4`
PRODUCE = "produce"


def tell_title(scenario: Scenario) -> list[str]:
    return [scenario.title, "=" * len(scenario.title), ""]


def tell_step(step: Step) -> list[str]:
    """Return the words before a step, and its commands."""
    lines = tell_words(step.prose)
    return [
        *lines,
        *(line for command in step.commands for line in wrap(command.line, WIDTH, "      ", first="    ")),
        "",
    ]


def tell_words(paragraphs: list[str]) -> list[str]:
    return [line for paragraph in paragraphs for line in [*wrap(paragraph, WIDTH), ""]]


def tell_outcome(
    outcome: Outcome, *, colour: bool = False, everything: bool = False, failures: bool = True
) -> list[str]:
    """Return what came of a step."""
    lines = tell_happened(outcome, everything=everything)
    if outcome.failures and failures:
        lines += ["", *(line for failure in outcome.failures for line in f"  ! {failure}".splitlines())]
    lines += ["", *_replicas(outcome, colour=colour)]
    return lines


def tell_happened(outcome: Outcome, *, everything: bool = False) -> list[str]:
    """Return what happened, and what clients were answered; in LINES_MAX lines, unless all is wanted."""
    told, more = happened(outcome, everything=everything)
    return [*tell_lines(told), *([f"    ({more} more; --all tells everything)"] if more else [])]


def happened(outcome: Outcome, *, everything: bool = False) -> tuple[list[Told], int]:
    """Return what happened and what clients were answered, and how much more there was than LINES_MAX lines.

    Answers that the step is about are told, however many lines they take.
    """
    answers = _answers(outcome)
    if everything:
        return [*(Told(event.sentence) for event in outcome.events), *answers], 0
    events = [
        event
        for event in outcome.events
        if event in outcome.expected or (is_of_interest(event) and not _is_obvious(event, outcome))
    ]
    full = [*(Told(event.sentence) for event in events), *answers]
    for kept in (outcome.expected, ()):
        if len(tell_lines(full)) > LINES_MAX:
            full = [*folded(events, outcome.expected, kept), *answers]
    if len(tell_lines(full)) > LINES_MAX:
        return shortened(full, lambda each: len(tell_lines([each])), LINES_MAX - 1)
    return full, 0


def _answers(outcome: Outcome) -> list[Told]:
    """Return what clients were answered, short ones in one line: the records that one got."""
    producing = {each.line_number for each in outcome.step.commands if each.verb == PRODUCE}
    told: list[Told] = []
    is_short = False
    for answer in outcome.answers:
        was_short, is_short = is_short, len(answer.line) <= SHORT_MAX
        rank = Rank.ROUTINE if answer.line_number in producing else Rank.ANSWER
        if answer in outcome.said:
            rank = Rank.WANTED
        if was_short and is_short and len(told[-1].sentence) + len(answer.line) < WIDTH - 8:
            told[-1] = Told(f"{told[-1].sentence}, {answer.line}", "<", min(told[-1].rank, rank))
        else:
            told.append(Told(answer.line, "<", rank))
    return told


def tell_lines(told: Iterable[Told]) -> list[str]:
    """Return sentences as lines, with their marks."""
    return [line for each in told for line in wrap(each.sentence, WIDTH, "      ", first=f"    {each.mark} ")]


def _is_obvious(event: Event, outcome: Outcome) -> bool:
    """Whether an event tells no more than others do, or than the command says.

    That a marker was appended, that the only replica has what it has, that what fills a log is appended.
    """
    if isinstance(event, HighWatermark) and outcome.state is not None:
        partitions = {(each["topic"], each["partition"]): each for each in outcome.state["partitions"]}
        return len(partitions[event.topic, event.partition]["replicas"]) == 1
    if isinstance(event, (Append, Ack)) and any(
        command.verb == "fill" and (command.topic, command.partition) == (event.topic, event.partition)
        for command in outcome.step.commands
    ):
        return True  # there are as many as it was told to send
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
    for group in groups:
        lines += [f"    {paint(each, WIDTH - 4, colour=colour)}".rstrip() for each in group_lines(group, WIDTH - 4)]
        lines.append("")
    return lines


def _concerns(outcome: Outcome, group: str) -> bool:
    """Whether a step is about a group."""
    spoken = [each.text.split()[:2] for each in outcome.step.of_kind(STATE)]
    return ["group", group] in spoken or any(getattr(each, "group", "") == group for each in outcome.events)
