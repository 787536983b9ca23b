"""Committed offsets and classic groups: records of __consumer_offsets.

The group coordinator writes an offset for OffsetCommit and TxnOffsetCommit (there inside the transaction, valid only
once its marker follows) and a group when a rebalance ends or the last member leaves. It reads them back when it becomes
leader of the partition. The topic is compacted: the newest value of a key counts, a key without a value deletes.
"""

from __future__ import annotations

from minibroker.schema.message import Struct
from minibroker.schema.types import NO_ID, Array, Bytes, Int32, Int64, String, Uuid, since
from minibroker.stored.kinds import CoordinatorKey, CoordinatorValue


class LegacyOffsetCommitKey(CoordinatorKey, type=0, versions="0"):
    """Names a committed offset in the oldest form; only read, never written."""

    group: String
    topic: String
    partition: Int32


class LegacyOffsetCommitValue(CoordinatorValue, type=0, versions="0"):
    """A committed offset in the oldest form."""

    offset: Int64  # next to be read: the last processed plus one
    metadata: String  # text of the application, may be empty
    commit_timestamp: Int64  # ms since 1970


class OffsetCommitKey(CoordinatorKey, type=1, versions="0"):
    """Names a committed offset: group, topic, partition. Without a value the offset is deleted or expired."""

    group: String
    topic: String
    partition: Int32


class OffsetCommitValue(CoordinatorValue, type=1, versions="0-4", flexible="4+"):
    """A committed offset.

    v1: own expiry (now only written for a client that asked for a retention time), v3: leader epoch (KIP-320),
    v4: flexible, can carry the topic id.
    """

    offset: Int64  # next to be read: the last processed plus one
    # of the last record processed: lets a consumer notice that the log was truncated; -1: not told
    leader_epoch: Int32 = since("3+", default=-1)
    metadata: String  # text of the application, may be empty
    # ms since 1970; offsets of a group without members expire by it or by the time it became empty
    commit_timestamp: Int64
    # zero: not known; otherwise an offset of a deleted topic is not taken for its successor's
    topic_id: Uuid = since("4+", default=NO_ID, tag=0)
    expire_timestamp: Int64 = since("1", default=-1)  # ms since 1970; -1: offsets.retention.minutes decides


class GroupMetadataKey(CoordinatorKey, type=2, versions="0"):
    """Names a classic group. Without a value the group is deleted."""

    group: String


class GroupMetadataValue(CoordinatorValue, type=2, versions="0-4", flexible="4+"):
    """A classic group as the last finished rebalance left it.

    v1: rebalance timeout, v2: time of the state, v3: static members (KIP-345), v4: flexible.
    """

    # consumer for consumers, connect for Kafka Connect; empty: only offsets are kept for the group
    protocol_type: String
    generation: Int32  # number of the rebalance; requests of an older one are refused
    protocol: String | None  # assignor that all members support; null: the group is empty
    leader: String | None  # member id of the one that computes the assignment; null: the group is empty
    # when the group came into this state, ms since 1970; -1: not known
    current_state_timestamp: Int64 = since("2+", default=-1)
    members: Array[MemberMetadata]  # empty: every member has left, and from now on offsets may expire

    class MemberMetadata(Struct):
        member_id: String
        # group.instance.id of a static member; null: dynamic
        group_instance_id: String | None = since("3+", default=None)
        client_id: String
        client_host: String  # address the requests come from
        # time to join again in a rebalance, ms; in v0 the session timeout stands for it
        rebalance_timeout: Int32 = since("1+", default=-1)
        session_timeout: Int32  # without a heartbeat for so long the member is removed, ms
        # what the member sent in JoinGroup for the chosen protocol; see ConsumerProtocolSubscription
        subscription: Bytes
        assignment: Bytes  # what the leader decided for it in SyncGroup; see ConsumerProtocolAssignment
