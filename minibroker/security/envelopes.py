"""A client's wish on its way to the controller, with who the client is (KIP-590).

The broker has seen the client prove who it is; the controller takes its word, as it is in the same process.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import Final

from minibroker.protocol.framing import decode_request, encode_request
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.envelope import EnvelopeRequest
from minibroker.security.principal import Principal
from minibroker.stored.principal import DefaultPrincipalData

VERSION: Final = Layout(">h")
FRAME_START: Final = 4  # the length in front of a frame, which is not in an envelope


def seal(request: Request, version: int, principal: Principal) -> EnvelopeRequest:
    data = DefaultPrincipalData(type=principal.type, name=principal.name, token_authenticated=False)
    return EnvelopeRequest(
        request_data=b"".join(encode_request(request, version, 0, None))[FRAME_START:],
        request_principal=VERSION.pack(0) + data.encode(0),
        client_host_address=b"",
    )


def unseal(envelope: EnvelopeRequest) -> tuple[Request, int, Principal]:
    """Return the request, its version and who asks."""
    header, request = decode_request(bytes(envelope.request_data))
    data = DefaultPrincipalData.decode(bytes(envelope.request_principal or b"")[VERSION.size :], 0)
    return request, header.request_api_version, Principal(data.type, data.name)
