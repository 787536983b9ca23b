"""FindCoordinator: which broker looks after a group or a transactional id."""

from __future__ import annotations

from minibroker.errors import Error, KafkaError
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.handlers.context import Context

Coordinator = FindCoordinatorResponse.Coordinator

GROUP, TRANSACTION, SHARE = 0, 1, 2
BATCHES_SINCE = 4


def find_coordinator(request: FindCoordinatorRequest, context: Context) -> FindCoordinatorResponse:
    """Name this broker: there is no other."""
    keys = request.coordinator_keys if context.api_version >= BATCHES_SINCE else [request.key]
    found = [_find(key, request.key_type, context) for key in keys]
    if context.api_version >= BATCHES_SINCE:
        return FindCoordinatorResponse(coordinators=found)
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message or "NONE",
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _find(key: str, kind: int, context: Context) -> Coordinator:
    try:
        if kind not in (GROUP, TRANSACTION):
            raise KafkaError(Error.INVALID_REQUEST, f"there is no coordinator of type {kind}")
        node_id, host, port, _ = context.node.brokers_for(context.connection)[0]
    except KafkaError as error:
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message)
    return Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=Error.NONE, error_message="")
