"""UnregisterController: remove the registration of a KRaft controller that is gone for good (KIP-1312).

Sent by admin tools to a broker or controller since Kafka 4.4; the active controller handles it. A registration that
stays behind would hold up feature upgrades.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.types import Int16, Int32, String


class UnregisterControllerRequest(Request, api=94, versions="0", flexible="0+"):
    """Name the controller to forget."""

    controller_id: Int32


class UnregisterControllerResponse(Response, api=94, versions="0", flexible="0+"):
    """Say whether the registration was removed."""

    throttle_time_ms: Int32  # how long a quota makes the client wait before its next request; 0: not at all
    error_code: Int16  # CONTROLLER_ID_NOT_REGISTERED (136): no controller with this id is known
    error_message: String | None  # null: no error or no text
