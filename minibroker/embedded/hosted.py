"""What `Broker` and `Cluster` have in common: an engine in a loop, and verbs that may be called from anywhere.

    with Broker() as broker:        in a thread, with a loop of its own
    async with Broker() as broker:  in the caller's loop

The verbs of an engine are coroutines for its loop. A plain verb waits for one of them in whatever thread it is called;
its twin, with an `a` in front, is awaited in whatever loop.
What must hold: `stop` leaves nothing behind, neither thread, task, file, socket nor process. What nobody stops is
stopped when it is garbage or the program ends, with a ResourceWarning.
"""

from __future__ import annotations

import asyncio
import warnings
import weakref
from functools import wraps
from inspect import isawaitable, iscoroutinefunction
from typing import Generic, Protocol, TypeVar, overload

from minibroker.embedded import forking
from minibroker.embedded.background import BackgroundLoop
from minibroker.errors import KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from types import TracebackType
    from typing import Any, Concatenate, ParamSpec, Self

    from minibroker.config import BrokerConfig
    from minibroker.config.listeners import Listener
    from minibroker.embedded.client_settings import Access, Library
    from minibroker.embedded.record import Record
    from minibroker.embedded.writing import Writer
    from minibroker.security.throwaway_ca import ThrowawayCa
    from minibroker.security.users import Users

    P = ParamSpec("P")
    T = TypeVar("T")
    Plain = Callable[Concatenate[Any, P], T]
    Twin = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]


# What a verb says of what it was asked for; anything else is a bug, and then its whole traceback is wanted.
ANSWERS = (AssertionError, KafkaError, TimeoutError, ValueError)


class Runs(Protocol):
    """An engine as its host sees it. Everything is awaited in the loop that started it."""

    @property
    def bootstrap_servers(self) -> str: ...

    async def start(self) -> None:
        """Return when requests are answered; raise BrokerError, and leave nothing behind, if they never will be."""
        ...

    async def stop(self) -> None:
        """Return when nothing is left: no socket, file, task or process."""
        ...

    def abandon(self) -> None:
        """Let go of what outlives the loop, which has been closed."""
        ...

    def handles(self) -> list[int]:
        """Return the numbers of the files through which others talk to it: sockets, pipes."""
        ...


E = TypeVar("E", bound=Runs)


