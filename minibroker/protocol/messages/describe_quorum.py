"""Show how the metadata quorum of a KRaft cluster is doing (KIP-595).

Admin tools send it to any broker or controller; the quorum's leader answers.
v1: times of the last fetch (KIP-836), v2: directory ids, addresses, error texts (KIP-853).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, NO_ID, Array, Int16, Int32, Int64, String, UInt16, Uuid, since


class DescribeQuorumRequest(Request, api=55, versions="0-2", flexible="0+", elements_max=10_000):
    """Ask about Raft partitions; there is only one, partition 0 of __cluster_metadata."""

    topics: Array[TopicData]

    class TopicData(Struct):
        topic_name: String
        partitions: Array[PartitionData]

        class PartitionData(Struct):
            partition_index: Int32


class DescribeQuorumResponse(Response, api=55, versions="0-2", flexible="0+"):
    """Give the leader's view of voters and observers."""

    error_code: Int16  # 0: success
    error_message: String | None = since("2+", default="")  # for people to read; null: no error
    topics: Array[TopicData]
    nodes: Array[Node] = since("2+", default=EMPTY)  # addresses of the voters

    class TopicData(Struct):
        topic_name: String
        partitions: Array[PartitionData]

        class PartitionData(Struct):
            partition_index: Int32
            error_code: Int16  # 6: not the quorum's leader
            error_message: String | None = since("2+", default="")  # for people to read; null: no error
            leader_id: Int32  # -1: no leader known
            leader_epoch: Int32  # term of the leader; grows with every election
            high_watermark: Int64  # everything below this offset is committed
            current_voters: Array[ReplicaState]  # controllers whose vote counts
            observers: Array[ReplicaState]  # nodes that follow the log without a vote: the brokers

    class Node(Struct):
        node_id: Int32
        listeners: Array[Listener]

        class Listener(Struct):
            name: String  # listener name, such as CONTROLLER
            host: String
            port: UInt16


class ReplicaState(Struct):
    replica_id: Int32
    # which disk of the node holds the log; all zero: not known
    replica_directory_id: Uuid = since("2+", default=NO_ID)
    log_end_offset: Int64  # next offset it will ask for; -1: not known
    # leader's clock, milliseconds; -1: not known, or it is the leader itself
    last_fetch_timestamp: Int64 = since("1+", default=-1)
    # leader's clock, milliseconds, when the replica last had all; -1: not known
    last_caught_up_timestamp: Int64 = since("1+", default=-1)
