"""Carry the tokens of a SASL login (KIP-152).

Follows SaslHandshake v1; client and broker go back and forth until the mechanism is through. Sent again on the same
connection before the session ends. v1: session lifetime (KIP-368), v2: flexible.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.types import Bytes, Int16, Int64, String, since


class SaslAuthenticateRequest(Request, api=36, versions="0-2", flexible="2+"):
    """Carry the client's next token."""

    auth_bytes: Bytes  # as the mechanism defines it; for PLAIN: zero byte, user, zero byte, password


class SaslAuthenticateResponse(Response, api=36, versions="0-2", flexible="2+"):
    """Carry the broker's token; after a failure the broker closes the connection."""

    error_code: Int16  # 58: login failed, 34: not the time for it
    error_message: String | None  # for people to read; null: no error
    auth_bytes: Bytes  # as the mechanism defines it; may be empty
    # the client must log in again within it, or the broker hangs up; 0: no limit
    session_lifetime_ms: Int64 = since("1+", default=0)
