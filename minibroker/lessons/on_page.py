"""A lesson in the page: what there is of it as JSON, and what is done there, as if it had been typed.

    OnPage(session, guide, print, prompt)     and the brokers of the lesson say so at /api/lesson

What must hold: what is done in the page goes the way of what is typed, is told at the terminal, and moves nothing if
whoever did it had another step in mind than the one that is next.
"""

from __future__ import annotations

import asyncio

from minibroker.clock import LoopClock
from minibroker.cluster.control import ANSWER_MS, SILENCING
from minibroker.lessons.session import deviation, judged
from minibroker.lessons.telling import happened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from minibroker.lessons.guide import Guide
    from minibroker.lessons.running import Outcome
    from minibroker.lessons.scenario import Step
    from minibroker.lessons.session import Session

ON, BACK, ANSWER = "on", "back", "answer"


class OnPage:
    """A lesson as those see it who look at its brokers."""

    def __init__(
        self, session: Session, guide: Guide, write: Callable[[str], object], ask: Callable[[], object] = lambda: None
    ):
        """ask: writes the prompt again, after what was told."""
        self.name = guide.scenario.name.removesuffix(".txt")
        self._session, self._guide = session, guide
        self._write, self._ask = write, ask
        self._told: list[tuple[Outcome, dict[str, object]]] = []  # of the steps that have been played
        self._work: asyncio.Task[None] | None = None
        guide.put_on_page(self)

    @property
    def turn(self) -> int:
        return self._session.turn

    @property
    def _is_moving(self) -> bool:
        return self._session.is_moving or (self._work is not None and not self._work.done())

    # What there is

    def as_json(self) -> dict[str, object]:
        guide, scenario = self._guide, self._guide.scenario
        step = guide.next_step
        return {
            "name": self.name,
            "title": scenario.title,
            "turn": self.turn,
            "is_moving": self._is_moving,
            "steps": len(scenario.steps),
            "played": self._played(),
            "next": None if step is None else _told_before(step),
            "last_words": scenario.last_words if step is None else [],
            "words": self._session.words(),
            "keys": self._keys(),
        }

    def _played(self) -> list[dict[str, object]]:
        """Return what has been played; what is told of it is made once."""
        outcomes, told = self._guide.outcomes, self._told
        for place, outcome in enumerate(outcomes):
            if place >= len(told) or told[place][0] is not outcome:
                del told[place:]
                told.append((outcome, _told_after(outcome)))
        del told[len(outcomes) :]
        guesses = self._session.guesses
        return [
            {**row, "judged": self._judged(outcome.step, guesses[place] if place < len(guesses) else 0)}
            for place, (outcome, row) in enumerate(told)
        ]

    def _judged(self, step: Step, guess: int) -> dict[str, object] | None:
        question = step.question
        if question is None:
            return None
        choice = question.choices[guess - 1] if guess else None
        return {
            "choice": guess,
            "is_right": None if choice is None else choice.is_right,
            "words": judged(question, guess),
        }

    def _keys(self) -> dict[str, str]:
        """Return what can be done now, by what one would type."""
        step = self._guide.next_step
        keys = {} if step is None else {"n": ON}
        if self._guide.may_go_back:
            keys["b"] = BACK
        if step is not None and step.question is not None:
            keys |= {str(number): ANSWER for number in range(1, len(step.question.choices) + 1)}
        return keys

    # What is done

    async def do(self, wish: Mapping[str, object]) -> dict[str, object]:
        """Do it, and return what there is then; before it if it silences who has to answer."""
        if self._is_moving or wish.get("turn", self.turn) != self.turn:
            raise ValueError("somebody else has gone on or back meanwhile: look at where the lesson is")
        line = self._line(wish)
        step = self._guide.next_step
        silences = line == "b" or (step is not None and any(each.verb in SILENCING for each in step.commands))
        work = self._work = asyncio.get_running_loop().create_task(self._type(line, ANSWER_MS if silences else 0))
        if not silences:
            await asyncio.shield(work)
        return self.as_json()

    def _line(self, wish: Mapping[str, object]) -> str:
        """Return what one would type for that."""
        what, choice = wish.get("do"), wish.get("choice")
        if unknown := [name for name in wish if name not in ("do", "choice", "turn")]:
            raise ValueError(f"a lesson takes do, choice and turn, not {unknown[0]}")
        if what not in (ON, BACK, ANSWER):
            raise ValueError(f"do is to be {ON}, {BACK} or {ANSWER}")
        line = str(choice) if what == ANSWER and type(choice) is int else what[0] if what == BACK else "n"
        if self._keys().get(line) == what:
            return line
        if what == ON:
            raise ValueError("this is the end of the lesson")
        if what == ANSWER:
            raise ValueError("the next step has no question" if "1" not in self._keys() else "there is no such choice")
        raise ValueError("before that step there are no brokers, and no page: go back at the terminal")

    async def _type(self, line: str, after_ms: int) -> None:
        await LoopClock().sleep(after_ms)  # so long the answer takes to leave
        self._write(f"{line}   (in the page)")
        try:
            await self._session.type(f"{line}\n")
        except OSError as failure:  # a port may have been taken meanwhile
            self._write(f"that could not be done: {failure}")
        self._ask()


def _told_before(step: Step) -> dict[str, object]:
    question = step.question
    asked = None if question is None else {"text": question.text, "choices": [each.text for each in question.choices]}
    return {"prose": step.prose, "commands": [each.line for each in step.commands], "question": asked}


def _told_after(outcome: Outcome) -> dict[str, object]:
    told, more = happened(outcome)
    return {
        **_told_before(outcome.step),
        "happened": [[each.mark, each.sentence] for each in told],
        "more": more,
        "deviation": deviation(outcome),
    }
