"""Topics by HTTP: to list, show, create and delete them, and to write records.

Deciding is left to CreateTopics, DeleteTopics, DescribeConfigs and Produce; what they refuse is told in their words.
"""

from __future__ import annotations

from typing import Any

from minibroker.broker.http_asking import (
    Query,
    access_of,
    asked,
    check,
    check_fields,
    check_topic,
    field,
    source_of,
    topic_named,
)
from minibroker.errors import Error, KafkaError
from minibroker.event_kinds import is_internal
from minibroker.log.checkpoints import format_id
from minibroker.metadata.image import TOPIC as TOPIC_CONFIG
from minibroker.protocol.messages.create_topics import CreateTopicsRequest
from minibroker.protocol.messages.delete_topics import DeleteTopicsRequest
from minibroker.protocol.messages.describe_configs import DescribeConfigsRequest
from minibroker.schema.types import NO_ID
from minibroker.security.acls import DESCRIBE, TOPIC
from minibroker.view.rows import cell_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from typing import Final

    from minibroker.broker.broker_parts import BrokerParts
    from minibroker.broker.http_calls import Call
    from minibroker.broker.view_source import NodesSource
    from minibroker.metadata.image import Partition, Topic

CREATE_VERSION: Final = 7
DELETE_VERSION: Final = 6
DESCRIBE_VERSION: Final = 4
TOPICS_MAX: Final = 1000  # of a list, and of partitions that are shown
TOPICS_USUAL: Final = 200
LOOK_US: Final = 2
TOPIC_US: Final = 40
PARTITION_US: Final = 20
SOURCES: Final = {1: "topic", 2: "broker", 3: "all brokers", 4: "file", 5: "default"}  # of a setting


def list_topics(node: BrokerParts, call: Call) -> Any:
    """Return topics that one may describe, by their names."""
    query = Query(call, "contains", "internal", "after", "limit")
    return node.shares.run(
        _listed(
            node,
            call,
            query.text("contains"),
            query.text("after"),
            query.number("limit", TOPICS_USUAL, least=1, most=TOPICS_MAX),
            with_internal=query.truth("internal"),
        )
    )


def _listed(
    node: BrokerParts, call: Call, contains: str, after: str, limit: int, *, with_internal: bool
) -> Generator[int, None, dict[str, Any]]:
    source, left_out, rows = source_of(node), 0, list[dict[str, Any]]()
    access = None if node.authorizer is None else access_of(node, call)
    for name in sorted(source.image.topics):
        topic = source.image.topics.get(name)
        yield LOOK_US
        if topic is None or name <= after or contains not in name or (is_internal(name) and not with_internal):
            continue
        if access is not None and not access.could(DESCRIBE, TOPIC, name):
            continue
        if len(rows) == limit:
            left_out += 1
            continue
        row = yield from _topic_row(source, topic)
        rows.append(row)
    return {"topics": rows, "left_out": left_out}


def _topic_row(source: NodesSource, topic: Topic) -> Generator[int, None, dict[str, Any]]:
    """Return what is told of a topic; the sums are those of the leaders that run."""
    min_in_sync, cells = source.min_in_sync(topic.name), dict[str, int]()
    count = size_bytes = 0
    yield TOPIC_US
    for partition in topic.partitions:
        cell = cell_of(partition, min_in_sync)
        cells[cell] = cells.get(cell, 0) + 1
        (replica,) = source.replicas(topic.name, partition.id, (partition.leader,))
        if replica is not None:
            count += replica.high_watermark - replica.log.log_start_offset
            size_bytes += replica.log.size_bytes
        yield PARTITION_US // 4
    return {
        "name": topic.name,
        "id": format_id(topic.id),
        "partitions": len(topic.partitions),
        "replicas": len(topic.partitions[0].replicas) if topic.partitions else 0,
        "is_internal": is_internal(topic.name),
        "cells": cells,
        "offsets": count,
        "size_bytes": size_bytes,
        "config": dict(source.image.configs.get((TOPIC_CONFIG, topic.name), {})),
    }


