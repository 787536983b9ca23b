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
from minibroker.config.sources import setting_texts
from minibroker.config.start import data_directory
from minibroker.embedded.arguments import check_kinds, clock_from, config_of, steered, wanted_topics
from minibroker.embedded.engine import Engine, Start
from minibroker.embedded.hosted import Hosted
from minibroker.embedded.in_process import InProcess, new_storage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Literal

    from minibroker.cleaner.results import CompactionRow, RetentionRow, RollRow
    from minibroker.clock import Clock
    from minibroker.embedded.engine import Record
    from minibroker.embedded.faults import BrokerFaults
    from minibroker.groups.view_rows import GroupRow, GroupView


MODULES_OF_KAFKA_PYTHON = ("admin", "consumer", "errors", "producer", "structs")


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

    # Verbs

    def create_topic(self, name: str, partitions: int | None = None, **configs: object) -> None:
        """Make a topic, with num.partitions unless a number is given; KafkaError says why it cannot be.

        Settings have _ for each dot: cleanup_policy="compact".
        """
        self._call(self._running().create_topic(name, partitions, setting_texts(configs)))

    async def acreate_topic(self, name: str, partitions: int | None = None, **configs: object) -> None:
        """Make a topic, as create_topic does."""
        await self._await(self._running().create_topic(name, partitions, setting_texts(configs)))

    def delete_topic(self, name: str) -> None:
        """Delete a topic; KafkaError if there is none."""
        self._call(self._running().delete_topic(name))

    async def adelete_topic(self, name: str) -> None:
        """Delete a topic, as delete_topic does."""
        await self._await(self._running().delete_topic(name))

    def topics(self) -> dict[str, int]:
        """Return the names of all topics, with their numbers of partitions."""
        return self._call(self._running().topics())

    async def atopics(self) -> dict[str, int]:
        """Return the names of all topics, with their numbers of partitions."""
        return await self._await(self._running().topics())

    def records(self, topic: str) -> list[Record]:
        """Return all records that consumers may read, by partition and offset; KafkaError if there is no such topic."""
        return self._call(self._running().records(topic))

    async def arecords(self, topic: str) -> list[Record]:
        """Return all records, as records does."""
        return await self._await(self._running().records(topic))

    def wait_records(self, topic: str, count: int, timeout: float = 5) -> list[Record]:
        """Return all records as soon as there are so many; TimeoutError if there are not within `timeout` seconds.

        The topic need not be there yet.
        """
        return self._call(self._running().wait_records(topic, count, round(timeout * 1000)))

    async def await_records(self, topic: str, count: int, timeout: float = 5) -> list[Record]:
        """Return all records as soon as there are so many, as wait_records does."""
        return await self._await(self._running().wait_records(topic, count, round(timeout * 1000)))

    def groups(self) -> list[GroupRow]:
        """Return all groups, with state and number of members."""
        return self._call(self._running().groups())

    async def agroups(self) -> list[GroupRow]:
        """Return all groups, as groups does."""
        return await self._await(self._running().groups())

    def group(self, group: str) -> GroupView:
        """Return a group: its members, what they have, what is committed and how far that is behind.

        KafkaError if there is none.
        """
        return self._call(self._running().group(group))

    async def agroup(self, group: str) -> GroupView:
        """Return a group, as group does."""
        return await self._await(self._running().group(group))

    def wait_group(
        self, group: str, members: int | None = None, state: str | None = None, timeout: float = 5
    ) -> GroupView:
        """Return a group as soon as it has so many members and a state; TimeoutError says how it is instead.

        By default it is to be Stable, with any members; for members=0 Empty. state="Dead": there is none, or no more.
        """
        return self._call(self._running().wait_group(group, members, state, timeout * 1000))

    async def await_group(
        self, group: str, members: int | None = None, state: str | None = None, timeout: float = 5
    ) -> GroupView:
        """Return a group as soon as it is as wanted, as wait_group does."""
        return await self._await(self._running().wait_group(group, members, state, timeout * 1000))

    def wait_committed(
        self, group: str, topic: str, partition: int = 0, offset: int | None = None, timeout: float = 5
    ) -> int:
        """Return what a group has committed as soon as it has got so far, by default as soon as there is anything."""
        return self._call(self._running().wait_committed(group, topic, partition, offset, timeout * 1000))

    async def await_committed(
        self, group: str, topic: str, partition: int = 0, offset: int | None = None, timeout: float = 5
    ) -> int:
        """Return what a group has committed, as wait_committed does."""
        return await self._await(self._running().wait_committed(group, topic, partition, offset, timeout * 1000))

    def retention_now(self, topic: str | None = None, partition: int | None = None) -> list[RetentionRow]:
        """Remove what retention does not keep, of a partition, a topic or all: a row says what went, or why nothing."""
        return self._call(self._running().retention_now(topic, partition), blocks=True)

    async def aretention_now(self, topic: str | None = None, partition: int | None = None) -> list[RetentionRow]:
        """Remove what retention does not keep, as retention_now does."""
        return await self._await(self._running().retention_now(topic, partition))

    def compact_now(self, topic: str | None = None, partition: int | None = None) -> list[CompactionRow]:
        """Compact a partition, a topic or all, be it dirty enough or not; return when it is done.

        What is in the active segment stays as it is: roll_now comes before.
        """
        return self._call(self._running().compact_now(topic, partition), blocks=True)

    async def acompact_now(self, topic: str | None = None, partition: int | None = None) -> list[CompactionRow]:
        """Compact a partition, a topic or all, as compact_now does."""
        return await self._await(self._running().compact_now(topic, partition))

    def roll_now(self, topic: str | None = None, partition: int | None = None) -> list[RollRow]:
        """Begin new segments, of a partition, a topic or all."""
        return self._call(self._running().roll_now(topic, partition), blocks=True)

    async def aroll_now(self, topic: str | None = None, partition: int | None = None) -> list[RollRow]:
        """Begin new segments, as roll_now does."""
        return await self._await(self._running().roll_now(topic, partition))

    # Time

    def freeze(self) -> None:
        """Let the broker's clock stand still."""
        self._call(self._steer(SteeredClock.freeze))

    async def afreeze(self) -> None:
        """Let the broker's clock stand still."""
        await self._await(self._steer(SteeredClock.freeze))

    def thaw(self) -> None:
        """Let the broker's clock run again, from where it stands."""
        self._call(self._steer(SteeredClock.thaw))

    async def athaw(self) -> None:
        """Let the broker's clock run again, as thaw does."""
        await self._await(self._steer(SteeredClock.thaw))

    def advance(self, amount: float | str, *, sessions: bool = False) -> None:
        """Move the broker's clock on by "7d" or by milliseconds; return when all that is due up to there has been done.

        Members of groups stay: they would have sent their heartbeats. sessions: those who send none now are put out.
        """
        self._call(self._advance(amount, sessions), blocks=True)

    async def aadvance(self, amount: float | str, *, sessions: bool = False) -> None:
        """Move the broker's clock on, as advance does."""
        await self._await(self._advance(amount, sessions))

    def rate(self, factor: float) -> None:
        """Let the broker's clock run so many times as fast."""
        self._call(self._steer(lambda clock: clock.rate(factor)))

    async def arate(self, factor: float) -> None:
        """Let the broker's clock run so many times as fast."""
        await self._await(self._steer(lambda clock: clock.rate(factor)))

    def jump(self, amount: float | str) -> None:
        """Set the broker's clock wrong by "1h", or "-1h"; timers do not notice."""
        self._call(self._steer(lambda clock: clock.jump(amount)))

    async def ajump(self, amount: float | str) -> None:
        """Set the broker's clock wrong, as jump does."""
        await self._await(self._steer(lambda clock: clock.jump(amount)))

    async def _advance(self, amount: float | str, sessions: bool) -> None:
        await self._steered().advance(amount, sessions=sessions)

    async def _steer(self, act: Callable[[SteeredClock], None]) -> None:
        act(self._steered())

    def _steered(self) -> SteeredClock:
        self._running()
        if self._is_process:
            raise TypeError("a broker in a process of its own goes by the machine's clock, which cannot be moved")
        return steered(self.clock)

    @property
    def faults(self) -> BrokerFaults:
        """What clients of this broker meet: rules for their requests, toxics for their connections."""
        from minibroker.embedded.faults import BrokerFaults

        return BrokerFaults(self, lambda *what: self._running().control(*what), lambda: self.is_running)
