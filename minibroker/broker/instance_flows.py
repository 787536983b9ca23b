"""Instances at one broker: what flows is counted and held to the share, and reported to the master on each interval.

    Produce   bytes that are appended  above the share the answer says how long to wait, and nothing more is read for so
    Fetch     bytes of its records     long (KIP-219); no Fetch reads more than a share allows in half an interval
    Produce to a full instance         waits for room, up to the request's timeout, or is refused at once

What must hold: nothing is counted for topics of no instance; replication is not counted, as followers ask elsewhere.
Who may not write uses up nothing and waits for nothing: Produce is looked at behind the access rules.
A full instance takes nothing, however often clients come again; what waits is bounded for each, so that none takes the
room of another, and for the rest it is said that its time is over, so that clients ask again.
Not here: whose a topic is (instances/settings.py), what the share is (instances/master.py, reports.py).
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import islice
from math import inf
from typing import Any, Final

from minibroker.broker.quotas_guard import then, throttle
from minibroker.clock import REQUEST, SESSION
from minibroker.errors import Error, ProtocolError
from minibroker.faults.answers import Fault, merge, refuse, split_in_pieces
from minibroker.in_pieces import finish
from minibroker.instances.flow_control import fair_shares
from minibroker.instances.messages import request_of, share_of
from minibroker.instances.reports import NO_FLOW, Flow, ShareHolder
from minibroker.instances.settings import INTERNAL, read_instances
from minibroker.quotas.rates import Rate
from minibroker.replication.network import NetworkError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.broker_parts import BrokerParts
    from minibroker.broker.dispatch import Context, Handler
    from minibroker.clock import Timer
    from minibroker.instances.masters import Masters
    from minibroker.instances.messages import FlowReportResponse
    from minibroker.instances.reports import Report, Share
    from minibroker.instances.settings import Instance
    from minibroker.protocol.headers import Response
    from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
    from minibroker.protocol.messages.produce import ProduceRequest, ProduceResponse
    from minibroker.turns import Work

PRODUCE: Final = 0
FETCH: Final = 1
SAMPLES: Final = 2  # of a rate: bursts are as long as two intervals
AT_ONCE: Final = 2  # of an interval's worth this part is read by one Fetch
HELD_BYTES_MAX: Final = 64 * 1024 * 1024  # of requests for full instances, together: an equal part for each
HELD_PARTITION_BYTES: Final = 256  # about, of a request's partition without its records
HELD_MS_MAX: Final = 30_000  # as long as clients wait by default; some say that they wait for weeks
# Codes of partitions whose records have been appended: Kafka's followers were late.
APPENDED: Final = (Error.NONE, Error.REQUEST_TIMED_OUT, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
SOON: Final = 10  # this part of an interval later a first share has come
SIZED_PIECE: Final = 64  # partitions whose bytes are counted without a pause
SIZED_US: Final = 2
SCANNED_MAX: Final = 100  # partitions of a fetch session that are looked at


class InstanceFlow:
    """One instance at this broker."""

    def __init__(self, instance: Instance, holder: ShareHolder, now_ms: int):
        self.instance = instance
        self.holder = holder
        self.rates = Flow(*(Rate(SAMPLES, instance.interval_ms) for _ in Flow._fields))  # type: ignore[arg-type]
        self.waiting: dict[asyncio.Future[None], None] = {}  # for room, the longest first
        self.held_bytes = 0
        self.used = NO_FLOW  # in the last interval
        self.stored_bytes = 0  # as counted last
        self.has_asked = False  # for a share, before its time
        self._used = [0, 0]
        self._held_ms = [now_ms, now_ms]  # until then somebody has been told to wait
        self._since_ms = now_ms

    def count(self, direction: int, size_bytes: int, elapsed_ms: int, steady_ms: int) -> int:
        """Count what flows; return how long nothing more may."""
        self._used[direction] += size_bytes
        limit = self.holder.flow(steady_ms)[direction]
        if limit == inf:
            return 0
        rate: Rate = self.rates[direction]  # type: ignore[assignment]
        rate.record(size_bytes, elapsed_ms)
        throttle_ms = self.instance.interval_ms if limit <= 0 else rate.throttle_ms(limit, elapsed_ms)
        if throttle_ms:
            self._held_ms[direction] = max(self._held_ms[direction], steady_ms + throttle_ms)
        return throttle_ms

    def window_bytes(self, direction: int, steady_ms: int) -> float:
        """Return what may flow at once: less than in an interval, or reports would tell of a feast and of a famine."""
        return self.holder.flow(steady_ms)[direction] * self.instance.interval_ms / AT_ONCE / 1000

    def end_interval(self, now_ms: int) -> None:
        """Note what has flowed by second since the last time.

        What is held to its share flows in leaps, and comes to the share: so much is told of it, or the next shares
        would be made by the leaps.
        """
        seconds = max(now_ms - self._since_ms, 1) / 1000
        self.used = Flow(
            *(
                limit if limit != inf and held_ms > self._since_ms else min(used / seconds, limit)
                for used, held_ms, limit in zip(self._used, self._held_ms, self.holder.flow(now_ms), strict=True)
            )
        )
        self._used, self._since_ms = [0, 0], now_ms
        self.has_asked = False


class InstanceFlows:
    """All instances at one broker."""

    def __init__(self, node: BrokerParts, masters: Masters | None, broker_epoch: int):
        """masters: of a broker on its own; None: they are the controller's."""
        self.node = node
        self.instances = read_instances(node.config)
        self._masters = masters
        steady_ms = node.clock.steady_ms()
        self.flows = {
            each.name: InstanceFlow(each, self._holder(each, broker_epoch, steady_ms), steady_ms)
            for each in self.instances
            if each.is_measured
        }
        self._of_listeners = {each.instance.listener: each for each in self.flows.values() if each.instance.listener}
        self._timers: dict[str, Timer] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._is_stopped = False
        holding = sum(not each.refuses for each in self.instances if each.capacity_bytes)
        self._held_bytes_max = HELD_BYTES_MAX // max(holding, 1)

    def _holder(self, instance: Instance, broker_epoch: int, steady_ms: int) -> ShareHolder:
        counts = self.instances.partitions(instance, self.node.image)
        fair = Flow(*(fair_shares(each, counts).get(self.node.node_id, 0.0) for each in instance.promised))
        return ShareHolder(self.node.node_id, broker_epoch, fair, instance.lease_ms, steady_ms)

    def rows(self) -> list[dict[str, Any]]:
        """Return what the master of a broker on its own knows."""
        return [] if self._masters is None else self._masters.rows()

    # Reports

    def start(self) -> None:
        for flow in self.flows.values():
            self._tick(flow)

    def stop(self) -> None:
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        for flow in self.flows.values():
            for waiter in list(flow.waiting):
                waiter.cancel()

    def _tick(self, flow: InstanceFlow) -> None:
        """Report, whatever becomes of it, and again on the next interval."""
        name = flow.instance.name
        self._timers[name] = self.node.clock.after(flow.instance.interval_ms, partial(self._tick, flow), SESSION)
        flow.end_interval(self.node.clock.steady_ms())
        self._begin_report(flow)

    def _ask_early(self, flow: InstanceFlow) -> None:
        """Ask for a first share; a broker on its own has it at once."""
        if self._masters is None:
            self._begin_report(flow)
            return
        now_ms = self.node.clock.steady_ms()
        share = self._masters.take(flow.instance.name, flow.holder.report(flow.used, flow.stored_bytes, now_ms), now_ms)
        if share is not None:
            flow.holder.take(share, now_ms)

    def _begin_report(self, flow: InstanceFlow) -> None:
        if self._is_stopped:
            return
        task = asyncio.get_running_loop().create_task(self._report(flow))
        self._tasks[task] = None
        task.add_done_callback(self._reported)

    def _reported(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.node.reporter.say(f"unexpected error of a report of flow, please report it: {error!r}")

    async def _report(self, flow: InstanceFlow) -> None:
        if flow.instance.capacity_bytes:
            flow.stored_bytes = await self.node.shares.run(self._stored_bytes(flow))
        now_ms = self.node.clock.steady_ms()
        share = await self._ask(flow, flow.holder.report(flow.used, flow.stored_bytes, now_ms))
        if share is not None:
            flow.holder.take(share, self.node.clock.steady_ms())
            self._let_in(flow)

    async def _ask(self, flow: InstanceFlow, report: Report) -> Share | None:
        name = flow.instance.name
        if self._masters is not None:
            return self._masters.take(name, report, self.node.clock.steady_ms())
        try:
            answer: FlowReportResponse = await self.node.forward(request_of(name, report), 0)  # type: ignore[assignment]
        except NetworkError:
            return None
        return share_of(answer)

    def _stored_bytes(self, flow: InstanceFlow) -> Work[int]:
        """Count the bytes of an instance's partitions that are led here, others in between."""
        total = count = 0
        wanted = {*self.instances.topics(flow.instance, self.node.image.topics)}
        for (topic, _), replica in list(self.node.replicas.items()):
            if topic in wanted and replica.is_leader:
                total += replica.log.size_bytes
                count += 1
                if count % SIZED_PIECE == 0:
                    yield SIZED_PIECE * SIZED_US
        return total

    # What stands before handlers

    def guard_produce(self, api: int, version: int, handler: Handler) -> Handler:
        return partial(self._produce, handler) if api == PRODUCE else handler

    def guard_fetch(self, api: int, version: int, handler: Handler) -> Handler:
        return partial(self._fetch, handler) if api == FETCH else handler

    def _flow_of(self, topic: str, listener: str) -> InstanceFlow | None:
        if (owner := self.instances.owner_of(topic)) is not None:
            return self.flows.get(owner.name)
        return None if topic.startswith(INTERNAL) else self._of_listeners.get(listener)

    def _name(self, topic: Any, name: str) -> str:
        return name or self.node.topic_name(topic.topic_id) or ""

    def _produce(self, handler: Handler, request: ProduceRequest, context: Context) -> Any:
        sizes: dict[tuple[str, bytes, int], tuple[InstanceFlow, int]] = {}
        full: dict[InstanceFlow, None] = {}
        for topic in request.topic_data:
            flow = self._flow_of(self._name(topic, topic.name), context.connection.listener_name)
            if flow is not None:
                for each in topic.partition_data:
                    sizes[topic.name, topic.topic_id, each.index] = flow, len(each.records or b"")
                if flow.holder.is_full:
                    full[flow] = None
        if full:
            refused = [flow for flow in full if flow.instance.refuses]
            return (
                self._refuse(handler, request, context, refused)
                if refused
                else self._hold(handler, request, context, next(iter(full)))
            )
        if not sizes:
            return handler(request, context)

        def counted(response: ProduceResponse | None) -> Any:
            throttle(response, self._count(PRODUCE, _appended(sizes, response)), context)
            return response

        return then(handler(request, context), counted)

    def _count(self, direction: int, sizes: dict[InstanceFlow, int]) -> int:
        """Count what has flowed; return how long nothing more may."""
        clock, throttle_ms = self.node.clock, 0
        for flow, size_bytes in sizes.items():
            is_soon = False
            if not flow.has_asked and not flow.holder.flow(clock.steady_ms())[direction]:
                flow.has_asked = True  # its first partition here is new: it will soon have a share
                self._ask_early(flow)
                is_soon = not flow.holder.flow(clock.steady_ms())[direction]
            flow_ms = flow.count(direction, size_bytes, clock.elapsed_ms(), clock.steady_ms())
            throttle_ms = max(throttle_ms, flow_ms // SOON if is_soon else flow_ms)
        return throttle_ms

    def _hold(self, handler: Handler, request: ProduceRequest, context: Context, full: InstanceFlow) -> Any:
        """Have a request wait for room, if there is room for what waits."""
        partitions = [each for topic in request.topic_data for each in topic.partition_data]
        size_bytes = sum(HELD_PARTITION_BYTES + len(each.records or b"") for each in partitions)
        if self._is_stopped or full.held_bytes + size_bytes > self._held_bytes_max:
            return self._late(request, context, full)
        for each in partitions:  # what lies in the receive buffer does not stay there
            each.records = None if each.records is None else bytes(each.records)
        full.held_bytes += size_bytes  # now: others may come in the same turn of the loop
        return self._held(handler, request, context, full, size_bytes)

    async def _held(
        self, handler: Handler, request: ProduceRequest, context: Context, full: InstanceFlow, size_bytes: int
    ) -> Any:
        """Wait for room, as long as the client waits; then it is handled like any other."""
        clock = self.node.clock
        deadline_ms = clock.elapsed_ms() + min(request.timeout_ms, HELD_MS_MAX)
        try:
            while flow := self._full_flow(request, context):
                left_ms = deadline_ms - clock.elapsed_ms()
                if left_ms <= 0:
                    return self._late(request, context, flow)
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                flow.waiting[waiter] = None
                timer = clock.after(left_ms, partial(_wake, waiter), REQUEST)
                try:
                    await waiter
                finally:
                    timer.cancel()
                    flow.waiting.pop(waiter, None)
        finally:
            full.held_bytes -= size_bytes
        made = self.node.dispatcher.begin(partial(self._produce, handler), request, context)  # type: ignore[attr-defined]
        return await made if hasattr(made, "__await__") else made

    def _let_in(self, flow: InstanceFlow) -> None:
        """Have who has waited longest go on, and the next one in another turn, as long as there is room."""
        if flow.waiting and not flow.holder.is_full:
            waiter = next(iter(flow.waiting))
            del flow.waiting[waiter]
            _wake(waiter)
            self.node.shares.add(partial(self._let_in, flow))

    def _full_flow(self, request: ProduceRequest, context: Context) -> InstanceFlow | None:
        listener = context.connection.listener_name
        flows = (self._flow_of(self._name(topic, topic.name), listener) for topic in request.topic_data)
        return next((flow for flow in flows if flow is not None and flow.holder.is_full), None)

    def _late(self, request: ProduceRequest, context: Context, flow: InstanceFlow) -> Any:
        words = f"instance {flow.instance.name} is full"
        if not request.acks:
            raise ProtocolError(words)  # as for all errors that cannot be told
        made = refuse(request, PRODUCE, context.api_version, Fault(Error.REQUEST_TIMED_OUT, words))
        throttle(made, flow.instance.interval_ms, context)
        return made

    def _refuse(self, handler: Handler, request: ProduceRequest, context: Context, full: list[InstanceFlow]) -> Any:
        """Refuse what is for full instances, and have the rest handled."""
        if not request.acks:
            raise ProtocolError(f"instance {full[0].instance.name} is full")
        listener = context.connection.listener_name
        names = ", ".join(flow.instance.name for flow in full)
        fault = Fault(Error.POLICY_VIOLATION, f"instance {names} is full")

        def is_refused(name: str, topic_id: bytes, _: int | None) -> bool:
            return self._flow_of(name or self.node.topic_name(topic_id) or "", listener) in full

        rest, errors = finish(split_in_pieces(request, PRODUCE, context.api_version, is_refused, fault))
        if rest is None:
            return errors

        def together(response: Response | None) -> Response | None:
            if response is not None:
                merge(response, errors, PRODUCE, context.api_version)
            return response

        return then(self._produce(handler, rest, context), together)  # type: ignore[arg-type]

    def _fetch(self, handler: Handler, request: FetchRequest, context: Context) -> Any:
        steady_ms, listener = self.node.clock.steady_ms(), context.connection.listener_name
        limits = [flow.window_bytes(FETCH, steady_ms) for flow in self._read_by(request, listener)]
        if limits and min(limits) < request.max_bytes:
            request.max_bytes = max(int(min(limits)), 1)
            request.min_bytes = min(request.min_bytes, request.max_bytes)

        def counted(response: FetchResponse) -> Any:
            sizes: dict[InstanceFlow, int] = {}
            for topic in response.responses:
                size_bytes = sum(len(each.records or b"") for each in topic.partitions)
                flow = self._flow_of(self._name(topic, topic.topic), listener) if size_bytes else None
                if flow is not None:
                    sizes[flow] = sizes.get(flow, 0) + size_bytes
            throttle(response, self._count(FETCH, sizes), context)
            return response

        return then(handler(request, context), counted)

    def _read_by(self, request: FetchRequest, listener: str) -> set[InstanceFlow]:
        """Return the instances that a Fetch reads, as far as a look at the beginning of its session tells."""
        names = {self._name(topic, topic.topic) for topic in request.topics[:SCANNED_MAX]}
        session = self.node.fetch_sessions.find(request.session_id) if request.session_id else None
        if session is not None:
            names |= {key[0] or self.node.topic_name(key[1]) or "" for key in islice(session.partitions, SCANNED_MAX)}
        return {flow for name in names if (flow := self._flow_of(name, listener)) is not None}


def _appended(
    sizes: dict[tuple[str, bytes, int], tuple[InstanceFlow, int]], response: ProduceResponse | None
) -> dict[InstanceFlow, int]:
    """Return how many bytes of each instance have been appended, as the answer has it; None: nobody asked for one."""
    if response is not None:
        refused = [
            (topic.name, topic.topic_id, each.index)
            for topic in response.responses
            for each in topic.partition_responses
            if each.error_code not in APPENDED
        ]
        for place in refused:
            sizes.pop(place, None)
    total: dict[InstanceFlow, int] = {}
    for flow, size_bytes in sizes.values():
        total[flow] = total.get(flow, 0) + size_bytes
    return total


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
