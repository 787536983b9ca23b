"""What a simulated test gets: brokers in virtual time, pieces of the application, and what came of it.

    @minibroker.simulate(seeds=200, topics=["orders:2"])
    async def test_every_order_is_billed(world):
        world.run(worker, world.bootstrap_servers)
        await send_orders(world.bootstrap_servers)
        await world.settle()
        assert {record.key for record in world.records("bills")} == ...

What must hold: things go wrong from the first line of the test until `settle`, and never after it.
"""

from __future__ import annotations

import functools

from minibroker.embedded.cluster_engine import ClusterEngine
from minibroker.embedded.simulated.apps import App, is_verdict
from minibroker.embedded.simulated.harm import Harm
from minibroker.embedded.simulated.story import Story
from minibroker.event_kinds import Commit, is_internal
from minibroker.reporter import Reporter
from minibroker.simulation.disk import SimulatedStorage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Coroutine
    from random import Random
    from typing import Any

    from minibroker.clock import Clock
    from minibroker.embedded.cluster_engine import ClusterStart
    from minibroker.embedded.record import Record
    from minibroker.embedded.simulated.plan import Plan
    from minibroker.events import Event
    from minibroker.groups.view_rows import GroupView
    from minibroker.simulation.run import World as Core

QUIET_S = 10.0
LAG_QUIET_S = 60.0  # while a group lags: a client may be about to go on after its longest timeout
LULL_S = 3.0  # nothing happens any more, so no event will come that a fault could wait for
LULL_WITHIN_S = 60.0  # until what still waits for an event is given up, if the application never pauses
WITHIN_S = 900.0
SIGNS = ("append", "commit", "group")


class TraceReporter(Reporter):
    """Lines for people become part of the trace."""

    def __init__(self, core: Core):
        self.say = core.trace.add  # type: ignore[method-assign]


