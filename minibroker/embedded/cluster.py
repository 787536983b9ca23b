"""`minibroker.Cluster`: several brokers and their controller, for as long as they are needed, and to be played with.

    with Cluster(brokers=3, topics=["orders"]) as cluster:         in a thread, with a loop of its own
        cluster.kill(cluster.leader("orders"))
    async with Cluster(brokers=3, topics=["orders"]) as cluster:   in the caller's loop
        await cluster.akill(cluster.leader("orders"))

Each verb has a twin to await, with an `a` in front; both may be used from any thread. In the loop that the cluster
itself runs in, a plain verb that would have to wait refuses, and does nothing.
What must hold: `stop` leaves nothing behind, neither thread, task, file nor socket, whatever was done before; the next
`start` takes the same ports, and the disks as they were left. A verb that changes the metadata returns when every
broker that can hear of it has.
Not here: what the verbs do (minibroker/cluster/, cluster_views.py).
"""

from __future__ import annotations

import os

from minibroker.clock.steered import SteeredClock
from minibroker.cluster.cleaning import Cleaning
from minibroker.cluster.cluster import Cluster as Core
from minibroker.cluster.disks import Disks
from minibroker.cluster.groups import Groups
from minibroker.cluster.links import Links
from minibroker.cluster.steps import Steps
from minibroker.cluster.transactions import Transactions
from minibroker.cluster.waits import Waits
from minibroker.config.listeners import LISTENERS, Listener, address, protocol_of
from minibroker.config.start import data_directory
from minibroker.embedded.arguments import check_kinds, clock_from, config_of, steered, users_from, wanted_topics
from minibroker.embedded.cluster_engine import (
    ClusterEngine,
    ClusterStart,
    check_count,
    check_settings,
    new_storages,
    ports_from,
)
from minibroker.embedded.cluster_views import Views
from minibroker.embedded.expectations import Expectations
from minibroker.embedded.hosted import Hosted, Verbs
from minibroker.embedded.in_process import LogReporter
from minibroker.embedded.overview import Overview
from minibroker.embedded.watching import Heard
from minibroker.events import EventStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Literal, NoReturn

    from minibroker.clock import Clock
    from minibroker.embedded.faults import BrokerFaults

OF_ENGINE: Verbs[ClusterEngine] = Verbs(lambda engine: engine, blocks=False)
OF_CORE: Verbs[ClusterEngine] = Verbs(lambda engine: engine.core)
OF_CONTROLLER = Verbs(lambda engine: engine.core, then=ClusterEngine.let_know)
OF_LINKS: Verbs[ClusterEngine] = Verbs(lambda engine: engine.core.links)
OF_DISKS: Verbs[ClusterEngine] = Verbs(lambda engine: engine.core.disks)
OF_STEPS: Verbs[ClusterEngine] = Verbs(lambda engine: engine.core.steps)
OF_CLEANING: Verbs[ClusterEngine] = Verbs(lambda engine: engine.core.cleaning)
OF_CLOCK: Verbs[ClusterEngine] = Verbs(lambda engine: steered(engine.clock))
OF_VIEWS: Verbs[ClusterEngine] = Verbs(lambda engine: engine.views)
EXPECTING: Verbs[ClusterEngine] = Verbs(lambda engine: Expectations(engine.views))
SEEING: Verbs[ClusterEngine] = Verbs(lambda engine: Overview(engine.views, engine.core.groups))
OF_GROUPS: Verbs[ClusterEngine] = Verbs(lambda engine: engine.core.groups)
OF_TRANSACTIONS: Verbs[ClusterEngine] = Verbs(lambda engine: engine.core.transactions)
OF_WAITS: Verbs[ClusterEngine] = Verbs(lambda engine: engine.core.waits)


