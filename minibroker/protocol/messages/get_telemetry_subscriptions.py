"""Ask which metrics a cluster wants from its clients, and how often (KIP-714).

Clients send it after connecting and whenever PushTelemetry says that the subscription has changed.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.types import Array, Bool, Int8, Int16, Int32, String, Uuid


class GetTelemetrySubscriptionsRequest(Request, api=71, versions="0", flexible="0+"):
    """Ask for the subscription of one client instance."""

    client_instance_id: Uuid  # all zero the first time: the broker makes one up


class GetTelemetrySubscriptionsResponse(Response, api=71, versions="0", flexible="0+"):
    """Say what to push, how often and in which form."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    error_code: Int16  # 0: success
    client_instance_id: Uuid  # made by the broker if the request had none; the client keeps it as long as it lives
    subscription_id: Int32  # changes with the subscription; goes into every PushTelemetry
    accepted_compression_types: Array[Int8]  # best first; 0: none, 1: gzip, 2: snappy, 3: lz4, 4: zstd
    push_interval_ms: Int32  # between two pushes; also how long to wait before asking again if there is nothing to push
    telemetry_max_bytes: Int32  # limit of one push
    delta_temporality: Bool  # true: counters since the last push, false: counters since the client began
    requested_metrics: Array[String]  # beginnings of metric names; empty list: none wanted, one empty string: all
