"""CreateTopics, DeleteTopics, CreatePartitions: each topic succeeds or fails for itself.

Partitions that are made or deleted count against the quota of the client, if somebody limits that (KIP-599).

Versions of DeleteTopics: 6 topics by their ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from minibroker.broker.broker_parts import PARTITION_RECORD, TOPIC_US, BrokerParts, topic_shares
from minibroker.broker.dispatch import NO_ID, Context, is_internal
from minibroker.controller.controller import RECORDS_MAX
from minibroker.errors import Error, KafkaError
from minibroker.metadata.metadata_log import Prepared
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from minibroker.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from minibroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from minibroker.stored.kinds import MetadataRecord
from minibroker.turns import Work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.in_pieces import InPieces
    from minibroker.quotas.controller_mutations import Mutations

    Plan: TypeAlias = tuple[tuple[object, ...], Prepared]  # what it rests on, and what is to be written

Created = CreateTopicsResponse.CreatableTopicResult
CreatedConfig = Created.CreatableTopicConfigs
Deleted = DeleteTopicsResponse.DeletableTopicResult
Extended = CreatePartitionsResponse.CreatePartitionsTopicResult

AT_ONCE_MAX = 100  # partitions whose records are made without a pause
WRITTEN_US = 2


def create_topics(request: CreateTopicsRequest, context: Context) -> Work[CreateTopicsResponse]:
    """Make topics, or only say whether they could be made; answer when their partitions are open."""
    node = context.node
    if _partition_count(request.topics, node.config["num.partitions"]) > RECORDS_MAX:
        code, message = Error.POLICY_VIOLATION, "Excessively large number of partitions per request."
        refused = {
            topic.name: Created(name=topic.name, error_code=code, error_message=message) for topic in request.topics
        }
        return CreateTopicsResponse(topics=list(refused.values()))
    names = Counter(topic.name for topic in request.topics)
    results: dict[str, Created] = {}
    quota = _quota(request, context)
    for share in topic_shares(request.topics):
        spent_us = 0
        plans = []
        for topic in share:
            result = results[topic.name] = Created(name=topic.name, error_code=Error.NONE, error_message=None)
            with _told(result):
                if names[topic.name] > 1:
                    raise KafkaError(Error.INVALID_REQUEST, "Duplicate topic name.")
                if request.validate_only:
                    yield from _try(topic, result, node, quota)
                else:
                    plans.append((topic, result, (yield from _plan(topic, node))))
            spent_us += TOPIC_US
        with node.together():
            for topic, result, plan in plans:
                with _told(result):
                    _create(topic, result, plan, node, quota)
                spent_us += WRITTEN_US * max(result.num_partitions, 0)
        yield spent_us
    waiting = node.opened(
        (result.name, range(result.num_partitions))
        for result in results.values()
        if result.error_code == Error.NONE and not request.validate_only
    )
    if waiting is not None:
        yield waiting
    return CreateTopicsResponse(throttle_time_ms=_throttle_ms(quota), topics=list(results.values()))


def _quota(request: Request, context: Context) -> Mutations | None:
    """Return what counts the partitions that a request makes or deletes; None: nobody limits them for this client."""
    if request.client is None:
        return None
    from minibroker.quotas.controller_mutations import STRICT_SINCE

    node = context.node
    quota = node.mutation_quota
    quota.follow(node.image)
    is_strict = context.api_version >= STRICT_SINCE[request.api]
    return quota.begin(*request.client, node.clock.elapsed_ms, is_strict=is_strict)


def _words(error: KafkaError) -> str | None:
    """Return what is said of an error; Kafka says nothing where it would be what the code says already."""
    return None if error.code == Error.THROTTLING_QUOTA_EXCEEDED else error.message


def _throttle_ms(quota: Mutations | None) -> int:
    return 0 if quota is None else quota.throttle_ms


def _partition_count(topics: list[CreateTopicsRequest.CreatableTopic], default: int) -> int:
    """Return how many partitions are wanted in all."""
    return sum(
        len(topic.assignments) or (default if topic.num_partitions == -1 else max(topic.num_partitions, 0))
        for topic in topics
    )


@contextmanager
def _told(result: Created) -> Iterator[None]:
    """Answer for one topic with the error that comes up."""
    try:
        yield
    except KafkaError as error:
        result.error_code = error.code
        result.error_message = _words(error)


def _wish(topic: CreateTopicsRequest.CreatableTopic, node: BrokerParts) -> dict[str, Any]:
    """Return what the controller is to be asked for, but for the name."""
    return {
        "partitions": topic.num_partitions,
        "replication_factor": topic.replication_factor,
        "assignments": [(each.partition_index, each.broker_ids) for each in topic.assignments],
        "configs": {config.name: config.value for config in topic.configs},
        "default_partitions": node.config["num.partitions"],
        "default_replication_factor": node.config["default.replication.factor"],
    }


def _try(
    topic: CreateTopicsRequest.CreatableTopic, result: Created, node: BrokerParts, quota: Mutations | None
) -> InPieces[None]:
    """Say what would become of a topic, and make nothing."""
    tried = yield from node.controller.try_topic(topic.name, **_wish(topic, node))
    if quota is not None:
        quota.take(tried[1])
    result.topic_id, result.num_partitions, result.replication_factor = tried
    result.configs = _configs({config.name: config.value or "" for config in topic.configs}, node)


def _plan(topic: CreateTopicsRequest.CreatableTopic, node: BrokerParts) -> InPieces[Plan | None]:
    """Return the records of a topic with many partitions, made while others are served; None: there are few."""
    if _partition_count([topic], node.config["num.partitions"]) <= AT_ONCE_MAX:
        return None
    return (
        yield from _planned(topic.name, node.controller.create_topic_in_pieces(topic.name, **_wish(topic, node)), node)
    )


def _planned(name: str, work: InPieces[list[MetadataRecord]], node: BrokerParts) -> InPieces[Plan]:
    facts = node.controller.facts(name)
    records = yield from work
    prepared = yield from node.metadata_log.prepare(records, now_ms=node.clock.now_ms())
    return facts, prepared


def _create(
    topic: CreateTopicsRequest.CreatableTopic,
    result: Created,
    plan: Plan | None,
    node: BrokerParts,
    quota: Mutations | None,
) -> None:
    """Write down that there is a topic; whether there can be is decided in the same turn of the loop."""
    overrides = {config.name: config.value for config in topic.configs}
    if plan is not None and plan[0] == node.controller.facts(topic.name):
        node.controller.check_new_topic(topic.name, overrides)
        records: Sequence[MetadataRecord] = plan[1]
    else:  # there are few partitions, or what has been decided does not hold any more
        records = node.controller.create_topic(topic.name, **_wish(topic, node))
    partitions = [record for record in records if record.type_number == PARTITION_RECORD]
    if quota is not None:
        quota.take(len(partitions))
    result.topic_id = records[0].topic_id  # type: ignore[attr-defined]
    node.change(records, at_once=False)
    result.num_partitions = len(partitions)
    result.replication_factor = len(partitions[0].replicas)  # type: ignore[attr-defined]
    result.configs = _configs({name: value or "" for name, value in overrides.items()}, node)


def _configs(overrides: dict[str, str], node: BrokerParts) -> list[CreatedConfig]:
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


def delete_topics(request: DeleteTopicsRequest, context: Context) -> Work[DeleteTopicsResponse]:
    """Delete topics by name, or by id."""
    node = context.node
    if context.api_version < 6:
        wanted: list[tuple[str | None, bytes]] = [(name, NO_ID) for name in request.topic_names]
    else:
        wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    if len(wanted) > RECORDS_MAX:
        return DeleteTopicsResponse(responses=[_too_many(name, topic_id) for name, topic_id in dict.fromkeys(wanted)])
    counts = Counter(wanted)
    found = {node.image.topics_by_id.get(topic_id) for _, topic_id in wanted if topic_id != NO_ID}
    twice = {topic.name: topic.id for topic in found if topic is not None and (topic.name, NO_ID) in counts}
    ids_of_twice = set(twice.values())
    wanted = [(name, topic_id) for name, topic_id in wanted if topic_id not in ids_of_twice]
    results: dict[tuple[str | None, bytes], Deleted] = {}
    quota = _quota(request, context)
    for share in topic_shares(wanted):
        with node.together():
            for name, topic_id in share:
                result = Deleted(name=name, topic_id=topic_id, error_code=Error.NONE, error_message=None)
                try:
                    _check_wanted(name, topic_id, counts[name, topic_id])
                    if name in twice:
                        result.topic_id = twice[name]
                        raise KafkaError(
                            Error.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied."
                        )
                    _delete(name, result, context, quota)
                except KafkaError as error:
                    result.error_code = error.code
                    result.error_message = _words(error)
                results[name, topic_id] = result
        yield TOPIC_US * len(share)
    return DeleteTopicsResponse(throttle_time_ms=_throttle_ms(quota), responses=list(results.values()))


def _too_many(name: str | None, topic_id: bytes) -> Deleted:
    code, message = Error.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
    return Deleted(name=name, topic_id=topic_id, error_code=code, error_message=message)


def _delete(name: str | None, result: Deleted, context: Context, quota: Mutations | None) -> None:
    node = context.node
    if not node.config["delete.topic.enable"]:
        raise KafkaError(Error.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    controller = node.controller
    topic = controller.get_topic(name) if name is not None else controller.get_topic_by_id(result.topic_id)
    result.topic_id = topic.id
    if context.api_version >= 6:
        result.name = topic.name
    records = controller.delete_topic(name=topic.name)
    if quota is not None:
        quota.take(len(topic.partitions))
    node.change(records, at_once=False)


def _check_wanted(name: str | None, topic_id: bytes, count: int) -> None:
    if name is None and topic_id == NO_ID:
        raise KafkaError(Error.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if name is not None and topic_id != NO_ID:
        raise KafkaError(Error.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if count > 1:
        what = "topic name" if name is not None else "topic id"
        raise KafkaError(Error.INVALID_REQUEST, f"Duplicate {what}.")


def create_partitions(request: CreatePartitionsRequest, context: Context) -> Work[CreatePartitionsResponse]:
    """Give topics more partitions, or only say whether they could have them; answer when they are open."""
    node = context.node
    if _added_count(request.topics, node) > RECORDS_MAX:
        code, message = Error.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        refused = {
            topic.name: Extended(name=topic.name, error_code=code, error_message=message) for topic in request.topics
        }
        return CreatePartitionsResponse(throttle_time_ms=0, results=list(refused.values()))
    names = Counter(topic.name for topic in request.topics)
    results: dict[str, Extended] = {}
    made = []
    quota = _quota(request, context)
    for topic in request.topics:
        result = Extended(name=topic.name, error_code=Error.NONE, error_message=None)
        count = 0
        try:
            if names[topic.name] > 1:
                raise KafkaError(Error.INVALID_REQUEST, "Duplicate topic name.")
            if is_internal(topic.name) and topic.name in node.image.topics:
                # Kafka: takes it, and from the next start of a broker on groups and transactional ids belong elsewhere,
                # where nothing is known of them.
                raise KafkaError(
                    Error.INVALID_PARTITIONS,
                    f"{topic.name} keeps its partitions: with more, its contents would belong to other coordinators.",
                )
            wish = topic.count, None if topic.assignments is None else [each.broker_ids for each in topic.assignments]
            if request.validate_only:
                yield from node.controller.try_partitions(topic.name, *wish)
                if quota is not None:
                    quota.take(topic.count - len(node.image.topics[topic.name].partitions))
            else:
                work = node.controller.create_partitions_in_pieces(topic.name, *wish)
                facts, prepared = yield from _planned(topic.name, work, node)
                records: Sequence[MetadataRecord] = prepared
                if facts != node.controller.facts(topic.name):  # decided again, in the turn in which it is written
                    records = node.controller.create_partitions(topic.name, *wish)
                if quota is not None:
                    quota.take(len(records))
                count = len(records)
                node.change(records, at_once=False)
                made.append((topic.name, range(topic.count - count, topic.count)))
        except KafkaError as error:
            result.error_code = error.code
            # Kafka has no words for a topic that is not there.
            result.error_message = None if error.code == Error.UNKNOWN_TOPIC_OR_PARTITION else _words(error)
        results[topic.name] = result
        yield TOPIC_US + WRITTEN_US * count
    waiting = node.opened(made)
    if waiting is not None:
        yield waiting
    return CreatePartitionsResponse(throttle_time_ms=_throttle_ms(quota), results=list(results.values()))


def _added_count(topics: list[CreatePartitionsRequest.CreatePartitionsTopic], node: BrokerParts) -> int:
    """Return how many partitions are wanted in all, beyond those that are there."""
    present = node.image.topics
    return sum(max(topic.count - len(present[topic.name].partitions), 0) for topic in topics if topic.name in present)
