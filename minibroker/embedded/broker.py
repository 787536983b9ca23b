"""`minibroker.Broker`: a broker of one's own, for as long as it is needed.

    with Broker() as broker:              in a thread, with a loop of its own
    async with Broker() as broker:        in the caller's loop
    with Broker(process=True) as broker:  in a process; also with `async with`

The verbs are the same in all of them, and each has a twin to await, with an `a` in front. Both may be used from any
thread; only where a plain verb would block the loop that the broker itself runs in does it refuse.
What must hold: `stop` leaves nothing behind, neither thread, task, file, socket nor process; the next `start` takes the
same port. Nothing but arguments decides: variables of the environment count only if they are handed in.
"""

from __future__ import annotations

import os

from minibroker.clock import LoopClock
from minibroker.clock.steered import SteeredClock
from minibroker.config.listeners import address
from minibroker.config.start import data_directory
from minibroker.embedded.arguments import check_kinds, clock_from, config_of, wanted_topics
from minibroker.embedded.engine import Engine, Start
from minibroker.embedded.hosted import Hosted, Verbs
from minibroker.embedded.in_process import InProcess, new_storage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Literal

    from minibroker.clock import Clock
    from minibroker.embedded.faults import BrokerFaults

MODULES_OF_KAFKA_PYTHON = ("admin", "consumer", "errors", "producer", "structs")
OF_ENGINE: Verbs[Engine] = Verbs(lambda engine: engine, blocks=False)
WAITING: Verbs[Engine] = Verbs(lambda engine: engine)
OF_CLOCK: Verbs[Engine] = Verbs(lambda engine: engine.steered_clock())


class Broker(Hosted[Engine]):
    """A Kafka-compatible broker, on memory and on a free port unless it is told otherwise.

    Used as a context manager, or with `start` and `stop`, or in a loop with `astart` and `astop`. It can be started
    again: on the same port, and with the same records unless they were in the memory of a process that has ended.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        data_dir: str | os.PathLike[str] | None = None,
        topics: str | Iterable[str] = (),
        config: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        as_version: str | None = None,
        node_id: int = 1,
        cluster_id: str | None = None,
        process: bool = False,
        clock: Clock | Literal["steered"] | None = None,
        **settings: object,
    ):
        """Check everything that can be checked without starting; raise ConfigError for what no setting takes.

        port: 0 takes a free one. data_dir: None keeps everything in memory.
        topics: made at start, as in "orders", "orders:3", "orders:3:compact", "orders:3:retention.ms=1000".
        config: settings by Kafka's names; `settings` are the same with _ for each dot: log_retention_ms=1000.
        environ: where KAFKA_... variables are looked up, such as os.environ; by default nowhere.
        as_version: the release of Kafka to appear as, "0.8.2" to "4.x".
        process: run it in a process of its own, which goes by the machine's clock.
        clock: by default, or as "steered", one that shows the machine's time until it is moved, as by `advance`.
        """
        check_kinds(
            Broker,
            port=(port, int, "a number"),
            host=(host, str, "a name or an address"),
            as_version=(as_version, str, "a release such as '2.8'"),
            node_id=(node_id, int, "a number"),
            cluster_id=(cluster_id, str, "text"),
            process=(process, bool, "True or False"),
        )
        if process and clock is not None:
            raise ValueError("a process of its own has a clock of its own")
        own: dict[str, object] = {"listeners": f"PLAINTEXT://{address(host, port)}"}
        if not {"broker.id", "broker_id"} & {*settings, *(config or {})}:
            own["node.id"] = node_id
        checked = config_of(Broker, {**(config or {}), **settings}, own, environ)
        if as_version is not None:
            from minibroker.broker.releases import release_named

            release_named(as_version)  # raises for what was never released
        self._start = Start(
            checked.static,
            wanted_topics(topics, environ),
            data_directory(checked) if data_dir is None else os.fspath(data_dir),
            as_version,
            cluster_id,
        )
        super().__init__()
        self.clock: Clock = LoopClock() if process else clock_from(clock)
        self._is_process, self._runs_here = process, not process
        self._storage = None if process else new_storage(self._start.data_dir, self.clock)

    def __repr__(self) -> str:
        where = "a process" if self._is_process else "this process"
        return f"<minibroker.Broker in {where}, {self.bootstrap_servers if self._engine else 'stopped'}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Say what is the matter where the fixture `kafka` has hidden the module `kafka` of kafka-python."""
            words = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name[:1].isupper() or name in MODULES_OF_KAFKA_PYTHON:
                words += (
                    f": this is a minibroker.Broker, not the module kafka; where a test needs both, call the fixture "
                    f"kafka_broker, or write `from kafka import {name}`"
                )
            raise AttributeError(words)

    def _new_engine(self) -> Engine:
        if self._storage is not None:
            return InProcess(self._start, self._storage, self.clock)
        from minibroker.embedded.process import Subprocess

        return Subprocess(self._start)

    def _has_started(self, engine: Engine) -> None:
        self._start = self._start._replace(settings={**self._start.settings, "listeners": engine.listeners})

    @property
    def faults(self) -> BrokerFaults:
        """What clients of this broker meet: rules for their requests, toxics for their connections."""
        from minibroker.embedded.faults import BrokerFaults

        return BrokerFaults(self, lambda *what: self._running().control(*what), lambda: self.is_running)

    # The verbs, each with its twin

    create_topic, acreate_topic = OF_ENGINE(Engine.create_topic)
    delete_topic, adelete_topic = OF_ENGINE(Engine.delete_topic)
    topics, atopics = OF_ENGINE(Engine.topics)
    records, arecords = OF_ENGINE(Engine.records)
    wait_records, await_records = WAITING(Engine.wait_records)

    groups, agroups = OF_ENGINE(Engine.groups)
    group, agroup = OF_ENGINE(Engine.group)
    wait_group, await_group = WAITING(Engine.wait_group)
    wait_committed, await_committed = WAITING(Engine.wait_committed)

    transactions, atransactions = OF_ENGINE(Engine.transactions)
    transaction, atransaction = OF_ENGINE(Engine.transaction)
    wait_transaction, await_transaction = WAITING(Engine.wait_transaction)
    abort_transaction, aabort_transaction = WAITING(Engine.abort_transaction)

    retention_now, aretention_now = WAITING(Engine.retention_now)
    compact_now, acompact_now = WAITING(Engine.compact_now)
    roll_now, aroll_now = WAITING(Engine.roll_now)

    freeze, afreeze = OF_CLOCK(SteeredClock.freeze)
    thaw, athaw = OF_CLOCK(SteeredClock.thaw)
    advance, aadvance = OF_CLOCK(SteeredClock.advance)
    rate, arate = OF_CLOCK(SteeredClock.rate)
    jump, ajump = OF_CLOCK(SteeredClock.jump)
