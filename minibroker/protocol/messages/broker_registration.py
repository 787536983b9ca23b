"""Enter a broker into a KRaft cluster (KIP-631).

A broker sends it to the active controller when it starts, then begins with BrokerHeartbeat; it is fenced until it has
caught up. v1: migration from ZooKeeper (KIP-866), v2: disks (KIP-858), v3: previous epoch (KIP-966), v4: features that
start at 0.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, Array, Bool, Int16, Int32, Int64, String, UInt16, Uuid, since


class BrokerRegistrationRequest(Request, api=62, versions="0-4", flexible="0+"):
    """Introduce one broker: its addresses, features and disks."""

    broker_id: Int32
    cluster_id: String  # must be the controller's own (else error 104)
    incarnation_id: Uuid  # new for every start; error 101 if another live process has this broker id
    listeners: Array[Listener]
    features: Array[Feature]  # until v3 without features whose minimum is 0
    rack: String | None  # null: no rack configured
    is_migrating_zk_broker: Bool = since("1+", default=False)  # true: a ZooKeeper broker that takes part in a migration
    log_dirs: Array[Uuid] = since("2+", default=EMPTY)  # ids of the directories that work
    # epoch before a clean stop; -1: it crashed, so its replicas may have lost data
    previous_broker_epoch: Int64 = since("3+", default=-1)

    class Listener(Struct):
        name: String  # listener name, such as PLAINTEXT or INTERNAL
        host: String
        port: UInt16
        security_protocol: Int16  # 0: PLAINTEXT, 1: SSL, 2: SASL_PLAINTEXT, 3: SASL_SSL

    class Feature(Struct):
        name: String  # such as metadata.version
        min_supported_version: Int16
        max_supported_version: Int16  # inclusive


class BrokerRegistrationResponse(Response, api=62, versions="0-4", flexible="0+"):
    """Give the broker the epoch that all its later requests must carry."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    error_code: Int16  # 101: this id is in use, 104: other cluster, 35: a finalized feature is not supported
    broker_epoch: Int64 = -1  # tells this life of the broker from earlier ones; -1 with an error
