"""A lesson as somebody takes it: a step on, a step back, and what others have done in between.

    guide = Guide(scenario, new_stage)
    outcome = await guide.go_on()
    await guide.go_back()                all steps but the last are played again, on a new stage

What must hold: a stage that was gone back to is what it was then: nothing of later steps, and nothing of what clients
that joined have written since the beginning, for time has gone back for them, too. Its brokers have the same ports.
"""

from __future__ import annotations

from collections import deque

from minibroker.cluster.control import SILENCING
from minibroker.lessons.running import Player

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from minibroker.events import Event, Subscription
    from minibroker.lessons.running import Outcome
    from minibroker.lessons.scenario import Scenario, Step
    from minibroker.lessons.stage import Stage
    from minibroker.taught import SeenLesson

MEANWHILE_MAX = 1000  # events between two steps that are kept, the newest
START = "start brokers"


class Guide:
    """One who takes a lesson."""

    def __init__(self, scenario: Scenario, new_stage: Callable[[Sequence[int]], Stage], ports: Sequence[int] = ()):
        """new_stage: returns an empty one, whose brokers are to have these ports, or any that are free."""
        self.scenario = scenario
        self._new_stage = new_stage
        self._ports = ports
        self.outcomes: list[Outcome] = []  # of the steps that have been played
        self._meanwhile: deque[Event] = deque(maxlen=MEANWHILE_MAX)
        self._on_page: SeenLesson | None = None
        self._begin()

    def _begin(self) -> None:
        self.stage = self._new_stage(self._ports)
        self.stage.on_page = self._on_page
        self._player = Player(self.scenario, self.stage)
        self._listening: Subscription | None = None

    @property
    def next_step(self) -> Step | None:
        place = len(self.outcomes)
        return self.scenario.steps[place] if place < len(self.scenario.steps) else None

    @property
    def addresses(self) -> str:
        """Where clients may join; empty: there are no brokers yet."""
        cluster = self.stage.cluster
        return "" if cluster is None else cluster.bootstrap_servers

    def put_on_page(self, lesson: SeenLesson) -> None:
        """Let the brokers say this of the lesson to the page."""
        self._on_page = self.stage.on_page = lesson

    @property
    def page(self) -> str:
        """The address of the page, at a broker that no step silences if there is one; empty: nobody serves it.

        Where a login is asked for there is no page.
        """
        cluster = self.stage.cluster
        if self._on_page is None or cluster is None or not cluster.nodes:
            return ""
        commands = [command for step in self.scenario.steps for command in step.commands]
        if any(command.verb == START and "users" in command for command in commands):
            return ""
        silenced = {command["WHO"] for command in commands if command.verb in SILENCING}
        ids = sorted(cluster.nodes)
        node = cluster.nodes[next((each for each in ids if each not in silenced), ids[-1])]
        return f"http://{node.bootstrap_servers}/#/lessons"

    @property
    def may_go_back(self) -> bool:
        """Whether there are brokers before the last step."""
        before = [outcome.step for outcome in self.outcomes[:-1]]
        return any(command.verb == START for step in before for command in step.commands)

    def take_meanwhile(self) -> list[Event]:
        """Return what has happened since the last step, and forget it: what clients have done that joined."""
        taken = list(self._meanwhile)
        self._meanwhile.clear()
        return taken

    async def go_on(self) -> Outcome:
        """Play the next step."""
        assert self.next_step is not None
        self._stop_listening()
        outcome = await self._player.play(self.next_step)
        self.outcomes.append(outcome)
        self._listening = self.stage.events.subscribe(self._meanwhile.append)
        return outcome

    async def go_back(self) -> bool:
        """Be where one was before the last step; return False if there was none."""
        if not self.outcomes:
            return False
        steps = [outcome.step for outcome in self.outcomes[:-1]]
        if (cluster := self.stage.cluster) is not None:
            self._ports = [int(each.rpartition(":")[2]) for each in cluster.bootstrap_servers.split(",")]
        await self.close()
        self.outcomes = []
        self._begin()
        for _ in steps:
            await self.go_on()
        self.take_meanwhile()
        return True

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            self._listening = None

    async def close(self) -> None:
        self._stop_listening()
        await self.stage.close()
