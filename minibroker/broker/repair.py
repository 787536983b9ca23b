"""Topics that the metadata have lost, read off the directories of their partitions.

A directory says the name, the number, the topic's id and the epochs of its leaders. What nothing but the metadata knew
stays lost: settings, and that there were more partitions than directories. Every topic that is put back is said.
Only for a broker that is its own controller: of a cluster each broker has a part of the partitions.
"""

from __future__ import annotations

from minibroker.errors import ProtocolError
from minibroker.log.checkpoints import read_leader_epochs, read_topic_id
from minibroker.replication.placement import new_partition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.node import Node
    from minibroker.stored.kinds import MetadataRecord


def topics_from_directories(node: Node) -> list[MetadataRecord]:
    """Return the records of topics and partitions that have directories and are unknown."""
    counts: dict[str, int] = {}
    for topic, partition in node.directory.found():
        counts[topic] = max(counts.get(topic, 0), partition + 1)
    records: list[MetadataRecord] = []
    for topic in sorted(counts):
        records += _topic(node, topic, counts[topic])
    return records


def _topic(node: Node, name: str, count: int) -> list[MetadataRecord]:
    from minibroker.stored.topics import TopicRecord

    ids = _ids(node, name, count)
    known = node.image.topics.get(name)
    records: list[MetadataRecord] = []
    if known is not None:
        topic_id, first = known.id, len(known.partitions)
        if first >= count or (ids and topic_id not in ids):
            return []
    else:
        topic_id, first = _first_free(node, ids), 0
        records.append(TopicRecord(name=name, topic_id=topic_id))
    for number in range(first, count):
        record = new_partition(node.image, topic_id, number, [node.node_id])
        record.leader_epoch = _latest_epoch(node, f"{name}-{number}") + 1  # type: ignore[attr-defined]
        records.append(record)
    node.reporter.say(f"topic {name} is put back with {count} partitions; its settings are those of the broker")
    return records


def _ids(node: Node, name: str, count: int) -> list[bytes]:
    found = []
    for number in range(count):
        try:
            topic_id = read_topic_id(node.storage, f"{name}-{number}")
        except ProtocolError:
            continue
        if topic_id is not None:
            found.append(topic_id)
    return found


def _first_free(node: Node, ids: list[bytes]) -> bytes:
    """Return the id that most directories name, unless another topic has it."""
    for topic_id in sorted(set(ids), key=ids.count, reverse=True):
        if topic_id not in node.image.topics_by_id:
            return topic_id
    return node.controller.new_id()


def _latest_epoch(node: Node, directory: str) -> int:
    try:
        latest = read_leader_epochs(node.storage, directory).latest_epoch
    except ProtocolError:
        return 0  # a start reads the epochs off the batches then
    return -1 if latest is None else latest
