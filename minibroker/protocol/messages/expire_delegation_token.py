"""Set when a delegation token ends, or end it now (KIP-48). Its owner or one of its renewers sends it. v2: flexible."""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.types import Bytes, Int16, Int32, Int64


class ExpireDelegationTokenRequest(Request, api=40, versions="0-2", flexible="2+"):
    """Name the token and the time it has left."""

    hmac: Bytes  # the token's secret, which identifies it
    expiry_time_period_ms: Int64  # counted from now; below 0: the token is removed at once


class ExpireDelegationTokenResponse(Response, api=40, versions="0-2", flexible="2+"):
    """Say when the token ends."""

    error_code: Int16  # 62: no such token, 63: the caller may not change it, 66: expired already
    expiry_timestamp_ms: Int64  # since 1970; never beyond the token's maximum
    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
