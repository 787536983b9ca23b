"""AlterPartition: a leader tells who is in sync, and the controller takes it or not (KIP-497).

The proposal carries the leader epoch and the partition epoch that it starts from. Both must be the ones in force: it
is a compare-and-set, so of two proposals that start from the same state one is refused, and a leader that was replaced
without knowing it changes nothing. That is the rule on which the whole replication stands: a leader may not count a
follower out, and so acknowledge without it, before the controller has written that the follower cannot be elected.

A replica may join only if its broker is registered, not fenced, does not stop, and is in the life in which the leader
saw it catch up (its broker epoch, from v3 on; -1 is not compared).
"""

from __future__ import annotations

from copy import copy

from minibroker.controller.controller import Controller
from minibroker.controller.partition_change import RECOVERED, RECOVERING, PartitionChange
from minibroker.controller.placement import is_active
from minibroker.errors import Error, KafkaError
from minibroker.metadata.image import NO_LEADER_CHANGE, Partition, Topic
from minibroker.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from minibroker.stored.kinds import MetadataRecord

TopicAsked = AlterPartitionRequest.TopicData
Asked = TopicAsked.PartitionData
TopicAnswer = AlterPartitionResponse.TopicData
Answer = TopicAnswer.PartitionData

NEWEST = 3
TOPIC_IDS = 2  # from this version on; so are the two errors that older leaders do not know
REPLICA_EPOCHS = 3


def alter_partition(
    controller: Controller, request: AlterPartitionRequest, version: int = NEWEST
) -> tuple[list[MetadataRecord], AlterPartitionResponse]:
    """Return the records that put proposals into force, and for each what is in force then, or why it was refused."""
    try:
        controller.check_broker_epoch(request.broker_id, request.broker_epoch)
    except KafkaError as error:
        return [], AlterPartitionResponse(throttle_time_ms=0, error_code=error.code, topics=[])
    records: list[MetadataRecord] = []
    topics = []
    for asked in request.topics:
        answers = [_alter(controller, request.broker_id, asked, each, version, records) for each in asked.partitions]
        topics.append(TopicAnswer(topic_id=asked.topic_id, topic_name=asked.topic_name, partitions=answers))
    return records, AlterPartitionResponse(throttle_time_ms=0, error_code=Error.NONE, topics=topics)


def _alter(
    controller: Controller, broker_id: int, names: TopicAsked, asked: Asked, version: int, records: list[MetadataRecord]
) -> Answer:
    try:
        topic = _find_topic(controller, names, version)
        partition = _find_partition(topic, asked)
        isr = _check(controller, broker_id, partition, asked, version)
        change = PartitionChange(controller, topic, partition)
        change.isr = isr
        change.recovery_state = asked.leader_recovery_state
        change.why = asked.why or f"broker {broker_id}, which leads, says so"
        record = change.record()
        if record is not None:
            records.append(record)
            partition = copy(partition)
            partition.change(record)
            leader = record.leader  # type: ignore[attr-defined]
            if leader not in (broker_id, NO_LEADER_CHANGE):
                # What was proposed completes a reassignment that drops the leader itself: it is done, and an error.
                raise KafkaError(Error.NEW_LEADER_ELECTED if version >= TOPIC_IDS else Error.FENCED_LEADER_EPOCH)
    except KafkaError as error:
        return Answer(
            partition_index=asked.partition_index,
            error_code=error.code,
            leader_id=0,
            leader_epoch=0,
            isr=[],
            partition_epoch=0,
        )
    return Answer(
        partition_index=partition.id,
        error_code=Error.NONE,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def _find_topic(controller: Controller, names: TopicAsked, version: int) -> Topic:
    if version >= TOPIC_IDS:
        return controller.get_topic_by_id(bytes(names.topic_id))
    return controller.get_topic(names.topic_name)


def _find_partition(topic: Topic, asked: Asked) -> Partition:
    if not 0 <= asked.partition_index < len(topic.partitions):
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
    return topic.partitions[asked.partition_index]


def _check(controller: Controller, broker_id: int, partition: Partition, asked: Asked, version: int) -> list[int]:
    """Return the proposed ISR if it may come into force."""
    if asked.leader_epoch > partition.leader_epoch or asked.partition_epoch > partition.partition_epoch:
        raise KafkaError(Error.NOT_CONTROLLER, "the leader has seen a later controller than this one")
    if asked.leader_epoch < partition.leader_epoch:
        raise KafkaError(Error.FENCED_LEADER_EPOCH, f"the leader epoch is {partition.leader_epoch}")
    if broker_id != partition.leader:
        raise KafkaError(Error.INVALID_REQUEST, f"broker {partition.leader} leads")
    if asked.partition_epoch < partition.partition_epoch:
        raise KafkaError(Error.INVALID_UPDATE_VERSION, f"the partition epoch is {partition.partition_epoch}")
    if version >= REPLICA_EPOCHS:
        epochs = [(each.broker_id, each.broker_epoch) for each in asked.new_isr_with_epochs]
    else:
        epochs = [(broker, -1) for broker in asked.new_isr]
    isr = [broker for broker, _ in epochs]
    if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas):
        raise KafkaError(Error.INVALID_REQUEST, f"an ISR of {isr} is not possible")
    if partition.leader not in isr:
        raise KafkaError(Error.INVALID_REQUEST, "the leader is always in sync with itself")
    _check_recovery(partition, asked, isr)
    if not all(_is_eligible(controller, *each) for each in epochs):
        raise KafkaError(Error.INELIGIBLE_REPLICA if version >= TOPIC_IDS else Error.OPERATION_NOT_ATTEMPTED)
    return isr


def _check_recovery(partition: Partition, asked: Asked, isr: list[int]) -> None:
    state = asked.leader_recovery_state
    # Kafka: fails with UNKNOWN_SERVER_ERROR for a state that there is not.
    if state not in (RECOVERED, RECOVERING):
        raise KafkaError(Error.INVALID_REQUEST, f"there is no leader recovery state {state}")
    if state == RECOVERING and len(isr) > 1:
        raise KafkaError(Error.INVALID_REQUEST, "nobody is in sync with a leader that still recovers")
    if state == RECOVERING and partition.leader_recovery_state == RECOVERED:
        raise KafkaError(Error.INVALID_REQUEST, "a leader that has recovered does not recover again")


def _is_eligible(controller: Controller, broker_id: int, broker_epoch: int) -> bool:
    if not is_active(controller.image, broker_id):
        return False
    return broker_epoch in (-1, controller.image.brokers[broker_id].broker_epoch)
