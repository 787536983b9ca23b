"""DescribeCluster: cluster id, controller and nodes (KIP-700).

Sent by admin clients, who used Metadata for this before.
v1: controllers can be asked too (KIP-919), v2: fenced brokers on request (KIP-1073).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bool, Int8, Int16, Int32, String, since


class DescribeClusterRequest(Request, api=60, versions="0-2", flexible="0+"):
    """Ask who is in the cluster."""

    include_cluster_authorized_operations: Bool  # true: fill cluster_authorized_operations in the answer
    # 1: list brokers, 2: list controllers (only a controller answers this)
    endpoint_type: Int8 = since("1+", default=1)
    # true: also brokers that are registered but not (or no longer) in service
    include_fenced_brokers: Bool = since("2+", default=False)


class DescribeClusterResponse(Response, api=60, versions="0-2", flexible="0+"):
    """List the nodes of the kind that was asked for."""

    throttle_time_ms: Int32  # how long a quota makes the client wait before its next request; 0: not at all
    error_code: Int16  # MISMATCHED_ENDPOINT_TYPE (114): the other kind of node was asked
    error_message: String | None = None  # null: no error or no text
    endpoint_type: Int8 = since("1+", default=1)  # what the list holds, 1: brokers, 2: controllers
    cluster_id: String
    # -1: unknown; in KRaft a broker names some live broker here, a controller the active controller
    controller_id: Int32 = -1
    brokers: Array[DescribeClusterBroker]  # brokers or controllers, by endpoint_type
    # bit n set: AclOperation n is allowed; -2147483648: was not asked for
    cluster_authorized_operations: Int32 = -2147483648

    class DescribeClusterBroker(Struct):
        broker_id: Int32
        host: String
        port: Int32
        rack: String | None = None  # null: none configured
        is_fenced: Bool = since("2+", default=False)  # true: leads no partitions and serves no clients for now