async def show_topic(node: BrokerParts, call: Call) -> Any:
    """Return a topic with its partitions and all settings that hold for it."""
    Query(call)
    topic = check_topic(node, call)
    found: dict[str, Any] = await node.shares.run(_shown(source_of(node), topic))
    Resource = DescribeConfigsRequest.DescribeConfigsResource
    resource = Resource(resource_type=TOPIC_CONFIG, resource_name=topic.name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_documentation=True)
    (settings,) = (await asked(node, call, request, DESCRIBE_VERSION)).results
    if settings.error_code == Error.NONE:
        return found | {"settings": [_setting(each) for each in settings.configs]}
    error = KafkaError(Error(settings.error_code), settings.error_message or "")
    return found | {"settings": None, "why_no_settings": error.message}


def _setting(config: Any) -> dict[str, Any]:
    return {
        "name": config.name,
        "value": "***" if config.is_sensitive else config.value,
        "from": SOURCES.get(config.config_source, "?"),
        "doc": config.documentation,
    }


def _shown(source: NodesSource, topic: Topic) -> Generator[int, None, dict[str, Any]]:
    found = yield from _topic_row(source, topic)
    rows = []
    for partition in topic.partitions[:TOPICS_MAX]:
        rows.append(_partition_row(source, topic, partition))
        yield PARTITION_US
    return found | {"partition_rows": rows, "left_out": max(len(topic.partitions) - TOPICS_MAX, 0)}


def _partition_row(source: NodesSource, topic: Topic, partition: Partition) -> dict[str, Any]:
    row: dict[str, Any] = {
        "partition": partition.id,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "elr": list(partition.elr),
    }
    (replica,) = source.replicas(topic.name, partition.id, (partition.leader,))
    if replica is not None:
        log = replica.log
        row |= {
            "start_offset": log.log_start_offset,
            "last_stable_offset": log.last_stable_offset(replica.high_watermark),
            "high_watermark": replica.high_watermark,
            "end_offset": log.log_end_offset,
            "size_bytes": log.size_bytes,
            "segments": len(log.segments),
        }
    return row


async def create_topic(node: BrokerParts, call: Call) -> Any:
    """Make a topic, or say whether it could be made."""
    body = call.body
    check_fields(body, ("name", "partitions", "replicas", "config", "validate_only"))
    Topic = CreateTopicsRequest.CreatableTopic
    topic = Topic(
        name=field(body, "name", str, "the name of a topic", ""),
        num_partitions=_small(body, "partitions", 1 << 31),
        replication_factor=_small(body, "replicas", 1 << 15),
        assignments=[],
        configs=[
            Topic.CreatableTopicConfig(name=name, value=_text(value))
            for name, value in field(body, "config", dict, 'an object such as {"retention.ms": 1000}', {}).items()
        ],
    )
    validate_only = field(body, "validate_only", bool, "true or false", False)
    request = CreateTopicsRequest(topics=[topic], validate_only=validate_only)
    (made,) = (await asked(node, call, request, CREATE_VERSION)).topics
    check(made.error_code, made.error_message)
    return {
        "name": made.name,
        "id": format_id(bytes(made.topic_id)),
        "partitions": made.num_partitions,
        "replicas": made.replication_factor,
        "config": {each.name: each.value for each in topic.configs},
        "validate_only": validate_only,
    }


def _small(body: Mapping[str, Any], name: str, limit: int) -> int:
    """Return a number as it travels; what is too large for that is too large for any broker, too."""
    number: int = field(body, name, int, "a number, -1 for the broker's default", -1)
    return max(min(number, limit - 1), -limit)


def _text(value: Any) -> str | None:
    """Return the value of a setting as Kafka writes it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


async def delete_topic(node: BrokerParts, call: Call) -> Any:
    Query(call)
    name = call.arguments[0]
    request = DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=NO_ID)], timeout_ms=30_000
    )
    (gone,) = (await asked(node, call, request, DELETE_VERSION)).responses
    if gone.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION:
        topic_named(node, name)  # says so in more words
    check(gone.error_code, gone.error_message)
    return {"name": name, "id": format_id(bytes(gone.topic_id))}
