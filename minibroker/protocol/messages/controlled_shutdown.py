"""Let a broker leave without a gap: the controller first moves its leaders elsewhere.

A broker of a ZooKeeper cluster sends it to the controller when it is told to stop. KRaft uses BrokerHeartbeat instead;
the API ended with 3.9. v0: the only request behind a header without client id, v2: broker epoch, v3: flexible.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int16, Int32, Int64, String, since


class ControlledShutdownRequest(Request, api=7, header_0="0", versions="0-3", flexible="3+"):
    """Ask to take away all leaders from one broker."""

    broker_id: Int32  # the broker that wants to stop
    # tells this life of the broker from earlier ones (ZooKeeper's id of its registration); -1: not checked
    broker_epoch: Int64 = since("2+", default=-1)


class ControlledShutdownResponse(Response, api=7, versions="0-3", flexible="3+"):
    """List what the broker still leads; it tries again until nothing is left or its retries are used up."""

    error_code: Int16  # 0: success
    remaining_partitions: Array[RemainingPartition]  # still led by this broker, since no other replica is in sync

    class RemainingPartition(Struct):
        topic_name: String
        partition_index: Int32
