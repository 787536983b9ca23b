"""Settings: those of a topic or group by it, those of brokers by the cluster."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from minibroker.broker.authorize.access import ASKED_US, FAILED, WORDS, answered, changed
from minibroker.broker.handlers.configs import BROKER_LOGGER, CLIENT_METRICS, TWICE
from minibroker.errors import Error
from minibroker.faults.answers import copy_with
from minibroker.metadata import image
from minibroker.protocol.messages.alter_configs import AlterConfigsResponse
from minibroker.protocol.messages.describe_configs import DescribeConfigsResponse
from minibroker.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from minibroker.security.acls import (
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_NAME,
    DESCRIBE_CONFIGS,
    GROUP,
    TOPIC,
)
from minibroker.turns import Work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.authorize.access import Access
    from minibroker.broker.dispatch import Context, Handler
    from minibroker.protocol.messages.alter_configs import AlterConfigsRequest
    from minibroker.protocol.messages.describe_configs import DescribeConfigsRequest
    from minibroker.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

INCREMENTAL: Final = 44
# Whose settings -> whom they belong to; a kind that is not here is for the handler to refuse.
OWNERS: Final = {
    image.TOPIC: TOPIC,
    image.GROUP: GROUP,
    image.BROKER: CLUSTER,
    BROKER_LOGGER: CLUSTER,
    CLIENT_METRICS: CLUSTER,
}


def _is_refused(kind: int, name: str, operation: int, access: Access) -> bool:
    owner = OWNERS.get(kind)
    return owner is not None and not access.may(operation, owner, CLUSTER_NAME if owner == CLUSTER else name)


def describe_configs(request: DescribeConfigsRequest, context: Context, handler: Handler, access: Access) -> Work[Any]:
    kept, refused = [], []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        if _is_refused(kind, name, DESCRIBE_CONFIGS, access):
            code = FAILED[OWNERS[kind]]
            refused.append(
                DescribeConfigsResponse.DescribeConfigsResult(
                    error_code=code,
                    error_message=WORDS[OWNERS[kind]],
                    resource_type=kind,
                    resource_name=name,
                    configs=[],
                )
            )
        else:
            kept.append(resource)
        yield ASKED_US

    def together(response: DescribeConfigsResponse) -> DescribeConfigsResponse:
        response.results = [*response.results, *refused]
        return response

    if not refused:
        return (yield from answered(handler(request, context)))
    return (yield from changed(handler(copy_with(request, "resources", kept), context), together))


def alter_configs(
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest, context: Context, handler: Handler, access: Access
) -> Work[Any]:
    """Alter what one may alter. What comes twice is told first."""
    Altered: Any = AlterConfigsResponse.AlterConfigsResourceResponse
    if request.api == INCREMENTAL:
        Altered = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    counts = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    kept, twice, refused = [], [], []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        if counts[kind, name] > 1:
            code, told = Error.INVALID_REQUEST, TWICE
            twice.append(Altered(error_code=code, error_message=told, resource_type=kind, resource_name=name))
        elif kind == BROKER_LOGGER and request.api != INCREMENTAL:
            kept.append(resource)  # which the handler refuses, whoever asks
        elif _is_refused(kind, name, ALTER_CONFIGS, access):
            code = FAILED[OWNERS[kind]]
            words: str | None = WORDS[OWNERS[kind]]
            if kind in (image.BROKER, BROKER_LOGGER) and not context.node.emulated.is_before_4:
                words = None
            refused.append(Altered(error_code=code, error_message=words, resource_type=kind, resource_name=name))
        else:
            kept.append(resource)
        yield ASKED_US

    def together(response: AlterConfigsResponse) -> AlterConfigsResponse:
        response.responses = [*twice, *refused, *response.responses]
        return response

    if not twice and not refused:
        return (yield from answered(handler(request, context)))
    return (yield from changed(handler(copy_with(request, "resources", kept), context), together))
