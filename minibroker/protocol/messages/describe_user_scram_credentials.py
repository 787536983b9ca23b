"""List which users have SCRAM passwords, never the passwords (KIP-554). Admin tools send it to any broker."""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int8, Int16, Int32, String


class DescribeUserScramCredentialsRequest(Request, api=50, versions="0", flexible="0+"):
    """Name the users to look up."""

    users: Array[UserName] | None  # null or empty: all

    class UserName(Struct):
        name: String


class DescribeUserScramCredentialsResponse(Response, api=50, versions="0", flexible="0+"):
    """Give for each user the mechanisms that are set up."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    error_code: Int16  # of the request as a whole
    error_message: String | None  # for people to read; null: no error
    results: Array[DescribeUserScramCredentialsResult]

    class DescribeUserScramCredentialsResult(Struct):
        user: String
        error_code: Int16  # 91: this user has none, 92: named twice in the request
        error_message: String | None  # for people to read; null: no error
        credential_infos: Array[CredentialInfo]

        class CredentialInfo(Struct):
            mechanism: Int8  # 0: unknown, 1: SCRAM-SHA-256, 2: SCRAM-SHA-512
            iterations: Int32  # rounds of hashing that a login takes
