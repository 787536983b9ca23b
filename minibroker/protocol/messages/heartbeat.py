"""Heartbeat: a member of a classic group tells the coordinator that it is alive.

Sent every heartbeat.interval.ms; a member silent for session.timeout.ms is dropped. The answer is also how members
learn that a rebalance has begun. v3: static members (KIP-345), v4: flexible.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.types import Int16, Int32, String, since


class HeartbeatRequest(Request, api=12, versions="0-4", flexible="4+"):
    """Show that one member of one generation is alive."""

    group_id: String
    generation_id: Int32  # from JoinGroup; an old one gives ILLEGAL_GENERATION (22)
    member_id: String  # from JoinGroup; unknown to the coordinator: UNKNOWN_MEMBER_ID (25), join again with an empty id
    # null: dynamic member; replaced by another member with this id: FENCED_INSTANCE_ID (82)
    group_instance_id: String | None = since("3+", default=None)


class HeartbeatResponse(Response, api=12, versions="0-4", flexible="4+"):
    """Tell the member to go on, to rejoin or to start over."""

    # how long a quota makes the client wait before its next request; 0: not at all
    throttle_time_ms: Int32 = since("1+", default=0)
    error_code: Int16  # REBALANCE_IN_PROGRESS (27): join again with the same member id
