"""Which segments have been moved to remote storage (tiered storage, KIP-405): records of __remote_log_metadata.

The leader of a partition writes them before and after each copy and deletion; brokers that hold the partition read them
to find old data. The frame is that of metadata records, with type numbers of their own.
"""

from __future__ import annotations

from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bool, Bytes, Int8, Int32, Int64, String, Uuid, since
from minibroker.stored.kinds import MetadataRecord


class RemoteLogSegmentMetadataRecord(MetadataRecord, type=0, versions="0", flexible="0+"):
    """A segment is being copied to remote storage: the first record about it."""

    remote_log_segment_id: RemoteLogSegmentIdEntry  # random for each attempt to copy, so a retry is another segment
    start_offset: Int64  # first offset of the segment
    end_offset: Int64  # last offset, inclusive
    broker_id: Int32  # broker that wrote this event
    max_timestamp_ms: Int64  # largest timestamp of a record in the segment: lookup by time and retention use it
    event_timestamp_ms: Int64  # when this event happened, ms since 1970
    # where leader epochs begin within the segment, so that a divergent copy is not read
    segment_leader_epochs: Array[SegmentLeaderEpochEntry]
    segment_size_in_bytes: Int32
    custom_metadata: Bytes | None = None  # kept for the storage plugin, which alone reads it (KIP-917); null: none
    remote_log_segment_state: Int8  # 0: copy started, 1: copied, readable, 2: deletion started, 3: deleted
    # true: there were no aborted transactions, so no index to fetch
    txn_index_empty: Bool = since("0+", default=False, tag=0)

    class RemoteLogSegmentIdEntry(Struct):
        topic_id_partition: TopicIdPartitionEntry
        id: Uuid  # of the copy

        class TopicIdPartitionEntry(Struct):
            name: String  # topic name
            id: Uuid  # topic id
            partition: Int32

    class SegmentLeaderEpochEntry(Struct):
        leader_epoch: Int32
        offset: Int64  # first offset of the epoch within the segment


class RemoteLogSegmentMetadataSnapshotRecord(MetadataRecord, type=3, versions="0", flexible="0+"):
    """One segment as a local summary of these records keeps it, without the topic and partition that all share."""

    segment_id: Uuid  # of the copy in remote storage
    start_offset: Int64  # first offset of the segment
    end_offset: Int64  # last offset, inclusive
    broker_id: Int32  # broker that wrote this event
    max_timestamp_ms: Int64  # largest timestamp of a record in the segment: lookup by time and retention use it
    event_timestamp_ms: Int64  # when this event happened, ms since 1970
    # where leader epochs begin within the segment, so that a divergent copy is not read
    segment_leader_epochs: Array[SegmentLeaderEpochEntry]
    segment_size_in_bytes: Int32
    custom_metadata: Bytes | None = None  # kept for the storage plugin, which alone reads it (KIP-917); null: none
    remote_log_segment_state: Int8  # 0: copy started, 1: copied, readable, 2: deletion started, 3: deleted
    # true: there were no aborted transactions, so no index to fetch
    txn_index_empty: Bool = since("0+", default=False, tag=0)

    class SegmentLeaderEpochEntry(Struct):
        leader_epoch: Int32
        offset: Int64  # first offset of the epoch within the segment


class RemoteLogSegmentMetadataUpdateRecord(MetadataRecord, type=1, versions="0", flexible="0+"):
    """A segment has come to its next state: copied, or on the way to be deleted."""

    remote_log_segment_id: RemoteLogSegmentIdEntry  # names the segment of an earlier RemoteLogSegmentMetadataRecord
    broker_id: Int32  # broker that wrote this event
    event_timestamp_ms: Int64  # when this event happened, ms since 1970
    custom_metadata: Bytes | None = None  # kept for the storage plugin, which alone reads it (KIP-917); null: none
    remote_log_segment_state: Int8  # 0: copy started, 1: copied, readable, 2: deletion started, 3: deleted

    class RemoteLogSegmentIdEntry(Struct):
        topic_id_partition: TopicIdPartitionEntry
        id: Uuid  # of the copy

        class TopicIdPartitionEntry(Struct):
            name: String  # topic name
            id: Uuid  # topic id
            partition: Int32


class RemotePartitionDeleteMetadataRecord(MetadataRecord, type=2, versions="0", flexible="0+"):
    """A partition was deleted, so its remote segments must go."""

    topic_id_partition: TopicIdPartitionEntry
    broker_id: Int32  # broker that wrote this event
    event_timestamp_ms: Int64  # when this event happened, ms since 1970
    remote_partition_delete_state: Int8  # 0: marked for deletion, 1: deletion started, 2: deleted

    class TopicIdPartitionEntry(Struct):
        name: String  # topic name
        id: Uuid  # topic id
        partition: Int32
