"""Several brokers and their controller in one loop, and the verbs by which they are held in the hand.

    start, stop, kill, pause, resume    here
    topics, settings, leaders           admin.py
    cut, heal, delay, ...               links.py
    slow and full disks                 disks.py
    hold, step, release                 steps.py
    waiting                             waits.py
    groups of consumers                 groups.py
    retention, compaction on demand     cleaning.py
    watching from outside               watchers.py

    cluster = Cluster(settings, new_storage, clock=clock, chance=Random(7), brokers=3)
    await cluster.start()
    await cluster.kill(2)

Each broker has its port, its directory and its replicas; they meet in a Network, whose links can be cut and stepped.
What must hold: a verb returns when it is done, and says by an event what it did; a broker that was killed can be
started again on what its disk has kept, and takes the same port.
Not here: threads, and waiting from outside the loop (embedded/cluster.py).
"""

from __future__ import annotations

import asyncio
from random import Random

from minibroker.broker.broker import Node
from minibroker.clock import LoopClock
from minibroker.clock.steered import SteeredClock
from minibroker.cluster.admin import ClusterAdmin
from minibroker.cluster.controller_server import NODE_ID as CONTROLLER_ID
from minibroker.cluster.controller_server import ControllerNode
from minibroker.cluster.disks import Disks
from minibroker.cluster.links import Links
from minibroker.cluster.steps import Steps
from minibroker.cluster.waits import Waits
from minibroker.cluster.watchers import Watchers
from minibroker.config import BrokerConfig
from minibroker.config.listeners import address
from minibroker.event_kinds import Broker as BrokerChanged
from minibroker.log.unsynced import lose, unsynced
from minibroker.parts import RACK_AWARE
from minibroker.replication.link import CONTROLLER
from minibroker.replication.network import Network
from minibroker.reporter import Reporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from minibroker.clock import Clock
    from minibroker.events import EventStream
    from minibroker.log.storage import Storage
    from minibroker.replication.link import NodeId
    from minibroker.replication.replica import Replica

RUNNING, PAUSED, STOPPED, KILLED = "running", "paused", "stopped", "killed"
STARTING, STOPPING = "starting", "stopping"
REPLICATION_FACTOR = 3  # of topics that nobody gave one, if there are so many brokers
ASKED = "somebody asked for it"
SILENCING = ("kill", "stop", "pause", "isolate")
LOOKING = ("wait-", "watch")  # how verbs begin that do nothing but wait: for whoever has gone they need not
ANSWER_MS = 20  # so long an answer takes to leave


class NoSuchBroker(ValueError):
    """There is no broker of that name, or it is not in the state that the verb needs."""


class WrongState(NoSuchBroker):
    """There is such a broker, and it is in another state than the verb needs: killed already, or still running."""


