"""Reads the settings of topics, brokers and other resources, with where each value comes from.

Sent by admin clients to any broker, except for settings of one broker, which only that broker knows.
v1: source and synonyms of each value (KIP-226). v3: type and documentation (KIP-569). v4: flexible.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, Array, Bool, Int8, Int16, Int32, String, since


class DescribeConfigsRequest(Request, api=32, versions="0-4", flexible="4+"):
    """Which resources, which settings, in how much detail."""

    resources: Array[DescribeConfigsResource]
    # true: also list the values that lost, see synonyms in the answer
    include_synonyms: Bool = since("1+", default=False)
    include_documentation: Bool = since("3+", default=False)  # true: also send the explanation of each setting

    class DescribeConfigsResource(Struct):
        resource_type: Int8  # 2: topic, 4: broker, 8: broker logger, 16: client metrics, 32: group
        resource_name: String  # topic name, or broker id as text; for a broker "" means the default of all brokers
        configuration_keys: Array[String] | None  # names of settings; null: all


class DescribeConfigsResponse(Response, api=32, versions="0-4", flexible="4+"):
    """The settings in force, resource by resource."""

    throttle_time_ms: Int32  # milliseconds a quota makes the client wait; 0: none
    results: Array[DescribeConfigsResult]

    class DescribeConfigsResult(Struct):
        error_code: Int16  # 3: no such topic, 42: bad resource, such as the id of another broker
        error_message: String | None  # null: no error, or nothing to add to the code
        resource_type: Int8  # as in the request: 2: topic, 4: broker, 8: broker logger, 16: client metrics, 32: group
        resource_name: String
        configs: Array[DescribeConfigsResourceResult]

        class DescribeConfigsResourceResult(Struct):
            name: String
            value: String | None  # always text, also for numbers; null: secret or not set
            read_only: Bool  # true: changes only with the configuration file and a restart
            # 1: topic, 2: this broker (dynamic), 3: all brokers (dynamic), 4: file of the broker, 5: default, 6:
            # logger, 7: client metrics, 8: group, 0 or -1: not known
            config_source: Int8 = since("1+", default=-1)
            # true: nobody has set it; later versions tell by config_source
            is_default: Bool = since("0", default=False)
            is_sensitive: Bool  # true: a password or the like, whose value the broker keeps to itself
            # every place that sets this value, strongest first; empty unless asked for
            synonyms: Array[DescribeConfigsSynonym] = since("1+", default=EMPTY)
            # 1: boolean, 2: string, 3: int, 4: short, 5: long, 6: double, 7: list, 8: class, 9: password, 0: unknown
            config_type: Int8 = since("3+", default=0)
            documentation: String | None = since("3+", default="")  # explanation for people; null unless asked for

            class DescribeConfigsSynonym(Struct):
                name: String  # may differ from the setting's, such as log.retention.ms behind a topic's retention.ms
                value: String | None  # null: secret or not set
                # 1: topic, 2: this broker (dynamic), 3: all brokers (dynamic), 4: file of the broker, 5: default, 6:
                # logger, 7: client metrics, 8: group
                source: Int8
