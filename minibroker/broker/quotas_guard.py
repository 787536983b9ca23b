"""Quotas at work: what stands before handlers counts what a client takes, and who takes too much has to wait (KIP-219).

    Produce      bytes of the request      the answer says how long, and leaves at once; then nothing more is read from
    Fetch        bytes of the answer       the connection for so long. A client that knows waits by itself, one that
    any          time of the loop          does not is made to. A Fetch that is throttled is answered without records.
    topics       partitions changed        see controller_mutations.py

What must hold: only what somebody limits is counted, and only for whom it is limited. Brokers do not count: followers
fetch elsewhere, and what only brokers ask is exempt.
Kafka: counts the time of reading and writing requests, too, as that of its network threads.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from minibroker.broker.dispatch import Context
from minibroker.protocol.headers import Request, Response
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.registry import APIS
from minibroker.quotas.client_quotas import PERCENT_OF_NS, ClientQuotas
from minibroker.quotas.controller_mutations import STRICT_SINCE
from minibroker.schema.coding import encode_chunks
from minibroker.server.later import Later
from minibroker.turns import is_work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Final

    from minibroker.broker.broker_parts import BrokerParts
    from minibroker.broker.dispatch import Handler
    from minibroker.turns import Work

    Finish = Callable[[Any], Response | None]

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3  # makes topics that are not there
# Who logs in is nobody yet (SaslHandshake, SaslAuthenticate), and WriteTxnMarkers is asked by brokers.
EXEMPT: Final = frozenset((17, 27, 36))
INITIAL_EPOCH: Final = 0
NO_SESSION: Final = 0
HEADER_BYTES: Final = 10  # api, version, correlation id, length of the client id
SIZED_MAX: Final = 200  # partitions of an answer that is encoded to know its size
PARTITION_BYTES: Final = 48  # about, of one without records


class Spent:
    """How long a request has been worked at."""

    __slots__ = ("ns",)

    def __init__(self) -> None:
        self.ns = 0


class QuotasGuard:
    """The guard of one broker."""

    def __init__(self, node: BrokerParts):
        self.node = node
        self.fine_ns = node.clock.fine_ns  # how long requests are worked at is measured in it
        config = node.config
        self.quotas = ClientQuotas(
            config["quota.window.num"],
            config["quota.window.size.seconds"],
            config["controller.quota.window.num"],
            config["controller.quota.window.size.seconds"],
        )

    def guard(self, api: int, version: int, handler: Handler) -> Handler:
        """Return what stands before a handler; it is asked for again when limits have changed."""
        quotas = self.quotas
        if api in EXEMPT:
            return handler
        if api == PRODUCE and (quotas.produce.has_limits or quotas.request.has_limits):
            return partial(self._produce, handler)
        if api == FETCH and (quotas.fetch.has_limits or quotas.request.has_limits):
            return partial(self._fetch, handler)
        counts = quotas.mutations.has_limits and (api in STRICT_SINCE or api == METADATA)
        if counts or quotas.request.has_limits:
            return partial(self._ask, handler, counts)
        return handler

    # What stands before handlers

    def _produce(self, handler: Handler, request: ProduceRequest, context: Context) -> Any:
        user, client_id = context.connection.principal.name, context.client_id
        size_bytes = 0
        if self.quotas.produce.find(user, client_id) is not None:
            size_bytes = request_bytes(request, context)  # now: the records do not stay where they lie
        spent = Spent()

        def finish(response: Response | None) -> Response | None:
            now_ms = self.node.clock.elapsed_ms()
            throttle_ms = self.quotas.produce.record(user, client_id, size_bytes, now_ms) if size_bytes else 0
            if request.acks != 0:  # as with Kafka: it counts the time of the others only
                throttle_ms = max(throttle_ms, self._record_time(spent, context))
            return self._throttled(response, throttle_ms, context)

        return then(self._timed(handler, request, context, spent), finish)

    def _fetch(self, handler: Handler, request: FetchRequest, context: Context) -> Any:
        user, client_id = context.connection.principal.name, context.client_id
        # More would never be let through.
        request.max_bytes = min(request.max_bytes, self.quotas.fetch.window_bytes(user, client_id))
        request.min_bytes = min(request.min_bytes, request.max_bytes)
        spent = Spent()

        def finish(response: FetchResponse) -> Response | None:
            quota, throttle_ms = self.quotas.fetch, self._record_time(spent, context)
            if quota.find(user, client_id) is not None:
                now_ms, size_bytes = self.node.clock.elapsed_ms(), response_bytes(response, context)
                throttle_ms = max(throttle_ms, quota.record(user, client_id, size_bytes, now_ms))
                if throttle_ms:
                    quota.take_back(user, client_id, size_bytes, now_ms)  # it is not sent
            if throttle_ms:
                self._empty(response, request)
            return self._throttled(response, throttle_ms, context)

        return then(self._timed(handler, request, context, spent), finish)

    def _ask(self, handler: Handler, counts: bool, request: Request, context: Context) -> Any:
        if counts:
            request.client = context.connection.principal.name, context.client_id
        spent = Spent()

        def finish(response: Response | None) -> Response | None:
            throttle_ms = max(self._record_time(spent, context), getattr(response, "throttle_time_ms", 0))
            return self._throttled(response, throttle_ms, context)

        return then(self._timed(handler, request, context, spent), finish)

    # How long, and what then

    def _timed(self, handler: Handler, request: Request, context: Context, spent: Spent) -> Any:
        """Have a request handled, and note how long it is worked at; waiting is no work."""
        if self.quotas.request.find(context.connection.principal.name, context.client_id) is None:
            return handler(request, context)
        fine_ns = self.fine_ns
        begun_ns = fine_ns()
        made = handler(request, context)
        spent.ns = fine_ns() - begun_ns
        return self._timed_work(made, spent) if is_work(made) else made

    def _timed_work(self, work: Work[Any], spent: Spent) -> Work[Any]:
        fine_ns = self.fine_ns
        try:
            while True:
                begun_ns = fine_ns()
                try:
                    step = next(work)
                except StopIteration as end:
                    return end.value
                finally:
                    spent.ns += fine_ns() - begun_ns
                yield step
        finally:
            work.close()

    def _record_time(self, spent: Spent, context: Context) -> int:
        quota, user = self.quotas.request, context.connection.principal.name
        return quota.record(user, context.client_id, spent.ns * PERCENT_OF_NS, self.node.clock.elapsed_ms())

    def _throttled(self, response: Response | None, throttle_ms: int, context: Context) -> Response | None:
        """Say in the answer how long the client has to wait, and see to it that it does."""
        throttle(response, throttle_ms, context)
        if throttle_ms and "throttle" in self.node.events.wanted:
            self._tell(response, throttle_ms, context)
        return response

    def _tell(self, response: Response | None, throttle_ms: int, context: Context) -> None:
        from minibroker.event_kinds import Throttle  # as long as somebody listens

        client = f"{context.connection.principal}/{context.client_id or ''}"
        what = APIS[PRODUCE if response is None else response.api]
        self.node.events.emit(Throttle(broker=self.node.node_id, client=client, what=what, wait_ms=throttle_ms))

    def _empty(self, response: FetchResponse, request: FetchRequest) -> None:
        """Take back what a Fetch answers; its session tells all of it again with the next request."""
        sessions = self.node.fetch_sessions
        session = sessions.find(response.session_id)
        if session is not None:
            if request.session_epoch == INITIAL_EPOCH:
                sessions.close(response.session_id)
                response.session_id = NO_SESSION
            else:
                for topic in response.responses:
                    for partition in topic.partitions:
                        session.refused((topic.topic, topic.topic_id, partition.partition_index))
        response.responses = []
        response.node_endpoints = []


def throttle(response: Any, throttle_ms: int, context: Context) -> None:
    """Say in an answer how long the client has to wait, and see to it that it does; of several waits the longest."""
    if throttle_ms:
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(response.throttle_time_ms, throttle_ms)
        if not context.connection.is_closing:
            context.connection.mute(throttle_ms)


def then(made: Any, finish: Finish) -> Any:
    """Have what a handler has returned finished as soon as there is an answer."""
    if made is None or isinstance(made, Response):
        return finish(made)
    if type(made) is Later:
        return made.into(finish)
    return _then_work(made, finish) if is_work(made) else _then_awaited(made, finish)


def _then_work(work: Work[Any], finish: Finish) -> Work[Any]:
    made = yield from work
    return then(made, finish)


async def _then_awaited(made: Coroutine[Any, Any, Any], finish: Finish) -> Response | None:
    return finish(await made)


def request_bytes(request: Request, context: Context) -> int:
    """Return how long a request is, without its length."""
    header_bytes = HEADER_BYTES + len((context.client_id or "").encode())
    if request.header_version(context.api_version) == 2:
        header_bytes += 1
    return header_bytes + sum(map(len, encode_chunks(request, context.api_version)))


def response_bytes(response: FetchResponse, context: Context) -> int:
    """Return how long an answer to Fetch is; about so if it is about many partitions."""
    partitions = [partition for topic in response.responses for partition in topic.partitions]
    if len(partitions) <= SIZED_MAX and not response.is_long:
        return 4 + sum(map(len, encode_chunks(response, context.api_version)))
    return sum(PARTITION_BYTES + len(partition.records or b"") for partition in partitions)
