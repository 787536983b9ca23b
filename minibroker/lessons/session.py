"""Taking a lesson at a terminal: what is typed, and what is told then. What is done in the page is typed, too.

    session = Session(guide, print)
    while not session.is_over:
        await session.type(input(session.prompt))

What must hold: whatever is typed that means nothing is said to mean nothing, and moves nothing. One move at a time: who
types while another one is made typed for a step that has gone.
"""

from __future__ import annotations

from asyncio import Lock
from contextlib import contextmanager

from minibroker.event_kinds import is_shown
from minibroker.lessons.folding import folded
from minibroker.lessons.telling import tell_lines, tell_outcome, tell_step, tell_title, tell_words
from minibroker.lessons.words import explained

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from minibroker.events import Event
    from minibroker.lessons.guide import Guide
    from minibroker.lessons.running import Outcome
    from minibroker.lessons.scenario import Question

KEYS = "Enter on   b back   e every event   t your turn   ? words   q quit"
JOIN = """The clock stands still between steps.
Your own clients may join: {}
"""
PAGE = """A browser shows the same cluster, and this lesson with it: {}
"""
QUIT = ("q", "quit", "exit")
MEANWHILE_MAX = 8  # lines of what clients have done between two steps


class Session:
    """One who takes a lesson, and types."""

    def __init__(self, guide: Guide, write: Callable[[str], object], *, colour: bool = False, everything: bool = False):
        self._guide = guide
        self._write = write
        self._colour, self._everything = colour, everything
        self.is_over = self.has_failed = False
        self.turn = 0  # one more when a move begins, and when it has ended
        self.guesses: list[int] = []  # of the steps that have been played, where there was a question; 0: none
        self._moving = Lock()
        self._tell(tell_title(guide.scenario))
        self._tell([KEYS, ""])
        self._show()

    @property
    def prompt(self) -> str:
        step = self._guide.next_step
        if step is None:
            return "[Enter to end, b: back] "
        place, count = len(self._guide.outcomes) + 1, len(self._guide.scenario.steps)
        keys = f"1-{len(step.question.choices)}, or Enter" if step.question else "Enter"
        return f"[{place} of {count}: {keys}] "

    @property
    def is_moving(self) -> bool:
        return self._moving.locked()

    async def type(self, line: str) -> None:
        """Do what a line says; empty, without its end: there will be no other."""
        word, turn = line.strip().lower(), self.turn
        async with self._moving:
            if turn != self.turn and line and word not in QUIT:
                self._tell(["That came while something else was done, and did nothing."])
                return
            await self._take(line, word)

    async def _take(self, line: str, word: str) -> None:
        step = self._guide.next_step
        question = None if step is None else step.question
        if not line or word in QUIT:
            self.is_over = True
        elif word in ("", "n", "next", "on"):
            await self._go_on(question, 0)
        elif word in ("b", "back"):
            await self._go_back()
        elif word in ("e", "every", "all"):
            self._retell()
        elif word in ("t", "turn"):
            self._tell_how_to_join()
        elif word in ("?", "h", "help"):
            self._explain()
        elif question is not None and word.isascii() and word.isdigit() and 1 <= int(word) <= len(question.choices):
            await self._go_on(question, int(word))
        else:
            self._tell([f"{ascii(word[:20])[1:-1]}: that means nothing here. {KEYS}"])

    # What can be done

    async def _go_on(self, question: Question | None, guess: int) -> None:
        guide = self._guide
        self._tell_meanwhile(guide.take_meanwhile())
        if guide.next_step is None:
            self.is_over = True
            return
        had_brokers = bool(guide.addresses)
        with self._move():
            outcome = await guide.go_on()
            self.guesses.append(guess)
        self._tell_outcome(outcome, everything=self._everything)
        if question is not None:
            self._tell(tell_words(judged(question, guess)))
        if not had_brokers and guide.addresses:
            self._tell([JOIN.format(guide.addresses), *([PAGE.format(guide.page)] if guide.page else [])])
        self._show()

    async def _go_back(self) -> None:
        had_brokers = bool(self._guide.addresses)
        with self._move():
            has_gone = await self._guide.go_back()
        if not has_gone:
            self._tell(["this is the beginning"])
            return
        self.guesses.pop()
        place, count = len(self._guide.outcomes) + 1, len(self._guide.scenario.steps)
        joined = " Clients that have joined are as if they had not." if had_brokers else ""
        self._tell([f"Back to before step {place} of {count}.{joined}", ""])
        self._show()

    @contextmanager
    def _move(self) -> Iterator[None]:
        self.turn += 1
        try:
            yield
        finally:
            self.turn += 1

    def _retell(self) -> None:
        outcomes = self._guide.outcomes
        if outcomes:
            self._tell_outcome(outcomes[-1], everything=True)
        else:
            self._tell(["nothing has happened yet"])

    def _tell_how_to_join(self) -> None:
        addresses = self._guide.addresses
        if not addresses:
            self._tell(["there are no brokers yet: go on to the step that starts them"])
            return
        first = addresses.partition(",")[0]
        self._tell(
            [
                f"Brokers are at {addresses}. With another terminal, for example:",
                f"    minibroker topics -b {first}",
                f"    minibroker consume -b {first} -t TOPIC -o beginning",
                f"    echo hello | minibroker produce -b {first} -t TOPIC",
                *([f"with a browser at {self._guide.page}"] if self._guide.page else []),
                "or any client of Kafka. The clock stands still: nobody is timed out. Then Enter goes",
                "on, and tells what they have done; b takes it back.",
                "",
            ]
        )

    def _explain(self) -> None:
        told = self.words()
        lines = [line for word, meaning in told for line in tell_words([f"{word}: {meaning}"])[:-1]]
        self._tell([*(lines or ["no word of this step is in the list"]), "", KEYS, ""])

    def words(self) -> list[tuple[str, str]]:
        """Return what words of the next step mean, or of the end."""
        scenario, step = self._guide.scenario, self._guide.next_step
        texts = scenario.last_words if step is None else [*step.prose, *(each.line for each in step.commands)]
        return explained(" ".join([*([] if self._guide.outcomes else [scenario.title]), *texts]))

    # What is told

    def _show(self) -> None:
        step = self._guide.next_step
        if step is None:
            self._tell(tell_words(self._guide.scenario.last_words))
            return
        self._tell(tell_step(step))
        if step.question is not None:
            choices = [f"      {number}  {each.text}" for number, each in enumerate(step.question.choices, 1)]
            self._tell([*tell_words([f"What do you think: {step.question.text}"])[:-1], *choices, ""])

    def _tell_outcome(self, outcome: Outcome, *, everything: bool) -> None:
        lines = tell_outcome(outcome, colour=self._colour, everything=everything, failures=False)
        self._tell(lines)
        if outcome.failures:
            self.has_failed = True
            self._tell([f"  ! {line}" if line else "" for line in tell_words([deviation(outcome)])])

    def _tell_meanwhile(self, events: list[Event]) -> None:
        shown = [event for event in events if is_shown(event)]
        if shown:
            lines = tell_lines(folded(shown, (), ()))
            more = len(lines) - MEANWHILE_MAX
            left = [f"    (and {more} lines more)"] if more > 0 else []
            self._tell(["Meanwhile:", "", *lines[:MEANWHILE_MAX], *left, ""])

    def _tell(self, lines: list[str]) -> None:
        self._write("\n".join(lines))


def judged(question: Question, guess: int) -> list[str]:
    """Return what is said to a guess; 0: to none."""
    right = question.right
    words = f'The answer is "{right.text}": {right.why}.'
    if not guess:
        return [words]
    given = question.choices[guess - 1]
    return [f"Right: {given.why}."] if given.is_right else [f"No: {given.why}.", words]


def deviation(outcome: Outcome) -> str:
    """Say what a step did that it should not have done, or the reverse; nothing if all went as its words say."""
    if not outcome.failures:
        return ""
    why = outcome.failures[0].partition("\n")[0].split(":", 2)[-1].strip().removesuffix("; what happened:")
    return f"This step went another way than its words say: {why}. A client of yours may be why; b goes back."