class SimulatedKafka:
    """Brokers of a simulated test. Made by `minibroker.simulate`."""

    def __init__(self, core: Core, start: ClusterStart, plan: Plan, *, with_story: bool):
        self.core = core
        self.seed = core.seed
        self.story = Story() if with_story else None
        self.apps: list[App] = []
        self.is_healed = False
        self.failed = core.loop.create_future()
        disks = ["controller", *(f"broker-{broker}" for broker in start.broker_ids)]
        self._engine = ClusterEngine(
            start,
            {name: SimulatedStorage(core.clock.now_ms) for name in disks},
            clock=core.clock,
            events=core.events,
            reporter=TraceReporter(core),
            chance=core.chance,
        )
        self._harm = Harm(core, self._engine.core, self.apps, plan, self.tell)
        self._last_s = 0.0  # when anything happened
        self._committed: dict[tuple[str, str, int], int] = {}  # by group, topic and partition

    @property
    def clock(self) -> Clock:
        """Virtual time: `await world.clock.sleep(500)` in ms. asyncio.sleep and time.time are in it, too."""
        return self.core.clock

    @property
    def chance(self) -> Random:
        """Chance of this seed, for the test's own use; the module random is seeded, too."""
        return self.core.chance

    @property
    def bootstrap_servers(self) -> str:
        """Where clients find the brokers."""
        return self._engine.bootstrap_servers

    def run(self, function: Any, *args: Any, name: str = "") -> App:
        """Call an async function as a process of its own, which the seed may kill and pause.

        After a death, and after an error that it ends with, it is called again. `await` what is returned to wait until
        the function has returned.
        """
        if not callable(function):
            close = getattr(function, "close", lambda: None)
            close()
            raise TypeError(
                "world.run takes a function and its arguments, as in world.run(worker, servers): after a death it is "
                f"called again, and {type(function).__name__} can be run but once"
            )
        wanted = name or getattr(function, "__name__", "app").strip("<>")
        count = sum(app.name.rpartition(" ")[0] == wanted or app.name == wanted for app in self.apps)
        call: Any = functools.partial(function, *args)
        app = App(self, f"{wanted} {count + 1}" if count else wanted, call)
        self.apps.append(app)
        return app

    async def create_topic(self, name: str, partitions: int = 1, **configs: object) -> None:
        """Make a topic; settings have _ for each dot: cleanup_policy="compact". KafkaError says why it cannot be."""
        self._engine.core.create_topic(name, partitions, replication_factor=None, assignments=(), **configs)
        await self._engine.let_know()

    def records(self, topic: str) -> list[Record]:
        """Return all records of a topic, by partition and offset; KafkaError if there is no such topic."""
        return self._engine.views.records(topic)

    def group(self, group: str) -> GroupView:
        """Return a group: members, what is committed, how far that is behind; KafkaError if there is none."""
        return self._engine.core.groups.group(group)

    def note(self, words: str) -> None:
        """Put a line of one's own into what is shown of a run that fails."""
        self.tell(words)

    async def settle(self, quiet_s: float = QUIET_S, within_s: float = WITHIN_S) -> None:
        """Let what is to go wrong go wrong, heal everything, and return when the application has come to rest.

        At rest nothing is written or committed, and no group changes, for `quiet_s` virtual seconds; a minute, as long
        as a group has not read all. TimeoutError if it never rests.
        """
        loop = self.core.loop
        until_s = loop.time() + LULL_WITHIN_S
        while loop.time() < until_s and not (self._harm.is_over and loop.time() - self._last_s >= LULL_S):
            await self.clock.sleep(100 if not self._harm.is_over else 1000 * (self._last_s + LULL_S - loop.time()) + 1)
        await self._harm.heal()
        self.is_healed = True
        self.tell("all is healed", is_harm=True)
        begun_s = self._last_s = loop.time()
        while loop.time() - self._last_s < (LAG_QUIET_S if self._lags() else quiet_s):
            self._check_patience(begun_s + within_s)
            await self.clock.sleep(max(1000 * (self._last_s + quiet_s - loop.time()) + 1, 1000))

    def _check_patience(self, until_s: float) -> None:
        if self.core.loop.time() > until_s:
            raise TimeoutError(f"not at rest: something was written, committed or joined {self._last_s:.1f} s on")

    def _lags(self) -> bool:
        """Whether a group that has members has not read all that it may."""
        groups = self._engine.core.groups
        return any(
            (row.lag_to_lso or 0) > 0
            for group in groups.groups()
            if group.members
            for row in groups.group(group.group).partitions
        )

    # What the run itself does

    def tell(self, words: str, *, is_harm: bool = False) -> None:
        self.core.trace.add(words)
        self._last_s = self.core.loop.time()
        if self.story is not None:
            self.story.add(self._last_s, words, is_harm=is_harm)

    def fail(self, failure: BaseException) -> None:
        """End the run: a piece of the application has failed the test."""
        if not self.failed.done():
            self.failed.set_result(failure)

    async def play(self, test: Callable[[SimulatedKafka], Coroutine[Any, Any, Any]]) -> None:
        """Run a test on brokers that have been started."""
        loop = self.core.loop
        loop.set_exception_handler(self._complain)
        await self._engine.start()
        self.core.events.subscribe(self._hear, SIGNS if self.story is None else ())
        self._harm.begin()
        testing = loop.create_task(test(self), name="test")
        done = loop.create_future()

        def tell(_: object) -> None:
            if not done.done():
                done.set_result(None)

        for each in (testing, self.failed):
            each.add_done_callback(tell)
        await done
        for app in self.apps:
            if app.process is not None:
                app.process.kill()
        if self.failed.done():
            raise self.failed.result()
        await testing
        for failure in loop.unheard():
            if is_verdict(failure):
                raise failure

    def _complain(self, _loop: AbstractEventLoop, context: dict[str, Any]) -> None:
        """Hear of what nobody handled: a log has it in production, and only a verdict of the test ends the run.

        Clients of processes that were killed complain here that nobody has stopped them.
        """
        failure = context.get("exception")
        if failure is not None and is_verdict(failure):
            self.fail(failure)
        elif failure is not None:
            self.tell(f"{context['message']}: {type(failure).__name__}: {failure}")

    def _is_news(self, event: Event) -> bool:
        """Whether an event is progress: who commits by itself does so again every few seconds, wherever he stands."""
        if not isinstance(event, Commit):
            return True
        place = event.group, event.topic, event.partition
        before, self._committed[place] = self._committed.get(place), event.offset
        return before != event.offset

    def _hear(self, event: Event) -> None:
        if event.kind in SIGNS:
            if not is_internal(getattr(event, "topic", "")) and self._is_news(event):
                self._last_s = self.core.loop.time()
            self._harm.hear(event)
        if self.story is not None:
            self.story.hear(self.core.loop.time(), event)
