"""Ask which broker looks after a group, a transactional id or a share group.

A client sends it to any broker, first of all and again after NOT_COORDINATOR (16).
v1: transactions, v3: flexible, v4: many keys at once (KIP-699), v5: may answer error 120 (KIP-890), v6: share groups
(KIP-932).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, Array, Int8, Int16, Int32, String, since


class FindCoordinatorRequest(Request, api=10, versions="0-6", flexible="3+"):
    """Name what to look up."""

    key: String = since("0-3", default="")  # group id, or transactional id
    # 0: group, 1: transaction, 2: share group (v6, between brokers); holds for all keys
    key_type: Int8 = since("1+", default=0)
    # group ids, transactional ids, or group:topic id:partition for share groups
    coordinator_keys: Array[String] = since("4+", default=EMPTY)


class FindCoordinatorResponse(Response, api=10, versions="0-6", flexible="3+"):
    """Give the broker to talk to; until v3 one, from v4 on one for each key."""

    throttle_time_ms: Int32 = since("1+", default=0)  # how long the quota of the client makes it wait, 0: not at all
    coordinators: Array[Coordinator] = since("4+", default=EMPTY)
    error_code: Int16 = since("0-3", default=0)  # 15: none at the moment, try again
    error_message: String | None = since("1-3", default="")  # for people to read; null: no error
    node_id: Int32 = since("0-3", default=0)  # -1 with an error
    host: String = since("0-3", default="")  # empty with an error
    port: Int32 = since("0-3", default=0)  # -1 with an error

    class Coordinator(Struct):
        key: String
        node_id: Int32  # -1 with an error
        host: String  # empty with an error
        port: Int32  # -1 with an error
        error_code: Int16  # 15: none at the moment, try again
        error_message: String | None  # for people to read; null: no error
