"""Second half of a rebalance in a classic group: who gets which partitions.

Every member sends it to the group coordinator after JoinGroup. The leader of the group adds the assignment it has
computed; the coordinator lets all wait for that, then answers each with its share.
v1: throttle time. v3: static members (KIP-345). v4: flexible. v5: protocol type and name, as a check.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bytes, Int16, Int32, String, since


class SyncGroupRequest(Request, api=14, versions="0-5", flexible="4+"):
    """Hand in the assignments (leader) or just ask for one's own."""

    group_id: String
    generation_id: Int32  # as answered by JoinGroup; an old one is refused with 22
    member_id: String  # as answered by JoinGroup
    # name of a static member (group.instance.id); null: not static
    group_instance_id: String | None = since("3+", default=None)
    # consumer, connect or what the group's clients agreed on; another than the group's: 23; null: no check
    protocol_type: String | None = since("5+", default=None)
    # assignor that JoinGroup named; another than the group's: 23; null: no check
    protocol_name: String | None = since("5+", default=None)
    assignments: Array[SyncGroupRequestAssignment]  # one per member from the leader, empty from everybody else

    class SyncGroupRequestAssignment(Struct):
        member_id: String
        assignment: Bytes  # for consumers: version (int16), then a ConsumerProtocolAssignment; opaque to the broker


class SyncGroupResponse(Response, api=14, versions="0-5", flexible="4+"):
    """The member's assignment."""

    throttle_time_ms: Int32 = since("1+", default=0)  # milliseconds a quota makes the client wait; 0: none
    error_code: Int16  # 22: old generation, 25: unknown member, 27: rebalance again: go back to JoinGroup
    protocol_type: String | None = since("5+", default=None)  # null: error
    protocol_name: String | None = since("5+", default=None)  # assignor the group has agreed on; null: error
    assignment: Bytes  # what the leader wrote for this member, bytes unchanged; empty: nothing, or an error
