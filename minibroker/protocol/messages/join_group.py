"""JoinGroup: enter a classic group or take part in its rebalance.

Each member sends it to the group coordinator, which holds the answers until all known members have joined or the
rebalance timeout is over. Then the leader computes assignments and everybody sends SyncGroup.
v1: rebalance timeout (KIP-62), v4: the first try only returns a member id (KIP-394), v5: static members
(KIP-345), v6: flexible, v8: reason (KIP-800), v9: a returning static leader may skip assigning (KIP-814).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bool, Bytes, Int16, Int32, String, since


class JoinGroupRequest(Request, api=11, versions="0-9", flexible="6+"):
    """Offer the protocols (assignors) that the member supports."""

    group_id: String
    session_timeout_ms: Int32  # silence after which the coordinator drops the member
    # how long the coordinator waits for members to rejoin; -1 (v0): the session timeout is used
    rebalance_timeout_ms: Int32 = since("1+", default=-1)
    member_id: String  # "": first join, the coordinator makes an id; else the id it gave
    # group.instance.id of a static member, who may restart without a rebalance; null: dynamic
    group_instance_id: String | None = since("5+", default=None)
    protocol_type: String  # same for all members: "consumer" for consumers, "connect" for Kafka Connect
    # in order of preference; one that every member supports is chosen by vote
    protocols: Array[JoinGroupRequestProtocol]
    # why the member joins, for the broker's log only; null: not given
    reason: String | None = since("8+", default=None)

    class JoinGroupRequestProtocol(Struct):
        name: String  # assignor, for example "range" or "cooperative-sticky"
        metadata: Bytes  # opaque to the broker; consumers: int16 version and their subscription


class JoinGroupResponse(Response, api=11, versions="0-9", flexible="6+"):
    """The new generation; the leader also gets the member list."""

    # how long a quota makes the client wait before its next request; 0: not at all
    throttle_time_ms: Int32 = since("2+", default=0)
    error_code: Int16  # MEMBER_ID_REQUIRED (79, v4+): join again with the member_id of this answer
    # rises by one with each rebalance, goes into Heartbeat, SyncGroup and OffsetCommit; -1 with an error
    generation_id: Int32 = -1
    protocol_type: String | None = since("7+", default=None)  # null with an error
    # the chosen assignor; with an error null, or "" before v7
    protocol_name: String | None = since("0+", nullable="7+")
    leader: String  # member id of the leader; equal to member_id: compute the assignments
    # true: the leader must not compute new assignments, the coordinator keeps the old ones
    skip_assignment: Bool = since("9+", default=False)
    member_id: String  # id of the member that asked, to be used from now on
    members: Array[JoinGroupResponseMember]  # empty except in the leader's answer

    class JoinGroupResponseMember(Struct):
        member_id: String
        # group.instance.id of a static member, who may restart without a rebalance; null: dynamic
        group_instance_id: String | None = since("5+", default=None)
        metadata: Bytes  # what this member sent for the chosen protocol
