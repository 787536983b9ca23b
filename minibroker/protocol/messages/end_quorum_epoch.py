"""EndQuorumEpoch: a KRaft leader resigns (KIP-595).

The leader sends it to the other voters when it shuts down, so they elect a successor at once and need not wait
for the fetch timeout. v1: flexible, directory ids and endpoints for voter sets that change (KIP-853).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, Array, Int16, Int32, String, UInt16, Uuid, since


class EndQuorumEpochRequest(Request, api=54, versions="0-1", flexible="1+"):
    """Announce that the leader of this epoch steps down, and who should follow it."""

    cluster_id: String | None = None  # null: not checked; another cluster's: INCONSISTENT_CLUSTER_ID (104)
    topics: Array[TopicData]
    # where the resigning leader listens, one entry per listener
    leader_endpoints: Array[LeaderEndpoint] = since("1+", default=EMPTY)

    class TopicData(Struct):
        topic_name: String  # always __cluster_metadata
        partitions: Array[PartitionData]

        class PartitionData(Struct):
            partition_index: Int32  # always 0
            leader_id: Int32  # the leader that resigns
            leader_epoch: Int32  # the epoch that ends
            # voters, most caught up first; the first stands for election at once, the others wait a little longer each
            preferred_candidates: Array[ReplicaInfo] = since("1+", default=EMPTY)
            # voter ids, most caught up first; the first stands for election at once, the others wait longer
            preferred_successors: Array[Int32] = since("0", default=EMPTY)

            class ReplicaInfo(Struct):
                candidate_id: Int32
                candidate_directory_id: Uuid  # tells a voter from a former one with the same id on another disk

    class LeaderEndpoint(Struct):
        name: String  # listener name, for example "CONTROLLER"
        host: String
        port: UInt16


class EndQuorumEpochResponse(Response, api=54, versions="0-1", flexible="1+"):
    """Confirm, or name the newer leader that the voter knows."""

    error_code: Int16  # for the request as a whole
    topics: Array[TopicData]
    node_endpoints: Array[NodeEndpoint] = since("1+", default=EMPTY, tag=0)  # address of the leaders named above

    class TopicData(Struct):
        topic_name: String  # always __cluster_metadata
        partitions: Array[PartitionData]

        class PartitionData(Struct):
            partition_index: Int32  # always 0
            error_code: Int16  # FENCED_LEADER_EPOCH (74): the voter is in a newer epoch already
            leader_id: Int32  # leader the voter knows; -1: none
            leader_epoch: Int32  # latest epoch the voter knows

    class NodeEndpoint(Struct):
        node_id: Int32
        host: String
        port: UInt16
