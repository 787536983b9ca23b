"""Carrying out the rules for clients: what becomes of a request that one of them strikes.

There is an object of this only while there are rules (node.faults). What is not struck goes its usual way.

    dropped, request or answer   the connection falls silent, as one does whose packets are lost: TCP keeps order, so
                                 nothing behind the lost bytes arrives either, and the client's timeout decides
    error                        stands where Kafka puts it; partitions that the rule is not for are served as ever

What must hold: without `after`, what an error is answered for is not done. Records of a request lie in the receive
buffer, so whatever is done with them is done before `carry_out` returns.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from minibroker.broker.dispatch import Route
from minibroker.broker.handlers.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, Session
from minibroker.clock import REQUEST
from minibroker.errors import Error
from minibroker.faults import answers
from minibroker.protocol.framing import encode_response
from minibroker.protocol.headers import Request, Response
from minibroker.server.large_answer import read_whole
from minibroker.turns import is_work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.dispatch import Context, Dispatcher, Eventually
    from minibroker.faults.rules import Rule
    from minibroker.server.connection import Answer


PRODUCE, API_VERSIONS, DESCRIBE_TOPIC_PARTITIONS = 0, 18, 75
# They change nothing, so an error after them is no other than one before.
ALIKE_AFTER = {answers.FETCH, answers.OFFSET_FETCH, answers.DESCRIBE_LOG_DIRS}
LENGTH_BYTES = 4


class Injection:
    """The rules of one broker at work."""

    def __init__(self, dispatcher: Dispatcher):
        self.dispatcher = dispatcher
        self.node = dispatcher.node
        self.faults = self.node.faults

    def strike(self, route: Route, request: Request, context: Context) -> Callable[[int], Answer] | None:
        """Return what carries out the rule that strikes a request; each that is asked counts it."""
        for rule in list(self.faults.rules.values()):
            if (
                rule.fits(route.api, route.version, context.client_id)
                and (not rule.is_about_topics or self._names_some(rule, route, request))
                and (rule.transactional_id is None or any(map(rule.is_of, _transactional_ids(request))))
                and self.faults.strikes(rule)
            ):
                return partial(self._carry_out, rule, route, request, context)
        return None

    def _carry_out(self, rule: Rule, route: Route, request: Request, context: Context, correlation_id: int) -> Answer:
        """Do to a request what a rule says."""
        if rule.drop_request:
            return None if _is_unanswered(route, request) else _silence()
        if rule.close == "before":
            context.connection.close()
            return None
        if rule.kill == "before":
            self.faults.end(rule)
            return None if _is_unanswered(route, request) else _silence()
        if rule.hold == "before":
            return self._deliver(rule, self._held(rule, route, request, context), route, context, correlation_id)
        if rule.error is None:
            response = self._ask(route, request, context)
        else:
            response = self._refuse(rule, rule.error, route, request, context)
        if context.connection.is_closing:
            return None  # with acks 0 that is the answer to an error
        return self._deliver(rule, response, route, context, correlation_id)

    def _ask(self, route: Route, request: Request, context: Context) -> Eventually:
        """Have a request handled as ever."""
        return self.dispatcher.begin(route.handler, request, context)

    async def _held(self, rule: Rule, route: Route, request: Request, context: Context) -> Response | None:
        """Have a request handled when the rule is removed, though whoever sent it may have gone by then: it is late."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Response | None] = loop.create_future()

        async def handle() -> None:
            response = self._ask(route, request, context)
            found = None if response is None else await _awaited(response)
            if not answer.done():
                answer.set_result(found)

        def go_on() -> None:
            rule.late[loop.create_task(handle())] = None

        rule.held.append(go_on)
        return await answer

    async def _deliver(
        self, rule: Rule, eventually: Eventually, route: Route, context: Context, correlation_id: int
    ) -> list[bytes | memoryview] | None:
        """Return the answer as a rule wants it, when it wants it."""
        response = None if eventually is None else await _awaited(eventually)
        frame = None
        if response is not None:
            if rule.throttle_ms:
                response.throttle_time_ms = rule.throttle_ms
            # Read now: there is one frame, to be changed or held back as a whole.
            frame = bytearray().join(map(read_whole, _encoded(response, rule, route, correlation_id)))
        if rule.delay_ms:
            await self.node.clock.sleep(rule.delay_ms, REQUEST)
        if rule.close:
            context.connection.close()
            return None
        if rule.kill:
            self.faults.end(rule)
            await _silence()
        if frame is None:
            return None
        if rule.hold == "after":
            released: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            rule.held.append(lambda: None if released.done() else released.set_result(None))
            await released
        if rule.drop_response:
            await _silence()
        if rule.corrupt is not None:
            self._corrupt(frame, rule.corrupt)
        if rule.truncate is not None:
            context.connection.write([bytes(frame[: rule.truncate])])
            context.connection.close()
            return None
        if rule.throttle_ms:
            # As Kafka since 2.0: the answer leaves at once, and whoever does not wait by himself is made to (KIP-219).
            context.connection.write([bytes(frame)])
            await self.node.clock.sleep(rule.throttle_ms, REQUEST)
            return None
        return [bytes(frame)]

    def _corrupt(self, frame: bytearray, place: int | str) -> None:
        """Invert a byte; chance does not choose the length, or the client would wait for bytes that never come."""
        index = place if isinstance(place, int) else self.faults.chance.randrange(LENGTH_BYTES, len(frame))
        if -len(frame) <= index < len(frame):
            frame[index] ^= 0xFF

    # Errors

    def _refuse(self, rule: Rule, code: Error, route: Route, request: Request, context: Context) -> Eventually:
        """Answer an error for what a rule is for, and serve the rest."""
        fault = answers.Fault(code, f"{code.name}, by rule {rule.id} for faults")
        if _is_unanswered(route, request):
            self._refuse_in_silence(rule, fault, route, request, context)
            return None
        if route.api == answers.FETCH and code not in answers.FETCH_AS_A_WHOLE:
            return self._refuse_fetch(rule, fault, route, request, context)
        if (rule.after and route.api not in ALIKE_AFTER) or self._names_all(route, request):
            return _finished(self._ask(route, request, context), lambda real: self._overlay(real, rule, fault, route))
        if route.api == answers.METADATA:
            return self._refuse_metadata(rule, fault, route, request, context)
        if not rule.is_about_topics:
            return answers.refuse(request, route.api, route.version, fault)
        rest, faulty = answers.split(request, route.api, route.version, self._hits(rule), fault)
        if rest is None:
            return faulty
        return _finished(
            self._ask(route, rest, context), lambda real: answers.merge(real, faulty, route.api, route.version)
        )

    def _refuse_in_silence(
        self, rule: Rule, fault: answers.Fault, route: Route, request: Request, context: Context
    ) -> None:
        """Refuse what has no answer: with acks 0 a client learns of an error by losing the connection."""
        rest: Request | None = request
        if not rule.after:
            rest, _ = answers.split(request, route.api, route.version, self._hits(rule), fault)
        if rest is not None:
            made = route.handler(rest, context)
            if is_work(made):
                deque(made, 0)  # all of it: nobody waits for an answer, and the connection is about to close
        context.connection.close("a Produce request with acks 0 failed")

    def _refuse_metadata(
        self, rule: Rule, fault: answers.Fault, route: Route, request: Request, context: Context
    ) -> Eventually:
        """Refuse topics only: without brokers in the answer clients would not know whom to ask next."""
        version = route.version
        rest, faulty = answers.split(request, answers.METADATA, version, self._hits(rule), fault)

        def finish(real: Any) -> None:
            if rest is None:
                real.topics = []  # in version 0 no topics were all of them
            if not rule.is_about_topics:
                real.error_code = fault.code
            answers.merge(real, faulty, answers.METADATA, version)

        asked = answers.copy_with(request, "topics", []) if rest is None else rest
        return _finished(self._ask(route, asked, context), finish)

    def _refuse_fetch(
        self, rule: Rule, fault: answers.Fault, route: Route, request: Any, context: Context
    ) -> Eventually:
        """Refuse partitions of the request or of its session, at once: an error is no reason to wait for records.

        Nothing is done by reading, so the handler may do all of it; and only it moves the session on.
        """
        hits, version = self._hits(rule), route.version
        hit = [key for key in self._wanted(route, request) if hits(*key)]

        def finish(real: Any) -> None:
            if real.error_code:
                return
            for topic in real.responses:
                topic.partitions = [
                    row for row in topic.partitions if not hits(topic.topic, bytes(topic.topic_id), row.partition_index)
                ]
            faulty = answers.refuse(_fetch_of(hit), answers.FETCH, version, fault)
            answers.merge(real, faulty, answers.FETCH, version)
            session = self._session(real.session_id)
            for name, topic_id, partition in hit:
                if session is not None:
                    session.refused((name, topic_id, partition or 0))

        return _finished(self._ask(route, answers.copy_with(request, "max_wait_ms", 0), context), finish)

    def _overlay(self, real: Any, rule: Rule, fault: answers.Fault, route: Route) -> None:
        """Put an error over what came of a request."""
        api, version = route.api, route.version
        if not answers.levels_of(api, version):
            vars(real).update(vars(answers.answer_of(api, fault)))
            return
        answers.overlay(real, api, version, self._hits(rule), fault)
        if hasattr(real, "error_code") and not rule.is_about_topics:
            real.error_code = fault.code

    # What a request names

    def _names_some(self, rule: Rule, route: Route, request: Request) -> bool:
        """Whether a request names something that a rule is for."""
        hits = self._hits(rule)
        if self._names_all(route, request):
            return any(hits(name, answers.NO_ID, None) for name in self.node.image.topics)
        return any(hits(*each) for each in self._wanted(route, request))

    def _names_all(self, route: Route, request: Any) -> bool:
        """Whether a request means every topic by naming none."""
        if route.api == answers.METADATA:
            return request.topics is None or (route.version == 0 and not request.topics)
        return route.api == DESCRIBE_TOPIC_PARTITIONS and not request.topics

    def _wanted(self, route: Route, request: Any) -> Iterator[tuple[str, bytes, int | None]]:
        """Yield name or id of the topic, and partition, of all that a request is about."""
        seen = set()
        for each in answers.asked_for(request, route.api, route.version):
            seen.add(each)
            yield each
        if route.api == answers.FETCH and request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            session = self._session(request.session_id)
            forgotten = {
                (topic.topic, bytes(topic.topic_id), partition)
                for topic in request.forgotten_topics_data
                for partition in topic.partitions
            }
            for key in list(session.partitions if session is not None else ()):
                if key not in seen and key not in forgotten:
                    yield key

    def _hits(self, rule: Rule) -> answers.Hits:
        def hits(name: str, topic_id: bytes, partition: int | None) -> bool:
            if not name and topic_id != answers.NO_ID:
                name = self.node.topic_name(topic_id) or ""
            return rule.hits(name, partition)

        return hits

    def _session(self, session_id: int) -> Session | None:
        if session_id == NO_SESSION:
            return None
        return self.node.fetch_sessions.find(session_id)


