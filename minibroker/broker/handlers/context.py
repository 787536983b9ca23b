"""What a handler knows beyond its request, and what handlers share."""

from __future__ import annotations

from minibroker.controller.controller import check_name
from minibroker.errors import Error, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.broker import Node
    from minibroker.replication.replica import Replica
    from minibroker.server.connection import Connection

NO_ID = bytes(16)


class Context:
    """One request's surroundings."""

    __slots__ = ("api_version", "client_id", "connection", "node")

    def __init__(self, node: Node, connection: Connection, api_version: int, client_id: str | None):
        self.node = node
        self.connection = connection
        self.api_version = api_version
        self.client_id = client_id

    @property
    def now_ms(self) -> int:
        return self.node.clock.now_ms()

    @property
    def steady_ms(self) -> int:
        return self.node.clock.steady_ms()


def find_replica(node: Node, topic: str, topic_id: bytes, partition: int, *, by_id: bool = False) -> Replica:
    """Return a partition of this broker; by_id: the request has ids and no names."""
    if by_id:
        name = node.topic_name(topic_id)
        if name is None:
            raise KafkaError(Error.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id.hex()}")
        topic = name
    replica = node.replicas.get((topic, partition))
    if replica is None:
        if (topic, partition) in node.partitions.unopened:
            raise KafkaError(Error.KAFKA_STORAGE_ERROR, str(node.partitions.unopened[topic, partition]))
        if node.has_partition(topic, partition):
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER, f"{topic}-{partition} is not on this broker")
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition} of {topic!r}")
    if replica.log.offline is not None:
        raise KafkaError(Error.KAFKA_STORAGE_ERROR, f"{topic}-{partition} is offline")
    return replica


def known_leader(node: Node, topic: str, topic_id: bytes, partition: int) -> tuple[int, int]:
    """Return who leads a partition and in which epoch, as clients are told who asked the wrong broker (KIP-951)."""
    name = topic or node.topic_name(topic_id) or ""
    found = node.image.topics.get(name)
    if found is None or not 0 <= partition < len(found.partitions):
        return -1, -1
    return found.partitions[partition].leader, found.partitions[partition].leader_epoch


def code_for(error: KafkaError, is_old: bool) -> Error:
    """Return the code for a client; old ones do not know that a disk can fail, and look for another leader."""
    if is_old and error.code == Error.KAFKA_STORAGE_ERROR:
        return Error.NOT_LEADER_OR_FOLLOWER
    return error.code


def no_transactions(context: Context, transactional_id: str | None) -> KafkaError:
    """Return the answer to whoever wants transactions, and say on whose account.

    Kafka: has a transaction coordinator. Without one every client has to stop at its first question. librdkafka goes on
    asking after any error but those of authorization, so it is one of these, with words that say what is meant.
    """
    client, wanted = (f"{name!r:.{NAME_LENGTH_MAX}}" for name in (context.client_id, transactional_id))
    line = f"client {client} wants transactions (transactional id {wanted}): {NO_TRANSACTIONS}"
    context.node.say_once("transactions", line)
    return KafkaError(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS)


NO_TRANSACTIONS = "minibroker has no transactions yet"
NAME_LENGTH_MAX = 100  # of a client's word in a line
INTERNAL_TOPICS = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))


def is_internal(topic: str) -> bool:
    """Whether Kafka keeps a topic for itself."""
    return topic in INTERNAL_TOPICS


def is_valid_name(topic: str) -> bool:
    """Whether a topic can have this name."""
    try:
        check_name(topic)
    except KafkaError:
        return False
    return True
