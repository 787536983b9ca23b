"""`minibroker.Cluster`: several brokers and their controller, for as long as they are needed, and to be played with.

    with Cluster(brokers=3, topics=["orders"]) as cluster:         in a thread, with a loop of its own
        cluster.kill(cluster.leader("orders"))
    async with Cluster(brokers=3, topics=["orders"]) as cluster:   in the caller's loop
        await cluster.akill(cluster.leader("orders"))

Each verb has a twin to await, with an `a` in front; both may be used from any thread. In the loop that the cluster
itself runs in, a plain verb that would have to wait refuses, and does nothing.
What must hold: `stop` leaves nothing behind, neither thread, task, file nor socket, whatever was done before; the next
`start` takes the same ports, and the disks as they were left.
Not here: what the verbs do (cluster_verbs.py, cluster_views.py).
"""

from __future__ import annotations

import os
from functools import wraps

from minibroker.config.start import data_directory
from minibroker.embedded import cluster_verbs as verbs
from minibroker.embedded import cluster_views as views
from minibroker.embedded.arguments import check_kinds, clock_from, config_of, wanted_topics
from minibroker.embedded.cluster_engine import (
    ClusterEngine,
    ClusterStart,
    check_count,
    check_settings,
    new_storages,
    ports_from,
)
from minibroker.embedded.hosted import Hosted
from minibroker.embedded.in_process import LogReporter
from minibroker.embedded.watching import Heard
from minibroker.events import EventStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
    from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

    from minibroker.clock import Clock
    from minibroker.embedded.faults import BrokerFaults

    P = ParamSpec("P")
    T = TypeVar("T")
    Host = Hosted[ClusterEngine]
    Work = Callable[Concatenate[ClusterEngine, P], Coroutine[Any, Any, T]]


def plain(work: Work[P, T], *, blocks: bool = False) -> Callable[Concatenate[Host, P], T]:
    """Return the plain method for a verb. blocks: it waits in the middle of what it does, see Hosted._call."""

    @wraps(work)
    def verb(self: Host, /, *arguments: P.args, **named: P.kwargs) -> T:
        return self._call(work(self._running(), *arguments, **named), blocks=blocks)

    return verb


