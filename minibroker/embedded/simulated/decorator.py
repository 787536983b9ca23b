"""`@minibroker.simulate(seeds=200)`: a test that is run in virtual time, from one seed after the other.

    @minibroker.simulate(seeds=200, topics=["orders", "bills"])
    async def test_every_order_is_billed(world): ...

The test becomes a plain function, so neither pytest nor unittest needs a plugin for asyncio; its first parameter is the
world, the others are fixtures as ever.
What must hold: a seed is the whole input of a run. The first that fails is run again, and has to fail in the same way,
to the byte; then less of it is looked for that still fails, and the test fails with that run's error, its story and the
command that shows it again. What would escape from virtual time fails the test by name.
"""

from __future__ import annotations

import gc
import importlib.util
import inspect
import logging
import shlex
import sys
import traceback
import unittest
import warnings
from contextlib import contextmanager
from functools import update_wrapper

from minibroker.embedded.arguments import config_of, wanted_topics
from minibroker.embedded.cluster import Cluster
from minibroker.embedded.cluster_engine import ClusterStart, check_count, check_settings
from minibroker.embedded.simulated.plan import NEEDS_BROKERS, WEIGHTS, Plan, drawn_plan
from minibroker.embedded.simulated.shrinking import shrunk
from minibroker.embedded.simulated.world import SimulatedKafka
from minibroker.simulation.loop import SimulatedLoop, Stray
from minibroker.simulation.run import Outcome, World
from minibroker.simulation.run import simulate as run_once
from minibroker.simulation.strays import bound_names_follow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
    from types import TracebackType
    from typing import Any

    Test = Callable[..., Coroutine[Any, Any, Any]]

SEEDS = 100
LIMIT_S = 3600.0  # virtual
HASH_LENGTH = 16  # of what is shown
# Clients whose compiled parts are told the time, which they must not first be imported in the midst of a run for.
TOLD_THE_TIME = ("aiokafka",)
# As they are by default, but for topics of state: of 50 partitions each run would make 50 logs.
DEFAULTS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}


def simulate(
    test: Test | None = None,
    /,
    *,
    seeds: int = SEEDS,
    first_seed: int = 0,
    brokers: int = 1,
    topics: str | Iterable[str] = (),
    faults: Iterable[str] = (*WEIGHTS,),
    config: Mapping[str, object] | None = None,
    limit_s: float = LIMIT_S,
    **settings: object,
) -> Any:
    """Run an async test in virtual time from so many seeds.

    brokers: of the cluster. topics: made at the start, as in "orders", "orders:3", "orders:3:2" (replicas).
    faults: what may go wrong, all by default: see docs/simulated-tests.md. limit_s: virtual seconds of one run.
    config: settings of the brokers by Kafka's names; `settings` are the same with _ for each dot.
    """
    wanted = [*faults]
    if unknown := [name for name in wanted if name not in WEIGHTS]:
        raise ValueError(f"faults: there is no {unknown[0]!r}; there are {', '.join(WEIGHTS)}")
    kinds = tuple(name for name in WEIGHTS if name in wanted and (brokers > 1 or name not in NEEDS_BROKERS))
    if seeds < 1:
        raise ValueError(f"seeds: a test is run from at least one, not from {seeds}")
    check_count(brokers, 1)
    checked = config_of(Cluster, {**(config or {}), **settings}, DEFAULTS, None)
    check_settings(checked)
    start = ClusterStart(
        settings=checked.static,
        topics=wanted_topics(topics, None),
        brokers=brokers,
        first_id=1,
        host="127.0.0.1",
        ports=(),
        racks=(),
        data_dir=None,
        as_version=None,
        cluster_id=None,
    )

    def decorate(test: Test) -> Callable[..., None]:
        return Simulated(test, start, kinds, range(first_seed, first_seed + seeds), limit_s).as_function()

    return decorate if test is None else decorate(test)


