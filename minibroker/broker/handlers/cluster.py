"""What there is: DescribeCluster, DescribeLogDirs, AlterReplicaLogDirs, DescribeProducers."""

from __future__ import annotations

from minibroker.broker.dispatch import NO_ID, Context, find_replica
from minibroker.broker.handlers.metadata import ALL_CLUSTER_OPERATIONS, NOT_ASKED
from minibroker.controller.controller import check_name
from minibroker.errors import Error, KafkaError
from minibroker.log.producers import Producer
from minibroker.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from minibroker.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from minibroker.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from minibroker.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from minibroker.turns import Work

Broker = DescribeClusterResponse.DescribeClusterBroker
LogDir = DescribeLogDirsResponse.DescribeLogDirsResult
LogDirTopic = LogDir.DescribeLogDirsTopic
LogDirPartition = LogDirTopic.DescribeLogDirsPartition
ProducersTopic = DescribeProducersResponse.TopicResponse
ProducersPartition = ProducersTopic.PartitionResponse
ProducerState = ProducersPartition.ProducerState

BROKERS, CONTROLLERS = 1, 2
DESCRIBED_US, PRODUCER_US = 5, 5
PRODUCERS_PIECE = 100  # producers


def describe_cluster(request: DescribeClusterRequest, context: Context) -> DescribeClusterResponse:
    """List the brokers."""
    node = context.node
    if request.endpoint_type != BROKERS:
        is_known = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=Error.MISMATCHED_ENDPOINT_TYPE if is_known else Error.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=(
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
                if is_known
                else f"Unsupported endpoint type {request.endpoint_type}"
            ),
            cluster_id="",
            brokers=[],
        )
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=Error.NONE,
        cluster_id=node.cluster_id,
        controller_id=node.node_id,
        brokers=[
            Broker(broker_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in node.brokers_for(context.connection)
        ],
        cluster_authorized_operations=(
            ALL_CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def describe_log_dirs(request: DescribeLogDirsRequest, context: Context) -> Work[DescribeLogDirsResponse]:
    """Say how large the logs are, and the disk."""
    node = context.node
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, partition) for topic in request.topics for partition in topic.partitions}
    topics: dict[str, list[LogDirPartition]] = {}
    for key, replica in list(node.replicas.items()):
        yield 1
        if wanted is None or key in wanted:
            answer = LogDirPartition(
                partition_index=replica.partition,
                partition_size=replica.log.size_bytes,
                offset_lag=max(replica.high_watermark - replica.log.log_end_offset, 0),
                is_future_key=False,
            )
            topics.setdefault(replica.topic, []).append(answer)
    total_bytes, usable_bytes = node.storage.disk_space()
    only = LogDir(
        error_code=Error.NONE,
        log_dir=node.log_dir,
        topics=[LogDirTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )
    return DescribeLogDirsResponse(throttle_time_ms=0, results=[only])


def alter_replica_log_dirs(request: AlterReplicaLogDirsRequest, context: Context) -> AlterReplicaLogDirsResponse:
    """Move replicas into the only directory, where they are already; there is no other."""
    node = context.node
    results: dict[str, dict[int, Error]] = {}
    for wanted in request.dirs:
        for topic in wanted.topics:
            answers = results.setdefault(topic.name, {})
            for index in topic.partitions:
                if wanted.path != node.log_dir:
                    answers[index] = Error.LOG_DIR_NOT_FOUND
                elif (topic.name, index) in node.replicas:
                    answers[index] = Error.NONE
                else:
                    answers[index] = Error.REPLICA_NOT_AVAILABLE
    Topic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
    return AlterReplicaLogDirsResponse(
        throttle_time_ms=0,
        results=[
            Topic(
                topic_name=name,
                partitions=[
                    Topic.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index, code in answers.items()
                ],
            )
            for name, answers in results.items()
        ],
    )


def describe_producers(request: DescribeProducersRequest, context: Context) -> Work[DescribeProducersResponse]:
    """Tell what each replica knows of its producers; followers do so, too: tools may ask broker by broker."""
    topics = []
    made: dict[tuple[str, int], ProducersPartition] = {}  # who asks twice gets the same
    for topic in request.topics:
        answers = []
        for partition in topic.partition_indexes:
            same = made.get((topic.name, partition))
            if same is not None:
                answers.append(same)
                continue
            answer = made[topic.name, partition] = ProducersPartition(
                partition_index=partition, error_code=Error.NONE, active_producers=[]
            )
            try:
                check_name(topic.name)
                replica = find_replica(context.node, topic.name, NO_ID, partition)
                known = replica.log.producers.producers
                ids = list(known)
                for start in range(0, len(ids), PRODUCERS_PIECE):
                    piece = ids[start : start + PRODUCERS_PIECE]
                    answer.active_producers += [_producer(each, known[each]) for each in piece if each in known]
                    yield PRODUCER_US * len(piece)
            except KafkaError as error:
                answer.error_code = error.code
                # Kafka has no words for a partition that a topic does not have.
                if error.code != Error.UNKNOWN_TOPIC_OR_PARTITION or topic.name not in context.node.image.topics:
                    answer.error_message = error.message
            answers.append(answer)
            yield DESCRIBED_US
        topics.append(ProducersTopic(name=topic.name, partitions=answers))
    return DescribeProducersResponse(throttle_time_ms=0, topics=topics)


def _producer(producer_id: int, producer: Producer) -> ProducerState:
    first_offset = producer.transaction_first_offset
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=-1 if first_offset is None else first_offset,
    )
