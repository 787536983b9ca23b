"""FindCoordinator: which broker looks after a group or a transactional id."""

from __future__ import annotations

from minibroker.broker.handlers.context import no_transactions
from minibroker.broker.internal_topics import make_missing
from minibroker.errors import Error, KafkaError
from minibroker.groups.names import OFFSETS_TOPIC, partition_of
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.handlers.context import Context
    from minibroker.server.shares import Work

Coordinator = FindCoordinatorResponse.Coordinator

GROUP, TRANSACTION, SHARE = 0, 1, 2
BATCHES_SINCE = 4
FOUND_US = 10


def find_coordinator(request: FindCoordinatorRequest, context: Context) -> Work[FindCoordinatorResponse]:
    """Name the broker; the topic that groups are kept in is made first, if it is not there.

    Kafka: answers 15 first and makes the topic meanwhile; here it is there already.
    """
    node = context.node
    keys = request.coordinator_keys if context.api_version >= BATCHES_SINCE else [request.key]
    if request.key_type == GROUP and OFFSETS_TOPIC not in node.image.topics:
        making = make_missing(node, [OFFSETS_TOPIC], waits=False)
        if making is not None:
            yield making
    if request.key_type == GROUP and not node.partitions.is_settled:
        # Those of the groups that are asked for come before the others.
        topic = node.image.topics.get(OFFSETS_TOPIC)
        numbers = {partition_of(key, len(topic.partitions)) for key in keys} if topic is not None else ()
        opening = node.partitions.opening(OFFSETS_TOPIC, sorted(numbers))
        if opening is not None:
            yield opening
    found = []
    for key in keys:
        found.append(_find(key, request.key_type, context))
        yield FOUND_US
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
        if kind == GROUP:
            leader = _leader_of(key, context)
        elif kind == TRANSACTION:
            raise no_transactions(context, key)
        elif kind == SHARE:  # there are none
            return Coordinator(
                key=key, node_id=-1, host="", port=-1, error_code=Error.INVALID_REQUEST, error_message=""
            )
        else:
            raise KafkaError(Error.INVALID_REQUEST, f"there is no coordinator of type {kind}")
        brokers = context.node.brokers_for(context.connection)
        found = [each for each in brokers if each[0] == leader]
        if not found:
            raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE, f"broker {leader} cannot be reached")
        node_id, host, port, _ = found[0]
    except KafkaError as error:
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message)
    return Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=Error.NONE, error_message="")


def _leader_of(group_id: str, context: Context) -> int:
    """Return the broker that leads the partition of a group."""
    topic = context.node.image.topics.get(OFFSETS_TOPIC)
    if topic is None:
        raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} cannot be made yet")
    leader = topic.partitions[partition_of(group_id, len(topic.partitions))].leader
    if leader < 0:
        raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE, "nobody leads the partition of the group")
    return leader
