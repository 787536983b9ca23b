"""Settings of topics, brokers and groups: to describe them, to alter them, and what has some of its own.

Versions of ListConfigResources: 1 kinds other than client metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

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
from minibroker.config.tables import INSTANCE_PREFIX
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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.dispatch import Handler

Plan = Callable[[Mapping[str, str]], dict[str, str]]  # what is stored now -> what is to be stored


Described = DescribeConfigsResponse.DescribeConfigsResult
DescribedConfig = Described.DescribeConfigsResourceResult
Synonym = DescribedConfig.DescribeConfigsSynonym
Altered = AlterConfigsResponse.AlterConfigsResourceResponse
IncrementallyAltered = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse

BROKER_LOGGER, CLIENT_METRICS = 8, 16
MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)
TWICE = "Each resource must appear at most once."
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
        if not name:
            raise KafkaError(Error.INVALID_REQUEST, "Group name must not be empty")
        return group_entries(GroupConfig(node.image.configs.get((GROUP, name), {}), node.config), names)
    if kind == BROKER_LOGGER:
        if not name:
            raise KafkaError(Error.INVALID_REQUEST, "Broker id must not be empty")
        _check_broker(name, node)
        return []
    raise KafkaError(Error.INVALID_REQUEST, MALFORMED)


def _unknown(kind: int) -> str:
    return f"Unknown resource type {kind}"


def _check_broker(name: str, node: BrokerParts, called: str = "Broker") -> None:
    """Refuse what is no broker here; where something is altered Kafka calls it a node."""
    if not name.isdigit():
        raise KafkaError(Error.INVALID_REQUEST, f"{called} id must be an integer, but it is: {name}")
    if not node.owns_configs_of(int(name)):
        expected = f"{node.node_id} or empty string" if called == "Broker" else str(node.node_id)
        raise KafkaError(Error.INVALID_REQUEST, f"Unexpected broker id, expected {expected}, but received {name}")


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
    """Replace all settings of each resource.

    Kafka: gives no answer to who names one twice.
    """
    responses = []
    counts = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        code: Error = Error.INVALID_REQUEST
        message: str | None = TWICE
        if kind == BROKER_LOGGER:
            message = _unknown(kind)
        elif counts[kind, name] == 1:
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
        message: str | None = TWICE
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
            _check_broker(name, node, "Node")
            raise KafkaError(Error.INVALID_REQUEST, "there are no loggers whose levels could be set")
        if kind not in (TOPIC, BROKER, GROUP):
            raise KafkaError(Error.INVALID_REQUEST, _unknown(kind))
        if kind == BROKER and name:
            _check_broker(name, node, "Node")
        if kind == GROUP and not name:
            raise KafkaError(Error.INVALID_REQUEST, "Default group resources are not allowed.")
        if kind == TOPIC:
            if not name:
                raise KafkaError(Error.INVALID_REQUEST, "Default topic resources are not allowed.")
            check_name(name)
            if name not in node.image.topics:
                raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        current = node.image.configs.get((kind, name), {})
        wanted = plan(current)
        if kind == BROKER and name:
            node.check_settings(wanted)
        changes: dict[str, str | None] = {key: value for key, value in wanted.items() if current.get(key) != value}
        changes.update({key: None for key in current if key not in wanted})
        for key in (key for key, value in changes.items() if value is not None and key.startswith(INSTANCE_PREFIX)):
            from minibroker.instances.settings import why_in_vain  # as long as somebody has instances

            if words := why_in_vain(key, node.config):
                raise KafkaError(Error.INVALID_REQUEST, f"{key}: {words}")
        records = node.controller.alter_configs(kind, name, changes)
        if records and not is_trial:
            node.change(records)
    except KafkaError as error:
        return error.code, None if error.code == Error.UNKNOWN_SERVER_ERROR else error.message
    return Error.NONE, None


def guard_own_settings(api: int, version: int, handler: Handler) -> Handler:
    """Have a broker of a cluster refuse settings of its own that it cannot take, before the controller alters them.

    It stands right before what asks the controller: who may alter anything is asked before.
    """
    if api not in (AlterConfigsRequest.api, IncrementalAlterConfigsRequest.api):
        return handler

    async def guarded(request: Any, context: Context) -> Any:
        refused = {}
        for resource in request.resources:
            key = (resource.resource_type, resource.resource_name)
            if key == (BROKER, str(context.node.node_id)):
                error = _own_error(request, resource, context.node)
                if error is not None:
                    refused[key] = error
        if not refused:
            return await handler(request, context)  # type: ignore[misc]
        request.resources = [
            each for each in request.resources if (each.resource_type, each.resource_name) not in refused
        ]
        answer: Any = await handler(request, context)  # type: ignore[misc]
        Row = Altered if api == AlterConfigsRequest.api else IncrementallyAltered
        answer.responses += [
            Row(error_code=error.code, error_message=error.message, resource_type=kind, resource_name=name)
            for (kind, name), error in refused.items()
        ]
        return answer

    return guarded


def _own_error(request: Any, resource: Any, node: BrokerParts) -> KafkaError | None:
    """Return why this broker cannot have its settings altered so. What is wrong with them anywhere is not looked at."""
    kind, name = resource.resource_type, resource.resource_name
    if isinstance(request, AlterConfigsRequest):
        plan = _replacing(kind, name, [(config.name, config.value) for config in resource.configs], node)
    else:
        operations = [(config.name, config.config_operation, config.value) for config in resource.configs]
        plan = _changing(kind, name, operations, node)
    try:
        wanted = plan(node.image.configs.get((kind, name), {}))
    except KafkaError:
        return None
    try:
        node.check_settings(wanted)
    except KafkaError as error:
        return error
    return None


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
