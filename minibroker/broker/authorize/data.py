"""Produce and Fetch: what is allowed is handled at once, as ever, while the records lie in the receive buffer."""

from __future__ import annotations

from typing import Any, Final

from minibroker.broker.authorize.access import ASKED_US, FAILED, answered, changed
from minibroker.broker.handlers.fetch import fetch as plain_fetch
from minibroker.broker.handlers.fetch_authorized import fetch as fetch_readable
from minibroker.faults.answers import Fault, refuse_in_pieces, split_in_pieces
from minibroker.in_pieces import finish
from minibroker.log.formats import ATTRIBUTES_POSITION, MAGIC_POSITION, TRANSACTIONAL_BIT
from minibroker.security.acls import CLUSTER_ACTION, READ, TOPIC, TRANSACTIONAL_ID, WRITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.authorize.access import Access
    from minibroker.broker.dispatch import Context, Handler
    from minibroker.in_pieces import InPieces
    from minibroker.protocol.messages.fetch import FetchRequest
    from minibroker.protocol.messages.produce import ProduceRequest, ProduceResponse
    from minibroker.turns import Work

API: Final = 0
AT_ONCE_MAX: Final = 100  # topics and partitions of a request that is asked about without a pause
REPLICA_STATE_SINCE: Final = 15


def produce(request: ProduceRequest, context: Context, handler: Handler, access: Access) -> Any:
    """Append to the topics that one may write to; a transaction only as who may use its id."""
    count = len(request.topic_data)
    for topic in request.topic_data:
        count += len(topic.partition_data)
    if count > AT_ONCE_MAX:
        for topic in request.topic_data:  # what lies in the receive buffer does not stay there
            for partition in topic.partition_data:
                if partition.records is not None:
                    partition.records = bytes(partition.records)
        return _produce_in_pieces(request, context, handler, access)
    return finish(_produce(request, context, handler, access))


def _produce_in_pieces(request: ProduceRequest, context: Context, handler: Handler, access: Access) -> Work[Any]:
    made = yield from _produce(request, context, handler, access)
    return (yield from answered(made))


def _produce(request: ProduceRequest, context: Context, handler: Handler, access: Access) -> InPieces[Any]:
    """Ask for each topic, and return what the handler has made of those that may be written to."""
    name = request.transactional_id
    if (
        name is not None
        and not access.could(WRITE, TRANSACTIONAL_ID, name)
        and _is_transactional(request)
        and not access.may(WRITE, TRANSACTIONAL_ID, name)  # now it is a denial
    ):
        return _refuse(request, context, Fault(FAILED[TRANSACTIONAL_ID], None))
    refused = set()
    for topic in request.topic_data:
        known = access.name_of(topic.name, topic.topic_id)
        if known and not access.may(WRITE, TOPIC, known):
            refused.add((topic.name, bytes(topic.topic_id)))
        yield ASKED_US
    if not refused:
        return handler(request, context)
    fault = Fault(FAILED[TOPIC], None)
    rest, errors = yield from split_in_pieces(
        request, API, context.api_version, lambda name, topic_id, _: (name, topic_id) in refused, fault
    )
    made = None if rest is None else handler(rest, context)
    if not request.acks:
        return _close_after(made, request, context, fault)
    if rest is None:
        return errors

    def together(response: ProduceResponse) -> ProduceResponse:
        response.responses = [*response.responses, *errors.responses]  # type: ignore[attr-defined]
        return response

    return changed(made, together)


def _is_transactional(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for partition in topic.partition_data:
            records = partition.records
            if (
                records is not None
                and len(records) > ATTRIBUTES_POSITION
                and records[MAGIC_POSITION] == 2
                and records[ATTRIBUTES_POSITION] & TRANSACTIONAL_BIT
            ):
                return True
    return False


def _refuse(request: ProduceRequest, context: Context, fault: Fault) -> Any:
    if not request.acks:
        # Nothing can be answered, so the client learns of it by losing the connection.
        context.connection.close(f"a Produce request with acks 0 failed: {fault.code.name}")
        return None
    return refuse_in_pieces(request, API, context.api_version, fault)


def _close_after(made: Any, request: ProduceRequest, context: Context, fault: Fault) -> Work[Any]:
    made = yield from answered(made)
    if hasattr(made, "__await__"):
        yield made
    return _refuse(request, context, fault)


def fetch(request: FetchRequest, context: Context, handler: Handler, access: Access) -> Any:
    """Read the topics that one may read; who says that it is a replica has to be allowed cluster actions."""
    assert handler is plain_fetch, "what stands before it is passed over: this guard is the one next to the handler"
    replica_id = request.replica_id if context.api_version < REPLICA_STATE_SINCE else request.replica_state.replica_id
    if replica_id >= 0:
        is_broker = access.may_to_cluster(CLUSTER_ACTION)
        return fetch_readable(request, context, lambda name: is_broker)
    return fetch_readable(request, context, lambda name: not name or access.may(READ, TOPIC, name))
