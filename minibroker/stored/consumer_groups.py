"""State of consumer groups of the new protocol (KIP-848): records of __consumer_offsets.

The group coordinator writes them when members join, leave, change what they subscribe to or move to a new assignment,
and reads them all back when it becomes leader of the partition. The topic is compacted; a key without a value deletes.

Three numbers chase each other: the group epoch (what members want has changed), the epoch of the target assignment
(computed for that wish) and each member's epoch (how far it has moved towards its target).
"""

from __future__ import annotations

from minibroker.schema.message import Struct
from minibroker.schema.types import DEFAULTS, EMPTY, Array, Bytes, Int8, Int32, Int64, String, Uuid, since
from minibroker.stored.kinds import CoordinatorKey, CoordinatorValue


class ConsumerGroupCurrentMemberAssignmentKey(CoordinatorKey, type=8, versions="0"):
    """Names a member: what it holds at present."""

    group_id: String
    member_id: String


class ConsumerGroupCurrentMemberAssignmentValue(CoordinatorValue, type=8, versions="0", flexible="0+"):
    """What a member holds and how far it is on the way to its target."""

    member_epoch: Int32  # epoch the member has reached; its heartbeats must carry it
    previous_member_epoch: Int32  # accepted too, in case the answer that raised the epoch was lost
    state: Int8  # 0: stable, 1: must still revoke partitions, 2: waits for others to release, 127: unknown
    assigned_partitions: Array[TopicPartitions]  # what the member may read
    partitions_pending_revocation: Array[TopicPartitions]  # what it must give up and confirm before its epoch goes on

    class TopicPartitions(Struct):
        topic_id: Uuid
        partitions: Array[Int32]
        # Beside each partition the epoch at which it was given: a commit with an older member epoch than the
        # present one is still taken if not older than this (KIP-1251). Absent: the member epoch counts.
        assignment_epochs: Array[Int32] | None = since("0+", default=EMPTY, tag=0)


class ConsumerGroupMemberMetadataKey(CoordinatorKey, type=5, versions="0"):
    """Names a member: what it told about itself."""

    group_id: String
    member_id: String


class ConsumerGroupMemberMetadataValue(CoordinatorValue, type=5, versions="0", flexible="0+"):
    """What a member told about itself in its heartbeats."""

    instance_id: String | None  # group.instance.id of a static member; null: dynamic
    rack_id: String | None  # client.rack, for assignors that keep reading near; null: not configured
    client_id: String
    client_host: String  # address the requests come from
    subscribed_topic_names: Array[String]
    subscribed_topic_regex: String | None  # expanded by the broker (RE2 syntax); null or empty: none
    rebalance_timeout_ms: Int32 = -1  # time to give up revoked partitions before the member is removed; -1: not known
    server_assignor: String | None  # uniform or range; null: left to the group
    # null: speaks ConsumerGroupHeartbeat; otherwise joined with JoinGroup during an upgrade
    classic_member_metadata: ClassicMemberMetadata | None = since("0+", default=DEFAULTS, tag=0)

    class ClassicMemberMetadata(Struct):
        """What JoinGroup brought, kept because a later downgrade of the group needs it."""

        session_timeout_ms: Int32
        supported_protocols: Array[ClassicProtocol]  # assignors by preference, best first

        class ClassicProtocol(Struct):
            name: String  # assignor, for example range
            metadata: Bytes  # int16 version, then ConsumerProtocolSubscription


class ConsumerGroupMetadataKey(CoordinatorKey, type=3, versions="0"):
    """Names a group: its epoch. Without a value the group is deleted."""

    group_id: String


class ConsumerGroupMetadataValue(CoordinatorValue, type=3, versions="0", flexible="0+"):
    """The group epoch; this record is what makes a group one of the new protocol."""

    epoch: Int32  # rises when members, subscriptions or the subscribed topics change; then a new target is computed
    # over partitions and racks of the subscribed topics; another value raises the epoch (KIP-1101)
    metadata_hash: Int64 = since("0+", default=0, tag=0)


class ConsumerGroupPartitionMetadataKey(CoordinatorKey, type=4, versions="0"):
    """Names a group: the topics it had in view. Written up to 4.0, since then deleted."""

    group_id: String


class ConsumerGroupPartitionMetadataValue(CoordinatorValue, type=4, versions="0", flexible="0+"):
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


class ConsumerGroupRegularExpressionKey(CoordinatorKey, type=16, versions="0"):
    """Names a regular expression that members of a group subscribe to."""

    group_id: String
    regular_expression: String


class ConsumerGroupRegularExpressionValue(CoordinatorValue, type=16, versions="0", flexible="0+"):
    """The topics that the expression matched when it was last looked up."""

    topics: Array[String]
    version: Int64  # of the cluster metadata that was searched
    timestamp: Int64  # when it was looked up, ms since 1970; looked up again after a while


class ConsumerGroupTargetAssignmentMemberKey(CoordinatorKey, type=7, versions="0"):
    """Names a member: what it shall hold."""

    group_id: String
    member_id: String


class ConsumerGroupTargetAssignmentMemberValue(CoordinatorValue, type=7, versions="0", flexible="0+"):
    """What a member shall hold once everybody has released what must move."""

    topic_partitions: Array[TopicPartition]

    class TopicPartition(Struct):
        topic_id: Uuid
        partitions: Array[Int32]


class ConsumerGroupTargetAssignmentMetadataKey(CoordinatorKey, type=6, versions="0"):
    """Names a group: the epoch of its target assignment."""

    group_id: String


class ConsumerGroupTargetAssignmentMetadataValue(CoordinatorValue, type=6, versions="0", flexible="0+"):
    """Which group epoch the target assignment was computed for."""

    assignment_epoch: Int32  # below the group epoch: a newer assignment is due
    # when the computation ended, ms since 1970; 0: not known (KIP-1263)
    assignment_timestamp: Int64 = since("0+", default=0, tag=0)
