"""Who a forwarded request comes from: the bytes of request_principal in the Envelope request.

A broker that passes a client's request on to the controller puts them there, behind an int16 version; the controller
authorizes the request as if that client had sent it (KIP-590).
"""

from __future__ import annotations

from minibroker.schema.message import Message
from minibroker.schema.types import Bool, String


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    """An authenticated user, in the form of Kafka's own principal builder."""

    type: String  # normally User
    name: String  # user name; ANONYMOUS without authentication
    token_authenticated: Bool  # true: came with a delegation token, so may not create further ones
