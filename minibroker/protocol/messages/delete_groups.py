"""Deletes groups together with their committed offsets (KIP-229).

Sent by admin clients to the coordinator of the groups; a group must have no members. v2: flexible. v3: adds a message.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int16, Int32, String, since


class DeleteGroupsRequest(Request, api=42, versions="0-3", flexible="2+"):
    """Delete these groups."""

    groups_names: Array[String]  # group ids; all must belong to the coordinator that is asked


class DeleteGroupsResponse(Response, api=42, versions="0-3", flexible="2+"):
    """One result per group."""

    throttle_time_ms: Int32  # milliseconds a quota makes the client wait; 0: none
    results: Array[DeletableGroupResult]

    class DeletableGroupResult(Struct):
        group_id: String
        error_code: Int16  # 16: other coordinator, 68: still has members, 69: no such group
        error_message: String | None = since("3+", default=None)  # null: no error, or nothing to add to the code
