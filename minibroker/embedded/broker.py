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
from contextlib import contextmanager

from minibroker.clock import LoopClock
from minibroker.clock.steered import SteeredClock
from minibroker.config import BrokerConfig
from minibroker.config.listeners import (
    LISTENERS,
    address,
    client_listeners,
    first_listener,
    known_hosts,
    protocol_of,
)
from minibroker.config.start import data_directory
from minibroker.embedded.arguments import check_kinds, clock_from, config_of, users_from, wanted_topics
from minibroker.embedded.engine import BrokerError, Engine, Start
from minibroker.embedded.hosted import Verbs
from minibroker.embedded.in_process import InProcess, new_storage
from minibroker.embedded.verbs import OF_ENGINE, WAITING, Asked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any, Literal, Self

    from minibroker.clock import Clock
    from minibroker.embedded.attached import Attached
    from minibroker.embedded.faults import BrokerFaults
    from minibroker.embedded.snapshot import BrokerSnapshot, Seed

LOOPBACK = "127.0.0.1"
MODULES_OF_KAFKA_PYTHON = ("admin", "consumer", "errors", "producer", "structs")
OF_CLOCK: Verbs[Engine] = Verbs(lambda engine: engine.steered_clock())


class Broker(Asked):
    """A Kafka-compatible broker, on memory and on a free port unless it is told otherwise.

    Used as a context manager, or with `start` and `stop`, or in a loop with `astart` and `astop`. It can be started
    again: on the same port, and with the same records unless they were in the memory of a process that has ended.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        host: str = LOOPBACK,
        data_dir: str | os.PathLike[str] | None = None,
        topics: str | Iterable[str] = (),
        config: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        as_version: str | None = None,
        node_id: int = 1,
        cluster_id: str | None = None,
        process: bool = False,
        clock: Clock | Literal["steered"] | None = None,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        snapshot: BrokerSnapshot[Any] | None = None,
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
        tls: serve TLS, with certificates that are made for it; client_config says where clients find them.
        users: names with passwords, of PLAIN and both mechanisms of SCRAM; clients have to log in then.
        snapshot: what it goes on from, with the arguments and the time of its broker where no others are given.
        """
        below: Mapping[str, object] = {}
        if snapshot is not None:
            was = _checked(snapshot).arguments
            host = was.host if host == LOOPBACK else host
            node_id = was.node_id if node_id == 1 else node_id
            as_version, users, tls = as_version or was.as_version, users or was.users, tls or was.tls
            below = was.settings
        check_kinds(
            Broker,
            port=(port, int, "a number"),
            host=(host, str, "a name or an address"),
            as_version=(as_version, str, "a release such as '2.8'"),
            node_id=(node_id, int, "a number"),
            cluster_id=(cluster_id, str, "text"),
            process=(process, bool, "True or False"),
            tls=(tls, bool, "True or False"),
        )
        if process and clock is not None:
            raise ValueError("a process of its own has a clock of its own")
        if process and users:
            raise ValueError("users= is for a broker of this process; one of its own takes settings of logins")
        self._users = users_from(users)
        self._as_version = as_version
        protocol = protocol_of(uses_tls=tls, asks_for_login=self._users is not None)
        own: dict[str, object] = {"listeners": f"{protocol}://{address(host, port)}", **below}
        if self._users is not None:
            own["sasl.enabled.mechanisms"] = self._users.mechanisms
        if not {"broker.id", "broker_id"} & {*settings, *(config or {})}:
            own["node.id"] = node_id
        checked = config_of(Broker, {**(config or {}), **settings}, own, environ)
        if as_version is not None:
            from minibroker.broker.releases import release_named

            release_named(as_version)  # raises for what was never released
        super().__init__()
        directory = data_directory(checked) if data_dir is None else os.fspath(data_dir)
        self._take_listener(checked, directory, tls=tls)
        self._start = Start(
            {**(self._ca.files.settings() if self._ca else {}), **checked.static},
            wanted_topics(topics, environ),
            directory,
            as_version,
            cluster_id,
            self._users,
        )
        self._made = (checked, str(own["listeners"]), host, tls)
        self._snapshot = snapshot  # what it goes on from, and `reset` goes back to
        self._seed: Seed | None = None
        self._is_resetting = False
        self.clock: Clock = LoopClock() if process else clock_from(clock)
        if snapshot is not None:
            from minibroker.embedded.snapshot import Seed

            self._seed = Seed(snapshot)
            if process and directory is None:
                raise ValueError("a process of its own goes on from a snapshot in a directory: give data_dir=")
            if isinstance(self.clock, SteeredClock) and self.clock is not clock:
                self.clock.move(snapshot.moved)
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

    def _take_listener(self, config: BrokerConfig, directory: str | None, *, tls: bool) -> None:
        """Take note of how clients come in, and of the certificates that are to be made for that."""
        self._take_ways_in(config, first_listener(config))
        if tls:
            if not any(each.uses_tls for each in client_listeners(config)):
                raise config.error(LISTENERS, "tls=True, and none of them is SSL: leave listeners out, or write SSL://")
            from minibroker.security.throwaway_ca import ThrowawayCa

            self._ca = ThrowawayCa(directory)

    def _certificate_hosts(self) -> set[str]:
        return known_hosts(BrokerConfig(self._start.settings))

    def _new_engine(self) -> Engine:
        if self._storage is not None:
            return InProcess(self._start, self._storage, self.clock, self._seed)
        from minibroker.embedded.client_settings import client_settings
        from minibroker.embedded.process import Subprocess

        return Subprocess(self._start, client_settings("minibroker", self._access("")), self._seed)

    def _has_started(self, engine: Engine) -> None:
        self._start = self._start._replace(settings={**self._start.settings, "listeners": engine.listeners})

    @property
    def faults(self) -> BrokerFaults:
        """What clients of this broker meet: rules for their requests, toxics for their connections."""
        from minibroker.embedded.faults import BrokerFaults

        return BrokerFaults(self, lambda *what: self._running().control(*what), lambda: self.is_running)

    @classmethod
    def attach(cls, bootstrap_servers: str, config: Mapping[str, str] | None = None) -> Attached:
        """Return a broker that somebody else runs, a real Kafka for example, with the verbs that it can have.

        config: how to come in, in the words of Kafka's clients: security.protocol, ssl.…, sasl.….
        """
        from minibroker.embedded.attached import Attached

        return Attached(bootstrap_servers, config, {*dir(cls), "clock"})

    # Snapshots

    def snapshot(self) -> BrokerSnapshot[Self]:
        """Return what is stored at this moment, for brokers that go on from there; BrokerError if it is not whole.

        On a disk it is a directory beside that of the broker, until it is closed or garbage.
        """
        return self._call(self._taken(self._running()), blocks=self._start.data_dir is not None)

    async def asnapshot(self) -> BrokerSnapshot[Self]:
        """Return what is stored at this moment, for brokers that go on from there; BrokerError if it is not whole.

        On a disk it is a directory beside that of the broker, until it is closed or garbage.
        """
        return await self._await(self._taken(self._running()))

    @classmethod
    def load_snapshot(cls, path: str | os.PathLike[str]) -> BrokerSnapshot[Self]:
        """Return what a data directory holds, for brokers that go on from there; BrokerError if it is none.

        It must stay as it is. Settings and users that were arguments are not in there.
        """
        from minibroker.embedded.snapshot import read_directory

        return read_directory(os.fspath(path), cls)

    def reset(self, snapshot: BrokerSnapshot[Any] | None = None) -> None:
        """Be as a snapshot, by default as when it was first started: connections end, and port and arguments stay.

        BrokerError: it cannot start so, and is stopped.
        """
        with self._resetting(snapshot) as start:
            self._replaced(self._call(self._begun_anew(*start), blocks=True))

    async def areset(self, snapshot: BrokerSnapshot[Any] | None = None) -> None:
        """Be as a snapshot, by default as when it was first started: connections end, and port and arguments stay.

        BrokerError: it cannot start so, and is stopped.
        """
        with self._resetting(snapshot) as start:
            self._replaced(await self._await(self._begun_anew(*start)))

    async def _taken(self, engine: Engine) -> BrokerSnapshot[Self]:
        from minibroker.embedded.snapshot import Arguments, BrokerSnapshot, arguments_of

        config, listeners, host, tls = self._made
        passwords = None if self._users is None else self._users.passwords
        moved = self.clock.moved if isinstance(self.clock, SteeredClock) else None
        given = Arguments(config["node.id"], host, self._as_version, tls, passwords)
        storage = await engine.snapshot()
        arguments = arguments_of(config, listeners, given)
        return BrokerSnapshot(storage, type(self), arguments, moved, is_temporary=True)

    @contextmanager
    def _resetting(self, snapshot: BrokerSnapshot[Any] | None) -> Iterator[tuple[Start, BrokerSnapshot[Any] | None]]:
        """Give what a reset starts with; one at a time, for a second would start on the port of the first."""
        if self._is_resetting:
            raise RuntimeError("somebody is resetting this broker")
        start = self._reset_start(snapshot)
        self._is_resetting = True
        try:
            yield start
        except BrokerError:
            self._stopped()
            raise
        finally:
            self._is_resetting = False

    def _reset_start(self, snapshot: BrokerSnapshot[Any] | None) -> tuple[Start, BrokerSnapshot[Any] | None]:
        """Return what a reset starts with; ValueError says why there can be none."""
        engine = self._running()
        if not isinstance(engine, InProcess):
            raise ValueError("a broker in a process of its own cannot be reset: stop it, and start a fork in its place")
        if snapshot is None:
            if self._snapshot is None and self._start.data_dir is not None:
                raise ValueError("what was on the disk at the start is not kept: give reset() a snapshot")
            return self._start._replace(cluster_id=engine.cluster_id), self._snapshot
        if (node_id := _checked(snapshot).arguments.node_id) != (mine := self._made[0]["node.id"]):
            raise ValueError(f"the snapshot is of a broker with node_id={node_id}, and this one has {mine}")
        return self._start._replace(topics=(), cluster_id=None), snapshot  # its topics are those that it holds

    async def _begun_anew(self, start: Start, snapshot: BrokerSnapshot[Any] | None) -> InProcess:
        """Stop, empty the storage, and start with a snapshot, or with nothing."""
        seed = None
        if snapshot is not None:
            from minibroker.embedded.snapshot import Seed

            snapshot.check_before_reset(start.data_dir)
            seed = Seed(snapshot)
        await self._running().stop()
        if start.data_dir is None:
            self._storage = new_storage(None, self.clock)
        else:
            from minibroker.embedded.snapshot import empty

            try:
                empty(start.data_dir)
            except OSError as failure:
                raise BrokerError(f"{start.data_dir} cannot be emptied: {failure}") from failure
        assert self._storage is not None
        if isinstance(self.clock, SteeredClock):
            self.clock.move(None if snapshot is None else snapshot.moved)
        engine = InProcess(start, self._storage, self.clock, seed)
        await engine.start()
        return engine

    # The verbs, each with its twin

    requests, arequests = OF_ENGINE(Engine.requests)
    instances, ainstances = OF_ENGINE(Engine.instances)

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


def _checked(snapshot: BrokerSnapshot[Any]) -> BrokerSnapshot[Any]:
    """Return a snapshot; TypeError for what is none."""
    from minibroker.embedded.snapshot import BrokerSnapshot

    if not isinstance(snapshot, BrokerSnapshot):
        raise TypeError(f"snapshot={snapshot!r} is none: say broker.snapshot(), or Broker.load_snapshot(path)")
    return snapshot
