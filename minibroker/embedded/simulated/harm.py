"""Carrying out a plan: each fault waits for its moment, strikes, and is over after its time; in the end all heals.

What must hold: what cannot be struck just now, such as a broker that is down, is left alone, and said. When `heal`
returns everything runs, the network is calm and no rule is left.
"""

from __future__ import annotations

import asyncio

from minibroker.cluster.nodes import KILLED, PAUSED, RUNNING
from minibroker.embedded.simulated import plan as kinds
from minibroker.embedded.simulated.plan import CALM_MS, RULES, Fault, Plan
from minibroker.errors import KafkaError
from minibroker.event_kinds import is_internal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any, TypeVar

    from minibroker.cluster.cluster import Cluster
    from minibroker.embedded.simulated.apps import App
    from minibroker.events import Event
    from minibroker.simulation.run import World as Core

    Item = TypeVar("Item")

SLOW_MS = (50.0, 300.0)


class Harm:
    """All that goes wrong in a run."""

    def __init__(self, core: Core, cluster: Cluster, apps: list[App], plan: Plan, tell: Callable[..., None]):
        self._core = core
        self._cluster = cluster
        self._apps = apps
        self._plan = plan
        self._tell = tell
        self._seen: dict[str, int] = {}
        self._waiting: list[tuple[Fault, asyncio.Future[None]]] = []  # for events
        self._tasks: list[asyncio.Task[None]] = []
        self._under_way = 0
        self._acts: dict[str, Callable[[Fault], Coroutine[Any, Any, None]]] = {
            kinds.KILL_APP: self._kill_app,
            kinds.PAUSE_APP: self._pause_app,
            kinds.KILL_BROKER: self._kill_broker,
            kinds.PAUSE_BROKER: self._pause_broker,
            kinds.RESET: self._reset,
            kinds.CUT: self._cut,
            kinds.SLOW: self._slow,
            kinds.REQUEST: self._request,
            kinds.MOVE_LEADER: self._move_leader,
        }

    @property
    def is_over(self) -> bool:
        """Whether nothing more will strike but what waits for an event."""
        return self._under_way == 0

    def begin(self) -> None:
        sockets = self._core.loop.sockets
        sockets.delay_ms, sockets.max_piece_bytes = self._plan.delay_ms, self._plan.piece_bytes
        if self._plan.delay_ms != CALM_MS:
            low, high = self._plan.delay_ms
            self._tell(f"the network takes {low:g} to {high:g} ms each way", is_harm=True)
        if self._plan.piece_bytes:
            self._tell(f"frames arrive in pieces of up to {self._plan.piece_bytes} bytes", is_harm=True)
        self._tasks = [self._core.loop.create_task(self._befall(fault)) for fault in self._plan.faults]

    def hear(self, event: Event) -> None:
        """Count an event that faults may wait for."""
        kind = event.kind
        if is_internal(getattr(event, "topic", "")):
            return
        self._seen[kind] = seen = self._seen.get(kind, 0) + 1
        for fault, come in self._waiting:
            if fault.after == kind and fault.nth == seen and not come.done():
                come.set_result(None)

    async def heal(self) -> None:
        """Let everything run again."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        cluster, sockets = self._cluster, self._core.loop.sockets
        sockets.delay_ms, sockets.max_piece_bytes = CALM_MS, 0
        for broker in cluster.broker_ids:
            if cluster.states[broker] == PAUSED:
                cluster.resume(broker)
            if cluster.states[broker] == KILLED:
                await self._start(broker)
            for server in cluster.nodes[broker].servers:
                sockets.heal(server.port)
            cluster.nodes[broker].faults.clear()
        for app in self._apps:
            if app.process is not None and app.process.is_paused:
                app.resume()

    async def _befall(self, fault: Fault) -> None:
        if fault.after:
            come = self._core.loop.create_future()
            self._waiting.append((fault, come))
            await come
        self._under_way += 1
        try:
            await self._core.clock.sleep(fault.delay_ms)
            await self._acts[fault.kind](fault)
        finally:
            self._under_way -= 1

    def _say(self, words: str, fault: Fault) -> None:
        moment = f" ({fault.after} {fault.nth})" if fault.after else ""
        self._tell(f"{words}{moment}", is_harm=True)

    def _chosen(self, fault: Fault, candidates: Sequence[Item]) -> Item | None:
        return candidates[int(fault.choice * len(candidates))] if candidates else None

    def _broker(self, fault: Fault) -> int | None:
        cluster = self._cluster
        return self._chosen(fault, [each for each in cluster.broker_ids if cluster.states[each] == RUNNING])

    # What there is

    async def _kill_app(self, fault: Fault) -> None:
        if app := self._chosen(fault, [each for each in self._apps if each.runs]):
            self._say(f"{app.name} is killed", fault)
            app.kill(fault.for_ms)

    async def _pause_app(self, fault: Fault) -> None:
        if (app := self._chosen(fault, [each for each in self._apps if each.runs])) is None:
            return
        self._say(f"{app.name} stands still for {fault.for_ms:.0f} ms", fault)
        process = app.process
        app.pause()
        await self._core.clock.sleep(fault.for_ms)
        if process is app.process and process is not None and process.is_paused:
            self._tell(f"{app.name} goes on", is_harm=True)
            app.resume()

    async def _kill_broker(self, fault: Fault) -> None:
        if (broker := self._broker(fault)) is None:
            return
        self._say(f"broker {broker} is killed", fault)
        await self._cluster.kill(broker)
        await self._core.clock.sleep(fault.for_ms)
        await self._start(broker)

    async def _start(self, broker: int) -> None:
        self._cluster.storages[broker].unlock()
        self._tell(f"broker {broker} is started again", is_harm=True)
        await self._cluster.start(broker)

    async def _pause_broker(self, fault: Fault) -> None:
        if (broker := self._broker(fault)) is None:
            return
        self._say(f"broker {broker} stands still for {fault.for_ms:.0f} ms", fault)
        self._cluster.pause(broker)
        await self._core.clock.sleep(fault.for_ms)
        if self._cluster.states[broker] == PAUSED:
            self._cluster.resume(broker)

    async def _reset(self, fault: Fault) -> None:
        if (broker := self._broker(fault)) is not None:
            self._say(f"all connections to broker {broker} are reset", fault)
            self._core.loop.sockets.reset(self._port(broker))

    async def _cut(self, fault: Fault) -> None:
        if (broker := self._broker(fault)) is None:
            return
        self._say(f"nothing gets to or from broker {broker} for {fault.for_ms:.0f} ms", fault)
        port = self._port(broker)
        self._core.loop.sockets.cut(port)
        await self._core.clock.sleep(fault.for_ms)
        self._core.loop.sockets.heal(port)

    async def _slow(self, fault: Fault) -> None:
        low, high = SLOW_MS
        self._say(f"the network takes {low:g} to {high:g} ms each way for {fault.for_ms:.0f} ms", fault)
        self._core.loop.sockets.delay_ms = SLOW_MS
        await self._core.clock.sleep(fault.for_ms)
        self._core.loop.sockets.delay_ms = self._plan.delay_ms

    async def _request(self, fault: Fault) -> None:
        """Let the next request that fits meet something, at whichever broker it comes to."""
        rule = RULES[fault.rule]
        shown = " ".join(str(value) if name == "api" else f"{name}={value}" for name, value in rule.items())
        self._say(f"the next {shown}", fault)
        for broker in self._cluster.broker_ids:
            if self._cluster.states[broker] == RUNNING:
                self._cluster.nodes[broker].faults.add(**rule, times=1)

    async def _move_leader(self, fault: Fault) -> None:
        cluster = self._cluster
        partitions = [
            (name, partition.id, other)
            for name, topic in sorted(cluster.controller.image.topics.items())
            for partition in topic.partitions
            for other in partition.isr
            if other != partition.leader and cluster.states[other] == RUNNING
        ]
        if (found := self._chosen(fault, partitions)) is None:
            return
        name, partition, other = found
        self._say(f"broker {other} is to lead {name}-{partition}", fault)
        try:
            cluster.move_leader(name, partition, other)
        except KafkaError as reason:
            self._tell(f"it does not: {reason.message}", is_harm=True)

    def _port(self, broker: int) -> int:
        return self._cluster.nodes[broker].servers[0].port
