"""ConsumerGroupDescribe: details of groups that use the consumer protocol (KIP-848).

Admin tools send it to the group's coordinator. A classic group answers GROUP_ID_NOT_FOUND: ask DescribeGroups.
v1: member type, to tell members that still speak the classic protocol (KIP-1099).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bool, Int8, Int16, Int32, String, Uuid, since


class ConsumerGroupDescribeRequest(Request, api=69, versions="0-1", flexible="0+"):
    """Name the groups to describe."""

    group_ids: Array[String]
    include_authorized_operations: Bool  # true: fill authorized_operations in the answer


class ConsumerGroupDescribeResponse(Response, api=69, versions="0-1", flexible="0+"):
    """One description or error per group."""

    throttle_time_ms: Int32  # how long a quota makes the client wait before its next request; 0: not at all
    groups: Array[DescribedGroup]

    class DescribedGroup(Struct):
        error_code: Int16  # GROUP_ID_NOT_FOUND (69): no such group, or one of another type
        error_message: String | None = None  # null: no error or no text
        group_id: String
        group_state: String  # Empty, Assigning, Reconciling, Stable or Dead
        group_epoch: Int32  # rises whenever members, subscriptions or topics change what a fair assignment would be
        # group epoch for which the target assignment was computed; behind group_epoch: Assigning
        assignment_epoch: Int32
        assignor_name: String  # server-side assignor in use, for example "uniform" or "range"
        members: Array[Member]
        # bit n set: AclOperation n is allowed; -2147483648: was not asked for
        authorized_operations: Int32 = -2147483648

        class Member(Struct):
            member_id: String
            instance_id: String | None = None  # group.instance.id of a static member; null: dynamic member
            rack_id: String | None = None  # null: the member gave none
            # epoch of the assignment the member has reached; equals assignment_epoch when it is done
            member_epoch: Int32
            client_id: String
            client_host: String  # address the coordinator sees
            subscribed_topic_names: Array[String]
            subscribed_topic_regex: String | None = None  # evaluated by the broker (RE2J); null: none
            assignment: Assignment  # what the member has now
            target_assignment: Assignment  # what it shall have; differs from assignment while partitions change hands
            member_type: Int8 = since("1+", default=-1)  # -1: unknown, 0: classic protocol, 1: consumer protocol


class Assignment(Struct):
    topic_partitions: Array[TopicPartitions]

    class TopicPartitions(Struct):
        topic_id: Uuid
        topic_name: String
        partitions: Array[Int32]  # partition indexes
