"""A cluster in the loop that runs: its directories, its start and its stop.

    DIR/controller      the metadata log
    DIR/broker-1, ...   the logs of each broker

What must hold: when a start returns, every broker answers, knows every other and leads what it is to lead. A directory
that holds something else, such as the data of a broker on its own, is not touched.
Not here: what is done to a cluster while it runs (minibroker/cluster/) and how it is looked at (cluster_views.py).
"""

from __future__ import annotations

import os
from random import Random, SystemRandom
from typing import NamedTuple

from minibroker.clock import LoopClock
from minibroker.clock.steered import SteeredClock
from minibroker.cluster.cluster import Cluster
from minibroker.cluster.control import call_through
from minibroker.cluster.nodes import PAUSED, RUNNING
from minibroker.config import ConfigError
from minibroker.config.listeners import PLAINTEXT
from minibroker.embedded.cluster_views import Views
from minibroker.embedded.engine import START_FAILURES, BrokerError, HttpRefusal
from minibroker.embedded.in_process import ask
from minibroker.errors import KafkaError
from minibroker.event_kinds import Clock as ClockMoved
from minibroker.faults import FaultError
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.meta_properties import META_PROPERTIES
from minibroker.log.storage import OsStorage
from minibroker.metadata.bootstrap import CLUSTER_DIRECTORY, WrongDirectory
from minibroker.traffic.ring import Ring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from minibroker.clock import Clock
    from minibroker.config import BrokerConfig
    from minibroker.config.topic_texts import WantedTopic
    from minibroker.events import EventStream
    from minibroker.log.storage import Storage
    from minibroker.replication.network import NodeId
    from minibroker.reporter import Reporter
    from minibroker.security.users import Users
    from minibroker.traffic.lines import RequestRow

# What each broker has for itself, and what the cluster's one controller decides.
OWN_SETTINGS = (
    *("listeners", "advertised.listeners", "node.id", "broker.id", "broker.rack"),
    *("controller.quorum.voters", "controller.quorum.bootstrap.servers"),
)
OWN_ID = "nothing here: each broker of a cluster has its own; `serve --node-id N` and first_id=N give that of the first"
OWN_WORDS = {"": "nothing here: each broker of a cluster has its own", "node.id": OWN_ID, "broker.id": OWN_ID}
FIRST_ID_MAX = 1000  # as the largest id that Kafka takes by default; the controller is far above, with 3000
BROKERS_MAX = 100  # all in one loop: more of them keep each other from working
LAST_TURNS = 5
HEARING_MS = 10_000  # how long brokers may take to hear of a change; what keeps them longer is worth an error


class ClusterStart(NamedTuple):
    """What a cluster is started with, checked."""

    settings: Mapping[str, str]  # by Kafka's names
    topics: tuple[WantedTopic, ...]
    brokers: int
    first_id: int  # of the brokers, the others count on from there
    host: str
    ports: tuple[int, ...]  # of the brokers in their order; empty: free ones
    racks: tuple[str, ...]
    data_dir: str | None  # None: memory
    as_version: str | None
    cluster_id: str | None
    protocol: str = PLAINTEXT  # of the listeners
    users: Users | None = None  # who can log in

    @property
    def broker_ids(self) -> range:
        return range(self.first_id, self.first_id + self.brokers)


