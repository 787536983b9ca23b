"""A cluster on a screen: its state as it changes, and what keys do to it, with a lesson or without.

    show = Show(stage, player)          a player, if a lesson is played
    await show.press("s")

What must hold: a key that cannot do anything now says why, and does nothing.
"""

from __future__ import annotations

from collections import deque

from minibroker.errors import KafkaError
from minibroker.lessons.commands import parse_command
from minibroker.lessons.telling import is_of_interest
from minibroker.watch.frame import KEYS, frame
from minibroker.watch.state import snapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from minibroker.events import Event
    from minibroker.lessons.running import Outcome, Player
    from minibroker.lessons.stage import Stage

SAID_MAX = 50
ADVANCE = "5s"
HELP = (
    "The lanes are replicas: one cell is one record, or some if there are many. A bar stands where the high watermark "
    "is; what is right of it is not committed. Colours are leader epochs, listed at the right: e1@3 began at offset 3.",
    "Arrows choose a broker. k kills it or starts it again, p pauses it or lets it go on. h holds fetches, answers, "
    "ISR changes and elections at gates, s lets the first of them through, r all. f freezes the clock or lets it run, "
    f"a moves it on by {ADVANCE}. In a lesson n plays the next step.",
)


class Show:
    """What is on the screen, and what keys do."""

    def __init__(self, stage: Stage, player: Player | None = None):
        self.stage = stage
        self.player = player
        self.chosen = 1
        self.words: list[str] = []
        self.is_over = False
        self._said: deque[Event] = deque(maxlen=SAID_MAX)
        self._shows_help = False
        self._step = 0
        self._subscription = stage.events.subscribe(self._hear)
        if player is not None:
            self._set_words()

    def _hear(self, event: Event) -> None:
        if is_of_interest(event) or event.kind in ("clock", "step"):
            self._said.append(event)

    def close(self) -> None:
        self._subscription.cancel()

    def lines(self, width: int, height: int, *, colour: bool, keys: bool = True) -> list[str]:
        """Return the picture of now."""
        cluster = self.stage.cluster
        words = HELP if self._shows_help else self.words
        foot = (f"n next step  {KEYS}" if self.player is not None else KEYS) if keys else ""
        if cluster is None or not cluster.cluster_id:
            from minibroker.watch.painting import paint, wrap

            lines = [line for each in words for line in [*wrap(each, width), ""]]
            return [paint([("", line)], width, colour=colour) for line in [*lines, foot][:height]]
        state = snapshot(cluster, self.stage.clock, list(self._said))
        return frame(state, width, height, colour=colour, chosen=self.chosen if keys else -1, words=words, keys=foot)

    # Keys

    async def press(self, key: str) -> None:
        """Do what a key stands for."""
        if key == "q":
            self.is_over = True
        elif key == "?":
            self._shows_help = not self._shows_help
        elif key in ("n", "\n", "\r") and self.player is not None:
            await self._play()
        elif key in ("left", "up"):
            self._choose(-1)
        elif key in ("right", "down"):
            self._choose(1)
        elif (line := self._command_of(key)) is not None:
            try:
                await self.stage.do(parse_command(line))
            except (KafkaError, ValueError, TimeoutError) as error:
                self.words = [str(error)]
            else:
                if self.player is None:
                    self.words = []

    def _command_of(self, key: str) -> str | None:
        """Return the command that a key stands for, as one would type it."""
        cluster = self.stage.cluster
        if cluster is None:
            return None
        state = cluster.states[self.chosen]
        lines: dict[str, str] = {
            "s": "step",
            "h": "hold fetch answer isr election",
            "r": "release",
            "a": f"advance {ADVANCE}",
            "f": "thaw" if self.stage.clock.is_frozen else "freeze",
            "k": f"{'start' if state in ('killed', 'stopped') else 'kill'} {self.chosen}",
            "p": f"{'resume' if state == 'paused' else 'pause'} {self.chosen}",
        }
        return lines.get(key)

    def _choose(self, by: int) -> None:
        if self.stage.cluster is not None:
            brokers = self.stage.cluster.broker_ids
            self.chosen = brokers[(brokers.index(self.chosen) + by) % len(brokers)]

    # A lesson

    async def _play(self) -> Outcome | None:
        """Play the next step of the lesson; None: there is none."""
        assert self.player is not None
        steps = self.player.scenario.steps
        if self._step >= len(steps):
            return None
        outcome = await self.player.play(steps[self._step])
        self._step += 1
        self._set_words()
        self.words = [*outcome.told, *outcome.errors, *outcome.failures, *self.words]
        return outcome

    async def play_all(self, watch: Callable[[Outcome], object] = lambda outcome: None) -> None:
        while (outcome := await self._play()) is not None:
            watch(outcome)

    def _set_words(self) -> None:
        assert self.player is not None
        scenario = self.player.scenario
        if self._step == len(scenario.steps):
            self.words = scenario.last_words
            return
        step = scenario.steps[self._step]
        commands = "; ".join(command.line for command in step.commands)
        self.words = [*([] if self._step else [scenario.title]), *step.prose, f"n: {commands}"]
