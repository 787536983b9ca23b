"""Set or delete the SCRAM passwords of users (KIP-554). Admin tools send it to the controller, through any broker."""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bytes, Int8, Int16, Int32, String


class AlterUserScramCredentialsRequest(Request, api=51, versions="0", flexible="0+", elements_max=10_000):
    """Name the credentials to remove and those to write; the password itself never travels."""

    deletions: Array[ScramCredentialDeletion]
    upsertions: Array[ScramCredentialUpsertion]  # written anew, or over the one the user has for the same mechanism

    class ScramCredentialDeletion(Struct):
        name: String  # user
        mechanism: Int8  # 0: unknown, 1: SCRAM-SHA-256, 2: SCRAM-SHA-512

    class ScramCredentialUpsertion(Struct):
        name: String  # user
        mechanism: Int8  # 0: unknown, 1: SCRAM-SHA-256, 2: SCRAM-SHA-512
        iterations: Int32  # rounds of hashing: 4096 to 16384
        salt: Bytes  # random bytes that the client made
        salted_password: Bytes  # the password hashed with salt and iterations, SaltedPassword of RFC 5802


class AlterUserScramCredentialsResponse(Response, api=51, versions="0", flexible="0+"):
    """Give one result for each user named."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    results: Array[AlterUserScramCredentialsResult]

    class AlterUserScramCredentialsResult(Struct):
        user: String
        # 91: nothing to delete, 92: named twice, 93: empty name or iterations not allowed, 33: unknown mechanism
        error_code: Int16
        error_message: String | None  # for people to read; null: no error
