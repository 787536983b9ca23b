"""Delegation tokens and passwords for SCRAM, as a broker answers that has only plaintext listeners.

Kafka answers the same where nobody has set them up; but it keeps passwords: see `alter_passwords`.

Versions of CreateDelegationToken: 3 who asks for another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from minibroker.broker.dispatch import Context
from minibroker.errors import Error, shortened
from minibroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from minibroker.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from minibroker.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

PRINCIPAL_TYPE, PRINCIPAL = "User", "ANONYMOUS"  # of whoever comes through a plaintext listener
MECHANISMS = (1, 2)  # SCRAM-SHA-256, SCRAM-SHA-512
ITERATIONS = (4096, 16384)  # least and most
REQUESTER_SINCE = 3

Described = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
Altered = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


def create_token(request: CreateDelegationTokenRequest, context: Context) -> CreateDelegationTokenResponse:
    response = CreateDelegationTokenResponse(
        error_code=Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type=PRINCIPAL_TYPE,
        principal_name=PRINCIPAL,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",
        hmac=b"",
        throttle_time_ms=0,
    )
    if context.api_version >= REQUESTER_SINCE:
        response.token_requester_principal_type = PRINCIPAL_TYPE
        response.token_requester_principal_name = PRINCIPAL
    return response


# Passwords for SCRAM


def describe_passwords(
    request: DescribeUserScramCredentialsRequest, context: Context
) -> DescribeUserScramCredentialsResponse:
    """Say that nobody has a password."""
    counts = Counter(user.name for user in request.users or ())
    results = []
    for name, count in counts.items():
        code, words = Error.RESOURCE_NOT_FOUND, f"Attempt to describe a user credential that does not exist: {name}"
        if count > 1:
            code = Error.DUPLICATE_RESOURCE
            words = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        results.append(Described(user=name, error_code=code, error_message=shortened(words), credential_infos=[]))
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0, error_code=Error.NONE, error_message="", results=results
    )


def alter_passwords(request: AlterUserScramCredentialsRequest, context: Context) -> AlterUserScramCredentialsResponse:
    """Refuse every password.

    Kafka: keeps them for listeners that may come. Here no listener asks for one, and nobody is to believe that it does.
    """
    reasons: dict[str, tuple[Error, str]] = {}
    for gone in request.deletions:
        words = "Attempt to delete a user credential that does not exist"
        reasons[gone.name] = _fault(gone.name, gone.mechanism) or (Error.RESOURCE_NOT_FOUND, words)
    for new in request.upsertions:
        words = "no listener of this broker asks for a password"
        low, high = ITERATIONS
        if not low <= new.iterations <= high and new.mechanism in MECHANISMS:
            bounds = f"Too {'few' if new.iterations < low else 'many'} iterations"
            reasons[new.name] = _fault(new.name, new.mechanism) or (Error.UNACCEPTABLE_CREDENTIAL, bounds)
        else:
            reasons[new.name] = _fault(new.name, new.mechanism) or (Error.UNSUPPORTED_SASL_MECHANISM, words)
    pairs = [(gone.name, gone.mechanism) for gone in request.deletions]
    pairs += [(new.name, new.mechanism) for new in request.upsertions]
    for name, _ in _twice(pairs):
        words = "A user credential cannot be altered twice in the same request"
        reasons[name] = Error.DUPLICATE_RESOURCE, words
    results = [Altered(user=name, error_code=code, error_message=words) for name, (code, words) in reasons.items()]
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)


def _fault(name: str, mechanism: int) -> tuple[Error, str] | None:
    if not name:
        return Error.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if mechanism not in MECHANISMS:
        return Error.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    return None


def _twice(pairs: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    seen: set[tuple[str, int]] = set()
    return [pair for pair in pairs if pair in seen or seen.add(pair)]  # type: ignore[func-returns-value]
