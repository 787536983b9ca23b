"""The one request of the newer consumer group protocol (KIP-848): join, stay, change the subscription, leave.

Every member sends it to the group coordinator at the pace the coordinator asks for. The coordinator computes the
assignment itself and moves members to it step by step, without stopping the whole group. To keep heartbeats small, both
sides leave out (null, -1) what has not changed since their last message.
v1: the member makes its own id, and may subscribe by regular expression.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int16, Int32, String, Uuid, since


class ConsumerGroupHeartbeatRequest(Request, api=68, versions="0-1", flexible="0+"):
    """Report what a member owns and wants."""

    group_id: String
    # a UUID that the member makes for itself; in v0 empty when joining, and the coordinator makes one
    member_id: String
    # 0: join, -1: leave, -2: static member leaves but will be back, else the epoch from the last answer
    member_epoch: Int32
    # name of a static member (group.instance.id), which survives restarts; null: not static, or unchanged
    instance_id: String | None = None
    # where the member runs (client.rack), for assignors that care; null: not given, or unchanged
    rack_id: String | None = None
    # how long the member may take to give up partitions before it is thrown out; -1: unchanged
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: Array[String] | None = None  # null: unchanged since the last heartbeat
    # RE2 syntax, evaluated by the broker; null: unchanged, "": no pattern any more
    subscribed_topic_regex: String | None = since("1+", default=None)
    server_assignor: String | None = None  # uniform or range; null: the coordinator chooses, or unchanged
    # what the member owns now; empty when joining; null: unchanged
    topic_partitions: Array[TopicPartitions] | None = None

    class TopicPartitions(Struct):
        topic_id: Uuid
        partitions: Array[Int32]  # partition indexes


class ConsumerGroupHeartbeatResponse(Response, api=68, versions="0-1", flexible="0+"):
    """The member's epoch and, when it has changed, its assignment."""

    throttle_time_ms: Int32  # milliseconds a quota makes the client wait; 0: none
    error_code: Int16  # 25 and 110: give up all partitions and join again with epoch 0; 112: unknown assignor
    error_message: String | None = None  # null: no error, or nothing to add to the code
    member_id: String | None = None  # how a v0 member that joined without an id learns the one it was given
    member_epoch: Int32  # to be sent with the next heartbeat; rises when the member has moved to a newer assignment
    heartbeat_interval_ms: Int32  # how long to wait before the next heartbeat; the coordinator decides (default 5000)
    # null: unchanged; otherwise all partitions the member should own now, not a difference
    assignment: Assignment | None = None

    class Assignment(Struct):
        topic_partitions: Array[TopicPartitions]

        class TopicPartitions(Struct):
            topic_id: Uuid
            partitions: Array[Int32]  # partition indexes
