"""Delegation tokens: everybody may have some of his own, and rules say whose others one may make and see (KIP-373)."""

from __future__ import annotations

from typing import Any

from minibroker.broker.authorize.access import ASKED_US, FAILED, changed
from minibroker.broker.handlers.delegation_tokens import may_ask
from minibroker.controller.delegation_tokens import owner_of, refusal
from minibroker.security.acls import CREATE_TOKENS, DELEGATION_TOKEN, DESCRIBE, DESCRIBE_TOKENS, USER
from minibroker.turns import Work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.authorize.access import Access
    from minibroker.broker.dispatch import Context, Handler
    from minibroker.in_pieces import InPieces
    from minibroker.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
    from minibroker.protocol.messages.describe_delegation_token import (
        DescribeDelegationTokenRequest,
        DescribeDelegationTokenResponse,
    )


def create(request: CreateDelegationTokenRequest, context: Context, handler: Handler, access: Access) -> Any:
    """Make a token for oneself, or for an owner whom one may make tokens for.

    Who may ask for none at all is told that by the handler.
    """
    requester = context.connection.principal
    owner = owner_of(request, requester)
    if owner == requester or not may_ask(context) or access.may(CREATE_TOKENS, USER, str(owner)):
        return handler(request, context)
    return refusal(request, requester, FAILED[USER])


def describe(request: DescribeDelegationTokenRequest, context: Context, handler: Handler, access: Access) -> Work[Any]:
    """Show the tokens of which one is owner, requester or renewer, and those of others that one may describe."""

    def only_visible(response: DescribeDelegationTokenResponse) -> InPieces[DescribeDelegationTokenResponse]:
        kept = []
        for token in response.tokens:
            owner = f"{token.principal_type}:{token.principal_name}"
            own = {owner, *(f"{each.principal_type}:{each.principal_name}" for each in token.renewers)}
            own.add(f"{token.token_requester_principal_type}:{token.token_requester_principal_name}")
            if (
                access.principal in own
                or access.could(DESCRIBE, DELEGATION_TOKEN, token.token_id)
                or access.could(DESCRIBE_TOKENS, USER, owner)
            ):
                kept.append(token)
            yield 3 * ASKED_US
        response.tokens = kept
        return response

    return changed(handler(request, context), only_visible)
