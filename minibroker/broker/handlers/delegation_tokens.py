"""Delegation tokens (KIP-48): made, renewed and ended by the controller, told by every broker.

What must hold: only who has logged in, and not with a token, is given or told one: a token would beget tokens.

Versions of CreateDelegationToken and DescribeDelegationToken: 3 who asked for it for another.
"""

from __future__ import annotations

from typing import Any

from minibroker.broker.dispatch import Context
from minibroker.controller.delegation_tokens import refusal
from minibroker.errors import Error, ProtocolError
from minibroker.protocol.headers import Request, Response
from minibroker.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from minibroker.protocol.messages.envelope import EnvelopeResponse
from minibroker.security.principal import ANONYMOUS, Principal, parse_principal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.dispatch import Eventually

Described = DescribeDelegationTokenResponse.DescribedDelegationToken


def change_tokens(request: Request, context: Context) -> Eventually:
    """Make, renew or end a token."""
    requester = context.connection.principal
    if not may_ask(context):
        return refusal(request, requester, Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    node = context.node
    if node.replication is not None:
        return _forward(request, context)
    records, response = node.tokens.decide(request, requester, context.now_ms)
    if records:
        node.change(records)
    return response


async def _forward(request: Request, context: Context) -> Response:
    """Have the controller decide, and tell it who asks."""
    from minibroker.protocol.registry import response_class
    from minibroker.replication.network import NetworkError
    from minibroker.security.envelopes import seal

    envelope = seal(request, context.api_version, context.connection.principal)
    try:
        answer: EnvelopeResponse = await context.node.forward(envelope, 0)  # type: ignore[assignment]
    except NetworkError as failure:
        raise ProtocolError(f"no answer from the controller: {failure}") from failure
    return response_class(request.api).decode(bytes(answer.response_data or b""), context.api_version)


def describe_tokens(request: DescribeDelegationTokenRequest, context: Context) -> DescribeDelegationTokenResponse:
    """List tokens with their hmacs: all, or those of some owners, renewers and requesters; an empty list is none."""
    hmacs = context.node.token_secrets
    code, found = Error.NONE, []
    if not may_ask(context):
        code = Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    elif hmacs is None:
        code = Error.DELEGATION_TOKEN_AUTH_DISABLED
    else:
        wanted = None
        if request.owners is not None:
            wanted = {str(Principal(each.principal_type, each.principal_name)) for each in request.owners}
        for token in context.node.image.delegation_tokens.values():
            if wanted is None or not wanted.isdisjoint((token.owner, token.requester, *token.renewers)):
                found.append(_described(token, hmacs.hmac_of(token.token_id)))
    return DescribeDelegationTokenResponse(error_code=code, tokens=found, throttle_time_ms=0)


def may_ask(context: Context) -> bool:
    """Whether a client may ask for tokens at all: who it is has to be known, and not by a token."""
    connection = context.connection
    protocol = context.node.protocol_of(connection)
    is_anonymous = protocol == "PLAINTEXT" or (protocol == "SSL" and connection.principal == ANONYMOUS)
    return not is_anonymous and (connection.session is None or not connection.session.is_token)


def _described(token: Any, hmac: bytes) -> Described:
    owner, requester = parse_principal(token.owner), parse_principal(token.requester)
    return Described(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=hmac,
        renewers=[
            Described.DescribedDelegationTokenRenewer(principal_type=each.type, principal_name=each.name)
            for each in map(parse_principal, token.renewers)
        ],
    )
