"""Several brokers and their controller in one loop, and the verbs by which they are held in the hand.

    start, stop, kill, pause, resume    here
    topics, settings, leaders           admin.py
    cut, heal, delay, ...               links.py
    slow and full disks                 disks.py
    hold, step, release                 steps.py
    waiting                             waits.py
    groups of consumers                 groups.py
    retention, compaction on demand     cleaning.py
    watching from outside               view_source.py
    all of these by their names         verbs.py

    cluster = Cluster(settings, new_storage, clock=clock, chance=Random(7), brokers=3)
    await cluster.start()
    await cluster.kill(2)

Each broker has its port, its directory and its replicas; they meet in a Network, whose links can be cut and stepped.
What must hold: a verb returns when it is done, and says by an event what it did; a broker that was killed can be
started again on what its disk has kept, and takes the same port. What a broker is made of is imported when there is
one: the command line lists the verbs without it.
Not here: threads, and waiting from outside the loop (embedded/cluster.py).
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from random import Random

from minibroker.clock.steered import SteeredClock
from minibroker.cluster.admin import ClusterAdmin
from minibroker.cluster.cleaning import Cleaning
from minibroker.cluster.committed import Committed
from minibroker.cluster.disks import Disks
from minibroker.cluster.groups import Groups
from minibroker.cluster.links import Links
from minibroker.cluster.nodes import KILLED, PAUSED, RUNNING, STARTING, STOPPED, STOPPING, WrongState, name_of
from minibroker.cluster.steps import Steps
from minibroker.cluster.transactions import Transactions
from minibroker.cluster.waits import Waits
from minibroker.event_kinds import Broker as BrokerChanged
from minibroker.replication.network import CONTROLLER
from minibroker.reporter import Reporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from typing import Any

    from minibroker.broker.broker import Node
    from minibroker.clock import Clock
    from minibroker.cluster.controller_server import ControllerNode
    from minibroker.events import EventStream
    from minibroker.log.storage import Storage
    from minibroker.replication.network import NodeId
    from minibroker.security.users import Users
    from minibroker.server.connection import Service
    from minibroker.taught import SeenLesson
    from minibroker.view.feed import Feed

    Steer = Callable[["Cluster", int, str, Mapping[str, Any]], Coroutine[Any, Any, Any]]

REPLICATION_FACTOR = 3  # of topics that nobody gave one, if there are so many brokers
ASKED = "somebody asked for it"


class Cluster(ClusterAdmin):
    """Brokers with ids one after the other, and a controller."""

    noun = "cluster"  # as refusals of verbs call it

    def __init__(
        self,
        settings: Mapping[str, str],
        new_storage: Callable[[str], Storage],
        *,
        brokers: int = 3,
        first_id: int = 1,
        host: str = "127.0.0.1",
        ports: Sequence[int] = (),
        protocol: str = "PLAINTEXT",
        racks: Sequence[str] = (),
        cluster_id: str | None = None,
        as_version: str | None = None,
        clock: Clock,
        chance: Random,
        events: EventStream,
        reporter: Reporter | None = None,
        log_dir: Callable[[str], str] = str,
        steer: Steer | None = None,
        users: Users | None = None,
    ):
        """new_storage: makes the disk of "controller", "broker-1" and so on. ports: 0 takes a free one.

        racks: of the brokers in their order; with any, consumers are sent to a replica in their rack.
        users: who can log in, beside those of settings and metadata.
        steer: carries out a verb that came through a broker's port (control.py); None: the ports take none.
        """
        from minibroker.config.listeners import address
        from minibroker.parts import RACK_AWARE

        super().__init__(clock=clock, chance=chance, events=events)
        self.reporter = reporter or Reporter()
        self.tap: Callable[[Service, int], Service] | None = None  # keeps or records what clients ask of each broker
        self.page: str | None = None  # who may steer by the page that a browser is shown; None: as usual
        self.states[CONTROLLER] = STOPPED
        self.storages[CONTROLLER] = new_storage(CONTROLLER)
        self.cluster_id = cluster_id or ""
        self.committed = Committed(self)
        self.links = Links(self)
        self.disks = Disks(self, self.links)
        self.steps = Steps(self)
        self.cleaning = Cleaning(self)
        self.waits = Waits(self)
        self.groups = Groups(self)
        self.transactions = Transactions(self)
        self.cuts_to_high_watermark = False  # as followers did before KIP-101; a lesson may want it
        self._as_version = as_version
        self._begun: dict[NodeId, asyncio.Task[None]] = {}  # starts that are under way
        self.lesson: SeenLesson | None = None  # that is played on it
        self._steer = steer
        self._users = users
        self._log_dir = log_dir
        listeners = {"listeners": f"{protocol}://{address(host, 0)}"}  # that settings of all brokers have to fit
        self._settings: dict[NodeId, dict[str, str]] = {CONTROLLER: {**_defaults(brokers), **settings, **listeners}}
        for index, broker_id in enumerate(range(first_id, first_id + brokers)):
            port = ports[index] if index < len(ports) else 0
            own = {"node.id": str(broker_id), "listeners": f"{protocol}://{address(host, port)}"}
            if racks:
                own["broker.rack"] = racks[index % len(racks)]
                own["replica.selector.class"] = RACK_AWARE
            self._settings[broker_id] = {**_defaults(brokers), **settings, **own}
            self.storages[broker_id] = new_storage(f"broker-{broker_id}")
            self.states[broker_id] = STOPPED

    @cached_property
    def feed(self) -> Feed:
        """What somebody sees who looks at the cluster."""
        from minibroker.cluster.view_source import ClusterSource
        from minibroker.view.feed import Feed

        return Feed(ClusterSource(self, self.disks, self.lesson))

    def state(self) -> dict[str, Any]:
        """Return how far each broker and each replica is."""
        from minibroker.cluster.snapshot import brief_state

        return brief_state(self)

    def _close_feed(self) -> None:
        if "feed" in self.__dict__:
            self.feed.close()

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
            self._close_feed()

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
        self._close_feed()

    # One of them

    async def start(self, broker: NodeId) -> None:
        """Start a broker that was stopped or killed, on its port and its disk; return when it may lead."""
        self.check(broker, STOPPED, KILLED)
        before, self.states[broker] = self.states[broker], STARTING
        begun = self._begun[broker] = asyncio.get_running_loop().create_task(self._start(broker))
        try:
            await begun
        except asyncio.CancelledError:
            if self.states[broker] != KILLED:  # it is the caller who was cancelled
                begun.cancel()
                self.states[broker] = before
                raise
            raise WrongState(f"{name_of(broker)} was killed before it had started") from None
        except BaseException:
            self.states[broker] = before
            raise
        finally:
            self._begun.pop(broker, None)

    async def _start(self, who: NodeId) -> None:
        from minibroker.config.listeners import address

        if isinstance(who, str):
            controller = self.controller = self._new_controller()
            await controller.start()
            log = controller.log.log
            log.on_offline = lambda: self._controller_failed(controller, log.offline)
            self.cluster_id = self.controller.cluster_id
            if controller.image.scram or controller.image.acls:
                from minibroker.config import BrokerConfig
                from minibroker.security.unused import say_what_is_unused

                config = BrokerConfig(self._settings[self.broker_ids[0]])
                say_what_is_unused(controller.image, config, self.reporter.say)
            if self._users is not None:
                controller.change(self._users.records(controller.image, self.chance, self.reporter.say))
            self._became(who, RUNNING)
            return
        node = self.nodes[who] = self._new_node(who)
        if (steer := self._steer) is not None:
            node.steer = lambda verb, arguments: steer(self, who, verb, arguments)
        if self.page is not None:
            node.page = self.page
        node.shared_feed = lambda: self.feed
        node.when_disk_fails = lambda failure: self._disk_failed(who, node, failure)
        node.faults.kill = lambda why: self._end(who, node, why)
        node.partitions.cuts_to_high_watermark = self.cuts_to_high_watermark
        await node.start()
        self._settings[who]["listeners"] = ",".join(
            f"{each.listener_name}://{address(each.host, each.port)}" for each in node.servers
        )
        self.links.apply(who)
        self._became(who, RUNNING)

    def _own_chance(self) -> Random:
        """Return a broker's: of a seed a stream of its own; that of the system, which nobody can foretell, itself."""
        return Random(self.chance.random()) if type(self.chance) is Random else self.chance

    def _new_controller(self) -> ControllerNode:
        from minibroker.cluster.controller_server import ControllerNode
        from minibroker.config import BrokerConfig

        return ControllerNode(
            BrokerConfig(self._settings[CONTROLLER]),
            self.storages[CONTROLLER],
            self.network,
            clock=self.clock,
            chance=self._own_chance(),
            events=self.events,
            cluster_id=self.cluster_id,
            as_version=self._as_version,
            gate=self.election,
            find_lost=self.committed.find_lost,
            say=self.reporter.say,
        )

    def _new_node(self, broker_id: int) -> Node:
        from minibroker.broker.broker import Node
        from minibroker.config import BrokerConfig

        node = Node(
            BrokerConfig(self._settings[broker_id]),
            self.storages[broker_id],
            clock=self.clock,
            chance=self._own_chance(),
            reporter=self.reporter,
            events=self.events,
            network=self.network,
            cluster_id=self.cluster_id,
            as_version=self._as_version,
            log_dir=self._log_dir(f"broker-{broker_id}"),
            users=self._users,
        )
        node.tap = self.tap
        return node

    async def stop(self, broker: NodeId) -> None:
        """Stop a broker in order: others lead what it led before it goes."""
        self.check(broker, RUNNING)
        self.states[broker] = STOPPING
        if isinstance(broker, int):
            self.committed.keep(broker)
        await self._process(broker).stop()
        self._became(broker, STOPPED)

    async def restart(self, broker: NodeId) -> None:
        """Start a broker again, after stopping it in order if it runs."""
        if self.check(broker) == RUNNING:
            await self.stop(broker)
        await self.start(broker)

    async def kill(self, broker: NodeId, *, lossy: bool = False, torn_bytes: int = 0, notice: bool = True) -> None:
        """End a broker as kill -9 does; lossy: as a power loss, with all that was not flushed.

        torn_bytes: so much of what is lost stays, as half a batch. notice: the controller hears of it at once, and not
        only when the broker has been silent for broker.session.timeout.ms.
        """
        why = "its power has gone" if lossy else ASKED
        await self._kill(broker, why, lossy=lossy, torn_bytes=torn_bytes, notice=notice)

    async def _kill(
        self, who: NodeId, why: str, *, lossy: bool = False, torn_bytes: int = 0, notice: bool = True
    ) -> None:
        self.check(who, RUNNING, PAUSED, STARTING)
        was_starting = self.states[who] == STARTING
        self.states[who] = KILLED if was_starting else STOPPING  # its ports are its own until they are closed
        try:
            if was_starting:
                begun = self._begun[who]
                begun.cancel()
                await asyncio.wait([begun])
            elif isinstance(who, str):
                await self.controller.kill()
            else:
                await self._kill_broker(who, lossy=lossy, torn_bytes=torn_bytes)
        finally:  # whatever failed, it does not run, and may be started again
            self._became(who, KILLED, why)
        if isinstance(who, int) and notice and self.states[CONTROLLER] == RUNNING:
            self.controller.lose(who, f"broker {who} is gone")

    async def _kill_broker(self, broker_id: int, *, lossy: bool, torn_bytes: int) -> None:
        node, storage = self.nodes[broker_id], self.storages[broker_id]
        from minibroker.log.unsynced import lose, unsynced

        crashed = getattr(storage, "crashed", None)
        # A disk that knows its own writes is not asked for what a log says of them: it may be one that cannot be read.
        lost = unsynced(node.directory.logs.values()) if lossy and crashed is None else []
        self.committed.keep(broker_id)
        await node.kill()
        if lossy and crashed is not None:
            self.storages[broker_id] = crashed(self.chance)
        for each in lost:
            lose(storage, each, torn_bytes=torn_bytes)

    def _controller_failed(self, controller: ControllerNode, failure: Exception | None) -> None:
        self.reporter.say(f"the controller ends, for nobody knows what its log holds: {failure}")
        self._disk_failed(CONTROLLER, controller, failure)

    def _disk_failed(self, who: NodeId, process: Node | ControllerNode, failure: Exception | None) -> None:
        """Let a broker end whose only disk fails, as Kafka's do: others lead what it led. So does the controller."""
        self._end(who, process, f"its disk failed: {failure}")

    def _end(self, who: NodeId, process: Node | ControllerNode, why: str) -> None:
        """Kill a broker from within: as soon as what it does just now is done."""

        async def end() -> None:
            if self._process(who) is process and self.states[who] in (RUNNING, PAUSED, STARTING):
                await self._kill(who, why)

        self._ending = asyncio.get_running_loop().create_task(end())

    def pause(self, broker: NodeId) -> None:
        """Let a broker stand still, as SIGSTOP does: clients see no error, they wait."""
        self.check(broker, RUNNING)
        self.network.pause(broker)
        self._process(broker).pause()
        self._became(broker, PAUSED)

    def resume(self, broker: NodeId) -> None:
        """Let a broker that was paused go on."""
        self.check(broker, PAUSED)
        self._process(broker).resume()
        if isinstance(broker, int):
            self.links.apply(broker)
        self.network.resume(broker)
        self._became(broker, RUNNING)

    def _process(self, who: NodeId) -> Node | ControllerNode:
        return self.nodes[who] if isinstance(who, int) else self.controller

    def _became(self, who: NodeId, state: str, why: str = ASKED) -> None:
        self.states[who] = state
        if self.events.observed:
            from minibroker.cluster.controller_server import NODE_ID as CONTROLLER_ID

            broker = who if isinstance(who, int) else CONTROLLER_ID
            self.events.emit(BrokerChanged(broker=broker, state=state, why=why))


def _defaults(brokers: int) -> dict[str, str]:
    return {"default.replication.factor": str(min(brokers, REPLICATION_FACTOR))}