def twin(work: Work[P, T]) -> Callable[Concatenate[Host, P], Coroutine[Any, Any, T]]:
    """Return the method to await for a verb."""

    @wraps(work)
    async def verb(self: Host, /, *arguments: P.args, **named: P.kwargs) -> T:
        return await self._await(work(self._running(), *arguments, **named))

    return verb


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
        )
        check_count(brokers, first_id, racks)
        checked = config_of(Cluster, {**(config or {}), **settings}, {}, environ)
        check_settings(checked)
        if as_version is not None:
            from minibroker.broker.releases import release_named

            release_named(as_version)  # raises for what was never released
        self.clock: Clock = clock_from(clock)
        self.events = EventStream(self.clock.now_ms)
        self._start = ClusterStart(
            checked.static,
            wanted_topics(topics, environ),
            brokers,
            first_id,
            host,
            ports_from(port, brokers),
            tuple(racks),
            data_directory(checked) if data_dir is None else os.fspath(data_dir),
            as_version,
            cluster_id,
        )
        self._storages = new_storages(self._start.data_dir, self._start.broker_ids, self.clock.now_ms)

    def __repr__(self) -> str:
        return f"<minibroker.Cluster, {self.bootstrap_servers if self._engine else 'stopped'}>"

    def _new_engine(self) -> ClusterEngine:
        return ClusterEngine(self._start, self._storages, clock=self.clock, events=self.events, reporter=LogReporter())

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

    # The verbs, each with its twin

    start_broker, astart_broker = plain(verbs.start_broker, blocks=True), twin(verbs.start_broker)
    stop_broker, astop_broker = plain(verbs.stop_broker, blocks=True), twin(verbs.stop_broker)
    restart_broker, arestart_broker = plain(verbs.restart_broker, blocks=True), twin(verbs.restart_broker)
    kill, akill = plain(verbs.kill, blocks=True), twin(verbs.kill)
    pause, apause = plain(verbs.pause), twin(verbs.pause)
    resume, aresume = plain(verbs.resume), twin(verbs.resume)
    states, astates = plain(views.states), twin(views.states)

    cut, acut = plain(verbs.cut), twin(verbs.cut)
    heal, aheal = plain(verbs.heal), twin(verbs.heal)
    isolate, aisolate = plain(verbs.isolate), twin(verbs.isolate)
    split, asplit = plain(verbs.split), twin(verbs.split)
    delay, adelay = plain(verbs.delay), twin(verbs.delay)
    throttle, athrottle = plain(verbs.throttle), twin(verbs.throttle)
    lose, alose = plain(verbs.lose), twin(verbs.lose)

    fill_disk, afill_disk = plain(verbs.fill_disk), twin(verbs.fill_disk)
    slow_disk, aslow_disk = plain(verbs.slow_disk), twin(verbs.slow_disk)
    heal_disk, aheal_disk = plain(verbs.heal_disk), twin(verbs.heal_disk)

    hold, ahold = plain(verbs.hold), twin(verbs.hold)
    step, astep = plain(verbs.step), twin(verbs.step)
    release, arelease = plain(verbs.release), twin(verbs.release)
    waiting, awaiting = plain(verbs.waiting), twin(verbs.waiting)

    create_topic, acreate_topic = plain(verbs.create_topic, blocks=True), twin(verbs.create_topic)
    delete_topic, adelete_topic = plain(verbs.delete_topic, blocks=True), twin(verbs.delete_topic)
    alter_topic, aalter_topic = plain(verbs.alter_topic, blocks=True), twin(verbs.alter_topic)
    elect, aelect = plain(verbs.elect, blocks=True), twin(verbs.elect)
    move_leader, amove_leader = plain(verbs.move_leader, blocks=True), twin(verbs.move_leader)
    reassign, areassign = plain(verbs.reassign, blocks=True), twin(verbs.reassign)

    retention_now, aretention_now = plain(verbs.retention_now, blocks=True), twin(verbs.retention_now)
    compact_now, acompact_now = plain(verbs.compact_now, blocks=True), twin(verbs.compact_now)
    roll_now, aroll_now = plain(verbs.roll_now, blocks=True), twin(verbs.roll_now)

    freeze, afreeze = plain(verbs.freeze), twin(verbs.freeze)
    thaw, athaw = plain(verbs.thaw), twin(verbs.thaw)
    advance, aadvance = plain(verbs.advance, blocks=True), twin(verbs.advance)
    rate, arate = plain(verbs.rate), twin(verbs.rate)
    jump, ajump = plain(verbs.jump), twin(verbs.jump)

    topics, atopics = plain(views.topics), twin(views.topics)
    leader, aleader = plain(views.leader), twin(views.leader)
    isr, aisr = plain(views.isr), twin(views.isr)
    describe, adescribe = plain(views.describe), twin(views.describe)
    records, arecords = plain(views.records), twin(views.records)

    groups, agroups = plain(views.groups), twin(views.groups)
    group, agroup = plain(views.group), twin(views.group)

    wait_records, await_records = plain(views.wait_records), twin(views.wait_records)
    wait_isr, await_isr = plain(views.wait_isr), twin(views.wait_isr)
    wait_leader, await_leader = plain(views.wait_leader), twin(views.wait_leader)
    wait_high_watermark, await_high_watermark = plain(views.wait_high_watermark), twin(views.wait_high_watermark)
    wait_in_sync, await_in_sync = plain(views.wait_in_sync), twin(views.wait_in_sync)
    wait_group, await_group = plain(views.wait_group), twin(views.wait_group)
    wait_committed, await_committed = plain(views.wait_committed), twin(views.wait_committed)
    wait_event, await_event = plain(views.wait_event), twin(views.wait_event)
