"""Access rules, logins, tokens and passwords, as a broker answers that has no authorizer and only plaintext listeners.

Kafka answers the same where none of them is set up. Passwords for SCRAM are the exception: see `alter_passwords`.
"""

from __future__ import annotations

from collections import Counter

from minibroker.errors import Error, shortened
from minibroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from minibroker.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from minibroker.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from minibroker.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from minibroker.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from minibroker.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from minibroker.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from minibroker.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from minibroker.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from minibroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from minibroker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from minibroker.broker.dispatch import Context

NO_AUTHORIZER = "No Authorizer is configured."
PRINCIPAL_TYPE, PRINCIPAL = "User", "ANONYMOUS"  # of whoever comes through a plaintext listener
MECHANISMS = (1, 2)  # SCRAM-SHA-256, SCRAM-SHA-512
ITERATIONS = (4096, 16384)  # least and most
REQUESTER_SINCE = 3

Described = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
Altered = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


# Access rules


def describe_acls(request: DescribeAclsRequest, context: Context) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        throttle_time_ms=0,
        error_code=Error.SECURITY_DISABLED,
        error_message="No Authorizer is configured on the broker",
        resources=[],
    )


def create_acls(request: CreateAclsRequest, context: Context) -> CreateAclsResponse:
    refused = CreateAclsResponse.AclCreationResult(error_code=Error.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(throttle_time_ms=0, results=[refused] * len(request.creations))


def delete_acls(request: DeleteAclsRequest, context: Context) -> DeleteAclsResponse:
    refused = DeleteAclsResponse.DeleteAclsFilterResult(
        error_code=Error.SECURITY_DISABLED, error_message=NO_AUTHORIZER, matching_acls=[]
    )
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=[refused] * len(request.filters))


# Logins


def sasl_handshake(request: SaslHandshakeRequest, context: Context) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=Error.ILLEGAL_SASL_STATE, mechanisms=[])


def sasl_authenticate(request: SaslAuthenticateRequest, context: Context) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=Error.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )


# Delegation tokens: nobody may ask for one through a plaintext listener


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


def renew_token(request: RenewDelegationTokenRequest, context: Context) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(
        error_code=Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1, throttle_time_ms=0
    )


def expire_token(request: ExpireDelegationTokenRequest, context: Context) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(
        error_code=Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1, throttle_time_ms=0
    )


def describe_tokens(request: DescribeDelegationTokenRequest, context: Context) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(
        error_code=Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, tokens=[], throttle_time_ms=0
    )


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
