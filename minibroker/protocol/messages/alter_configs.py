"""Replaces the whole set of dynamic settings of topics, brokers and other resources.

Sent by admin clients to any broker, except for settings of one broker, which go to that broker. A setting that the
request leaves out falls back to its default, so two tools can undo each other's work: IncrementalAlterConfigs (KIP-339)
changes single settings and is what new clients use. v2: flexible.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bool, Int8, Int16, Int32, String


class AlterConfigsRequest(Request, api=33, versions="0-2", flexible="2+"):
    """Give each resource exactly these settings."""

    resources: Array[AlterConfigsResource]
    validate_only: Bool  # true: check and answer as usual, but change nothing

    class AlterConfigsResource(Struct):
        resource_type: Int8  # 2: topic, 4: broker, 8: broker logger, 16: client metrics, 32: group
        resource_name: String  # topic name, or broker id as text; for a broker "" means the default of all brokers
        configs: Array[AlterableConfig]  # the complete set; a setting that is not listed here goes back to its default

        class AlterableConfig(Struct):
            name: String  # such as retention.ms; the same name twice is an error
            value: String | None  # always text, also for numbers; null is refused with INVALID_REQUEST (42)


class AlterConfigsResponse(Response, api=33, versions="0-2", flexible="2+"):
    """One result per resource; resources succeed or fail independently."""

    throttle_time_ms: Int32  # milliseconds a quota makes the client wait; 0: none
    responses: Array[AlterConfigsResourceResponse]

    class AlterConfigsResourceResponse(Struct):
        error_code: Int16  # 40: unknown setting or bad value, 44: a policy of the broker says no
        error_message: String | None  # null: no error, or nothing to add to the code
        resource_type: Int8  # as in the request: 2: topic, 4: broker, 8: broker logger, 16: client metrics, 32: group
        resource_name: String
