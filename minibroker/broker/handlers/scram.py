"""Passwords for SCRAM (KIP-554): which there are, told by every broker; altered by the controller."""

from __future__ import annotations

from collections import Counter

from minibroker.broker.dispatch import Context
from minibroker.controller.scram import alter_credentials
from minibroker.errors import Error, shortened
from minibroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from minibroker.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

Described = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


def describe_passwords(
    request: DescribeUserScramCredentialsRequest, context: Context
) -> DescribeUserScramCredentialsResponse:
    """Say for which mechanisms users have a password; all of them, if none is named."""
    infos: dict[str, list[Described.CredentialInfo]] = {}
    for (name, mechanism), credential in sorted(context.node.image.scram.items()):
        info = Described.CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
        infos.setdefault(name, []).append(info)
    counts = Counter(user.name for user in request.users) if request.users else dict.fromkeys(infos, 1)
    results = []
    for name, count in counts.items():
        code, words = Error.NONE, None
        if count > 1:
            code = Error.DUPLICATE_RESOURCE
            words = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        elif name not in infos:
            code = Error.RESOURCE_NOT_FOUND
            words = f"Attempt to describe a user credential that does not exist: {name}"
        results.append(
            Described(
                user=name,
                error_code=code,
                error_message="" if words is None else shortened(words),
                credential_infos=[] if code else infos[name],
            )
        )
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0, error_code=Error.NONE, error_message="", results=results
    )


def alter_passwords(request: AlterUserScramCredentialsRequest, context: Context) -> AlterUserScramCredentialsResponse:
    """Set and remove passwords."""
    records, response = alter_credentials(context.node.image, request)
    if records:
        context.node.change(records)
    return response