class Cluster(Hosted[ClusterEngine]):
    """Brokers that replicate to each other, on memory and on free ports unless they are told otherwise.

    Used as a context manager, or with `start` and `stop`, or in a loop with `astart` and `astop`; again and again.
    `clock` and `events` are the cluster's; `events` is for the thread of its loop, `watching` for any.
    """

    _noun = "cluster"

    def __init__(
        self,
        brokers: int = 3,
        *,
        first_id: int = 1,
        port: int = 0,
        host: str = "127.0.0.1",
        data_dir: str | os.PathLike[str] | None = None,
        topics: str | Iterable[str] = (),
        racks: Sequence[str] = (),
        config: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        as_version: str | None = None,
        cluster_id: str | None = None,
        clock: Clock | Literal["steered"] | None = None,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        **settings: object,
    ):
        """Check everything that can be checked without starting; raise ConfigError for what no setting takes.

        first_id: of the brokers, which have ids one after the other.
        port: of the first broker, the others take the next ones; 0 takes free ones. data_dir: None is memory.
        topics: made at start, as in "orders", "orders:3", "orders:3:2" (replicas), "orders:3:compact".
        racks: of the brokers in their order, and round if these are more; with any, consumers may read from followers
            near them.
        config: settings of all brokers by Kafka's names; `settings` are the same with _ for each dot.
        environ: where KAFKA_... variables are looked up, such as os.environ; by default nowhere.
        as_version: the release of Kafka to appear as. clock: by default one that can be steered.
        tls: serve TLS, with certificates that are made for it; client_config says where clients find them.
        users: names with passwords, of PLAIN and both mechanisms of SCRAM; clients have to log in then.
        """
        super().__init__()
        check_kinds(
            Cluster,
            brokers=(brokers, int, "a number"),
            first_id=(first_id, int, "a number"),
            port=(port, int, "a number"),
            host=(host, str, "a name or an address"),
            as_version=(as_version, str, "a release such as '2.8'"),
            cluster_id=(cluster_id, str, "text"),
            tls=(tls, bool, "True or False"),
        )
        check_count(brokers, first_id, racks)
        self._users = users_from(users)
        self._as_version = as_version
        protocol = protocol_of(uses_tls=tls, asks_for_login=self._users is not None)
        own = {LISTENERS: f"{protocol}://{address(host, port)}"}  # as each broker will have them, to be checked too
        if self._users is not None:
            own["sasl.enabled.mechanisms"] = self._users.mechanisms
        checked = config_of(Cluster, {**(config or {}), **settings}, own, environ)
        if checked.static[LISTENERS] == own[LISTENERS]:
            del checked.static[LISTENERS]
        check_settings(checked)
        if as_version is not None:
            from minibroker.broker.releases import release_named

            release_named(as_version)  # raises for what was never released
        self.clock: Clock = clock_from(clock)
        self.events = EventStream(self.clock.now_ms)
        directory = data_directory(checked) if data_dir is None else os.fspath(data_dir)
        self._take_ways_in(checked, Listener(protocol, host, port, protocol))
        if tls:
            from minibroker.security.throwaway_ca import ThrowawayCa

            self._ca = ThrowawayCa(directory)
        self._start = ClusterStart(
            {**(self._ca.files.settings() if self._ca else {}), **checked.static},
            wanted_topics(topics, environ),
            brokers,
            first_id,
            host,
            ports_from(port, brokers),
            tuple(racks),
            directory,
            as_version,
            cluster_id,
            protocol,
            self._users,
        )
        self._storages = new_storages(self._start.data_dir, self._start.broker_ids, self.clock.now_ms)

    def __repr__(self) -> str:
        return f"<minibroker.Cluster, {self.bootstrap_servers if self._engine else 'stopped'}>"

    def _new_engine(self) -> ClusterEngine:
        engine = ClusterEngine(
            self._start, self._storages, clock=self.clock, events=self.events, reporter=LogReporter()
        )
        engine.keep_requests()
        return engine

    def _certificate_hosts(self) -> list[str]:
        return [self._start.host]

    def _has_started(self, engine: ClusterEngine) -> None:
        self._start = self._start._replace(ports=engine.ports, cluster_id=engine.core.cluster_id)

    def watching(self, *kinds: str) -> Heard:
        """Return a list that fills with events in a `with`; of some kinds, or of all."""
        self._running()
        return Heard(self, self.events, kinds)

    def faults(self, broker: int) -> BrokerFaults:
        """Return what clients of a broker meet: rules for their requests, toxics for their connections.

        What the broker and its followers say to each other does not meet them: links are for that.
        """
        from minibroker.embedded.faults import BrokerFaults

        if broker not in self._running().core.broker_ids:
            self._running().core.check(broker)
            raise ValueError(f"{broker!r} has no clients: faults are of brokers")
        return BrokerFaults(
            self,
            lambda *what: self._running().control(broker, *what),
            lambda: self._engine is not None and self._engine.has_faults(broker),
        )

    def snapshot(self) -> NoReturn:
        """Refuse: a follower may be behind what a leader has acknowledged, so no moment is all of a cluster's."""
        raise NotImplementedError(
            "a cluster has no snapshot: its brokers hold different parts of what was acknowledged at any moment. Make "
            "one of a single Broker, or stop the cluster and copy its data_dir, which another Cluster can go on with"
        )

    # The verbs, each with its twin

    start_broker, astart_broker = OF_CORE(Core.start)
    stop_broker, astop_broker = OF_CORE(Core.stop)
    restart_broker, arestart_broker = OF_CORE(Core.restart)
    kill, akill = OF_CORE(Core.kill)
    pause, apause = OF_CORE(Core.pause)
    resume, aresume = OF_CORE(Core.resume)

    cut, acut = OF_LINKS(Links.cut)
    heal, aheal = OF_LINKS(Links.heal)
    isolate, aisolate = OF_LINKS(Links.isolate)
    split, asplit = OF_LINKS(Links.split)
    delay, adelay = OF_LINKS(Links.delay)
    throttle, athrottle = OF_LINKS(Links.throttle)
    lose, alose = OF_LINKS(Links.lose)

    fill_disk, afill_disk = OF_DISKS(Disks.fill)
    slow_disk, aslow_disk = OF_DISKS(Disks.slow)
    heal_disk, aheal_disk = OF_DISKS(Disks.heal)

    hold, ahold = OF_STEPS(Steps.hold)
    step, astep = OF_STEPS(Steps.step)
    release, arelease = OF_STEPS(Steps.release)
    waiting, awaiting = OF_CORE(Core.waiting)

    create_topic, acreate_topic = OF_CONTROLLER(Core.create_topic)
    delete_topic, adelete_topic = OF_CONTROLLER(Core.delete_topic)
    alter_topic, aalter_topic = OF_CONTROLLER(Core.alter_topic)
    elect, aelect = OF_CONTROLLER(Core.elect)
    move_leader, amove_leader = OF_CONTROLLER(Core.move_leader)
    reassign, areassign = OF_CONTROLLER(Core.reassign)

    retention_now, aretention_now = OF_CLEANING(Cleaning.retention_now)
    compact_now, acompact_now = OF_CLEANING(Cleaning.compact_now)
    roll_now, aroll_now = OF_CLEANING(Cleaning.roll_now)

    freeze, afreeze = OF_CLOCK(SteeredClock.freeze)
    thaw, athaw = OF_CLOCK(SteeredClock.thaw)
    advance, aadvance = OF_CLOCK(SteeredClock.advance)
    rate, arate = OF_CLOCK(SteeredClock.rate)
    jump, ajump = OF_CLOCK(SteeredClock.jump)

    instances, ainstances = OF_CORE(Core.instances)

    states, astates = OF_VIEWS(Views.states)
    topics, atopics = OF_VIEWS(Views.topics)
    leader, aleader = OF_VIEWS(Views.leader)
    isr, aisr = OF_VIEWS(Views.isr)
    describe, adescribe = OF_VIEWS(Views.describe)
    records, arecords = OF_VIEWS(Views.records)
    ends, aends = OF_VIEWS(Views.ends)
    last_records, alast_records = OF_VIEWS(Views.last_records)

    groups, agroups = OF_GROUPS(Groups.groups)
    group, agroup = OF_GROUPS(Groups.group)

    transactions, atransactions = OF_TRANSACTIONS(Transactions.transactions)
    transaction, atransaction = OF_TRANSACTIONS(Transactions.transaction)
    abort_transaction, aabort_transaction = OF_TRANSACTIONS(Transactions.abort_transaction)

    wait_records, await_records = OF_VIEWS(Views.wait_records)
    requests, arequests = OF_ENGINE(ClusterEngine.requests)
    expect, aexpect = EXPECTING(Expectations.expect)
    never, anever = EXPECTING(Expectations.never)
    wait_event, await_event = OF_VIEWS(Views.wait_event)
    wait_isr, await_isr = OF_WAITS(Waits.isr)
    wait_leader, await_leader = OF_WAITS(Waits.leader)
    wait_high_watermark, await_high_watermark = OF_WAITS(Waits.high_watermark)
    wait_in_sync, await_in_sync = OF_WAITS(Waits.in_sync)
    wait_group, await_group = OF_GROUPS(Groups.wait_group)
    wait_committed, await_committed = OF_GROUPS(Groups.wait_committed)
    overview, aoverview = SEEING(Overview.overview)
    wait_transaction, await_transaction = OF_TRANSACTIONS(Transactions.wait_transaction)