class Simulated:
    """A simulated test; the function that pytest calls has it as its attribute `simulated`."""

    def __init__(self, test: Test, start: ClusterStart, kinds: tuple[str, ...], seeds: range, limit_s: float):
        if not inspect.iscoroutinefunction(test):
            raise TypeError(f"{getattr(test, '__name__', test)}: a simulated test is an async function")
        self.test = test
        self.seeds = seeds
        self.seed: int | None = None  # the only one that is to be run
        self.name = test.__qualname__  # for the command; pytest knows a better one
        self._start = start
        self._kinds = kinds
        self._limit_s = limit_s
        self._loop: SimulatedLoop | None = None  # of the run that is under way

    def told(self, name: str, seed: int | None, seeds: int | None) -> None:
        """Take what pytest knows: the name by which it finds the test, and what its options say."""
        self.name, self.seed = name, seed
        if seeds is not None:
            if seeds < 1:
                raise ValueError(f"--simulate-seeds: a test is run from at least one, not from {seeds}")
            self.seeds = range(self.seeds.start, self.seeds.start + seeds)

    def as_function(self) -> Callable[..., None]:
        """Return what pytest is to call: no coroutine, and without the parameter of the world."""
        signature = inspect.signature(self.test)
        parameters = [*signature.parameters.values()]
        place = 1 if parameters and parameters[0].name == "self" else 0
        if len(parameters) <= place:
            raise TypeError(f"{self.test.__name__}: a simulated test has a parameter for its world")

        def function(*arguments: Any, **fixtures: Any) -> None:
            __tracebackhide__ = True
            owner, rest = arguments[:place], arguments[place:]
            self.check(lambda world: self.test(*owner, world, *rest, **fixtures))

        update_wrapper(function, self.test)
        del function.__wrapped__  # type: ignore[attr-defined]  # the plugins for asyncio would look there
        function.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[each for index, each in enumerate(parameters) if index != place], return_annotation=None
        )
        function.simulated = self  # type: ignore[attr-defined]
        return function

    def check(self, test: Test) -> None:
        """Run the seeds; raise what the first that fails has failed with, made smaller and explained."""
        __tracebackhide__ = True
        for name in TOLD_THE_TIME:
            if importlib.util.find_spec(name):
                importlib.import_module(f"{name}.producer.producer")
        with bound_names_follow(lambda: self._loop), _without_garbage():
            seeds = self.seeds if self.seed is None else (self.seed,)
            for seed in seeds:
                plan = drawn_plan(seed, self._kinds)
                outcome = self.run(test, seed, plan)
                if outcome.failure is not None:
                    if _is_skip(outcome.failure):
                        raise outcome.failure
                    failure = self._explained(test, plan, outcome)
                    break
                if self.seed is not None:
                    print(f"seed {seed} passes: {len(plan.faults)} faults, trace {_hash(outcome)}")
            else:
                return
        raise failure.with_traceback(_own_part(failure.__traceback__, self.test))

    def run(self, test: Test, seed: int, plan: Plan, *, with_story: bool = False) -> Outcome:
        """Run one seed with a plan; the result of an outcome with a story are its lines."""
        lines: list[str] = []

        async def play(core: World) -> list[str]:
            self._loop = core.loop
            world = SimulatedKafka(core, self._start, plan, with_story=with_story)
            try:
                await world.play(test)
            finally:
                if world.story is not None:
                    lines.extend(world.story.shown())
            return lines

        before = logging.root.manager.disable
        if not with_story:
            logging.disable()  # what clients complain of in a hundred runs is shown for the one that fails
        try:
            with _without_complaints():
                outcome = run_once(play, seed, limit_s=self._limit_s)
                _let_go(outcome.failure)
                gc.collect()
        finally:
            logging.disable(before)
            strays = self._loop.strays if self._loop is not None else []
            self._loop = None
        if strays:
            outcome.failure = strays[0]
        outcome.result = lines
        return outcome

    def _explained(self, test: Test, plan: Plan, outcome: Outcome) -> BaseException:
        """Return the failure of the smallest run that fails like this one, with its story."""
        seed, failure = outcome.seed, outcome.failure
        assert failure is not None
        if isinstance(failure, Stray):  # which no fault has made
            return failure
        if outcome.trace_hash != self.run(test, seed, plan).trace_hash:
            failure.add_note(
                f"seed {seed} fails, but runs another way when it is run again: something is kept from one run to the "
                "next (a global, a fixture), or depends on the order of a set of strings"
            )
            return failure
        least = shrunk(plan, lambda smaller: type(self.run(test, seed, smaller).failure) is type(failure))
        shown = self.run(test, seed, least, with_story=True)
        if shown.failure is None:
            shown.failure = failure
        count, fewer = len(plan.faults), len(least.faults)
        shown.failure.add_note(
            "\n".join(
                [
                    f"seed {seed} fails (trace {_hash(outcome)}); made smaller, from {count} faults to {fewer} "
                    f"(trace {_hash(shown)}), in virtual seconds:",
                    *shown.result,
                    *(["it fails without any fault"] if least == Plan() else []),
                    f"again: pytest {shlex.quote(self.name)} --simulate-seed={seed}",
                ]
            )
        )
        return shown.failure


def _hash(outcome: Outcome) -> str:
    return outcome.trace_hash[:HASH_LENGTH]


def _is_skip(failure: BaseException) -> bool:
    """Whether it is no failure but what pytest or unittest ends a test with that is not to be run."""
    pytest = sys.modules.get("pytest")
    others = (pytest.skip.Exception, pytest.xfail.Exception, pytest.exit.Exception) if pytest else ()
    return isinstance(failure, (unittest.SkipTest, *others))


def _own_part(trace: TracebackType | None, test: Test) -> TracebackType | None:
    """Return a traceback from the test's own line on, or from that of a piece of its application."""
    each = trace
    while each is not None and each.tb_frame.f_code is not test.__code__:
        each = each.tb_next
    return each or trace


def _let_go(failure: BaseException | None) -> None:
    """Take the variables out of the frames of a failure: clients in them would complain whenever it is thrown away."""
    while failure is not None:
        traceback.clear_frames(failure.__traceback__)
        failure = failure.__cause__ or failure.__context__


@contextmanager
def _without_complaints() -> Iterator[None]:
    """Pass over clients of processes that were killed, which complain that nobody has stopped them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield


@contextmanager
def _without_garbage() -> Iterator[None]:
    """Let what is there before be no garbage of a run: it is not looked through each time."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
