"""A scenario: a plain text file that a student reads and a test runs.

    # Who acknowledges, and when             the title

    Words for the student, up to the first step.

        predict: where is the high watermark?      a question before a step, if there is one, and its answers,
            0    right: nobody has heard of it         each with what is said to who gives it
            1    wrong: that would be too soon
        topic orders replicas=1,2,3          a step: what is indented, up to an empty line
        produce orders-0 "a" acks=all
        ----                                 behind it, what has to happen
        append b1 orders-0 *
        never: hw b3 *
        state: orders-0 b2 leo=1 hw=0

    What has been seen, and what comes next.

Expected events are named by their `line`; `*` stands for anything. They come in this order, others may come between.
`never:` must not come in this step; `state:` holds at its end; `told:` is what a command tells its student, `error:`
how one is refused, which no other may be: both in the order of the commands.
What must hold: an error names the file and the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import minibroker.event_kinds  # noqa: F401  # fills KINDS
from minibroker.events import KINDS
from minibroker.lessons.commands import Command, CommandError, parse_command

RULE = "----"
PREDICT = "predict:"
DEEPER = " " * 5  # than commands, so that it belongs to what stands above it
EVENT, NEVER, STATE, TOLD, ERROR = "event", "never", "state", "told", "error"
OTHERS = (NEVER, STATE, TOLD, ERROR)


class ScenarioError(ValueError):
    """A file that is no scenario: `file:line: why`."""


class Expectation:
    """One line of what has to happen."""

    def __init__(self, kind: str, text: str, line_number: int):
        self.kind = kind
        self.text = text
        self.line_number = line_number
        self._pattern = re.compile(".*".join(re.escape(part) for part in text.split("*")))

    def fits(self, line: str) -> bool:
        return self._pattern.fullmatch(line) is not None


class Choice(NamedTuple):
    """One answer to a question."""

    text: str
    is_right: bool
    why: str


class Question:
    """What somebody is asked before a step is played."""

    def __init__(self, text: str):
        self.text = text
        self.choices: list[Choice] = []

    @property
    def right(self) -> Choice:
        return next(each for each in self.choices if each.is_right)


class Step:
    """Some commands, and what has to happen then."""

    def __init__(self, prose: list[str], line_number: int):
        self.prose = prose  # paragraphs before it
        self.line_number = line_number
        self.commands: list[Command] = []
        self.expectations: list[Expectation] = []
        self.question: Question | None = None

    def of_kind(self, *kinds: str) -> list[Expectation]:
        return [each for each in self.expectations if each.kind in kinds]


class Scenario:
    """A lesson."""

    def __init__(self, name: str, title: str, steps: list[Step], last_words: list[str]):
        self.name = name
        self.title = title
        self.steps = steps
        self.last_words = last_words  # paragraphs behind the last step


def parse_scenario(text: str, name: str = "scenario") -> Scenario:
    """Return the scenario of a text; name: of the file, for errors."""
    title, steps, prose = "", [], _Prose()
    step: Step | None = None
    is_expecting = False
    for number, line in enumerate(text.splitlines(), 1):
        try:
            if not title:
                title = _title(line)
            elif not line.strip():
                prose.end_paragraph()
                step = None
            elif not line[0].isspace():
                if step is not None:
                    raise CommandError("an empty line has to be between a step and the words behind it")
                prose.add(line)
            elif step is None:
                step, is_expecting = Step(prose.take(), number), False
                steps.append(step)
                if line.strip().startswith(PREDICT):
                    step.question = Question(line.strip().removeprefix(PREDICT).strip())
                else:
                    step.commands.append(_command(line, number))
            elif step.question is not None and not step.commands and line.startswith(DEEPER):
                step.question.choices.append(_choice(line.strip()))
            elif line.strip() == RULE and not is_expecting:
                is_expecting = True
            elif is_expecting:
                step.expectations.append(_expectation(line.strip(), number))
            else:
                step.commands.append(_command(line, number))
        except CommandError as error:
            raise ScenarioError(f"{name}:{number}: {error}") from None
    if not steps:
        raise ScenarioError(f"{name}: there is no step: indent commands by four spaces")
    for each in steps:
        _check_question(each, name)
    return Scenario(name, title, steps, prose.take())


def _command(line: str, number: int) -> Command:
    command = parse_command(line.strip())
    command.line_number = number
    return command


class _Prose:
    """Paragraphs as they come."""

    def __init__(self) -> None:
        self._paragraphs: list[str] = []
        self._lines: list[str] = []

    def add(self, line: str) -> None:
        self._lines.append(line.strip())

    def end_paragraph(self) -> None:
        if self._lines:
            self._paragraphs.append(" ".join(self._lines))
            self._lines = []

    def take(self) -> list[str]:
        self.end_paragraph()
        taken, self._paragraphs = self._paragraphs, []
        return taken


def _choice(line: str) -> Choice:
    found = re.fullmatch(r"(.+?)\s{2,}(right|wrong): (.+)", line)
    if found is None:
        raise CommandError(f"{line!r} is no answer: ANSWER, two spaces, `right: ` or `wrong: `, and why")
    return Choice(found[1], found[2] == "right", found[3])


def _check_question(step: Step, name: str) -> None:
    if step.question is None:
        return
    is_right = [each.is_right for each in step.question.choices]
    if sum(is_right) != 1 or len(is_right) < 2:
        raise ScenarioError(f"{name}:{step.line_number}: a question has two answers or more, of which one is right")
    if not step.commands:
        raise ScenarioError(f"{name}:{step.line_number}: behind a question comes the step that answers it")


def _title(line: str) -> str:
    if not line.startswith("# "):
        raise CommandError("the first line is the title: # What is to be learned")
    return line[2:].strip()


def _expectation(line: str, number: int) -> Expectation:
    kind, colon, text = line.partition(":")
    if colon and kind in OTHERS:
        return Expectation(kind, text.strip(), number)
    words = {cls.line_form.split()[0] for cls in KINDS.values() if cls.line_form} | LINES_BY_CODE
    if line.split()[0] not in words and "*" not in line.split()[0]:
        raise CommandError(
            f"{line!r} is neither an event ({', '.join(sorted(words))}) nor one of {_with_colons(OTHERS)}"
        )
    return Expectation(EVENT, line, number)


def _with_colons(words: Iterable[str]) -> str:
    return ", ".join(f"{word}:" for word in words)


LINES_BY_CODE = {
    "isr",
    "leader",
    "ack",
    "administration",
    "certificate",
}  # begin the lines of events that have no form for them
