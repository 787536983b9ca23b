"""Changes single dynamic settings of topics, brokers and other resources (KIP-339).

Sent by admin clients to any broker, except for settings of one broker, which go to that broker. What the request does
not name stays as it is, unlike with AlterConfigs. v1: flexible.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bool, Int8, Int16, Int32, String


class IncrementalAlterConfigsRequest(Request, api=44, versions="0-1", flexible="1+"):
    """Set, delete, append or subtract values."""

    resources: Array[AlterConfigsResource]
    validate_only: Bool  # true: check and answer as usual, but change nothing

    class AlterConfigsResource(Struct):
        resource_type: Int8  # 2: topic, 4: broker, 8: broker logger, 16: client metrics, 32: group
        resource_name: String  # topic name, or broker id as text; for a broker "" means the default of all brokers
        configs: Array[AlterableConfig]

        class AlterableConfig(Struct):
            name: String  # such as retention.ms; the same name twice is an error
            # 0: set, 1: delete (back to the default), 2: append, 3: subtract; 2 and 3 for lists only
            config_operation: Int8
            value: String | None  # always text, list items separated by commas; null only with delete


class IncrementalAlterConfigsResponse(Response, api=44, versions="0-1", flexible="1+"):
    """One result per resource; the changes of one resource happen together or not at all."""

    throttle_time_ms: Int32  # milliseconds a quota makes the client wait; 0: none
    responses: Array[AlterConfigsResourceResponse]

    class AlterConfigsResourceResponse(Struct):
        error_code: Int16  # 40: unknown setting or bad value, 42: same name twice, 44: a policy of the broker says no
        error_message: String | None  # null: no error, or nothing to add to the code
        resource_type: Int8  # as in the request: 2: topic, 4: broker, 8: broker logger, 16: client metrics, 32: group
        resource_name: String
