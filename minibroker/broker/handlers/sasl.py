"""What belongs to a login and comes when it is over, or where none is asked for (before: broker/authenticating.py)."""

from __future__ import annotations

from minibroker.broker.dispatch import Context
from minibroker.errors import Error
from minibroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from minibroker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

TOO_LATE = "SaslAuthenticate request received after successful authentication"


def refuse_handshake(request: SaslHandshakeRequest, context: Context) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=Error.ILLEGAL_SASL_STATE, mechanisms=[])


def refuse_token(request: SaslAuthenticateRequest, context: Context) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=Error.ILLEGAL_SASL_STATE, error_message=TOO_LATE, auth_bytes=b"")