class Hosted(Generic[E]):
    """Something that is started and stopped, in a thread or in the running loop, again and again."""

    _noun = "broker"
    _ca: ThrowawayCa | None = None  # where certificates are made for it
    _users: Users | None = None  # who can log in
    _uses_tls = _asks_for_certificates = False
    _mechanism: str | None = None  # by which clients log in, where they are asked to
    _as_version: str | None = None  # the release that it appears as
    _runs_here = True  # in this process, so that a verb that need not wait can be had at once in the engine's own loop

    def __init__(self) -> None:
        self._engine: E | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # in which the engine runs
        self._background: BackgroundLoop | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._is_left_behind = False  # it runs in the process that this one was forked from

    # What a subclass says

    def _new_engine(self) -> E:
        raise NotImplementedError

    def _has_started(self, engine: E) -> None:
        """Keep what the next start has to know."""

    def _certificate_hosts(self) -> Iterable[str]:
        """Return the names and addresses under which it is found."""
        return ()

    # Start and stop

    def start(self) -> Self:
        """Start, with a thread for the loop; return when requests are answered. BrokerError says why it cannot be."""
        self._check_stopped()
        background = BackgroundLoop("minibroker")
        try:
            engine = self._made_engine()
            background.run(engine.start())
        except BaseException:
            background.finish()
            self._remove_certificates()
            raise
        self._started(engine, background.loop, background)
        return self

    def stop(self) -> None:
        """Stop; return when nothing is left. What does not run stays as it is."""
        if self._engine is not None:
            if self._is_ours():
                raise RuntimeError(f"{self!r} runs in this very loop: await astop()")
            self._call(self._engine.stop())
            self._stopped()

    async def astart(self) -> Self:
        """Start in the running loop; return when requests are answered. BrokerError says why it cannot be."""
        self._check_stopped()
        try:
            engine = self._made_engine()
            await engine.start()
        except BaseException:
            self._remove_certificates()
            raise
        self._started(engine, asyncio.get_running_loop(), None)
        return self

    async def astop(self) -> None:
        """Stop; return when nothing is left. What does not run stays as it is."""
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

    def _made_engine(self) -> E:
        if self._ca is not None:
            from minibroker.clock import LoopClock

            # Who looks at certificates goes by the machine's clock, whatever time it is for the broker.
            self._ca.make(self._certificate_hosts(), LoopClock().now_ms())
        return self._new_engine()

    def _remove_certificates(self) -> None:
        if self._ca is not None:
            self._ca.remove()

    def _started(self, engine: E, loop: asyncio.AbstractEventLoop, background: BackgroundLoop | None) -> None:
        self._engine, self._loop, self._background = engine, loop, background
        self._has_started(engine)
        self._is_left_behind = False
        forking.remember(self)
        self._finalizer = weakref.finalize(self, _forgotten, repr(self), engine, loop, background, self._ca)

    def _replaced(self, engine: E) -> None:
        """Go on with another engine, which runs in the same loop; the first has stopped."""
        assert self._finalizer is not None
        assert self._loop is not None
        self._finalizer.detach()
        self._started(engine, self._loop, self._background)

    def _stopped(self) -> None:
        assert self._finalizer is not None
        self._finalizer.detach()
        forking.forget(self)
        background, self._background = self._background, None
        self._engine = self._loop = None
        if background is not None:
            background.finish()
        self._remove_certificates()

    def leave_behind(self) -> tuple[object, list[int]]:
        """Be another process than the one in which it runs: know nothing of it, and stop nothing."""
        assert self._engine is not None
        assert self._finalizer is not None
        self._finalizer.detach()
        left = (self._engine, self._loop, self._background)
        handles = self._engine.handles()
        self._engine = self._loop = self._background = None
        self._is_left_behind = True
        return left, handles

    @property
    def is_running(self) -> bool:
        return self._engine is not None

    # Where clients find it

    @property
    def bootstrap_servers(self) -> str:
        """host:port, for clients; with a comma between those of several brokers."""
        return self._running().bootstrap_servers

    def client_config(self, library: Library, *, user: str | None = None) -> dict[str, Any]:
        """Return the settings with which clients of a library find it, by the names that the library has for them.

        user: one of users=, as whom they log in; by default the first.
        """
        from minibroker.embedded.client_settings import client_settings

        return client_settings(library, self._access(self.bootstrap_servers, user))

    def _access(self, bootstrap_servers: str, user: str | None = None) -> Access:
        """Return how clients come in."""
        from minibroker.embedded.client_settings import Access

        access = Access(bootstrap_servers, self._uses_tls, self._mechanism)
        if self._mechanism is not None and self._users is not None:
            user = next(iter(self._users.passwords)) if user is None else user
            if user not in self._users.passwords:
                raise ValueError(f"{user!r} is none of {', '.join(self._users.passwords)}")
            access = access._replace(user=user, password=self._users.passwords[user])
        elif user is not None:
            raise ValueError(f"nobody is known by {user!r}: users={{'alice': 'secret'}} makes users")
        if self._ca is None or not self._uses_tls:
            return access
        from minibroker.security.throwaway_ca import STORE_PASSWORD

        files = self._ca.files
        access = access._replace(ca=files.ca)
        if not self._asks_for_certificates:
            return access
        return access._replace(client=files.client, client_store=files.client_store, store_password=STORE_PASSWORD)

    def _take_ways_in(self, config: BrokerConfig, listener: Listener) -> None:
        """Take note of what a listener asks of clients."""
        self._uses_tls = listener.uses_tls
        self._asks_for_certificates = config.of_listener("ssl.client.auth", listener.name) != "none"
        if listener.asks_for_login:
            self._mechanism = next(iter(config.of_listener("sasl.enabled.mechanisms", listener.name) or ()), "")

    # Records

    def produce(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Mapping[str, Any] | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Record:
        """Write a record with a client of our own, and return it with its place; KafkaError says why it cannot be.

        value, key, headers: bytes, text, or what becomes JSON; None is null. timestamp: ms since 1970.
        """
        given = (topic, value, key, headers or {}, partition, timestamp)
        return self._call(self._produce(*given), blocks=True)

    async def aproduce(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Mapping[str, Any] | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Record:
        """Write a record with a client of our own, and return it with its place; KafkaError says why it cannot be.

        value, key, headers: bytes, text, or what becomes JSON; None is null. timestamp: ms since 1970.
        """
        return await self._await(self._produce(topic, value, key, headers or {}, partition, timestamp))

    def load(self, topic: str, source: str | os.PathLike[str] | Iterable[Any], *, key: str | None = None) -> int:
        """Write a record for each row of a file or of anything that has rows; return how many.

        source: a file by its ending, .jsonl, .csv, .tsv or .parquet; rows with names become JSON. key: the field that
        is the record's key.
        """
        return self._call(self._load(topic, source, key), blocks=True)

    async def aload(self, topic: str, source: str | os.PathLike[str] | Iterable[Any], *, key: str | None = None) -> int:
        """Write a record for each row of a file or of anything that has rows; return how many.

        source: a file by its ending, .jsonl, .csv, .tsv or .parquet; rows with names become JSON. key: the field that
        is the record's key.
        """
        return await self._await(self._load(topic, source, key))

    async def _produce(self, *given: Any) -> Record:
        from minibroker.embedded.writing import produce

        async with self._producer() as producer:
            return await produce(producer, *given)

    async def _load(self, topic: str, source: Any, key: str | None) -> int:
        from minibroker.embedded.writing import load, rows_of

        async with self._producer() as producer:
            return await load(producer, topic, rows_of(source), key)

    def _producer(self) -> Writer:
        from minibroker.embedded.client_settings import client_settings
        from minibroker.embedded.writing import Writer

        return Writer(client_settings("minibroker", self._access(self.bootstrap_servers)), self._as_version)

    # Verbs

    def _running(self) -> E:
        if self._is_left_behind:
            raise RuntimeError(f"the {self._noun} runs in the process that this one was forked from")
        if self._engine is None:
            raise RuntimeError(f"the {self._noun} is not running: use it in a `with`, or call start() before")
        return self._engine

    def _is_ours(self) -> bool:
        """Whether the caller is in the loop in which the engine runs."""
        return asyncio._get_running_loop() is self._loop

    def _call(self, verb: Coroutine[Any, Any, T], *, blocks: bool = False) -> T:
        """Return what comes of a verb, in the loop in which the engine runs.

        blocks: it would wait in the middle of what it does, so it is not even begun in that loop.
        """
        __tracebackhide__ = True
        assert self._loop is not None
        if not self._is_ours():
            try:
                return asyncio.run_coroutine_threadsafe(verb, self._loop).result()
            except ANSWERS as failure:
                raise failure.with_traceback(None)  # noqa: B904 - it is the same one, and where it was made is ours
        try:
            # In our own loop a verb can be had at once if it does not wait for anything, as most do not.
            if self._runs_here and not blocks:
                verb.send(None)
        except StopIteration as done:
            value: T = done.value
            return value
        verb.close()
        raise RuntimeError(
            f"this would block the loop that the {self._noun} runs in: await the twin of it with an `a` before"
        )

    async def _await(self, verb: Coroutine[Any, Any, T]) -> T:
        __tracebackhide__ = True
        assert self._loop is not None
        if self._is_ours():
            return await verb
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(verb, self._loop))


class Verbs(Generic[E]):
    """Makes the methods of a Hosted from those of its engine, or of a part of it: a plain one, and its twin to await.

    kill, akill = Verbs(lambda engine: engine.core)(Core.kill)
    """

    def __init__(
        self,
        part: Callable[[E], Any],
        *,
        blocks: bool = True,
        then: Callable[[E], Coroutine[Any, Any, object]] | None = None,
    ) -> None:
        """blocks: what is awaited waits in the middle of what it does, see Hosted._call; then: is done behind each."""
        self._part = part
        self._blocks = blocks
        self._then = then

    @overload
    def __call__(self, work: Twin[P, T]) -> tuple[Plain[P, T], Twin[P, T]]: ...

    @overload
    def __call__(self, work: Plain[P, T]) -> tuple[Plain[P, T], Twin[P, T]]: ...

    def __call__(self, work: Callable[..., Any]) -> tuple[Plain[..., Any], Twin[..., Any]]:
        name, part, then = work.__name__, self._part, self._then
        blocks = self._blocks and (iscoroutinefunction(work) or then is not None)

        async def run(engine: E, arguments: Any, named: Any) -> Any:
            __tracebackhide__ = True
            result = getattr(part(engine), name)(*arguments, **named)
            if isawaitable(result):
                result = await result
            if then is not None:
                await then(engine)
            return result

        @wraps(work)
        def plain(self: Hosted[E], /, *arguments: Any, **named: Any) -> Any:
            __tracebackhide__ = True
            return self._call(run(self._running(), arguments, named), blocks=blocks)

        @wraps(work)
        async def twin(self: Hosted[E], /, *arguments: Any, **named: Any) -> Any:
            __tracebackhide__ = True
            return await self._await(run(self._running(), arguments, named))

        return plain, twin


def _forgotten(
    name: str,
    engine: Runs,
    loop: asyncio.AbstractEventLoop,
    background: BackgroundLoop | None,
    ca: ThrowawayCa | None,
) -> None:
    """Stop what nobody can stop any more: it is garbage, or the program ends."""
    try:
        warnings.warn(f"{name} has not been stopped", ResourceWarning, stacklevel=1)
    finally:
        if background is not None:
            background.finish_with(engine.stop())
        elif loop.is_closed():
            engine.abandon()
        else:
            asyncio.run_coroutine_threadsafe(engine.stop(), loop)
        if ca is not None:
            ca.remove()