def _transactional_ids(request: Any) -> Iterator[str]:
    """Yield the transactional ids that a request names."""
    for field in ("transactional_id", "v3_and_below_transactional_id"):
        if name := getattr(request, field, None):
            yield name
    for each in getattr(request, "transactions", ()):
        yield each.transactional_id


def _is_unanswered(route: Route, request: Any) -> bool:
    return route.api == PRODUCE and request.acks == 0


def _fetch_of(keys: list[tuple[str, bytes, int | None]]) -> Request:
    """Return a request for these partitions, one topic after the other."""
    from minibroker.protocol.messages.fetch import FetchRequest

    Topic = FetchRequest.FetchTopic
    topics: dict[tuple[str, bytes], list[Any]] = {}
    for name, topic_id, partition in keys:
        wanted = Topic.FetchPartition(partition=partition or 0, fetch_offset=0, partition_max_bytes=0)
        topics.setdefault((name, topic_id), []).append(wanted)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[Topic(topic=name, topic_id=topic_id, partitions=rows) for (name, topic_id), rows in topics.items()],
    )


def _encoded(response: Response, rule: Rule, route: Route, correlation_id: int) -> list[bytes | memoryview]:
    if route.api == API_VERSIONS and rule.error == Error.UNSUPPORTED_VERSION:
        return encode_response(response, 0, correlation_id)  # in which clients read this error, whatever they asked in
    return route.frame(response, correlation_id)


def _finished(eventually: Eventually, finish: Any) -> Eventually:
    """Let a response be changed before it leaves, now or when it is there."""
    if eventually is None:
        return None
    if isinstance(eventually, Response):
        finish(eventually)
        return eventually

    async def later() -> Response | None:
        response = await eventually
        if response is not None:
            finish(response)
        return response

    return later()


async def _awaited(eventually: Any) -> Any:
    return eventually if isinstance(eventually, Response) else await eventually


async def _silence() -> None:
    """Never return; the end of the connection cancels it."""
    await asyncio.get_running_loop().create_future()