class ClusterEngine:
    """A cluster that runs, or is about to."""

    def __init__(
        self,
        start: ClusterStart,
        storages: dict[str, Storage],
        *,
        clock: Clock,
        events: EventStream,
        reporter: Reporter | None = None,
        chance: Random | None = None,
    ):
        """chance: by default that of the system.

        storages: the disks by name, "controller" or "broker-1"; those in memory outlive the engine there."""
        self.start_options = start
        self.clock = clock
        self.events = events
        self.storages = storages
        data_dir = start.data_dir
        self.core = Cluster(
            start.settings,
            storages.__getitem__,
            brokers=start.brokers,
            first_id=start.first_id,
            host=start.host,
            ports=start.ports,
            protocol=start.protocol,
            users=start.users,
            racks=start.racks,
            cluster_id=start.cluster_id,
            as_version=start.as_version,
            clock=clock,
            chance=chance or SystemRandom(),
            events=events,
            reporter=reporter,
            log_dir=lambda name: "memory" if data_dir is None else os.path.join(os.path.abspath(data_dir), name),
            steer=call_through,
        )
        self.views = Views(self.core)
        self._ring: Ring | None = None

    @property
    def bootstrap_servers(self) -> str:
        return self.core.bootstrap_servers

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports that were taken."""
        return tuple(node.servers[0].port for _, node in sorted(self.core.nodes.items()))

    def keep_requests(self) -> None:
        """Keep the last requests of clients, from the next start of a broker on."""
        self._ring = Ring(self._topic_name)
        self.core.tap = self._ring.over

    async def requests(self, count: int | None = None) -> list[RequestRow]:
        """Return the last requests that clients have made of any broker, the oldest first, with what was answered.

        Of each connection 32 are kept, with the start of what they say. count: so many of all.
        """
        return [] if self._ring is None else self._ring.rows(count)

    def _topic_name(self, topic_id: bytes) -> str | None:
        found = self.core.controller.image.topics_by_id.get(topic_id)
        return None if found is None else found.name

    async def start(self) -> None:
        if isinstance(self.clock, SteeredClock):
            self.clock.attach()
            self.clock.watchers[self._tell_clock] = None
        try:
            check_directory(self.start_options.data_dir, self.start_options.broker_ids)
            await self.core.start_all()
            await self._make_topics()
        except BaseException as failure:
            self._leave_clock()
            if isinstance(failure, START_FAILURES):
                raise BrokerError(str(failure)) from failure
            raise

    async def _make_topics(self) -> None:
        """Make what is wanted, and see that everybody knows of it and of everybody."""
        core = self.core
        name = ""
        try:
            for name, partitions, configs, replication_factor in self.start_options.topics:
                if name not in core.controller.image.topics:
                    core.create_topic(name, partitions, replication_factor, assignments=(), **configs)
            await self.let_know()
        except BaseException as failure:
            await core.stop_all()
            if isinstance(failure, KafkaError):
                raise BrokerError(f"topic {name}: {failure.message}") from failure
            raise

    async def stop(self) -> None:
        """Stop in order, also what is paused, cut off or frozen."""
        clock = self.clock
        is_frozen = isinstance(clock, SteeredClock) and clock.is_frozen
        self._leave_clock()
        if isinstance(clock, SteeredClock) and is_frozen:
            clock.thaw()  # who stops waits for others, and for heartbeats that come by the clock
        try:
            self.core.disks.heal()
            await self.core.stop_all()
            for _ in range(LAST_TURNS):  # what has been cancelled, and what waited for that, comes to its end
                await LoopClock().sleep(0)
        finally:
            if isinstance(clock, SteeredClock) and is_frozen:
                clock.freeze()
            for who, storage in self.core.storages.items():  # a lossy kill may have put another in the place of one
                self.storages[name_of_storage(who)] = storage

    def abandon(self) -> None:
        for storage in self.core.storages.values():
            storage.unlock()

    def handles(self) -> list[int]:
        return [each for node in self.core.nodes.values() for server in node.servers for each in server.handles()]

    async def control(self, broker: int, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        """Do what HTTP would at a broker's port; FaultError says why not."""
        if not self.has_faults(broker):
            raise FaultError(f"broker {broker} is {self.core.states[broker]}: faults are of a broker that runs")
        try:
            return await ask(self.core.nodes[broker], method, path, body)
        except HttpRefusal as refusal:
            raise FaultError(str(refusal)) from None

    def has_faults(self, broker: int) -> bool:
        """Whether a broker runs, or hangs, so that it can have faults; NoSuchBroker if there is none."""
        return self.core.check(broker) in (RUNNING, PAUSED)

    def _tell_clock(self, what: str, amount: float) -> None:
        if self.events.observed:
            self.events.emit(ClockMoved(what=what, amount=amount))

    def _leave_clock(self) -> None:
        if isinstance(self.clock, SteeredClock):
            self.clock.watchers.pop(self._tell_clock, None)

    # What the controller has decided

    async def let_know(self) -> None:
        """Return when every broker that can hear of it knows what has been decided up to now."""
        core = self.core
        offset = core.controller.log.log_end_offset - 1

        def missing() -> list[int]:
            return [each for each in self._hearing() if core.nodes[each].image.offset < offset]

        try:
            await self.events.wait_until(
                lambda: not missing(), ("metadata", "broker", "link", "step"), timeout_ms=HEARING_MS
            )
        except TimeoutError:
            who = ", ".join(map(str, missing()))
            raise TimeoutError(
                f"it is decided, but broker {who} has not heard of it in {HEARING_MS / 1000:g} s"
            ) from None

    def _hearing(self) -> list[int]:
        """The brokers that the controller reaches: they run, nothing is cut, and no token is waited for."""
        core = self.core
        if "metadata" in core.gates or core.states["controller"] != "running":
            return []
        return [
            each
            for each in core.broker_ids
            if core.states[each] == "running"
            and not core.network.link("controller", each).is_cut
            and not core.network.link(each, "controller").is_cut
        ]


