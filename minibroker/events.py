"""What happens in a cluster, as one stream: numbered events, each with a sentence that says what happened and why.

    if events.observed:
        events.emit(Append(broker=1, topic="orders", partition=0, ...))

Everybody who watches reads the same stream: terminal, page, scenarios, the trace of a simulation. Whoever makes an
event asks `observed` first, so that a stream that nobody watches costs one look at an attribute; kinds that come with
every record or message ask `wanted`, so that whoever waits for a new leader does not pay for them. They get no numbers
then.
What must hold: numbers rise by one and everybody gets the events in their order, also when a watcher's callback makes
another one. An event that was emitted is never changed. A watcher that fails is no longer told, and its failure goes
to the loop; the broker does not notice.
Not here: which events there are (event_kinds.py), and who makes them. For the thread of the loop only.
"""

from __future__ import annotations

from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

    T = TypeVar("T")
else:

    def dataclass_transform(**_settings):
        return lambda cls: cls


KINDS: dict[str, type[Event]] = {}
BUFFERED_MAX = 10_000


@dataclass_transform()
class Event:
    """One thing that happened. A subclass names its fields; the forms are filled in with `e` as the event."""

    kind: ClassVar[str] = ""
    fields: ClassVar[tuple[str, ...]] = ()
    by_name: ClassVar[bool] = False  # only for those who ask for this kind: there are many of them
    line_form: ClassVar[str] = ""  # short, for scenarios and traces
    sentence_form: ClassVar[str] = ""  # for people

    # Its own values are set when it is emitted; to type checkers it is no field, so that nobody has to give it.
    number: ClassVar[int] = 0
    at_ms: ClassVar[int] = 0

    def __init__(self, *values: Any, **named: Any):
        """Only the first of its kind comes here: a constructor that is written out takes a third of the time."""
        cls = type(self)
        cls.__init__ = _constructor(cls)  # type: ignore[method-assign]
        self.__init__(*values, **named)  # type: ignore[misc]

    def __init_subclass__(cls, kind: str = "", line: str = "", sentence: str = "", by_name: bool = False) -> None:
        super().__init_subclass__()
        own = cls.__dict__.get("__annotations__", {})  # noqa: RUF063  # inspect takes 10 ms to import
        cls.fields = cls.fields + tuple(own)
        cls.kind, cls.line_form, cls.sentence_form, cls.by_name = kind, line, sentence, by_name
        if kind:
            assert kind not in KINDS, kind
            KINDS[kind] = cls

    @property
    def line(self) -> str:
        """What happened, in one short line: `append b1 orders-0 offsets=0..0 leo=1`."""
        return self.line_form.format(e=self)

    @property
    def sentence(self) -> str:
        """What happened and why, in English."""
        return self.sentence_form.format(e=self)

    def as_json(self) -> dict[str, Any]:
        """Return what `json.dumps` takes; `from_json` makes the event of it again."""
        row: dict[str, Any] = {"number": self.number, "at_ms": self.at_ms, "kind": self.kind}
        for field in self.fields:
            row[field] = getattr(self, field)
        row["sentence"] = self.sentence
        return row

    def __repr__(self) -> str:
        return f"<{self.number} at {self.at_ms}: {self.line}>"


class PartitionEvent(Event):
    """Something about one partition on one broker."""

    broker: int
    topic: str
    partition: int


def from_json(row: dict[str, Any]) -> Event:
    """Return the event that a row of `as_json` tells of; KeyError if no such kind is known (import event_kinds)."""
    cls = KINDS[row["kind"]]
    event = cls(**{name: _as_tuple(row[name]) for name in cls.fields})
    event.number, event.at_ms = row["number"], row["at_ms"]  # type: ignore[misc]
    return event


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value


def _constructor(cls: type[Event]) -> Callable[..., None]:
    """Return an `__init__` that takes the fields of a kind, in their order or by their names."""
    defaults = {name: getattr(cls, name) for name in cls.fields if hasattr(cls, name)}
    names = sorted(cls.fields, key=defaults.__contains__)
    parameters = ", ".join(f"{name}=defaults[{name!r}]" if name in defaults else name for name in names)
    lines = [f"def __init__(self, {parameters}):", *(f" self.{name} = {name}" for name in names)]
    scope: dict[str, Any] = {"defaults": defaults}
    exec("\n".join(lines), scope)
    constructor: Callable[..., None] = scope["__init__"]
    return constructor


class Subscription:
    """Somebody who is told of events until `cancel`."""

    __slots__ = ("_stream", "failure", "is_on", "kinds", "tell")

    def __init__(self, stream: EventStream, tell: Callable[[Event], object], kinds: frozenset[str]):
        self._stream = stream
        self.tell = tell
        self.kinds = kinds  # empty: all
        self.is_on = True
        self.failure: Exception | None = None  # what the callback raised; it was not called again

    def cancel(self) -> None:
        self._stream._remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()


