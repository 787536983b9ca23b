"""The metadata quorum of one controller, feature levels, and who is registered: DescribeQuorum, UpdateFeatures,
UnregisterBroker, UnregisterController, AddRaftVoter, RemoveRaftVoter.

In a cluster the controller answers all of them. Its voters are itself, and it has no listener that could be named.

Versions of DescribeQuorum: 1 when each was last heard of, 2 listeners of the voters.
Versions of UpdateFeatures: 1 kinds of a change, 2 one error for all.
"""

from __future__ import annotations

from minibroker.broker.dispatch import Context
from minibroker.errors import Error, KafkaError, shortened
from minibroker.metadata.bootstrap import METADATA_TOPIC
from minibroker.metadata.features import SERVED
from minibroker.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from minibroker.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse, ReplicaState
from minibroker.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from minibroker.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from minibroker.protocol.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)
from minibroker.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from minibroker.stored.kinds import MetadataRecord

Update = tuple[str, int, int]  # name, level, type


Updated = UpdateFeaturesResponse.UpdatableFeatureResult
Topic = DescribeQuorumResponse.TopicData
Partition = Topic.PartitionData
UPGRADE, SAFE_DOWNGRADE = 1, 2
KINDS_SINCE = 1  # of updates
NODES_SINCE, TIMES_SINCE = 2, 1
ONE_ERROR_SINCE = 2


def describe_quorum(request: DescribeQuorumRequest, context: Context) -> DescribeQuorumResponse:
    """Describe the one partition that a quorum keeps; any other question gets no answer but that."""
    asked = [(topic.topic_name, each.partition_index) for topic in request.topics for each in topic.partitions]
    if not asked:
        return DescribeQuorumResponse(error_code=Error.NONE, topics=[])
    is_metadata = asked == [(METADATA_TOPIC, 0)]
    topics = [
        Topic(
            topic_name=topic.topic_name,
            partitions=[
                _metadata_partition(context) if is_metadata else _unknown(each.partition_index)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    own = DescribeQuorumResponse.Node(node_id=context.node.node_id, listeners=[])
    return DescribeQuorumResponse(error_code=Error.NONE, topics=topics, nodes=[own] if is_metadata else [])


def _unknown(index: int) -> Partition:
    return Partition(
        partition_index=index,
        error_code=Error.UNKNOWN_TOPIC_OR_PARTITION,
        error_message="This server does not host this topic-partition.",
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )


def _metadata_partition(context: Context) -> Partition:
    node, now_ms = context.node, context.now_ms
    log = node.metadata_log
    return Partition(
        partition_index=0,
        error_code=Error.NONE,
        leader_id=node.node_id,
        leader_epoch=log.epoch,
        high_watermark=log.log_end_offset,
        current_voters=[
            ReplicaState(
                replica_id=node.node_id,
                log_end_offset=log.log_end_offset,
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            )
        ],
        observers=[
            ReplicaState(replica_id=broker_id, log_end_offset=end_offset)
            for broker_id, end_offset in node.metadata_observers()
        ],
    )


def update_features(request: UpdateFeaturesRequest, context: Context) -> UpdateFeaturesResponse:
    """Finalize levels, all of them or none; Kafka 3 judges each by itself."""
    node = context.node
    updates = [(each.feature, each.max_version_level, _kind_of(each, context)) for each in request.feature_updates]
    if node.emulated.is_before_4:
        return _update_each(updates, request.validate_only, context)
    try:
        records = _records_of(updates, context)
    except KafkaError as error:
        words = "The update failed for all features since the following feature had an error:"
        return UpdateFeaturesResponse(
            throttle_time_ms=0, error_code=error.code, error_message=f"{words} {error.message}", results=[]
        )
    if records and not request.validate_only:
        node.change(records)
    results = []
    if context.api_version < ONE_ERROR_SINCE:
        results = [Updated(feature=name, error_code=Error.NONE, error_message="NONE") for name, _, _ in updates]
    return UpdateFeaturesResponse(throttle_time_ms=0, error_code=Error.NONE, error_message=None, results=results)


def _update_each(updates: list[Update], is_trial: bool, context: Context) -> UpdateFeaturesResponse:
    results: dict[str, UpdateFeaturesResponse.UpdatableFeatureResult] = {}
    records: list[MetadataRecord] = []
    for update in updates:
        result = results[update[0]] = Updated(feature=update[0], error_code=Error.NONE, error_message=None)
        try:
            records += _records_of([update], context)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
    if records and not is_trial:
        context.node.change(records)
    return UpdateFeaturesResponse(
        throttle_time_ms=0, error_code=Error.NONE, error_message="", results=[*results.values()]
    )


def _records_of(updates: list[Update], context: Context) -> list[MetadataRecord]:
    for name, level, _ in updates:
        if name not in SERVED:
            words = f"Invalid update version {level} for feature {name}. Local controller {context.node.node_id} does"
            raise KafkaError(Error.INVALID_UPDATE_VERSION, f"{words} not support this feature.")
    image = context.node.image
    changes = {record.name: record for record in context.node.controller.update_features(updates)}  # type: ignore[attr-defined]
    # What is so already need not be written down, however often it is asked for.
    levels = dict.fromkeys(image.features_set_to_0, 0) | image.features
    return [record for name, record in changes.items() if record.feature_level != levels.get(name)]  # type: ignore[attr-defined]


def _kind_of(update: UpdateFeaturesRequest.FeatureUpdateKey, context: Context) -> int:
    if context.api_version >= KINDS_SINCE:
        return update.upgrade_type
    return SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE


def unregister_broker(request: UnregisterBrokerRequest, context: Context) -> UnregisterBrokerResponse:
    """Forget a broker."""
    code, words = Error.NONE, "" if context.node.emulated.is_before_4 else None
    try:
        records: list[MetadataRecord] = context.node.unregister(request.broker_id)
        context.node.change(records)
    except KafkaError as error:
        code, words = error.code, "" if context.node.emulated.is_before_4 else error.message
    return UnregisterBrokerResponse(throttle_time_ms=0, error_code=code, error_message=words)


def unregister_controller(request: UnregisterControllerRequest, context: Context) -> UnregisterControllerResponse:
    """Refuse to forget a controller: the only one there is answers."""
    return UnregisterControllerResponse(
        throttle_time_ms=0,
        error_code=Error.CONTROLLER_ID_NOT_REGISTERED,
        error_message=f"Controller ID {request.controller_id} is not currently registered.",
    )


def add_raft_voter(request: AddRaftVoterRequest, context: Context) -> AddRaftVoterResponse:
    code, words = _why_no_voters(request.cluster_id, "adding", context)
    return AddRaftVoterResponse(throttle_time_ms=0, error_code=code, error_message=words)


def remove_raft_voter(request: RemoveRaftVoterRequest, context: Context) -> RemoveRaftVoterResponse:
    code, words = _why_no_voters(request.cluster_id, "removing", context)
    return RemoveRaftVoterResponse(throttle_time_ms=0, error_code=code, error_message=words)


def _why_no_voters(cluster_id: str | None, doing: str, context: Context) -> tuple[Error, str]:
    """Return why voters stay as they are; a quorum with kraft.version 0 answers just so."""
    if cluster_id is not None and cluster_id != context.node.cluster_id:
        words = f'The given id "{cluster_id}" doesn\'t match the cluster id "{context.node.cluster_id}"'
        return Error.INCONSISTENT_CLUSTER_ID, shortened(words)
    words = f"Cluster doesn't support {doing} voter because the kraft.version feature is 0"
    return Error.UNSUPPORTED_VERSION, words
