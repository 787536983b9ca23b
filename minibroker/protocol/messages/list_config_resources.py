"""List the names of things that have configs of their own. Admin tools send it to any broker.

v0: only client metrics subscriptions (KIP-714), then called ListClientMetricsResources; v1: any type (KIP-1142).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, Array, Int8, Int16, Int32, String, since


class ListConfigResourcesRequest(Request, api=74, versions="0-1", flexible="0+"):
    """Say which types of resources to list."""

    # 2: topic, 4: broker, 8: broker logger, 16: client metrics, 32: group; empty: all of them
    resource_types: Array[Int8] = since("1+", default=EMPTY)


class ListConfigResourcesResponse(Response, api=74, versions="0-1", flexible="0+"):
    """List the resources."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    error_code: Int16  # 0: success
    config_resources: Array[ConfigResource]

    class ConfigResource(Struct):
        resource_name: String  # topic name, broker id, group id or subscription name, as the type has it
        # 2: topic, 4: broker, 8: broker logger, 16: client metrics, 32: group
        resource_type: Int8 = since("1+", default=16)
