"""Settings of topics, brokers and groups: to describe them, to alter them, and what has some of its own.

Versions of ListConfigResources: 1 kinds other than client metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from minibroker.broker.broker_parts import BrokerParts
from minibroker.broker.dispatch import Context
from minibroker.config.alter import (
    alter_broker,
    alter_group,
    alter_topic,
    replace_broker,
    replace_group,
    replace_topic,
)
from minibroker.config.describe import ConfigEntry, broker_entries, default_entries, group_entries, topic_entries
from minibroker.config.resources import GroupConfig
from minibroker.controller.controller import check_name
from minibroker.errors import Error, KafkaError
from minibroker.metadata.image import BROKER, GROUP, TOPIC
from minibroker.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from minibroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from minibroker.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from minibroker.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from minibroker.turns import Work

Plan = Callable[[Mapping[str, str]], dict[str, str]]  # what is stored now -> what is to be stored


Described = DescribeConfigsResponse.DescribeConfigsResult
DescribedConfig = Described.DescribeConfigsResourceResult
Synonym = DescribedConfig.DescribeConfigsSynonym
Altered = AlterConfigsResponse.AlterConfigsResourceResponse
IncrementallyAltered = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse

BROKER_LOGGER, CLIENT_METRICS = 8, 16
KINDS_SINCE = 1  # of ListConfigResources; before it is about client metrics only
RESOURCE_US, SETTING_US, ALTERED_US = 10, 10, 20


def describe_configs(request: DescribeConfigsRequest, context: Context) -> Work[DescribeConfigsResponse]:
    """Tell values, where they come from and what they mean."""
    results = []
    made: dict[tuple[int, str, tuple[str, ...] | None], list[DescribedConfig]] = {}  # who asks twice gets the same
    for resource in request.resources:
        keys = None if resource.configuration_keys is None else tuple(resource.configuration_keys)
        answer = Described(
            error_code=Error.NONE,
            error_message="",
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[],
        )
        place = (resource.resource_type, resource.resource_name, keys)
        spent_us = RESOURCE_US
        try:
            if place not in made:
                entries = _entries(*place[:2], resource.configuration_keys, context.node)
                made[place] = [_described(entry, request, context.api_version) for entry in entries]
                spent_us += SETTING_US * len(made[place])
            answer.configs = made[place]
        except KafkaError as error:
            answer.error_code = error.code
            # Kafka has no words for a topic that is not there.
            answer.error_message = "" if error.code == Error.UNKNOWN_TOPIC_OR_PARTITION else error.message
        results.append(answer)
        yield spent_us
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


def _entries(kind: int, name: str, names: list[str] | None, node: BrokerParts) -> list[ConfigEntry]:
    if kind == TOPIC:
        check_name(name)
        if name not in node.image.topics:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, "")
        return topic_entries(node.topic_config(name), names)
    if kind == BROKER:
        if not name:
            return default_entries(node.config, names)
        _check_broker(name, node)
        return broker_entries(node.config, names)
    if kind == GROUP:
        return group_entries(GroupConfig(node.image.configs.get((GROUP, name), {}), node.config), names)
    if kind == BROKER_LOGGER:
        _check_broker(name, node)
        return []
    raise KafkaError(Error.INVALID_REQUEST, f"Unsupported resource type: {kind}")


def _check_broker(name: str, node: BrokerParts) -> None:
    if not name.isdigit():
        raise KafkaError(Error.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if not node.owns_configs_of(int(name)):
        raise KafkaError(
            Error.INVALID_REQUEST,
            f"Unexpected broker id, expected {node.node_id} or empty string, but received {name}",
        )


def _described(entry: ConfigEntry, request: DescribeConfigsRequest, version: int) -> DescribedConfig:
    answer = DescribedConfig(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        config_type=entry.type_code,
        documentation=entry.doc if request.include_documentation else None,
    )
    if request.include_synonyms:
        answer.synonyms = [Synonym(name=name, value=value, source=source) for name, value, source in entry.synonyms]
    return answer


def alter_configs(request: AlterConfigsRequest, context: Context) -> Work[AlterConfigsResponse]:
    """Replace all settings of each resource."""
    responses = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        plan = _replacing(kind, name, [(config.name, config.value) for config in resource.configs], context.node)
        code, message = _alter(kind, name, context.node, request.validate_only, plan)
        responses.append(Altered(error_code=code, error_message=message, resource_type=kind, resource_name=name))
        yield RESOURCE_US + ALTERED_US * len(resource.configs)
    return AlterConfigsResponse(throttle_time_ms=0, responses=responses)


def _replacing(kind: int, name: str, configs: list[tuple[str, str | None]], node: BrokerParts) -> Plan:
    def plan(current: Mapping[str, str]) -> dict[str, str]:
        if kind == TOPIC:
            return replace_topic(configs, node.config)
        if kind == GROUP:
            return replace_group(configs, node.config)
        return replace_broker(configs, node.config, every=not name)

    return plan


def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: Context
) -> Work[IncrementalAlterConfigsResponse]:
    """Change single settings of each resource."""
    responses = []
    counts = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        code: Error = Error.INVALID_REQUEST
        message: str | None = "Each resource must appear at most once."
        if counts[kind, name] == 1:
            operations = [(config.name, config.config_operation, config.value) for config in resource.configs]
            plan = _changing(kind, name, operations, context.node)
            code, message = _alter(kind, name, context.node, request.validate_only, plan)
        responses.append(
            IncrementallyAltered(error_code=code, error_message=message, resource_type=kind, resource_name=name)
        )
        yield RESOURCE_US + ALTERED_US * len(resource.configs)
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)


def _changing(kind: int, name: str, operations: list[tuple[str, int, str | None]], node: BrokerParts) -> Plan:
    def plan(current: Mapping[str, str]) -> dict[str, str]:
        if kind == TOPIC:
            return alter_topic(current, operations, node.config)
        if kind == GROUP:
            return alter_group(current, operations, node.config)
        return alter_broker(current, operations, node.config, every=not name)

    return plan


def _alter(kind: int, name: str, node: BrokerParts, is_trial: bool, plan: Plan) -> tuple[Error, str | None]:
    """Carry out a plan for one resource; return what to answer."""
    try:
        if kind == BROKER_LOGGER:
            raise KafkaError(Error.INVALID_REQUEST, "there are no loggers whose levels could be set")
        if kind not in (TOPIC, BROKER, GROUP):
            raise KafkaError(Error.INVALID_REQUEST, f"Unsupported resource type: {kind}")
        if kind == BROKER and name:
            _check_broker(name, node)
        if kind == TOPIC:
            if not name:
                raise KafkaError(Error.INVALID_REQUEST, "Default topic resources are not allowed.")
            check_name(name)
            node.controller.get_topic(name)
        current = node.image.configs.get((kind, name), {})
        wanted = plan(current)
        changes: dict[str, str | None] = {key: value for key, value in wanted.items() if current.get(key) != value}
        changes.update({key: None for key in current if key not in wanted})
        records = node.controller.alter_configs(kind, name, changes)
        if records and not is_trial:
            node.change(records)
    except KafkaError as error:
        return error.code, None if error.code == Error.UNKNOWN_SERVER_ERROR else error.message
    return Error.NONE, None


def list_config_resources(request: ListConfigResourcesRequest, context: Context) -> ListConfigResourcesResponse:
    """List what has settings of its own, or could have."""
    node = context.node
    kinds = list(request.resource_types) if context.api_version >= KINDS_SINCE else [CLIENT_METRICS]
    brokers = [str(broker_id) for broker_id, *_ in node.brokers_for(context.connection)]
    names: dict[int, list[str]] = {
        GROUP: [name for kind, name in node.image.configs if kind == GROUP],
        CLIENT_METRICS: [],
        BROKER_LOGGER: brokers,
        BROKER: brokers,
        TOPIC: list(node.image.topics),
    }
    if not names.keys() >= set(kinds):
        return ListConfigResourcesResponse(
            throttle_time_ms=0, error_code=Error.UNSUPPORTED_VERSION, config_resources=[]
        )
    Resource = ListConfigResourcesResponse.ConfigResource
    found = [
        Resource(resource_name=name, resource_type=kind)
        for kind in names
        if not kinds or kind in kinds
        for name in names[kind]
    ]
    return ListConfigResourcesResponse(throttle_time_ms=0, error_code=Error.NONE, config_resources=found)
