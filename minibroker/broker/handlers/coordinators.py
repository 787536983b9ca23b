"""FindCoordinator: which broker looks after a group or a transactional id.

Versions of FindCoordinator: 4 many keys.
"""

from __future__ import annotations

from minibroker.broker.dispatch import Context
from minibroker.broker.internal_topics import make_missing
from minibroker.coordinator.hashing import partition_of
from minibroker.errors import Error, KafkaError
from minibroker.groups import OFFSETS_TOPIC
from minibroker.metadata.image import Topic
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from minibroker.transactions import TRANSACTION_STATE_TOPIC
from minibroker.turns import Work

Coordinator = FindCoordinatorResponse.Coordinator

GROUP, TRANSACTION, SHARE = 0, 1, 2
STATE_TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTION_STATE_TOPIC}
BATCHES_SINCE = 4
FOUND_US = 10


def find_coordinator(request: FindCoordinatorRequest, context: Context) -> Work[FindCoordinatorResponse]:
    """Name the broker; the topic that groups or transactions are kept in is made first, if it is not there.

    Kafka: answers 15 first and makes the topic meanwhile; here it is there already.
    """
    node = context.node
    keys = request.coordinator_keys if context.api_version >= BATCHES_SINCE else [request.key]
    topic_name = STATE_TOPICS.get(request.key_type)
    if topic_name is not None and topic_name not in node.image.topics:
        making = make_missing(node, [topic_name], waits=False)
        if making is not None:
            yield making
    if topic_name is not None and not node.partitions.is_settled:
        # Those of the keys that are asked for come before the others.
        topic = node.image.topics.get(topic_name)
        numbers = {partition_of(key, len(topic.partitions)) for key in keys} if topic is not None else ()
        opening = node.partitions.opening(topic_name, sorted(numbers))
        if opening is not None:
            yield opening
    found = []
    finder = Finder(request.key_type, context)
    for key in keys:
        found.append(finder.find(key))
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


class Finder:
    """Names the brokers for the keys of one request: what is the same for many keys is looked up once."""

    def __init__(self, key_type: int, context: Context):
        self._key_type = key_type
        self._topic_name = STATE_TOPICS.get(key_type)
        self._context = context
        self._offset = -1  # of the metadata that the brokers below are from
        self._topic: Topic | None = None
        self._brokers: dict[int, tuple[str, int]] = {}  # host and port of each that can be reached

    def find(self, key: str) -> Coordinator:
        try:
            if self._topic_name is not None:
                node_id, host, port = self._coordinator_of(key)
            elif self._key_type == SHARE:  # there are none
                return Coordinator(
                    key=key, node_id=-1, host="", port=-1, error_code=Error.INVALID_REQUEST, error_message=""
                )
            else:
                raise KafkaError(Error.INVALID_REQUEST, f"there is no coordinator of type {self._key_type}")
        except KafkaError as error:
            code, message = error.code, error.message
            return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
        return Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=Error.NONE, error_message="")

    def _coordinator_of(self, key: str) -> tuple[int, str, int]:
        """Return the broker that leads the partition of a group or transactional id."""
        node = self._context.node
        if self._offset != node.image.offset:  # the metadata may change between two keys
            self._offset, self._topic = node.image.offset, node.image.topics.get(self._topic_name or "")
            brokers = node.brokers_for(self._context.connection)
            self._brokers = {broker_id: (host, port) for broker_id, host, port, _ in brokers}
        if self._topic is None:
            raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE, f"{self._topic_name} cannot be made yet")
        leader = self._topic.partitions[partition_of(key, len(self._topic.partitions))].leader
        if leader < 0:
            raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE, f"nobody leads the partition of {key!r:.100}")
        endpoint = self._brokers.get(leader)
        if endpoint is None:
            raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE, f"broker {leader} cannot be reached")
        return leader, *endpoint
