"""Carry a client's request from a broker to the controller (KIP-590).

A KRaft broker wraps what only the controller can do, such as CreateTopics, and tells for whom it asks.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.types import Bytes, Int16


class EnvelopeRequest(Request, api=58, versions="0", flexible="0+"):
    """Wrap one request, with the identity of the client that sent it."""

    request_data: Bytes  # header and body of the client's request, as they came, without the length in front
    # who the client is, serialised by the broker's principal builder; the controller checks its rights
    request_principal: Bytes | None
    client_host_address: Bytes  # IP address of the client: 4 or 16 bytes


class EnvelopeResponse(Response, api=58, versions="0", flexible="0+"):
    """Wrap the controller's answer, which the broker hands to its client."""

    response_data: Bytes | None = None  # header and body of the answer; null with an error of the envelope itself
    error_code: Int16  # of the envelope, not of the request in it: 41 not the controller, 97 identity not readable
