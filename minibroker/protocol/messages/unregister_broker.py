"""Take a broker out of a KRaft cluster for good (KIP-631). Admin tools send it; the controller acts.

The broker should be stopped: one that still runs simply registers again.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.types import Int16, Int32, String


class UnregisterBrokerRequest(Request, api=64, versions="0", flexible="0+"):
    """Name the broker to forget."""

    broker_id: Int32


class UnregisterBrokerResponse(Response, api=64, versions="0", flexible="0+"):
    """Say whether it is gone."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    error_code: Int16  # 102: no such broker registered
    error_message: String | None  # for people to read; null: no error
