"""Playing a lesson: its steps one by one, and whether what had to happen did.

    player = Player(scenario, stage)
    for step in scenario.steps:
        outcome = await player.play(step)      outcome.failures says what went otherwise

    outcomes = rehearse(scenario)              all of it in virtual time: no sockets, no waiting, the same each time

What must hold: the one way to play a step serves students and tests, so a lesson cannot show what a test has not seen.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import NamedTuple

from minibroker.clock.steered import SteeredClock
from minibroker.cluster.snapshot import snapshot
from minibroker.errors import KafkaError
from minibroker.events import EventStream
from minibroker.lessons.scenario import ERROR, EVENT, NEVER, STATE, TOLD
from minibroker.lessons.stage import Stage
from minibroker.lessons.states import differences

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any, TypeVar

    from minibroker.cluster.snapshot import ClusterState
    from minibroker.events import Event
    from minibroker.lessons.scenario import Expectation, Scenario, Step
    from minibroker.simulation.run import World

    T = TypeVar("T")

PATIENCE_MS = 3_000  # of the loop, for what has to happen: a socket may be slow
SHOWN_MAX = 30  # lines of what happened, where something is missing
REHEARSAL_MS = 1_767_225_600_000  # 2026-01-01: when each rehearsal begins


class Answer(NamedTuple):
    """One line of what a command told, or why it was refused."""

    kind: str  # TOLD or ERROR
    line: str
    line_number: int  # of its command


class Outcome:
    """What came of a step."""

    def __init__(self, step: Step):
        self.step = step
        self.events: list[Event] = []
        self.answers: list[Answer] = []  # in the order of the commands
        self.said: list[Answer] = []  # those of them that had to come
        self.failures: list[str] = []  # what did not go as it had to
        self.state: ClusterState | None = None  # at its end
        self.expected: list[Event] = []  # those that had to come, as they came; of `b*` those of all brokers


class LessonFailed(AssertionError):
    """A step did not do what its lesson says."""


class Player:
    """A lesson on its stage."""

    def __init__(self, scenario: Scenario, stage: Stage):
        self.scenario = scenario
        self.stage = stage

    async def play(self, step: Step) -> Outcome:
        """Do what a step commands, wait for what has to happen, and look at what did."""
        outcome = Outcome(step)
        with self.stage.events.subscribe(outcome.events.append):
            for command in step.commands:
                try:
                    outcome.answers += [
                        Answer(TOLD, line, command.line_number) for line in await self.stage.do(command)
                    ]
                except (KafkaError, ValueError, TimeoutError) as error:
                    name = f"{error.code.name}: {error.message}" if isinstance(error, KafkaError) else str(error)
                    outcome.answers.append(Answer(ERROR, name, command.line_number))
            with suppress(TimeoutError):
                await self.stage.events.wait_until(lambda: not self._missing(outcome), timeout_ms=PATIENCE_MS)
            await self.stage.clock.settle()
        said = step.of_kind(TOLD, ERROR)
        outcome.said = [each for each in outcome.answers if any(_is_said(each, wanted) for wanted in said)]
        outcome.state = self._state()
        outcome.failures = [f"{self.scenario.name}:{number}: {why}" for number, why in self._failures(outcome)]
        events = step.of_kind(EVENT)
        outcome.expected = [event for event in outcome.events if any(each.fits(event.line) for each in events)]
        return outcome

    def _state(self) -> ClusterState | None:
        cluster = self.stage.cluster
        return None if cluster is None or not cluster.cluster_id else snapshot(cluster)

    def _missing(self, outcome: Outcome) -> list[tuple[Expectation, str]]:
        """Return what has not happened yet, and might."""
        step = outcome.step
        missing = []
        outcome.expected = []
        if unmet := _first_unmet(step.of_kind(EVENT), outcome.events, outcome.expected):
            after = f" after `{outcome.expected[-1].line}`" if outcome.expected else ""
            missing.append((unmet, f"`{unmet.text}` did not happen{after}"))
        states = step.of_kind(STATE)
        state = self._state() if states else None
        for each in states:
            if state is None:
                missing.append((each, "there is no cluster"))
            elif why := differences(state, each.text):
                missing.append((each, why))
        return missing

    def _failures(self, outcome: Outcome) -> list[tuple[int, str]]:
        step, found = outcome.step, []
        happened = [event.line for event in outcome.events if event.kind != "message"]
        for expectation, why in self._missing(outcome):
            if expectation.kind == EVENT:
                why = "\n".join([f"{why}; what happened:", *(f"    {line}" for line in happened[-SHOWN_MAX:])])
            found.append((expectation.line_number, why))
        for each in step.of_kind(NEVER):
            found += [(each.line_number, f"`{line}` must not happen") for line in happened if each.fits(line)]
        found += _not_said(step.of_kind(TOLD, ERROR), outcome.answers)
        expected = step.of_kind(ERROR)
        for kind, line, number in outcome.answers:
            if kind == ERROR and not any(each.fits(line) for each in expected):
                found.append((number, line))
        return sorted(found, key=lambda each: each[0])


def _first_unmet(expected: Sequence[Expectation], events: Sequence[Event], met: list[Event]) -> Expectation | None:
    """Return the first of what has to come, in this order, that has not come; those that came go into `met`."""
    rest = iter(events)
    for each in expected:
        found = next((event for event in rest if each.fits(event.line)), None)
        if found is None:
            return each
        met.append(found)
    return None


def _not_said(expected: Sequence[Expectation], answers: Sequence[Answer]) -> list[tuple[int, str]]:
    rest = iter(answers)
    for each in expected:
        if not any(_is_said(answer, each) for answer in rest):
            said = "\n".join(f"    {answer.kind}: {answer.line}" for answer in answers) or "    nothing"
            how = "told" if each.kind == TOLD else "refused"
            return [(each.line_number, f"`{each.text}` was not {how}; this was, in this order:\n{said}")]
    return []


def _is_said(answer: Answer, wanted: Expectation) -> bool:
    return answer.kind == wanted.kind and wanted.fits(answer.line)


# All of it


def new_clock(now_ms: int | None = None, source_ms: Callable[[], float] | None = None) -> SteeredClock:
    return SteeredClock(now_ms) if source_ms is None else SteeredClock(now_ms, source_ms=source_ms)


def in_virtual_time(main: Callable[[Stage], Coroutine[Any, Any, T]], *, seed: int = 1) -> T:
    """Run something on a stage whose sockets are in memory, and whose waits take no time."""
    from minibroker.simulation.run import simulate

    async def run(world: World) -> T:
        clock = new_clock(REHEARSAL_MS, lambda: world.loop.time() * 1000)
        stage = Stage(clock, EventStream(clock.now_ms), Random(world.seed))
        try:
            return await main(stage)
        finally:
            await stage.close()

    found: T = simulate(run, seed).check()
    return found


def rehearse(
    scenario: Scenario, watch: Callable[[Outcome], object] = lambda outcome: None, *, seed: int = 1
) -> list[Outcome]:
    """Play a lesson in virtual time; return what came of each step, up to the first that failed."""

    async def main(stage: Stage) -> list[Outcome]:
        player, outcomes = Player(scenario, stage), []
        for step in scenario.steps:
            outcomes.append(await player.play(step))
            watch(outcomes[-1])
            if outcomes[-1].failures:
                break
        return outcomes

    return in_virtual_time(main, seed=seed)


def check(scenario: Scenario, *, seed: int = 1) -> None:
    """Raise LessonFailed unless a lesson does what it says."""
    outcome = rehearse(scenario, seed=seed)[-1]
    if outcome.failures:
        raise LessonFailed("\n".join(outcome.failures))