def new_storages(data_dir: str | None, broker_ids: Iterable[int], now_ms: Callable[[], int]) -> dict[str, Storage]:
    """Return the disks of a cluster, by name: directories, or memory."""
    names = [CLUSTER_DIRECTORY, *map(name_of_storage, broker_ids)]
    if data_dir is None:
        return {name: MemoryStorage(now_ms) for name in names}
    return {name: OsStorage(os.path.join(os.path.abspath(data_dir), name)) for name in names}


def name_of_storage(who: NodeId) -> str:
    return f"broker-{who}" if isinstance(who, int) else who


def check_count(brokers: int, first_id: int, racks: Sequence[str] = ()) -> None:
    if brokers < 1:
        raise ValueError(f"a cluster has at least one broker, not {brokers}")
    if brokers > BROKERS_MAX:
        raise ValueError(f"a cluster in one process has at most {BROKERS_MAX} brokers, not {brokers}")
    if not 0 <= first_id <= FIRST_ID_MAX:
        raise ValueError(f"the ids of brokers begin at 0 to {FIRST_ID_MAX}, not at {first_id}")
    if len(racks) > brokers:
        raise ValueError(f"there are {len(racks)} racks for {brokers} brokers, and a broker is in one: leave some out")


def check_settings(config: BrokerConfig) -> None:
    """Raise ConfigError for a setting that each broker has for itself."""
    for name in OWN_SETTINGS:
        if config.is_set(name):
            raise ConfigError(config.place_of(name), name, config.static[name], OWN_WORDS.get(name, OWN_WORDS[""]))


def check_directory(data_dir: str | None, broker_ids: range) -> None:
    """Raise WrongDirectory for one that cannot be this cluster's."""
    if data_dir is None:
        return
    storage = OsStorage(os.path.abspath(data_dir))
    if storage.exists(META_PROPERTIES):
        raise WrongDirectory(
            f"{data_dir} holds the data of a broker on its own, and no cluster's: start one broker, or give another "
            "directory"
        )
    held = sorted(number for name in storage.list("") if (number := find_id(name)) is not None)
    if any(number not in broker_ids for number in held):
        there, wanted = (", ".join(map(str, ids)) for ids in (held, broker_ids))
        raise WrongDirectory(f"{data_dir} holds the data of brokers {there}: start them and perhaps more, not {wanted}")


def find_id(name: str) -> int | None:
    """Return the id of the broker that a directory belongs to, None if it is none's."""
    prefix, _, number = name.rpartition("-")
    return int(number) if prefix == "broker" and number.isdigit() else None


def ports_from(port: int, brokers: int) -> tuple[int, ...]:
    """Return the ports of so many brokers: one after the other, or free ones if the first is 0."""
    if port and port + brokers - 1 > 65535:
        raise ValueError(f"there are no {brokers} ports from {port} on")
    return tuple(range(port, port + brokers)) if port else ()
