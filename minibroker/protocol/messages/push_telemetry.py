"""Send a client's own metrics to the cluster (KIP-714).

Clients repeat it at the interval that GetTelemetrySubscriptions gave them; the broker hands the data to a plugin.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.types import Bool, Bytes, Int8, Int16, Int32, Uuid


class PushTelemetryRequest(Request, api=72, versions="0", flexible="0+"):
    """Carry one lot of metrics."""

    client_instance_id: Uuid  # as given by GetTelemetrySubscriptions
    subscription_id: Int32  # as given by GetTelemetrySubscriptions; outdated: error 117, fetch the subscription again
    terminating: Bool  # true: the client closes, this is its last push and may come before the interval is over
    compression_type: Int8  # of metrics; 0: none, 1: gzip, 2: snappy, 3: lz4, 4: zstd
    metrics: Bytes  # OpenTelemetry MetricsData v1 in protobuf, then compressed


class PushTelemetryResponse(Response, api=72, versions="0", flexible="0+"):
    """Say whether the metrics were taken."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    # 117: subscription has changed, 118: too large, 76: codec not accepted, 89: too early, 87: refused by the plugin
    error_code: Int16
