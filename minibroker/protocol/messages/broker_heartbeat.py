"""Tell the controller that a broker is alive (KIP-631).

Every KRaft broker sends it to the active controller about every two seconds. Without it the controller fences the
broker: it leads nothing and clients do not see it. v1: failed disks (KIP-858), v2: cordoned disks (KIP-1066).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.types import EMPTY, Array, Bool, Int16, Int32, Int64, Uuid, since


class BrokerHeartbeatRequest(Request, api=63, versions="0-2", flexible="0+"):
    """Report how far a broker has come and what it would like to do next."""

    broker_id: Int32
    # given by the controller at registration; -1: not known. An older one than the latest gets error 77
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64  # the last offset of the metadata log that the broker has applied
    want_fence: Bool  # true while starting: the broker is not ready for clients
    want_shut_down: Bool  # true: please move the leaders away, then let me stop (controlled shutdown)
    # ids of directories that have failed; the controller elects other leaders for their replicas
    offline_log_dirs: Array[Uuid] = since("1+", default=EMPTY, tag=0)
    # ids of directories that are to get no new partitions
    cordoned_log_dirs: Array[Uuid] | None = since("2+", default=None, tag=1)


class BrokerHeartbeatResponse(Response, api=63, versions="0-2", flexible="0+"):
    """Tell the broker what the controller makes of it."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    error_code: Int16  # 77: the registration that the epoch stands for is outdated or gone
    is_caught_up: Bool = False  # the broker's metadata is close enough to the end of the log to be unfenced
    is_fenced: Bool = True  # true: it leads no partition and is not shown to clients
    should_shut_down: Bool  # true: its leaders have moved, the broker may stop now
