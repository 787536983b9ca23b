"""Removes a controller from the voters of the metadata quorum (KIP-853).

Sent by admin clients to the quorum's leader, directly or by way of a broker. Id and directory must both fit, so that a
controller that came back with an empty disk is not mistaken for the one before.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.types import Int16, Int32, String, Uuid


class RemoveRaftVoterRequest(Request, api=81, versions="0", flexible="0+"):
    """Take the vote from one controller."""

    cluster_id: String | None  # null: do not check; another cluster's id is answered with INCONSISTENT_CLUSTER_ID (104)
    voter_id: Int32  # node id of the controller
    voter_directory_id: Uuid  # id of its metadata log directory, from meta.properties


class RemoveRaftVoterResponse(Response, api=81, versions="0", flexible="0+"):
    """Whether the smaller set of voters is in force."""

    throttle_time_ms: Int32  # milliseconds a quota makes the client wait; 0: none
    error_code: Int16  # 6: not the leader, 7: not settled in time, 127: no such voter
    error_message: String | None  # null: no error, or nothing to add to the code
