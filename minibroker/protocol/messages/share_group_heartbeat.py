"""ShareGroupHeartbeat: join, stay in and leave a share group (KIP-932).

Each member sends it to the group coordinator, which assigns partitions; several members may share one partition,
so nothing is ever revoked first. v0 was early access (Kafka 4.0 and before), v1 is stable from 4.1.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int16, Int32, String, Uuid


class ShareGroupHeartbeatRequest(Request, api=76, versions="0-1", flexible="0+", never_stable="0"):
    """Show that the member is alive, and what it subscribes to if that is new."""

    group_id: String
    member_id: String  # a UUID made by the client, kept until it stops
    member_epoch: Int32  # 0: join, -1: leave, else the epoch of the last answer
    rack_id: String | None = None  # null: none, or unchanged since the last heartbeat
    subscribed_topic_names: Array[String] | None = None  # null: unchanged since the last heartbeat


class ShareGroupHeartbeatResponse(Response, api=76, versions="0-1", flexible="0+"):
    """The member's epoch and, if it is new, its assignment."""

    throttle_time_ms: Int32  # how long a quota makes the client wait before its next request; 0: not at all
    # UNKNOWN_MEMBER_ID (25) or FENCED_MEMBER_EPOCH (110): drop the assignment and join again with epoch 0
    error_code: Int16
    error_message: String | None = None  # null: no error or no text
    member_id: String | None = None  # null: with an error
    member_epoch: Int32  # to be sent in the next heartbeat
    heartbeat_interval_ms: Int32  # when to send the next heartbeat
    assignment: Assignment | None = None  # everything the member may fetch from now on; null: unchanged

    class Assignment(Struct):
        topic_partitions: Array[TopicPartitions]

        class TopicPartitions(Struct):
            topic_id: Uuid
            partitions: Array[Int32]  # partition indexes
