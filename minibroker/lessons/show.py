"""A cluster of this process on a screen, with a lesson or without.

    show = Show(stage, player)          a player, if a lesson is played
    await show.press("s")

What must hold: a key does what its command does in a lesson.
"""

from __future__ import annotations

from collections.abc import Callable

from minibroker.cluster.snapshot import ClusterState, snapshot
from minibroker.errors import KafkaError
from minibroker.event_kinds import is_shown
from minibroker.events import Event
from minibroker.lessons.commands import parse_command
from minibroker.lessons.running import Outcome, Player
from minibroker.lessons.stage import Stage
from minibroker.watch.screen import Screen


class Show(Screen):
    """A stage on the screen."""

    def __init__(self, stage: Stage, player: Player | None = None):
        super().__init__()
        self.stage = stage
        self.player = player
        self._step = 0
        self._subscription = stage.events.subscribe(self._hear)
        if player is not None:
            self.keys = f"n next step  {self.keys}"
            self._set_words()

    def _hear(self, event: Event) -> None:
        if is_shown(event):
            self.said.append((event.at_ms, event.sentence))
        self.changed()

    def close(self) -> None:
        self._subscription.cancel()

    def state(self) -> ClusterState | None:
        cluster = self.stage.cluster
        return None if cluster is None or not cluster.cluster_id else snapshot(cluster)

    async def do(self, line: str) -> str:
        try:
            await self.stage.do(parse_command(line))
        except (KafkaError, ValueError, TimeoutError) as error:
            return str(error)
        return ""

    def _usual_words(self) -> list[str]:
        return [] if self.player is None else self.words

    async def press(self, key: str) -> None:
        if key in ("n", "\n", "\r") and self.player is not None:
            await self._play()
        else:
            await super().press(key)

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
        self.words = [*(answer.line for answer in outcome.answers), *outcome.failures, *self.words]
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
