"""Describe groups of the classic protocol: state, members, who has what. Admin tools send it to the coordinator.

v3: permitted operations (KIP-430), v4: instance ids (KIP-345), v5: flexible, v6: error 69 for groups that do not exist.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bool, Bytes, Int16, Int32, String, since


class DescribeGroupsRequest(Request, api=15, versions="0-6", flexible="5+"):
    """Name the groups to describe."""

    groups: Array[String]  # group ids
    include_authorized_operations: Bool = since("3+", default=False)


class DescribeGroupsResponse(Response, api=15, versions="0-6", flexible="5+"):
    """Give state and members of each group."""

    throttle_time_ms: Int32 = since("1+", default=0)  # how long the quota of the client makes it wait, 0: not at all
    groups: Array[DescribedGroup]

    class DescribedGroup(Struct):
        error_code: Int16  # 16: not their coordinator, 69: no such group (v6+)
        error_message: String | None = since("6+", default=None)  # for people to read; null: no error
        group_id: String
        # Empty, PreparingRebalance, CompletingRebalance, Stable or Dead; before v6 also Dead if there is no such group
        group_state: String
        protocol_type: String  # consumer for consumer groups, connect for Kafka Connect; empty: nobody has joined
        # name of the protocol chosen, for consumers the assignor, such as range; empty unless Stable
        protocol_data: String
        members: Array[DescribedGroupMember]
        # bit n is set if the caller may do ACL operation n; -2147483648: not asked for
        authorized_operations: Int32 = since("3+", default=-2147483648)

        class DescribedGroupMember(Struct):
            member_id: String
            group_instance_id: String | None = since("4+", default=None)  # null: not a static member
            client_id: String
            client_host: String  # address it is connected from
            member_metadata: Bytes  # what the member sent in JoinGroup, for consumers the topics; empty unless Stable
            # what the leader gave it in SyncGroup, for consumers its partitions; empty unless Stable
            member_assignment: Bytes