class Cluster(ClusterAdmin):
    """Brokers with ids one after the other, and a controller."""

    def __init__(
        self,
        settings: Mapping[str, str],
        new_storage: Callable[[str], Storage],
        *,
        brokers: int = 3,
        first_id: int = 1,
        host: str = "127.0.0.1",
        ports: Sequence[int] = (),
        racks: Sequence[str] = (),
        cluster_id: str | None = None,
        as_version: str | None = None,
        clock: Clock,
        chance: Random,
        events: EventStream,
        reporter: Reporter | None = None,
        log_dir: Callable[[str], str] = str,
    ):
        """new_storage: makes the disk of "controller", "broker-1" and so on. ports: 0 takes a free one.

        racks: of the brokers in their order; with any, consumers are sent to a replica in their rack.
        """
        self.clock = clock
        self.chance = chance
        self.events = events
        self.reporter = reporter
        self.network = Network(clock, chance, events)
        self.nodes: dict[int, Node] = {}
        self.states: dict[NodeId, str] = {CONTROLLER: STOPPED}
        self.storages: dict[NodeId, Storage] = {CONTROLLER: new_storage(CONTROLLER)}
        self.cluster_id = cluster_id or ""
        self.links = Links(self)
        self.disks = Disks(self)
        self.steps = Steps(self)
        self.waits = Waits(self)
        self.watchers = Watchers(self)
        self.controller: ControllerNode
        self._as_version = as_version
        self._begun: dict[NodeId, asyncio.Task[None]] = {}  # starts that are under way
        self._calls: dict[asyncio.Task[Any], None] = {}  # verbs that came through a port
        self._log_dir = log_dir
        self._settings: dict[NodeId, dict[str, str]] = {CONTROLLER: {**_defaults(brokers), **settings}}
        for index, broker_id in enumerate(range(first_id, first_id + brokers)):
            port = ports[index] if index < len(ports) else 0
            own = {"node.id": str(broker_id), "listeners": f"PLAINTEXT://{address(host, port)}"}
            if racks:
                own["broker.rack"] = racks[index % len(racks)]
                own["replica.selector.class"] = RACK_AWARE
            self._settings[broker_id] = {**_defaults(brokers), **settings, **own}
            self.storages[broker_id] = new_storage(f"broker-{broker_id}")
            self.states[broker_id] = STOPPED

    @property
    def broker_ids(self) -> list[int]:
        return [who for who in self.states if isinstance(who, int)]

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every broker that was started, for clients."""
        return ",".join(node.bootstrap_servers for _, node in sorted(self.nodes.items()))

    # All of it

    async def start_all(self) -> None:
        """Return when every broker answers; a start that fails leaves nothing open."""
        starts: list[asyncio.Task[None]] = []
        try:
            await self.start(CONTROLLER)
            self.controller.forget_sessions()
            starts += [asyncio.ensure_future(self.start(broker_id)) for broker_id in self.broker_ids]
            await asyncio.gather(*starts)
        except BaseException:
            for each in starts:  # who is still starting would go on by itself
                each.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
            await self.kill_all()
            raise

    async def stop_all(self) -> None:
        """Return when everything is closed, flushed and marked clean; who was paused goes on first."""
        try:
            await self._stop_all()
        finally:
            self.watchers.close()

    async def _stop_all(self) -> None:
        if isinstance(self.clock, SteeredClock) and self.clock.is_frozen:
            self.clock.thaw()  # who stops in order has to wait for others now and then
        for who, state in self.states.items():
            if state == PAUSED:
                self.resume(who)
            elif state == STARTING:
                await self.kill(who, notice=False)
        self.links.heal()
        self.steps.release()
        for gate in self.network.gates:
            self.network.release(gate)
        running = [who for who in self.broker_ids if self.states[who] == RUNNING]
        if self.states[CONTROLLER] != RUNNING:
            await asyncio.gather(*(self.kill(broker_id, notice=False) for broker_id in running))
            return
        await asyncio.gather(*(self.stop(broker_id) for broker_id in running))
        await self.stop(CONTROLLER)

    async def kill_all(self) -> None:
        for who, state in self.states.items():
            if state in (RUNNING, PAUSED, STARTING):
                await self.kill(who, notice=False)
        self.watchers.close()

    # One of them

    async def start(self, who: NodeId) -> None:
        """Start a broker that does not run; return when it may lead."""
        self._check(who, STOPPED, KILLED)
        before, self.states[who] = self.states[who], STARTING
        begun = self._begun[who] = asyncio.get_running_loop().create_task(self._start(who))
        try:
            await begun
        except asyncio.CancelledError:
            if self.states[who] != KILLED:  # it is the caller who was cancelled
                begun.cancel()
                self.states[who] = before
                raise
            raise WrongState(f"{_name(who)} was killed before it had started") from None
        except BaseException:
            self.states[who] = before
            raise
        finally:
            self._begun.pop(who, None)

    async def _start(self, who: NodeId) -> None:
        if isinstance(who, str):
            controller = self.controller = self._new_controller()
            await controller.start()
            log = controller.log.log
            log.on_offline = lambda: self._controller_failed(controller, log.offline)
            self.cluster_id = self.controller.cluster_id
            self._became(who, RUNNING)
            return
        node = self.nodes[who] = self._new_node(who)
        node.steer = lambda verb, arguments: self._call_through(who, verb, arguments)
        node.when_disk_fails = lambda failure: self._disk_failed(who, node, failure)
        await node.start()
        self._settings[who]["listeners"] = ",".join(
            f"{each.listener_name}://{address(each.host, each.port)}" for each in node.servers
        )
        self.links.apply(who)
        self._became(who, RUNNING)

    def _new_controller(self) -> ControllerNode:
        return ControllerNode(
            BrokerConfig(self._settings[CONTROLLER]),
            self.storages[CONTROLLER],
            self.network,
            clock=self.clock,
            chance=Random(self.chance.random()),
            events=self.events,
            cluster_id=self.cluster_id,
            as_version=self._as_version,
            gate=self.steps.election,
        )

    def _new_node(self, broker_id: int) -> Node:
        return Node(
            BrokerConfig(self._settings[broker_id]),
            self.storages[broker_id],
            clock=self.clock,
            chance=Random(self.chance.random()),
            reporter=self.reporter,
            events=self.events,
            network=self.network,
            cluster_id=self.cluster_id,
            as_version=self._as_version,
            log_dir=self._log_dir(f"broker-{broker_id}"),
        )

    async def stop(self, who: NodeId) -> None:
        """Stop a broker in order: its partitions get other leaders first."""
        self._check(who, RUNNING)
        self.states[who] = STOPPING
        await self._process(who).stop()
        self._became(who, STOPPED)

    async def kill(
        self, who: NodeId, *, lossy: bool = False, torn_bytes: int = 0, notice: bool = True, why: str = ""
    ) -> None:
        """End a broker as kill -9 does; lossy: as a power loss, what was not flushed is gone.

        torn_bytes: so much of what was lost stays, as half a batch. notice: the controller is told at once, where
        Kafka's would wait until the broker has been silent for broker.session.timeout.ms.
        """
        self._check(who, RUNNING, PAUSED, STARTING)
        was_starting = self.states[who] == STARTING
        self.states[who] = KILLED
        if was_starting:
            begun = self._begun[who]
            begun.cancel()
            await asyncio.wait([begun])
        elif isinstance(who, str):
            await self.controller.kill()
        else:
            await self._kill_broker(who, lossy=lossy, torn_bytes=torn_bytes)
        self._became(who, KILLED, why or ("its power has gone" if lossy else ASKED))
        if isinstance(who, int) and notice and self.states[CONTROLLER] == RUNNING:
            self.controller.lose(who, f"broker {who} is gone")

    async def _kill_broker(self, broker_id: int, *, lossy: bool, torn_bytes: int) -> None:
        node, storage = self.nodes[broker_id], self.storages[broker_id]
        lost = [unsynced(log) for log in node.directory.logs.values()] if lossy else []
        await node.kill()
        crashed = getattr(storage, "crashed", None)
        if lossy and crashed is not None:
            self.storages[broker_id] = crashed(self.chance)
        else:
            for each in lost:
                lose(storage, each, torn_bytes=torn_bytes)

    def _controller_failed(self, controller: ControllerNode, failure: Exception | None) -> None:
        (self.reporter or Reporter()).say(f"the controller ends, for nobody knows what its log holds: {failure}")
        self._disk_failed(CONTROLLER, controller, failure)

    def _disk_failed(self, who: NodeId, process: Node | ControllerNode, failure: Exception | None) -> None:
        """Let a broker end whose only disk fails, as Kafka's do: others lead what it led. So does the controller."""

        async def end() -> None:
            if self._process(who) is process and self.states[who] in (RUNNING, PAUSED, STARTING):
                await self.kill(who, why=f"its disk failed: {failure}")

        self._ending = asyncio.get_running_loop().create_task(end())

    def pause(self, who: NodeId) -> None:
        """Let a broker stand still, as SIGSTOP does."""
        self._check(who, RUNNING)
        self.network.pause(who)
        self._process(who).pause()
        self._became(who, PAUSED)

    def resume(self, who: NodeId) -> None:
        """Let a broker that was paused go on."""
        self._check(who, PAUSED)
        self._process(who).resume()
        if isinstance(who, int):
            self.links.apply(who)
        self.network.resume(who)
        self._became(who, RUNNING)

    def _process(self, who: NodeId) -> Node | ControllerNode:
        return self.nodes[who] if isinstance(who, int) else self.controller

    def check(self, who: NodeId) -> str:
        """Return the state of a broker, or raise NoSuchBroker."""
        state = self.states.get(who)
        if state is None:
            raise NoSuchBroker(f"there is no broker {who!r}: there are {', '.join(map(str, self.states))}")
        return state

    def _check(self, who: NodeId, *states: str) -> None:
        state = self.check(who)
        if state not in states:
            raise WrongState(f"{_name(who)} is {state}; it would have to be {' or '.join(states)}")

    def _became(self, who: NodeId, state: str, why: str = ASKED) -> None:
        self.states[who] = state
        if self.events.observed:
            self.events.emit(BrokerChanged(broker=who if isinstance(who, int) else CONTROLLER_ID, state=state, why=why))

    # Verbs by their names

    async def call(self, verb: str, arguments: Mapping[str, Any]) -> Any:
        """Do what a verb says, by its name."""
        from minibroker.cluster.control import call

        return await call(self, verb, arguments)

    async def _call_through(self, broker_id: int, verb: str, arguments: Mapping[str, Any]) -> Any:
        """Do what somebody asks for through a broker's port, whatever becomes of the connection meanwhile.

        What ends or stops that very broker is done when it has been answered: it could not be afterwards.
        """
        if verb.startswith(LOOKING):
            return await self.call(verb, arguments)
        silences = verb in SILENCING and str(arguments.get("broker")) == str(broker_id)
        if silences:
            self._check(broker_id, RUNNING)
        task = asyncio.get_running_loop().create_task(self._call_later(verb, arguments, ANSWER_MS if silences else 0))
        self._calls[task] = None
        task.add_done_callback(lambda done: self._calls.pop(done, None))
        return None if silences else await asyncio.shield(task)

    async def _call_later(self, verb: str, arguments: Mapping[str, Any], after_ms: float) -> Any:
        await LoopClock().sleep(after_ms)
        return await self.call(verb, arguments)

    # Looking

    def running_controller(self) -> ControllerNode:
        self._check(CONTROLLER, RUNNING)
        return self.controller

    def replica(self, topic: str, partition: int, broker: int) -> Replica | None:
        """Return a replica of a broker that runs."""
        node = self.nodes.get(broker)
        return None if node is None else node.replicas.get((topic, partition))

    def leader(self, topic: str, partition: int) -> Replica | None:
        """Return the replica that leads and knows it."""
        found = self.replica(topic, partition, self.partition(topic, partition).leader)
        return found if found is not None and found.is_leader else None


def _defaults(brokers: int) -> dict[str, str]:
    return {"default.replication.factor": str(min(brokers, REPLICATION_FACTOR))}


def _name(who: NodeId) -> str:
    return f"broker {who}" if isinstance(who, int) else f"the {who}"