class EventStream:
    """The events of one cluster."""

    def __init__(self, now_ms: Callable[[], int] = int):
        self.observed = False  # look here before an event is made
        self.wanted: frozenset[str] = frozenset()  # or here: the kinds that anybody is told of
        self.last_number = 0
        self._now_ms = now_ms
        self._subscriptions: tuple[Subscription, ...] = ()  # a new one for each change, so that it can be walked
        self._untold: deque[Event] = deque()
        self._is_telling = False

    def emit(self, event: Event) -> None:
        """Give an event its number and time and tell everybody."""
        if not self.observed:
            return
        self.last_number = event.number = self.last_number + 1  # type: ignore[misc]
        event.at_ms = self._now_ms()  # type: ignore[misc]
        if self._is_telling:  # made by a callback: everybody gets the event before it first
            self._untold.append(event)
            return
        self._is_telling = True
        try:
            self._tell(event)
            while self._untold:
                self._tell(self._untold.popleft())
        finally:
            self._is_telling = False

    def _tell(self, event: Event) -> None:
        for each in self._subscriptions:
            if each.is_on and (event.kind in each.kinds if each.kinds else not event.by_name):
                try:
                    each.tell(event)
                except Exception as failure:
                    each.failure = failure
                    self._remove(each)
                    _report(failure, event)

    # Watching

    def subscribe(self, tell: Callable[[Event], object], kinds: Iterable[str] = ()) -> Subscription:
        """Call `tell` with each event, of these kinds only if any are named, until the subscription is cancelled.

        Who names none gets all but those kinds that are many and have to be named: messages between brokers.
        """
        subscription = Subscription(self, tell, frozenset(kinds))
        self._changed((*self._subscriptions, subscription))
        return subscription

    def listen(self, kinds: Iterable[str] = (), buffered_max: int = BUFFERED_MAX) -> Listener:
        """Return an async iterator of the events from now on: `async with events.listen() as heard: async for ...`."""
        return Listener(self, kinds, buffered_max)

    async def wait_for(
        self, predicate: Callable[[Event], object], kinds: Iterable[str] = (), *, timeout_ms: float | None = None
    ) -> Event:
        """Return the first event from now on that fits, or raise TimeoutError."""
        return await self._wait(lambda event: event if predicate(event) else None, kinds, timeout_ms)

    async def wait_until(
        self, condition: Callable[[], object], kinds: Iterable[str] = (), *, timeout_ms: float | None = None
    ) -> None:
        """Return as soon as a condition holds: now, or after an event. TimeoutError if it takes too long."""
        if not condition():
            await self._wait(lambda _: condition() or None, kinds, timeout_ms)

    async def _wait(self, look: Callable[[Event], T | None], kinds: Iterable[str], timeout_ms: float | None) -> T:
        import asyncio

        from minibroker.clock import LoopClock

        done: Future[T] = asyncio.get_running_loop().create_future()

        def tell(event: Event) -> None:
            if done.done():
                return
            try:
                found = look(event)
            except Exception as failure:  # the waiter's, so it is told
                done.set_exception(failure)
            else:
                if found is not None:
                    done.set_result(found)

        def expire() -> None:
            if not done.done():
                done.set_exception(TimeoutError(f"nothing of the kind within {timeout_ms:g} ms"))

        # The patience of who waits is measured on the loop's clock: the cluster's may be frozen.
        timer = None if timeout_ms is None else LoopClock().after(timeout_ms, expire)
        with self.subscribe(tell, kinds):
            try:
                return await done
            finally:
                if timer is not None:
                    timer.cancel()

    def _remove(self, subscription: Subscription) -> None:
        subscription.is_on = False
        self._changed(tuple(each for each in self._subscriptions if each.is_on))

    def _changed(self, subscriptions: tuple[Subscription, ...]) -> None:
        self._subscriptions = subscriptions
        self.observed = bool(subscriptions)
        usual = [kind for kind, cls in KINDS.items() if not cls.by_name]
        self.wanted = frozenset().union(*(each.kinds or usual for each in subscriptions))


class Listener:
    """Events as they come, for `async for`. Who is too slow loses the oldest ones and is told how many."""

    def __init__(self, stream: EventStream, kinds: Iterable[str], buffered_max: int):
        self.dropped_count = 0
        self._buffered: deque[Event] = deque(maxlen=buffered_max)
        self._waiting: Future[None] | None = None
        self._subscription: Subscription | None = stream.subscribe(self._hear, kinds)

    def _hear(self, event: Event) -> None:
        if len(self._buffered) == self._buffered.maxlen:
            self.dropped_count += 1
        self._buffered.append(event)
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def close(self) -> None:
        """Hear no more; what is buffered can still be read."""
        if self._subscription is not None:
            self._subscription.cancel()
            self._subscription = None
            self._wake()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        import asyncio

        while not self._buffered:
            if self._subscription is None:
                raise StopAsyncIteration
            assert self._waiting is None, "a listener is read by one"
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        return self._buffered.popleft()


def _report(failure: Exception, event: Event) -> None:
    """Tell the loop of a callback that failed; without a loop the subscription alone knows."""
    import asyncio

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    loop.call_exception_handler({"message": f"a watcher of events failed at {event!r}", "exception": failure})
