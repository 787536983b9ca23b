"""Replicas move from broker to broker (KIP-455), while clients read and write.

    [1, 2, 3] -> [3, 4]     replicas [3, 4, 1, 2], adding [4], removing [1, 2]
    4 comes into the ISR    replicas [3, 4]; whoever led and is dropped gives way in the same record

First the new replicas join the old ones and begin to fetch; once the ISR has all replicas that are to stay, the record
that says so also drops the old ones (PartitionChange). To cancel is to drop the new ones.
The ISR never has to shrink for a move, so it is no less safe in the meantime than before.
"""

from __future__ import annotations

from minibroker.controller.controller import Controller, bounded
from minibroker.controller.partition_change import ONLINE, UNCLEAN, PartitionChange
from minibroker.controller.placement import check_brokers
from minibroker.errors import Error, KafkaError
from minibroker.metadata.image import Partition, Topic
from minibroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from minibroker.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from minibroker.stored.kinds import MetadataRecord

Asked = AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition
TopicAnswer = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
Answer = TopicAnswer.ReassignablePartitionResponse
OngoingTopic = ListPartitionReassignmentsResponse.OngoingTopicReassignment
Ongoing = OngoingTopic.OngoingPartitionReassignment


def alter_reassignments(
    controller: Controller, request: AlterPartitionReassignmentsRequest
) -> tuple[list[MetadataRecord], AlterPartitionReassignmentsResponse]:
    """Return the records that begin moves or end them, and for each partition whether it has begun."""
    may_resize = request.allow_replication_factor_change
    records: list[MetadataRecord] = []
    topics = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            answer = Answer(partition_index=asked.partition_index, error_code=Error.NONE, error_message=None)
            try:
                record = _reassign(controller, topic.name, asked, may_resize)
                if record is not None:
                    records.append(record)
            except KafkaError as error:
                answer.error_code = error.code
                if error.message != error.code.meaning:  # Kafka says no more than the code does
                    answer.error_message = error.message
            answers.append(answer)
        topics.append(TopicAnswer(name=topic.name, partitions=answers))
    response = AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=may_resize,
        error_code=Error.NONE,
        error_message=None,
        responses=topics,
    )
    try:
        bounded(records)
    except KafkaError as error:
        response.error_code, response.error_message, response.responses = error.code, error.message, []
        return [], response
    return records, response


def _reassign(controller: Controller, name: str, asked: Asked, may_resize: bool) -> MetadataRecord | None:
    topic = controller.image.topics.get(name)
    if topic is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if not 0 <= asked.partition_index < len(topic.partitions):
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{asked.partition_index}.")
    partition = topic.partitions[asked.partition_index]
    if asked.replicas is None:
        return cancel(controller, topic, partition)
    return reassign(controller, topic, partition, list(asked.replicas), may_resize=may_resize)


def _check_size(partition: Partition, replicas: list[int]) -> None:
    size = len(set(partition.replicas) - set(partition.removing))
    if size != len(replicas):
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {size} to {len(replicas)}",
        )


def reassign(
    controller: Controller, topic: Topic, partition: Partition, target: list[int], *, may_resize: bool = True
) -> MetadataRecord | None:
    """Return the record that begins a move, or completes it if there is nothing to wait for."""
    check_brokers(controller.image, target)
    if not may_resize:
        _check_size(partition, target)
    removing = sorted(set(partition.replicas) - set(target))
    adding = sorted(set(target) - set(partition.replicas))
    change = PartitionChange(controller, topic, partition, election=ONLINE)
    change.replicas = [*target, *removing]
    if removing:
        change.removing = removing
    if adding:
        change.adding = adding
    return change.record()


def cancel(controller: Controller, topic: Topic, partition: Partition) -> MetadataRecord | None:
    """Return the record that drops the new replicas of a move."""
    if not is_moving(partition):
        raise KafkaError(Error.NO_REASSIGNMENT_IN_PROGRESS)
    change = PartitionChange(controller, topic, partition)
    change.replicas = [broker for broker in partition.replicas if broker not in partition.adding]
    change.isr = [broker for broker in partition.isr if broker not in partition.adding]
    change.adding = change.removing = []
    if not change.isr:
        # Only new replicas are in sync: what the old ones have is not everything.
        if change.election != UNCLEAN:
            raise KafkaError(
                Error.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{partition.id} because it would require an "
                "unclean leader election.",
            )
        change.isr = change.replicas[:1]
    return change.record()


def is_moving(partition: Partition) -> bool:
    return bool(partition.adding or partition.removing)


def list_reassignments(
    controller: Controller, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """List the moves that go on, of all partitions or of those asked about."""
    found = controller.image.topics
    if request.topics is None:
        asked = [(topic, list(range(len(topic.partitions)))) for topic in found.values()]
    else:
        asked = [(found[topic.name], list(topic.partition_indexes)) for topic in request.topics if topic.name in found]
    topics = []
    for topic, numbers in asked:
        moving = [
            Ongoing(
                partition_index=number,
                replicas=partition.replicas,
                adding_replicas=partition.adding,
                removing_replicas=partition.removing,
            )
            for number in numbers
            if 0 <= number < len(topic.partitions) and is_moving(partition := topic.partitions[number])
        ]
        if moving:
            topics.append(OngoingTopic(name=topic.name, partitions=moving))
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=Error.NONE, error_message=None, topics=topics
    )
