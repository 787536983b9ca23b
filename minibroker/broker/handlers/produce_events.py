"""Produce as those see it who watch the events: what came, and what was answered."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from minibroker.broker.dispatch import Context
from minibroker.errors import Error
from minibroker.event_kinds import Ack, Produce
from minibroker.turns import Work, is_work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.protocol.messages.produce import ProduceRequest, ProduceResponse

    Answer = ProduceResponse | Coroutine[None, None, ProduceResponse | None] | None

REASONS = {0: "nobody asked for more", 1: "it is in the leader's log", -1: "every replica in sync has it"}
ERROR_REASONS = {
    Error.NOT_ENOUGH_REPLICAS: "fewer than min.insync.replicas are in sync, so nothing was appended",
    Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "it was appended, but too few replicas in sync are left",
    Error.REQUEST_TIMED_OUT: "not all replicas in sync had it in time",
    Error.NOT_LEADER_OR_FOLLOWER: "another broker leads, or leads again",
}


def told(
    produce: Callable[[ProduceRequest, Context], Any], request: ProduceRequest, context: Context
) -> Answer | Work[Answer]:
    """Answer a request, and emit what came and what was answered."""
    node = context.node
    client = context.client_id or "?"
    for topic in request.topic_data:
        for partition in topic.partition_data:
            name, size_bytes = topic.name or _name(topic.topic_id, context), len(partition.records or b"")
            node.events.emit(Produce(node.node_id, name, partition.index, client, request.acks, size_bytes))
    answer = produce(request, context)
    if is_work(answer):
        return _in_pieces(answer, request, context)
    return _told(answer, request, context)


def _in_pieces(work: Work[Answer], request: ProduceRequest, context: Context) -> Work[Answer]:
    return _told((yield from work), request, context)


def _told(answer: Any, request: ProduceRequest, context: Context) -> Answer:
    if hasattr(answer, "__await__"):
        return _later(answer, request, context)
    _tell(answer, request, context)
    return answer  # type: ignore[no-any-return]


async def _later(waiting: Any, request: ProduceRequest, context: Context) -> ProduceResponse | None:
    answer: ProduceResponse | None = await waiting
    _tell(answer, request, context)
    return answer


def _tell(answer: ProduceResponse | None, request: ProduceRequest, context: Context) -> None:
    node, client = context.node, context.client_id or "?"
    for topic in answer.responses if answer is not None else ():
        for partition in topic.partition_responses:
            code = partition.error_code
            reason = ERROR_REASONS.get(Error(code), "") if code else REASONS.get(request.acks, "")
            name, error = topic.name or _name(topic.topic_id, context), Error(code).name if code else ""
            node.events.emit(
                Ack(node.node_id, name, partition.index, client, request.acks, partition.base_offset, error, reason)
            )


def _name(topic_id: bytes, context: Context) -> str:
    return context.node.topic_name(bytes(topic_id)) or "?"
