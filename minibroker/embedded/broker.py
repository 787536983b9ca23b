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

import asyncio
import os
import warnings
import weakref

from minibroker.config import BrokerConfig
from minibroker.config.topic_texts import parse_topic
from minibroker.embedded.background import BackgroundLoop
from minibroker.embedded.clients import client_config
from minibroker.embedded.engine import Start
from minibroker.embedded.in_process import InProcess, new_storage
from minibroker.server.listeners import address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping
    from types import TracebackType
    from typing import Any, Self, TypeVar

    from minibroker.embedded.clients import Library
    from minibroker.embedded.engine import Engine, Record
    from minibroker.embedded.faults import BrokerFaults

    T = TypeVar("T")


class Broker:
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
        **settings: object,
    ):
        """Check everything that can be checked without starting; raise ConfigError for what no setting takes.

        port: 0 takes a free one. data_dir: None keeps everything in memory.
        topics: made at start, as in "orders", "orders:3", "orders:3:compact", "orders:3:retention.ms=1000".
        config: settings by Kafka's names; `settings` are the same with _ for each dot: log_retention_ms=1000.
        environ: where KAFKA_... variables are looked up, such as os.environ; by default nowhere.
        as_version: the release of Kafka to appear as, "0.8.2" to "4.x".
        process: run it in a process of its own.
        """
        arguments = {_dotted(name): value for name, value in {**(config or {}), **settings}.items()}
        arguments.setdefault("listeners", f"PLAINTEXT://{address(host, port)}")
        arguments.setdefault("node.id", node_id)
        checked = BrokerConfig.from_sources(arguments, environ)
        for warning in checked.warnings:
            warnings.warn(f"minibroker.Broker: {warning}", stacklevel=2)
        if as_version is not None:
            from minibroker.broker.releases import release_named

            release_named(as_version)  # raises for what was never released
        wanted = [topics] if isinstance(topics, str) else [*topics]
        wanted += filter(None, (environ or {}).get("KAFKA_CREATE_TOPICS", "").split(","))
        self._start = Start(
            checked.static,
            tuple(parse_topic(text) for text in wanted),
            None if data_dir is None else os.fspath(data_dir),
            as_version,
            cluster_id,
        )
        self._is_process = process
        self._storage = None if process else new_storage(self._start.data_dir)
        self._engine: Engine | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # in which the engine runs
        self._background: BackgroundLoop | None = None
        self._finalizer: weakref.finalize[Any, Broker] | None = None

    def __repr__(self) -> str:
        where = "a process" if self._is_process else "this process"
        return f"<minibroker.Broker in {where}, {self.bootstrap_servers if self._engine else 'stopped'}>"

    # Start and stop

    def start(self) -> Self:
        """Start it, with a thread for its loop; return when it answers. BrokerError says why it cannot."""
        self._check_stopped()
        background = BackgroundLoop("minibroker")
        engine = self._new_engine()
        try:
            background.run(engine.start())
        except BaseException:
            background.finish()
            raise
        self._started(engine, background.loop, background)
        return self

    def stop(self) -> None:
        """Stop it; return when nothing is left. A broker that does not run stays as it is."""
        if self._engine is not None:
            if self._is_ours():
                raise RuntimeError(f"{self!r} runs in this very loop: await astop()")
            self._call(self._engine.stop())
            self._stopped()

    async def astart(self) -> Self:
        """Start it in the running loop; return when it answers. BrokerError says why it cannot."""
        self._check_stopped()
        engine = self._new_engine()
        await engine.start()
        self._started(engine, asyncio.get_running_loop(), None)
        return self

    async def astop(self) -> None:
        """Stop it; return when nothing is left. A broker that does not run stays as it is."""
        if self._engine is not None:
            await self._await(self._engine.stop())
            self._stopped()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await self.astart()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.astop()

    def _check_stopped(self) -> None:
        if self._engine is not None:
            raise RuntimeError(f"{self!r} runs already")

    def _new_engine(self) -> Engine:
        if self._storage is not None:
            return InProcess(self._start, self._storage)
        from minibroker.embedded.process import Subprocess

        return Subprocess(self._start)

    def _started(self, engine: Engine, loop: asyncio.AbstractEventLoop, background: BackgroundLoop | None) -> None:
        self._engine, self._loop, self._background = engine, loop, background
        self._start = self._start._replace(settings={**self._start.settings, "listeners": engine.listeners})
        self._finalizer = weakref.finalize(self, _forgotten, repr(self), engine, loop, background)

    def _stopped(self) -> None:
        assert self._finalizer is not None
        self._finalizer.detach()
        background, self._background = self._background, None
        self._engine = self._loop = None
        if background is not None:
            background.finish()

    # Verbs

    @property
    def bootstrap_servers(self) -> str:
        """host:port, for clients."""
        return self._running().bootstrap_servers

    def client_config(self, library: Library) -> dict[str, str]:
        """Return the settings with which clients of a library find this broker, by the names that it has for them."""
        return client_config(library, self.bootstrap_servers)

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> None:
        """Make a topic; settings have _ for each dot: cleanup_policy="compact". KafkaError says why it cannot be."""
        self._call(self._running().create_topic(name, partitions, _texts(configs)))

    async def acreate_topic(self, name: str, partitions: int = 1, **configs: object) -> None:
        """Make a topic, as create_topic does."""
        await self._await(self._running().create_topic(name, partitions, _texts(configs)))

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

    @property
    def faults(self) -> BrokerFaults:
        """What clients of this broker meet: rules for their requests, toxics for their connections."""
        from minibroker.embedded.faults import BrokerFaults

        return BrokerFaults(self)

    def _running(self) -> Engine:
        if self._engine is None:
            raise RuntimeError("the broker is not running: use it in a `with`, or call start() before")
        return self._engine

    def _is_ours(self) -> bool:
        """Whether the caller is in the loop in which the broker runs."""
        return asyncio._get_running_loop() is self._loop

    def _call(self, verb: Coroutine[Any, Any, T]) -> T:
        """Return what comes of a verb, in the loop in which the broker runs."""
        assert self._loop is not None
        if not self._is_ours():
            return asyncio.run_coroutine_threadsafe(verb, self._loop).result()
        try:
            # In our own loop a verb can be had at once if it does not wait for anything, as most do not.
            if not self._is_process:
                verb.send(None)
        except StopIteration as done:
            value: T = done.value
            return value
        verb.close()
        raise RuntimeError("this would block the loop that the broker runs in: await the twin of it with an `a` before")

    async def _await(self, verb: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        if self._is_ours():
            return await verb
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(verb, self._loop))


def _dotted(name: str) -> str:
    """Return Kafka's name of a setting that may be written as an argument of Python."""
    return name if "." in name else name.replace("_", ".")


def _texts(configs: Mapping[str, object]) -> dict[str, str]:
    from minibroker.config.sources import text_of

    return {_dotted(name): text_of(value) for name, value in configs.items()}


def _forgotten(name: str, engine: Engine, loop: asyncio.AbstractEventLoop, background: BackgroundLoop | None) -> None:
    """Stop a broker that nobody can stop any more: it is garbage, or the program ends."""
    try:
        warnings.warn(f"{name} has not been stopped", ResourceWarning, stacklevel=1)
    finally:
        if background is not None:
            background.finish_with(engine.stop())
        elif loop.is_closed():
            engine.abandon()
        else:
            asyncio.run_coroutine_threadsafe(engine.stop(), loop)
