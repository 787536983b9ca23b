"""FindCoordinator: which broker looks after a group or a transactional id; and OffsetFetch.

Groups are not served yet, so nothing has ever been committed, and that is what OffsetFetch says: consumers of old
clients ask even if they read partitions of their own choice.
"""

from __future__ import annotations

from minibroker.errors import Error, KafkaError
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.handlers.context import Context

Coordinator = FindCoordinatorResponse.Coordinator

OffsetTopic = OffsetFetchResponse.OffsetFetchResponseTopic
OffsetPartition = OffsetTopic.OffsetFetchResponsePartition
OffsetGroup = OffsetFetchResponse.OffsetFetchResponseGroup
GroupTopic = OffsetGroup.OffsetFetchResponseTopics
GroupPartition = GroupTopic.OffsetFetchResponsePartitions

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


def offset_fetch(request: OffsetFetchRequest, context: Context) -> OffsetFetchResponse:
    """Say that nothing has been committed."""
    return OffsetFetchResponse(
        topics=[
            OffsetTopic(
                name=topic.name,
                partitions=[
                    OffsetPartition(partition_index=index, committed_offset=-1, metadata="", error_code=Error.NONE)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or []
        ],
        groups=[
            OffsetGroup(
                group_id=group.group_id,
                topics=[
                    GroupTopic(
                        topic_id=topic.topic_id,
                        name=topic.name,
                        partitions=[
                            GroupPartition(
                                partition_index=index, committed_offset=-1, metadata="", error_code=Error.NONE
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in group.topics or []
                ],
            )
            for group in request.groups
        ],
    )
