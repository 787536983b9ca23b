"""Membership of share groups (KIP-932): records of __consumer_offsets.

The group coordinator writes them as it does for consumer groups, and reads them back when it becomes leader of the
partition. Several members may share a partition, so nothing is revoked before it is given to others. Which records have
been delivered and acknowledged is not here but in __share_group_state.
"""

from __future__ import annotations

from minibroker.schema.message import Message, Struct
from minibroker.schema.types import Array, Int8, Int32, Int64, String, Uuid, since
from minibroker.stored.kinds import CoordinatorKey, CoordinatorValue


class ShareGroupCurrentMemberAssignmentKey(CoordinatorKey, type=14, versions="0"):
    """Names a member: what it holds at present."""

    group_id: String
    member_id: String


class ShareGroupCurrentMemberAssignmentValue(CoordinatorValue, type=14, versions="0", flexible="0+"):
    """What a member may fetch at present."""

    member_epoch: Int32  # epoch the member has reached; its heartbeats must carry it
    previous_member_epoch: Int32  # accepted too, in case the answer that raised the epoch was lost
    state: Int8  # 0: stable; members of a share group have nothing to revoke, so no other state is needed
    assigned_partitions: Array[TopicPartitions]

    class TopicPartitions(Struct):
        topic_id: Uuid
        partitions: Array[Int32]


class ShareGroupMemberMetadataKey(CoordinatorKey, type=10, versions="0"):
    """Names a member: what it told about itself."""

    group_id: String
    member_id: String


class ShareGroupMemberMetadataValue(CoordinatorValue, type=10, versions="0", flexible="0+"):
    """What a member told about itself in its heartbeats."""

    rack_id: String | None  # client.rack; null: not configured
    client_id: String
    client_host: String  # address the requests come from
    subscribed_topic_names: Array[String]


class ShareGroupMetadataKey(CoordinatorKey, type=11, versions="0"):
    """Names a group: its epoch. Without a value the group is deleted."""

    group_id: String


class ShareGroupMetadataValue(CoordinatorValue, type=11, versions="0", flexible="0+"):
    """The group epoch; this record is what makes a group a share group."""

    epoch: Int32  # rises when members, subscriptions or the subscribed topics change; then a new target is computed
    metadata_hash: Int64  # over the subscribed topics and their partitions; another value raises the epoch (KIP-1101)


class ShareGroupPartitionMetadataKey(Message, versions="9"):
    """Names a group: the topics it had in view. Written by 3.9 and 4.0 only."""

    group_id: String


class ShareGroupPartitionMetadataValue(Message, versions="0", flexible="0+"):
    """Topics as the group last saw them; metadata_hash took its place in 4.1 (KIP-1101)."""

    topics: Array[TopicMetadata]

    class TopicMetadata(Struct):
        topic_id: Uuid
        topic_name: String
        num_partitions: Int32
        partition_metadata: Array[PartitionMetadata]  # empty when no racks are known

        class PartitionMetadata(Struct):
            partition: Int32
            racks: Array[String]  # where the replicas are


class ShareGroupStatePartitionMetadataKey(CoordinatorKey, type=15, versions="0"):
    """Names a group: for which partitions delivery state exists."""

    group_id: String


class ShareGroupStatePartitionMetadataValue(CoordinatorValue, type=15, versions="0", flexible="0+"):
    """For which partitions the share coordinator keeps, gets or loses delivery state."""

    # the share coordinator has been asked to begin; members do not get these yet
    initializing_topics: Array[TopicPartitionsInfo]
    initialized_topics: Array[TopicPartitionsInfo]  # state exists, partitions may be assigned
    deleting_topics: Array[TopicInfo]  # the share coordinator has been asked to drop the state

    class TopicInfo(Struct):
        topic_id: Uuid
        topic_name: String

    class TopicPartitionsInfo(Struct):
        topic_id: Uuid
        topic_name: String
        partitions: Array[Int32]


class ShareGroupTargetAssignmentMemberKey(CoordinatorKey, type=13, versions="0"):
    """Names a member: what it shall hold."""

    group_id: String
    member_id: String


class ShareGroupTargetAssignmentMemberValue(CoordinatorValue, type=13, versions="0", flexible="0+"):
    """What a member shall hold; the same partition may stand with several members."""

    topic_partitions: Array[TopicPartition]

    class TopicPartition(Struct):
        topic_id: Uuid
        partitions: Array[Int32]


class ShareGroupTargetAssignmentMetadataKey(CoordinatorKey, type=12, versions="0"):
    """Names a group: the epoch of its target assignment."""

    group_id: String


class ShareGroupTargetAssignmentMetadataValue(CoordinatorValue, type=12, versions="0", flexible="0+"):
    """Which group epoch the target assignment was computed for."""

    assignment_epoch: Int32  # below the group epoch: a newer assignment is due
    # when the computation ended, ms since 1970; 0: not known (KIP-1263)
    assignment_timestamp: Int64 = since("0+", default=0, tag=0)
