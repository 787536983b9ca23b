"""Fetch records for a member of a share group (KIP-932) and acknowledge earlier ones in passing.

Consumers of share groups send it to partition leaders. The broker keeps a session for each member and locks what it
hands out. v0: early access of 4.0, v1: first stable one, v2: acquire mode (KIP-1206) and renewal of locks (KIP-1222).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bool, Int8, Int16, Int32, Int64, Records, String, Uuid, since


class ShareFetchRequest(Request, api=78, versions="0-2", flexible="0+", never_stable="0", elements_max=10_000):
    """Ask for records, and say what became of those handed out before."""

    group_id: String | None = None
    member_id: String | None
    # 0: open a session, -1: close it and release all locks, otherwise one more than last time
    share_session_epoch: Int32
    max_wait_ms: Int32  # how long the broker may wait for min_bytes
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFFFFFF  # soft limit: a single batch may be larger
    # soft limit: whole batches are handed out, unless share_acquire_mode is 1
    max_records: Int32 = since("1+", default=0)
    # how many records an acquired range should hold if the broker has to split it
    batch_size: Int32 = since("1+", default=0)
    share_acquire_mode: Int8 = since("2+", default=0)  # 0: whole batches, 1: never more than max_records
    is_renew_ack: Bool = since("2+", default=False)  # true: some acknowledgements here only renew a lock (type 4)
    topics: Array[FetchTopic]  # partitions to add to the session, or with acknowledgements
    forgotten_topics_data: Array[ForgottenTopic]  # partitions to drop from the session

    class FetchTopic(Struct):
        topic_id: Uuid
        partitions: Array[FetchPartition]

        class FetchPartition(Struct):
            partition_index: Int32
            partition_max_bytes: Int32 = since("0", default=0)  # 0: only acknowledge, fetch nothing
            acknowledgement_batches: Array[AcknowledgementBatch]

            class AcknowledgementBatch(Struct):
                first_offset: Int64
                last_offset: Int64  # inclusive
                # 0: gap (no such record), 1: accept, 2: release, 3: reject, 4: renew the lock (v2); one for all, or one
                # for each offset
                acknowledge_types: Array[Int8]

    class ForgottenTopic(Struct):
        topic_id: Uuid
        partitions: Array[Int32]  # partition indexes


class ShareFetchResponse(Response, api=78, versions="0-2", flexible="0+"):
    """Hand out records, locked for this member until it acknowledges them or the time is up."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    error_code: Int16  # 122: no such session, 123: wrong session epoch, 133: no room for another session
    error_message: String | None = None  # for people to read; null: no error
    acquisition_lock_timeout_ms: Int32 = since("1+", default=0)  # how long the records stay locked for the member
    responses: Array[ShareFetchableTopicResponse]
    node_endpoints: Array[NodeEndpoint]  # addresses of the brokers named in current_leader

    class ShareFetchableTopicResponse(Struct):
        topic_id: Uuid
        partitions: Array[PartitionData]

        class PartitionData(Struct):
            partition_index: Int32
            error_code: Int16  # of the fetch; 6: not the leader, see current_leader
            error_message: String | None = None  # for people to read; null: no error
            acknowledge_error_code: Int16  # of the acknowledgements; 121: the records were not locked for this member
            acknowledge_error_message: String | None = None  # for people to read; null: no error
            current_leader: LeaderIdAndEpoch  # where to go after error 6
            # whole batches; use only the offsets listed in acquired_records
            records: Records | None = since("0+", nullable="0-0")
            acquired_records: Array[AcquiredRecords]  # what the member may process

            class LeaderIdAndEpoch(Struct):
                leader_id: Int32  # -1: not known
                leader_epoch: Int32

            class AcquiredRecords(Struct):
                first_offset: Int64
                last_offset: Int64  # inclusive
                # 1: handed out for the first time; at the limit (5 unless configured) the broker gives up on a record
                delivery_count: Int16

    class NodeEndpoint(Struct):
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = None  # null: no rack configured
