"""AssignReplicasToDirs: a broker tells which log directory holds a replica, or that none does (KIP-858).

A broker with one directory tells nothing as long as all is well: the controller knows where a new replica goes. It
tells of a log that cannot be opened (its directory is LOST), and of one that is there again. A replica whose directory
does not work is in no ISR and leads nothing; whether others can take its place is decided in partition_change.py.
"""

from __future__ import annotations

from minibroker.controller.controller import Controller
from minibroker.controller.partition_change import PartitionChange, is_online
from minibroker.controller.placement import is_active
from minibroker.errors import Error, KafkaError
from minibroker.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from minibroker.stored.kinds import MetadataRecord

DirectoryAnswer = AssignReplicasToDirsResponse.DirectoryData
TopicAnswer = DirectoryAnswer.TopicData
Answer = TopicAnswer.PartitionData


def assign_replicas(
    controller: Controller, request: AssignReplicasToDirsRequest
) -> tuple[list[MetadataRecord], AssignReplicasToDirsResponse]:
    """Return the records that note where replicas are, with what follows from it, and an answer for each."""
    broker_id = request.broker_id
    try:
        controller.check_broker_epoch(broker_id, request.broker_epoch)
    except KafkaError as error:
        return [], AssignReplicasToDirsResponse(throttle_time_ms=0, error_code=error.code, directories=[])
    records: list[MetadataRecord] = []
    directories = []
    for directory in request.directories:
        topics = []
        for topic in directory.topics:
            answers = []
            for asked in topic.partitions:
                code = Error.NONE
                try:
                    place = (bytes(topic.topic_id), asked.partition_index)
                    records += _assign(controller, broker_id, bytes(directory.id), *place)
                except KafkaError as error:
                    code = error.code
                answers.append(Answer(partition_index=asked.partition_index, error_code=code))
            topics.append(TopicAnswer(topic_id=topic.topic_id, partitions=answers))
        directories.append(DirectoryAnswer(id=directory.id, topics=topics))
    return records, AssignReplicasToDirsResponse(throttle_time_ms=0, error_code=Error.NONE, directories=directories)


def _assign(
    controller: Controller, broker_id: int, directory: bytes, topic_id: bytes, number: int
) -> list[MetadataRecord]:
    topic = controller.get_topic_by_id(topic_id)
    if not 0 <= number < len(topic.partitions):
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
    partition = topic.partitions[number]
    if broker_id not in partition.replicas:
        raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
    works = is_online(controller.image, broker_id, directory)

    def is_alive(broker: int) -> bool:
        return is_active(controller.image, broker) and (broker != broker_id or works)

    # Kafka: a partition that nobody leads stays so when a directory is there again, until something else happens.
    change = PartitionChange(controller, topic, partition, is_alive=is_alive)
    change.directories[broker_id] = directory
    if not works:
        change.isr = [broker for broker in partition.isr if broker != broker_id]
    record = change.record()
    return [] if record is None else [record]
