"""Describe share groups: state, members, assignments (KIP-932). Admin tools send it to the groups' coordinator.

v0: early access of 4.0, v1: first stable one.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bool, Int16, Int32, String, Uuid


class ShareGroupDescribeRequest(Request, api=77, versions="0-1", flexible="0+", never_stable="0"):
    """Name the groups to describe."""

    group_ids: Array[String]
    include_authorized_operations: Bool


class ShareGroupDescribeResponse(Response, api=77, versions="0-1", flexible="0+"):
    """Give state and members of each group."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    groups: Array[DescribedGroup]

    class DescribedGroup(Struct):
        error_code: Int16  # 69: no such group, or not a share group
        error_message: String | None = None  # for people to read; null: no error
        group_id: String
        group_state: String  # Empty, Stable or Dead
        group_epoch: Int32  # grows when members, subscriptions or topics change
        assignment_epoch: Int32  # group epoch that the assignment was made for
        assignor_name: String  # what spreads the partitions, such as simple
        members: Array[Member]
        # bit n is set if the caller may do ACL operation n; -2147483648: not asked for
        authorized_operations: Int32 = -2147483648

        class Member(Struct):
            member_id: String
            rack_id: String | None = None  # null: not given
            member_epoch: Int32  # group epoch up to which the member has followed
            client_id: String
            client_host: String  # address it is connected from
            subscribed_topic_names: Array[String]
            assignment: Assignment

            class Assignment(Struct):
                """Partitions the member reads, perhaps together with others."""

                topic_partitions: Array[TopicPartitions]

                class TopicPartitions(Struct):
                    topic_id: Uuid
                    topic_name: String
                    partitions: Array[Int32]
