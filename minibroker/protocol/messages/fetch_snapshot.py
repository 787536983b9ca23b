"""Copies a snapshot of the metadata log, piece by piece (KIP-630).

Sent by controllers and brokers to the quorum's leader, after a Fetch answer told them that the leader has no longer the
records they lack, but a snapshot in their place. v1: directory ids and leader addresses (KIP-853).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import (
    DEFAULTS,
    EMPTY,
    NO_ID,
    Array,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    UInt16,
    Uuid,
    since,
)


class FetchSnapshotRequest(Request, api=59, versions="0-1", flexible="0+"):
    """Ask for the bytes of a snapshot from a position on."""

    # null: do not check; another cluster's id is answered with INCONSISTENT_CLUSTER_ID (104)
    cluster_id: String | None = since("0+", default=None, tag=0)
    replica_id: Int32 = -1  # node id of the sender; -1: none
    max_bytes: Int32 = 0x7FFFFFFF  # limit for the pieces of all partitions together
    topics: Array[TopicSnapshot]

    class TopicSnapshot(Struct):
        name: String  # __cluster_metadata is the only one so far
        partitions: Array[PartitionSnapshot]

        class PartitionSnapshot(Struct):
            partition: Int32  # always 0
            current_leader_epoch: Int32  # epoch the sender believes in: older than the leader's: 74, newer: 75
            snapshot_id: SnapshotId  # as named by the Fetch answer
            position: Int64  # byte of the snapshot file to go on from; 0 at first
            # log directory of the sender; all zero: not given
            replica_directory_id: Uuid = since("1+", default=NO_ID, tag=0)

            class SnapshotId(Struct):
                end_offset: Int64  # the snapshot stands for all records below this offset
                epoch: Int32  # leader epoch of the last record it stands for


class FetchSnapshotResponse(Response, api=59, versions="0-1", flexible="0+"):
    """A piece of the snapshot file."""

    throttle_time_ms: Int32  # milliseconds a quota makes the client wait; 0: none
    error_code: Int16  # failure of the whole request, such as 104: other cluster; 0: look at the partition
    topics: Array[TopicSnapshot]
    # addresses of the leaders named above, on the listener this request came in by
    node_endpoints: Array[NodeEndpoint] = since("1+", default=EMPTY, tag=0)

    class TopicSnapshot(Struct):
        name: String
        partitions: Array[PartitionSnapshot]

        class PartitionSnapshot(Struct):
            index: Int32
            error_code: Int16  # 98: snapshot gone, fetch again to learn of a newer one; 99: position beyond its end
            snapshot_id: SnapshotId
            # sent when the sender asked the wrong node or believed in another epoch
            current_leader: LeaderIdAndEpoch = since("0+", default=DEFAULTS, tag=0)
            size: Int64  # bytes of the whole snapshot: the copy is complete when it has that many
            position: Int64  # byte of the snapshot file this piece starts at
            # a cut of the file at any byte: batches may begin in one piece and end in the next
            unaligned_records: Records

            class SnapshotId(Struct):
                end_offset: Int64  # the snapshot stands for all records below this offset
                epoch: Int32  # leader epoch of the last record it stands for

            class LeaderIdAndEpoch(Struct):
                leader_id: Int32  # -1: the answering node knows no leader
                leader_epoch: Int32  # largest epoch the answering node knows

    class NodeEndpoint(Struct):
        node_id: Int32
        host: String
        port: UInt16
