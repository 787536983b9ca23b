"""Leave a group at once, so that the others need not wait for the session timeout.

Consumers send it when they close, admin tools to remove members. Static members usually stay silent instead.
v3: many members, also by instance id (KIP-345), v4: flexible, v5: a reason (KIP-800).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, Array, Int16, Int32, String, since


class LeaveGroupRequest(Request, api=13, versions="0-5", flexible="4+"):
    """Name the members that go: one until v2, a list from v3 on."""

    group_id: String
    members: Array[MemberIdentity] = since("3+", default=EMPTY)
    member_id: String = since("0-2", default="")

    class MemberIdentity(Struct):
        member_id: String  # may be empty if group_instance_id is given
        group_instance_id: String | None = None  # null: not a static member
        reason: String | None = since("5+", default=None)  # for the coordinator's log


class LeaveGroupResponse(Response, api=13, versions="0-5", flexible="4+"):
    """Say who is out."""

    throttle_time_ms: Int32 = since("1+", default=0)  # how long the quota of the client makes it wait, 0: not at all
    error_code: Int16  # of the request as a whole; until v2 of the one member: 25 if it is not known
    members: Array[MemberResponse] = since("3+", default=EMPTY)

    class MemberResponse(Struct):
        member_id: String
        group_instance_id: String | None  # as in the request; null: not a static member
        error_code: Int16  # 25: no such member, 82: the instance id belongs to another member id by now
