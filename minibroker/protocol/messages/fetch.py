"""Fetch: read record batches from partitions; the broker waits until there is enough or time is up.

Consumers read up to the high watermark (or the last stable offset). Followers use the same request to replicate
and read to the log end, KRaft voters and observers to copy the metadata log.
v0-1: batches v0, v2: v1 allowed, v3: max_bytes (KIP-74), v4: batches v2 and isolation level (KIP-98), v5: log
start offsets, v7: fetch sessions (KIP-227), v9: leader epoch check (KIP-320), v10: zstd (KIP-110), v11: rack
(KIP-392), v12: flexible, diverging epochs in the answer (KIP-595), v13: topic ids (KIP-516), v15: replica state
(KIP-903), v16: leader hints (KIP-951), v17: directory id (KIP-853), v18: high watermark (KIP-1166).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import (
    DEFAULTS,
    EMPTY,
    NO_ID,
    Array,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    Uuid,
    since,
)


class FetchRequest(Request, api=1, versions="0-18", flexible="12+", elements_max=20_000):
    """Ask for batches from given offsets, alone or as the next step of a fetch session.

    It names 10,000 partitions at most if each is of another topic.
    """

    # sent by KRaft replicas only; another cluster's: INCONSISTENT_CLUSTER_ID (104); null: not checked
    cluster_id: String | None = since("12+", default=None, tag=0)
    replica_state: ReplicaState = since("15+", default=DEFAULTS, tag=1)  # who fetches; the default means a consumer
    replica_id: Int32 = since("0-14", default=-1)  # -1: a consumer, -2: a debugging tool, >= 0: broker id of a follower
    # how long the broker may hold the request while fewer than min_bytes are there; 0: answer at once
    max_wait_ms: Int32
    min_bytes: Int32  # answer as soon as this much is there; 0: answer at once, 1: with any data at all
    # limit for the whole answer; soft: the first batch comes whole even if it is larger
    max_bytes: Int32 = since("3+", default=0x7FFFFFFF)
    # 0: read_uncommitted (to the high watermark), 1: read_committed (to the last stable offset)
    isolation_level: Int8 = since("4+", default=0)
    session_id: Int32 = since("7+", default=0)  # 0: no session yet; else the id from the broker's answer
    # -1: no session (ends the one named), 0: full request that opens one, then 1, 2, ...: changes only
    session_epoch: Int32 = since("7+", default=-1)
    topics: Array[FetchTopic]  # in a session only partitions that are new or have changed since the last request
    forgotten_topics_data: Array[ForgottenTopic] = since("7+", default=EMPTY)  # partitions to drop from the session
    # rack of the consumer, lets the broker name a nearer replica; "": unknown
    rack_id: String = since("11+", default="")

    class ReplicaState(Struct):
        replica_id: Int32 = -1  # -1: a consumer, >= 0: id of the follower
        # broker epoch of the follower, so a restarted broker is not taken for its former self; -1: none
        replica_epoch: Int64 = -1

    class FetchTopic(Struct):
        topic_id: Uuid = since("13+", default=NO_ID)  # all zero: none; from v13 it replaces the name
        topic: String = since("0-12", default="")
        partitions: Array[FetchPartition]

        class FetchPartition(Struct):
            partition: Int32
            # what the client believes; older: FENCED_LEADER_EPOCH, newer: UNKNOWN_LEADER_EPOCH, -1: not checked
            current_leader_epoch: Int32 = since("9+", default=-1)
            # first offset wanted; the answer may begin before it, with the batch that holds it: skip those records
            fetch_offset: Int64
            # leader epoch of the last record the replica has, to detect diverging logs; -1: unknown
            last_fetched_epoch: Int32 = since("12+", default=-1)
            log_start_offset: Int64 = since("5+", default=-1)  # first offset the follower still has; -1 from consumers
            partition_max_bytes: Int32  # limit for this partition; from v3 soft: one whole batch may exceed it
            # log directory of the KRaft replica that fetches
            replica_directory_id: Uuid = since("17+", default=NO_ID, tag=0)
            # what the KRaft replica knows; news makes the leader answer at once. -1: unknown, largest int64: does not
            # take part
            high_watermark: Int64 = since("18+", default=9223372036854775807, tag=1)

    class ForgottenTopic(Struct):
        topic_id: Uuid = since("13+", default=NO_ID)  # all zero: none; from v13 it replaces the name
        topic: String = since("7-12", default="")
        partitions: Array[Int32]  # partition indexes


class FetchResponse(Response, api=1, versions="0-18", flexible="12+"):
    """Batches, watermarks and errors per partition; in a session only for partitions with news."""

    # how long a quota makes the client wait before its next request; 0: not at all
    throttle_time_ms: Int32 = since("1+", default=0)
    # for the whole answer: FETCH_SESSION_ID_NOT_FOUND (70), INVALID_FETCH_SESSION_EPOCH (71), ...
    error_code: Int16 = since("7+", default=0)
    session_id: Int32 = since("7+", default=0)  # 0: no session; else to be used in the next request
    responses: Array[FetchableTopicResponse]  # in a session partitions without news are left out
    # addresses of the brokers named in current_leader
    node_endpoints: Array[NodeEndpoint] = since("16+", default=EMPTY, tag=0)

    class FetchableTopicResponse(Struct):
        topic_id: Uuid = since("13+", default=NO_ID)  # all zero: none; from v13 it replaces the name
        topic: String = since("0-12", default="")
        partitions: Array[PartitionData]

        class PartitionData(Struct):
            partition_index: Int32
            # OFFSET_OUT_OF_RANGE (1): consumer resets its position; 6, 74, 75: refresh metadata first
            error_code: Int16
            high_watermark: Int64  # offset below which every in-sync replica has every record; -1 with an error
            # offset below which every transaction is decided; -1: unknown
            last_stable_offset: Int64 = since("4+", default=-1)
            log_start_offset: Int64 = since("5+", default=-1)  # first offset that still exists; -1: unknown
            # set instead of data: the replica's log differs from the leader's and must be truncated
            diverging_epoch: EpochEndOffset = since("12+", default=DEFAULTS, tag=0)
            # hint with error 6 or 74: where the client should ask instead
            current_leader: LeaderIdAndEpoch = since("12+", default=DEFAULTS, tag=1)
            # KRaft: the offset is gone from the log, fetch this snapshot first (FetchSnapshot)
            snapshot_id: SnapshotId = since("12+", default=DEFAULTS, tag=2)
            # for read_committed: transactions to filter out; null with read_uncommitted
            aborted_transactions: Array[AbortedTransaction] | None = since("4+", default=EMPTY)
            # broker id to fetch from instead, a nearer one; -1: stay here
            preferred_read_replica: Int32 = since("11+", default=-1)
            # batches one after the other, the last may be cut off by a size limit; null or empty: nothing new
            records: Records | None

            class EpochEndOffset(Struct):
                # largest epoch of the leader's log that is not above last_fetched_epoch; -1: no divergence
                epoch: Int32 = -1
                end_offset: Int64 = -1  # exclusive end of that epoch in the leader's log

            class LeaderIdAndEpoch(Struct):
                leader_id: Int32 = -1  # -1: unknown
                leader_epoch: Int32 = -1  # -1: unknown

            class SnapshotId(Struct):
                end_offset: Int64 = -1  # exclusive end of what the snapshot covers; -1: no snapshot needed
                epoch: Int32 = -1  # epoch of the last record it covers

            class AbortedTransaction(Struct):
                producer_id: Int64
                first_offset: Int64  # drop the producer's transactional records from here to its abort marker

    class NodeEndpoint(Struct):
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = None  # null: none configured
