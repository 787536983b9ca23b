"""SaslHandshake: choose the SASL mechanism of a connection.

The client's first request on a SASL listener, apart from ApiVersions.
v0: the tokens follow as bare length-prefixed bytes, v1: they follow in SaslAuthenticate (KIP-152).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.types import Array, Int16, String


class SaslHandshakeRequest(Request, api=17, versions="0-1"):
    """Name the mechanism that the client wants to use."""

    mechanism: String  # for example PLAIN, SCRAM-SHA-256, GSSAPI or OAUTHBEARER


class SaslHandshakeResponse(Response, api=17, versions="0-1"):
    """Accept it, or list what the broker offers."""

    # UNSUPPORTED_SASL_MECHANISM (33): choose from mechanisms; ILLEGAL_SASL_STATE (34): not a SASL listener
    error_code: Int16
    mechanisms: Array[String]  # what is enabled on this listener
