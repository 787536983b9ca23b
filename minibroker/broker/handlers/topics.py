"""CreateTopics, DeleteTopics, CreatePartitions: each topic succeeds or fails for itself."""

from __future__ import annotations

from collections import Counter

from minibroker.broker.handlers.context import NO_ID
from minibroker.errors import Error, KafkaError
from minibroker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from minibroker.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from minibroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.handlers.context import Context
    from minibroker.broker.node import Node

Created = CreateTopicsResponse.CreatableTopicResult
CreatedConfig = Created.CreatableTopicConfigs
Deleted = DeleteTopicsResponse.DeletableTopicResult
Extended = CreatePartitionsResponse.CreatePartitionsTopicResult


def create_topics(request: CreateTopicsRequest, context: Context) -> CreateTopicsResponse:
    """Make topics, or only say whether they could be made."""
    names = Counter(topic.name for topic in request.topics)
    results: dict[str, Created] = {}
    with context.node.together():
        for topic in request.topics:
            result = Created(name=topic.name, error_code=Error.NONE, error_message=None)
            try:
                if names[topic.name] > 1:
                    raise KafkaError(Error.INVALID_REQUEST, "Duplicate topic name.")
                _create(topic, result, request.validate_only, context.node)
            except KafkaError as error:
                result.error_code = error.code
                result.error_message = error.message
            results[topic.name] = result
    return CreateTopicsResponse(topics=list(results.values()))


def _create(topic: CreateTopicsRequest.CreatableTopic, result: Created, is_trial: bool, node: Node) -> None:
    records = node.controller.create_topic(
        topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(each.partition_index, each.broker_ids) for each in topic.assignments],
        configs={config.name: config.value for config in topic.configs},
        default_partitions=node.config["num.partitions"],
        default_replication_factor=node.config["default.replication.factor"],
    )
    partitions = [record for record in records if record.type_number == 3]
    result.topic_id = records[0].topic_id  # type: ignore[attr-defined]
    if not is_trial:
        node.change(records)
    result.num_partitions = len(partitions)
    result.replication_factor = len(partitions[0].replicas)  # type: ignore[attr-defined]
    overrides = {config.name: config.value or "" for config in topic.configs}
    result.configs = _configs(overrides, node)


def _configs(overrides: dict[str, str], node: Node) -> list[CreatedConfig]:
    from minibroker.config import TopicConfig
    from minibroker.config.describe import topic_entries

    return [
        CreatedConfig(
            name=entry.name,
            value=entry.value,
            read_only=entry.is_read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in topic_entries(TopicConfig(overrides, node.config))
    ]


def delete_topics(request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    """Delete topics by name, or by id."""
    node = context.node
    if context.api_version < 6:
        wanted: list[tuple[str | None, bytes]] = [(name, NO_ID) for name in request.topic_names]
    else:
        wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    counts = Counter(wanted)
    ids = {topic_id for _, topic_id in wanted if topic_id != NO_ID}
    twice = {
        topic.id: topic.name
        for topic in node.image.topics.values()
        if topic.id in ids and (topic.name, NO_ID) in counts
    }
    wanted = [(name, topic_id) for name, topic_id in wanted if topic_id not in twice]
    results: dict[tuple[str | None, bytes], Deleted] = {}
    for name, topic_id in wanted:
        result = Deleted(name=name, topic_id=topic_id, error_code=Error.NONE, error_message=None)
        try:
            _check_wanted(name, topic_id, counts[name, topic_id])
            if name in twice.values():
                result.topic_id = node.controller.get_topic(name or "").id
                raise KafkaError(
                    Error.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied."
                )
            if not node.config["delete.topic.enable"]:
                raise KafkaError(Error.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
            topic = node.controller.get_topic(name) if name is not None else node.controller.get_topic_by_id(topic_id)
            result.topic_id = topic.id
            if context.api_version >= 6:
                result.name = topic.name
            node.change(node.controller.delete_topic(name=topic.name))
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = error.message
        results[name, topic_id] = result
    return DeleteTopicsResponse(responses=list(results.values()))


def _check_wanted(name: str | None, topic_id: bytes, count: int) -> None:
    if name is None and topic_id == NO_ID:
        raise KafkaError(Error.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if name is not None and topic_id != NO_ID:
        raise KafkaError(Error.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if count > 1:
        what = "topic name" if name is not None else "topic id"
        raise KafkaError(Error.INVALID_REQUEST, f"Duplicate {what}.")


def create_partitions(request: CreatePartitionsRequest, context: Context) -> CreatePartitionsResponse:
    """Give topics more partitions, or only say whether they could have them."""
    node = context.node
    names = Counter(topic.name for topic in request.topics)
    results: dict[str, Extended] = {}
    for topic in request.topics:
        result = Extended(name=topic.name, error_code=Error.NONE, error_message=None)
        try:
            if names[topic.name] > 1:
                raise KafkaError(Error.INVALID_REQUEST, "Duplicate topic name.")
            assignments = None if topic.assignments is None else [each.broker_ids for each in topic.assignments]
            records = node.controller.create_partitions(topic.name, topic.count, assignments)
            if not request.validate_only:
                node.change(records)
        except KafkaError as error:
            result.error_code = error.code
            # Kafka has no words for a topic that is not there.
            result.error_message = None if error.code == Error.UNKNOWN_TOPIC_OR_PARTITION else error.message
        results[topic.name] = result
    return CreatePartitionsResponse(throttle_time_ms=0, results=list(results.values()))
