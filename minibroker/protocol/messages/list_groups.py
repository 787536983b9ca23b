"""ListGroups: the groups that one broker coordinates.

Admin tools ask every broker and put the lists together. v3: flexible, v4: states (KIP-518), v5: types (KIP-848).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, Array, Int16, Int32, String, since


class ListGroupsRequest(Request, api=16, versions="0-5", flexible="3+"):
    """Ask for all groups or only those in some states or of some types."""

    states_filter: Array[String] = since("4+", default=EMPTY)  # names such as Stable or Empty; empty: any state
    types_filter: Array[String] = since("5+", default=EMPTY)  # Classic, Consumer, Share or Streams; empty: any type


class ListGroupsResponse(Response, api=16, versions="0-5", flexible="3+"):
    """The matching groups of this broker."""

    # how long a quota makes the client wait before its next request; 0: not at all
    throttle_time_ms: Int32 = since("1+", default=0)
    error_code: Int16  # COORDINATOR_LOAD_IN_PROGRESS (14): ask again, the list is not complete yet
    groups: Array[ListedGroup]

    class ListedGroup(Struct):
        group_id: String
        protocol_type: String  # "consumer", "share", "connect", ...; "" for a group that only stores offsets
        # for example Empty, PreparingRebalance, CompletingRebalance, Assigning, Reconciling, Stable or Dead
        group_state: String = since("4+", default="")
        group_type: String = since("5+", default="")  # Classic, Consumer, Share or Streams
