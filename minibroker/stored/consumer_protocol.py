"""What consumers tell each other through JoinGroup and SyncGroup, unread by the broker in between.

An int16 version stands in front of the fields. A reader that meets a newer version reads what it knows and ignores
the rest, so fields are only ever appended. Other protocol types, such as Kafka Connect's, put their own bytes here.
"""

from __future__ import annotations

from minibroker.schema.message import Message, Struct
from minibroker.schema.types import EMPTY, Array, Bytes, Int32, String, since


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """What a member wants: its metadata in JoinGroup, read by the leader of the group.

    v1: partitions still held (KIP-429), v2: their generation (KIP-792), v3: rack (KIP-881).
    """

    topics: Array[String]
    # for the assignor only; the older sticky assignor keeps the previous assignment here; null: nothing
    user_data: Bytes | None = None
    # still held while joining: cooperative assignors take away only what must move
    owned_partitions: Array[TopicPartition] = since("1+", default=EMPTY)
    # in which owned_partitions were assigned; -1: none; if two members claim one partition, the later wins
    generation_id: Int32 = since("2+", default=-1)
    # client.rack, to place readers near replicas; null: not configured
    rack_id: String | None = since("3+", default=None)

    class TopicPartition(Struct):
        topic: String
        partitions: Array[Int32]


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """What a member gets: the leader's decision in SyncGroup, passed on by the coordinator.

    Every version has the same fields: its number only keeps step with that of the subscription.
    """

    assigned_partitions: Array[TopicPartition]  # all the member may read from now on, not only what is new
    user_data: Bytes | None = None  # for the assignor only; null: nothing

    class TopicPartition(Struct):
        topic: String
        partitions: Array[Int32]
