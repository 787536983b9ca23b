"""Make a delegation token live longer (KIP-48). Its owner or one of its renewers sends it. v2: flexible."""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.types import Bytes, Int16, Int32, Int64


class RenewDelegationTokenRequest(Request, api=39, versions="0-2", flexible="2+"):
    """Name the token and the time wanted."""

    hmac: Bytes  # the token's secret, which identifies it
    # counted from now; at most the broker's delegation.token.expiry.time.ms, which 0 or less stand for
    renew_period_ms: Int64


class RenewDelegationTokenResponse(Response, api=39, versions="0-2", flexible="2+"):
    """Say until when the token is good."""

    error_code: Int16  # 62: no such token, 63: the caller may not renew it, 66: expired already
    expiry_timestamp_ms: Int64  # since 1970; never beyond the token's maximum
    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
