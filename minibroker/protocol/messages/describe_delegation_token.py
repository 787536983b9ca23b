"""List delegation tokens (KIP-48), short-lived secrets that stand in for a user's own login.

Clients that logged in with a real identity, not with a token, send it to any broker. v3: who requested it (KIP-373).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bytes, Int16, Int32, Int64, String, since


class DescribeDelegationTokenRequest(Request, api=41, versions="0-3", flexible="2+"):
    """Say whose tokens to list."""

    owners: Array[DescribeDelegationTokenOwner] | None  # null: every token that the caller may see

    class DescribeDelegationTokenOwner(Struct):
        principal_type: String  # User
        principal_name: String


class DescribeDelegationTokenResponse(Response, api=41, versions="0-3", flexible="2+"):
    """List the tokens with their secrets."""

    error_code: Int16  # 61: the cluster has tokens switched off, 64: not over this kind of connection
    tokens: Array[DescribedDelegationToken]
    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all

    class DescribedDelegationToken(Struct):
        principal_type: String
        principal_name: String  # the owner, in whose name the bearer acts
        token_requester_principal_type: String = since("3+", default="")
        # who created it, perhaps on behalf of the owner
        token_requester_principal_name: String = since("3+", default="")
        issue_timestamp: Int64  # milliseconds since 1970
        expiry_timestamp: Int64  # milliseconds since 1970; a renewal moves it
        max_timestamp: Int64  # milliseconds since 1970; no renewal goes beyond it
        token_id: String  # used as the user name in a SCRAM login
        hmac: Bytes  # the secret; in base64 it is the password in a SCRAM login
        renewers: Array[DescribedDelegationTokenRenewer]  # who may renew it besides the owner

        class DescribedDelegationTokenRenewer(Struct):
            principal_type: String
            principal_name: String
