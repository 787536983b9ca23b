"""Creates a delegation token: a short-lived name and password that stands for a user (KIP-48).

Sent by admin clients, which hand the token to workers that should not hold the user's own credentials. The workers log
in by SCRAM with token id and hmac. v2: flexible. v3: a user may create a token for somebody else (KIP-373).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bytes, Int16, Int32, Int64, String, since


class CreateDelegationTokenRequest(Request, api=38, versions="0-3", flexible="2+"):
    """Ask for a token for oneself or another user."""

    # usually User; empty or null: the token is for the user who asks
    owner_principal_type: String | None = since("3+", default="")
    # whom the token stands for; empty or null: the user who asks
    owner_principal_name: String | None = since("3+", default="")
    renewers: Array[CreatableRenewers]  # who, besides its owner, may extend the token's life
    # longest life including all renewals; -1: the broker's limit (delegation.token.max.lifetime.ms)
    max_lifetime_ms: Int64

    class CreatableRenewers(Struct):
        principal_type: String  # only User is accepted (else INVALID_PRINCIPAL_TYPE, 67)
        principal_name: String


class CreateDelegationTokenResponse(Response, api=38, versions="0-3", flexible="2+"):
    """The token and how long it lives."""

    error_code: Int16  # 61: the broker has no token secret; 64: not over a connection like this, such as PLAINTEXT
    principal_type: String  # of the owner, the user the token stands for
    principal_name: String  # the owner
    token_requester_principal_type: String = since("3+", default="")  # of the user who asked for the token
    # who asked for the token; may differ from the owner
    token_requester_principal_name: String = since("3+", default="")
    issue_timestamp_ms: Int64  # ms since 1970
    expiry_timestamp_ms: Int64  # ms since 1970; the token must be renewed before
    max_timestamp_ms: Int64  # ms since 1970; no renewal reaches beyond this
    token_id: String  # the user name for the SCRAM login
    hmac: Bytes  # secret part of the token; in base64 it is the password for the SCRAM login
    throttle_time_ms: Int32  # milliseconds a quota makes the client wait; 0: none
