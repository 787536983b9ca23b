"""Make a controller known to the cluster (KIP-919).

Every KRaft controller sends it to the active one when it starts, so that clients can find all of them and the cluster
knows which features they support.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bool, Int16, Int32, String, UInt16, Uuid


class ControllerRegistrationRequest(Request, api=70, versions="0", flexible="0+"):
    """Introduce one controller: its addresses and features."""

    controller_id: Int32
    incarnation_id: Uuid  # new for every start of the process
    zk_migration_ready: Bool  # true: configured to take over a ZooKeeper cluster (KIP-866)
    listeners: Array[Listener]
    features: Array[Feature]

    class Listener(Struct):
        name: String  # listener name, such as CONTROLLER
        host: String
        port: UInt16
        security_protocol: Int16  # 0: PLAINTEXT, 1: SSL, 2: SASL_PLAINTEXT, 3: SASL_SSL

    class Feature(Struct):
        name: String  # such as metadata.version
        min_supported_version: Int16
        max_supported_version: Int16  # inclusive


class ControllerRegistrationResponse(Response, api=70, versions="0", flexible="0+"):
    """Say whether the controller is registered."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    error_code: Int16  # 0: success
    error_message: String | None  # for people to read; null: no error
